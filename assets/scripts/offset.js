// The one-token offset: the newest token is on screen, but not yet in the cache. Two rows of boxes for
// the visitor's newest request, or a bar while its prompt is being read.

import { count } from "./formats.js";
import { setText } from "./header.js";
import { fill } from "./words.js";

const WIDE = 460;
const PHONE = 290;

export class Offset {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.title = element.querySelector("[data-role=offset-title]");
    this.body = element.querySelector("[data-role=offset]");
    this.drawn = "";
    this.width = 0;
    new ResizeObserver(() => app.invalidate("size")).observe(this.body);
  }

  #request() {
    const { trace, own } = this.app;
    let [newest, mine] = [null, null];
    for (const r of trace.requests.values()) {
      if (r.sch === null) continue;
      if (!newest || r.n > newest.n) newest = r;
      if (own.has(r.n) && (!mine || r.n > mine.n)) mine = r;
    }
    return mine ?? newest;
  }

  draw(reasons) {
    const { view, words } = this.app;
    if (view.paused && !reasons.has("size")) return;
    if (!["data", "own", "view", "size"].some((reason) => reasons.has(reason))) return;
    if (reasons.has("size")) this.width = this.body.clientWidth;
    const { width } = this;
    if (!width) return;
    const request = this.#request();
    const boxes = width > WIDE ? 6 : width > PHONE ? 4 : 3;
    const state = request ? [request.n, request.out, request.st, request.levels().at(-1)?.[1], boxes].join() : "none";
    if (state === this.drawn) return;
    this.drawn = state;
    setText(this.title, request ? fill(words.offset_title, { id: request.id }) : words.offset_title_empty);
    if (!request) this.body.replaceChildren(element("p", "ps-empty", words.offset_empty));
    else if (!request.out) this.body.replaceChildren(...progress(request, words));
    else this.body.replaceChildren(...rows(request, boxes, width > 380, words));
  }
}

function element(name, className, text = "") {
  const node = document.createElement(name);
  node.className = className;
  node.textContent = text;
  return node;
}

function progress(request, words) {
  const read = Math.min(request.prompt, request.levels().at(-1)?.[1] ?? 0);
  const bar = element("div", "ps-reading");
  const done = element("i", "");
  done.style.width = `${(100 * read) / request.prompt}%`;
  bar.append(done);
  const sentence = fill(words.reading_progress, { done: count(read), prompt: count(request.prompt) });
  return [bar, element("p", "ps-cap", sentence)];
}

function rows(request, boxes, roomy, words) {
  const newest = request.out;
  const first = Math.max(1, newest - boxes + 1);
  const prompt = fill(roomy ? words.offset_prompt : words.offset_prompt_narrow, { prompt: count(request.prompt) });
  return [[words.on_screen, false], [words.in_cache, true]].map(([label, cache]) => {
    const row = element("div", "ps-offset-row");
    row.append(element("span", "ps-offset-label", label));
    row.append(element("span", "ps-box ps-box-prompt", first > 1 ? `${prompt}, y1 …` : prompt));
    for (let i = first; i <= newest; i += 1) {
      const last = i === newest;
      const kind = last ? (cache ? "next" : "newest") : "token";
      row.append(element("span", `ps-box ps-box-${kind}`, last && cache ? words.next : `y${i}`));
    }
    return row;
  });
}
