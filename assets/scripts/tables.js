// "Show as table" under each chart: the same numbers as plain HTML, filled while it is open. It is also
// the way in for screen readers.

import { clock, count, DASH, duration, mebibytes, percent } from "./formats.js";
import { countBlocks } from "./kv_cells.js";
import { percentile, carries } from "./statistics.js";
import { writeTable } from "./table_element.js";
import { BOUNDS, STEP } from "./trace.js";
import { PARTS, ttftParts } from "./ttft_parts.js";
import { stateWord } from "./words.js";

const MOST_ROWS = 200;

/** {name: (app) => rows}; each row is a list of strings in the order of words.tables[name]. */
const SOURCES = {
  requests: (app) => inWindow(app).map((r) => [
    app.own.has(r.n) ? `${r.id} (${app.words.you})` : r.id, stateWord(app.words, r.st), count(r.prompt),
    count(r.cached), count(r.out), clock(r.sub, 2), duration(r.ttft), duration(r.longestPause),
  ]),
  steps: (app) => {
    const [from, to] = app.trace.stepsBetween(...app.view.domain());
    const rows = [];
    for (let i = Math.max(from, to - MOST_ROWS); i < to; i += 1) {
      const step = app.trace.steps.at(i);
      const counts = [STEP.prefill, STEP.decode, STEP.running, STEP.waiting].map((column) => count(step[column]));
      const bound = BOUNDS[step[STEP.bound]] || DASH;
      rows.push([count(step[STEP.n]), clock(step[STEP.t], 2), duration(step[STEP.d]), ...counts, bound]);
    }
    return rows.reverse();
  },
  gaps: (app) => inWindow(app).map((r) => {
    const n = r.gapValues.length;
    const shown = (p) => (carries(p, n) ? duration(percentile(r.gapValues, p)) : DASH);
    return [r.id, count(n), shown(50), shown(95), shown(99), duration(r.longestPause)];
  }),
  growth: (app) => inWindow(app).map((r) => {
    const tokens = r.levelAt(app.view.edge());
    const bytes = app.trace.config ? mebibytes(tokens * app.trace.config.kv_bytes) : DASH;
    return [r.id, stateWord(app.words, r.st), count(tokens), bytes];
  }),
  kv: (app) => blockHolders(app),
  ttft: (app) => inWindow(app).filter((r) => ttftParts(r) !== null).map((r) => [
    r.id, ...PARTS.map((part) => duration(ttftParts(r)[part])), duration(r.ttft),
  ]),
  roofline: (app) => boundShares(app),
};

/** Blocks of every request, of those that share, and what nobody holds: they add up to the pool. */
function blockHolders({ trace, own, words }) {
  const { kv } = trace;
  if (!kv) return [];
  const { byOwner, shared, cached, free } = countBlocks(kv);
  const named = [...byOwner].sort(([a], [b]) => a - b)
    .map(([n, blocks]) => [own.has(n) ? `R${n} (${words.you})` : `R${n}`, blocks]);
  const { kv_legend: names } = words;
  const rows = [...named, [names.shared, shared], [names.cached, cached], [names.free, free]];
  return rows.map(([name, blocks]) => [name, count(blocks), `${((100 * blocks) / kv.n).toFixed(1)} %`]);
}

function boundShares({ trace, view }) {
  const shares = BOUNDS.map((name) => ({ name: name || DASH, steps: 0, time: 0 }));
  const [from, to] = trace.stepsBetween(...view.domain());
  let total = 0;
  for (let i = from; i < to; i += 1) {
    const step = trace.steps.at(i);
    shares[step[STEP.bound]].steps += 1;
    shares[step[STEP.bound]].time += step[STEP.d];
    total += step[STEP.d];
  }
  return shares.filter((s) => s.steps).map((s) => [s.name, count(s.steps), `${percent(s.time, total)} %`]);
}

const inWindow = (app) => app.trace.requestsBetween(...app.view.domain()).slice(-MOST_ROWS);

export class Tables {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.open = new Set();
    for (const button of element.querySelectorAll("[data-table]")) {
      button.addEventListener("click", () => this.#toggle(button));
    }
  }

  /** Whose numbers are shown: {trace, view, own, words}. */
  get source() {
    return this.app;
  }

  draw(reasons) {
    if (reasons.has("clock") || reasons.has("view")) for (const name of this.open) this.#write(name);
  }

  #holder(name) {
    return this.element.querySelector(`[data-table-of=${name}]`);
  }

  #toggle(button) {
    const name = button.dataset.table;
    const open = !this.open.has(name);
    button.ariaExpanded = String(open);
    this.#holder(name).hidden = !open;
    if (open) {
      this.open.add(name);
      this.#write(name);
    } else this.open.delete(name);
    this.app.invalidate("size");
  }

  #write(name) {
    const { head, caption } = this.app.words.tables[name];
    const rows = SOURCES[name](this.source);
    writeTable(this.#holder(name), { caption, head, rows, empty: this.app.words.no_rows });
  }
}
