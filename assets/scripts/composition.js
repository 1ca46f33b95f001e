// What a prompt is made of, as a bar and a list: how much of it the page adds to what was typed. The feed
// does not carry it, so it is asked for once a request that is opened.

import { count } from "./formats.js";

/** Where one request can be had: as "json", or as a "trace" for Perfetto. */
export const requestUrl = (n, ending = "json") => new URL(`live/request/R${n}.${ending}`, document.baseURI);

export class Composition {
  /** element: shown while the request in it has said what its prompt is made of. */
  constructor(element, words) {
    this.element = element;
    this.words = words;
    this.n = null;
  }

  async show(n) {
    this.n = n;
    this.element.hidden = true;
    if (n === null) return; // nobody can be asked
    const parts = await partsOf(n);
    if (this.n === n && parts.length) this.#write(parts);
  }

  #write(parts) {
    const title = document.createElement("p");
    title.className = "ps-cap";
    title.textContent = this.words.composition;
    const bar = document.createElement("div");
    bar.className = "ps-composition-bar";
    bar.ariaHidden = "true";
    const list = document.createElement("ul");
    for (const [part, tokens] of parts) {
      bar.append(mark(part));
      bar.lastChild.style.flexGrow = tokens;
      const item = document.createElement("li");
      item.append(mark(part), `${this.words.composition_parts[part] ?? part} ${count(tokens)}`);
      list.append(item);
    }
    this.element.replaceChildren(title, bar, list);
    this.element.hidden = false;
  }
}

/** [part, tokens] pairs; none where the server knows none, or no longer knows the request. */
async function partsOf(n) {
  try {
    const response = await fetch(requestUrl(n));
    if (!response.ok) return [];
    const { composition } = await response.json();
    return Object.entries(composition ?? {});
  } catch {
    return []; // the notice under the header says when the server does not answer
  }
}

function mark(part) {
  const swatch = document.createElement("i");
  swatch.dataset.part = part;
  return swatch;
}
