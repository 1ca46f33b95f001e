// What the chat card does in the browser: an estimate of the tokens in the composer, hints from the
// live state, and an announcement of answers a sentence at a time. It sends nothing anywhere.

import { app } from "./app.js";
import { keepSelection, keepSelectionInView } from "./chat_selection.js";
import { estimateTokens, finishedSentences } from "./chat_text.js";
import { showWaits } from "./chat_waits.js";
import { count as withSeparators } from "./formats.js";
import { fill } from "./words.js";

const LOG = "ps-log";
const NEAR_END = 100;
// What would ask something of an engine that is not there, or that the charts do not show.
const ENGINE_BUTTONS = ["ps-send", "ps-add-visitors", "ps-long-prompt"];
const UNATTENDED = new Set(["loading", "measuring", "replay"]);

const find = (id, inner = "") => document.querySelector(`#${id} ${inner}`);

/** Write the composer's token estimate and the output limit into `element`, as they change. */
export function count(element, words, props) {
  const write = () => {
    const [tokens, limit] = element.querySelectorAll("[data-role]");
    const n = estimateTokens(find("ps-message", "textarea")?.value ?? "");
    const sentence = n === 0 ? words.no_tokens : n === 1 ? words.token : words.tokens;
    setText(tokens, fill(sentence, { n: withSeparators(n) }));
    // The settings are not in the document before they are opened.
    const field = find("ps-max-tokens", "input");
    const most = Number(field?.value || props.max_tokens);
    if (most > 0) setText(limit, fill(words.limit, { n: withSeparators(most) }));
  };
  document.addEventListener("input", write);
  // A value that the server set arrives without an input event.
  setInterval(() => !document.hidden && element.isConnected && write(), 500);
  write();
}

/** Keep the card's hint and the composer's state up to date, and read answers out. */
export async function watch(element, words) {
  const hint = element.querySelector(".ps-hint");
  app.add({ element, draw: () => showState(hint, words) });
  const log = await appearing(LOG);
  const area = log.querySelector("[role=log]");
  keepSelectionInView(area);
  keepEndInView(area);
  const announcer = new Announcer(element.querySelector(".ps-said"));
  const restoreSelection = keepSelection(log);
  const markWaits = showWaits(log, element.querySelector(".ps-wait-tip"), words);
  const changed = () => {
    restoreSelection();
    markWaits();
    nameRequests(log);
    tidy(log, words);
    followRunning();
    announcer.follow(log);
  };
  new MutationObserver(changed).observe(log, {
    subtree: true, childList: true, characterData: true, attributes: true,
    attributeFilter: ["aria-label", "aria-live"],
  });
  changed();
}

/** The element with an id, once it is there: components appear in no fixed order. */
async function appearing(id) {
  for (;;) {
    const found = document.getElementById(id);
    if (found) return found;
    await new Promise(requestAnimationFrame);
  }
}

function showState(hint, words) {
  const { state, sum } = app.told;
  if (!state) return;
  const sentence = hintOf(state, sum, words);
  hint.hidden = !sentence;
  setText(hint, sentence);
  const card = hint.closest("#ps-chat");
  if (card) card.dataset.state = state.name;
  const waits = UNATTENDED.has(state.name);
  const box = find("ps-message", "textarea");
  if (box) box.disabled = waits; // what is typed in it stays
  for (const id of ENGINE_BUTTONS) {
    const button = document.getElementById(id);
    if (!button) continue;
    button.disabled = waits;
    button.title = waits ? sentence : "";
  }
  followRunning();
}

function hintOf(state, sum, words) {
  if (state.name === "loading") {
    return fill(words.loading, { text: (state.text || words.loading_model).replace(/\.+$/, "") });
  }
  if (state.name === "measuring") return words.measuring;
  if (state.name === "replay") return app.words.replay[app.live.recording ? "no_engine" : "composer"];
  if (state.name === "queue_full") return words.queue_full;
  if (state.name === "busy" && sum) {
    return fill(sum.run === 1 ? words.busy_one : words.busy, { running: withSeparators(sum.run) });
  }
  return "";
}

/** When the settings open, the conversation gets less room: its end stays in view if it was. */
function keepEndInView(area) {
  let atEnd = true;
  area.addEventListener("scroll", () => {
    atEnd = area.scrollTop + area.clientHeight > area.scrollHeight - NEAR_END;
  });
  new ResizeObserver(() => {
    if (atEnd) area.scrollTop = area.scrollHeight;
  }).observe(area);
}

/** Footers name their request in plain attributes, since the sanitiser drops data-... ones. */
function nameRequests(log) {
  for (const footer of log.querySelectorAll(".ps-foot:not([data-own])")) {
    footer.dataset.epoch = footer.name;
    footer.dataset.request = footer.value;
    footer.dataset.own = footer.value;
  }
}

/** Gradio puts an answer's markup into its label and announces each token: we say it better. */
function tidy(log, words) {
  for (const undo of log.querySelectorAll('button[aria-label="Undo"]')) {
    undo.setAttribute("aria-label", words.edit);
    undo.title = words.edit;
  }
  for (const labelled of log.querySelectorAll("[data-testid][aria-label]")) {
    labelled.removeAttribute("aria-label");
  }
  for (const live of log.querySelectorAll("[role=log][aria-live=polite]")) {
    live.setAttribute("aria-live", "off");
  }
}

/** Stop is of use only while an answer runs. */
function followRunning() {
  const stop = document.getElementById("ps-stop");
  if (stop) stop.disabled = !find(LOG, ".ps-running");
}

/** Puts each finished sentence of a running answer into a polite live region, once. */
class Announcer {
  constructor(region) {
    this.region = region;
    this.request = null;
    this.said = 0;
  }

  follow(log) {
    const footer = [...log.querySelectorAll(".ps-foot")].pop();
    if (!footer) return;
    const running = footer.classList.contains("ps-running");
    if (footer.value !== this.request) {
      this.request = footer.value;
      this.said = running ? 0 : Infinity; // an answer that was here already is not read again
    }
    const text = footer.closest(".message-row")?.querySelector(".md")?.textContent ?? "";
    const upTo = running ? finishedSentences(text) : text.length;
    if (upTo <= this.said) return;
    this.region.textContent = text.slice(this.said, upTo).trim();
    this.said = upTo;
  }
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
