// The words of the page live in ui/words.py; the server hands them over with the panels. This module
// only reads them.

let words = null;

/** Sentences and labels by name. */
export function pageWords() {
  if (!words) {
    const holder = document.querySelector("[data-ps-words]");
    words = JSON.parse(holder.dataset.psWords);
  }
  return words;
}

export const stateWord = (all, state) => all.states[state] ?? "";

export const fill = (sentence, values) =>
  sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
