// The details of one request, over the side column: moments as offsets, the four parts of TTFT with
// their sum, tokens, gaps and memory. All numbers; a prompt or an answer never comes here.

import { Composition, requestUrl } from "./composition.js";
import { clock, count, DASH, duration, mebibytes } from "./formats.js";
import { carries, percentile } from "./statistics.js";
import { ttftParts } from "./ttft_parts.js";
import { fill, stateWord } from "./words.js";

const LEAST_MS = 450;

export class Drawer {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.panel = element.querySelector(".ps-drawer");
    this.composition = new Composition(element.querySelector("[data-role=composition]"), app.words);
    this.n = null;
    this.trace = null; // the one that `n` is a request of
    this.drawnAt = -Infinity;
    this.returnTo = null;
    app.open = (n) => this.open(n);
    element.querySelector("[data-role=close]").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.n !== null) this.close();
    });
  }

  open(n) {
    if (this.n === null) this.returnTo = document.activeElement;
    this.n = n;
    this.trace = this.app.trace;
    this.panel.hidden = false;
    this.#write();
    this.composition.show(this.app.trace.recording ? null : n);
    this.element.querySelector("[data-role=close]").focus({ preventScroll: true });
  }

  close() {
    const { returnTo } = this;
    this.#hide();
    if (returnTo?.isConnected) returnTo.focus({ preventScroll: true });
  }

  #hide() {
    this.n = null;
    this.panel.hidden = true;
    this.returnTo = null;
  }

  draw(reasons) {
    // R7 of a recording is another request than the live R7; the focus stays with whoever changed it.
    if (this.n !== null && this.trace !== this.app.trace) this.#hide();
    if (this.n === null || !reasons.has("data") || performance.now() - this.drawnAt < LEAST_MS) return;
    this.#write();
  }

  #write() {
    this.drawnAt = performance.now();
    const { words, trace, own } = this.app;
    const request = trace.requests.get(this.n);
    const find = (role) => this.element.querySelector(`[data-role=${role}]`);
    find("title").textContent = own.has(this.n) ? `R${this.n} (${words.you})` : `R${this.n}`;
    find("state").textContent = request ? stateWord(words, request.st) : words.not_held;
    find("files").hidden = Boolean(trace.recording); // the server knows nothing of what was recorded
    find("save").href = requestUrl(this.n);
    find("trace").href = requestUrl(this.n, "trace");
    find("moments").replaceChildren(...(request ? moments(request, words).map(toRow) : []));
    find("facts").replaceChildren(...(request ? facts(request, this.app).map(toRow) : []));
    const sum = find("sum");
    sum.hidden = !request || request.ttft === null;
    if (!sum.hidden) sum.textContent = fill(words.parts_add_up, { time: duration(request.ttft) });
  }
}

function toRow([name, ...values]) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  row.append(head);
  for (const value of values) row.insertCell().textContent = value;
  return row;
}

/** [moment, offset, part] lines, only for what has happened. */
function moments(request, words) {
  const { sub, que, sch, fts, ftd, ltd, end } = request;
  const names = words.moments;
  const part = ttftParts(request) ?? {};
  const lines = [[names.submitted, clock(sub, 2), ""]];
  const add = (t, name, label, ticks) => {
    if (t !== null) lines.push([name, `+${duration(t - sub)}`, label ? `${label} ${duration(ticks)}` : ""]);
  };
  add(que, names.queued, words.parts.preparation, que - sub);
  add(sch, names.scheduled, words.parts.queue, sch - que);
  add(fts, fill(names.read, { n: count(request.chunks.length) }), words.parts.prefill, fts - sch);
  add(ftd, names.first_token, words.parts.delivery, part.delivery ?? ftd - fts);
  if (ltd !== null && ltd > ftd) {
    add(ltd, request.ended ? names.last_token : names.latest_token, words.parts.decode, ltd - ftd);
  }
  if (request.ended) add(end, names.finished, "", 0);
  return lines;
}

function facts(request, { trace, words, view }) {
  const names = words.facts;
  const n = request.gapValues.length;
  const gap = (p) => (carries(p, n) ? duration(percentile(request.gapValues, p)) : DASH);
  const tokens = request.levelAt(view.edge());
  const lines = [
    [names.prompt, count(request.prompt), fill(names.reused, { n: count(request.cached) })],
    [names.output, count(request.out), fill(names.limit, { n: count(request.max) })],
    [names.itl, gap(50), gap(95)],
    [names.longest, duration(request.longestPause), fill(names.gaps, { n: count(n) })],
    [names.kv, count(tokens), trace.config ? mebibytes(tokens * trace.config.kv_bytes) : ""],
  ];
  if (request.out > 1 && request.ltd !== null) {
    lines.splice(4, 0, [names.tpot, duration((request.ltd - request.ftd) / (request.out - 1)), ""]);
  }
  if (request.pre.length) {
    const times = request.pre.length === 1 ? names.once : fill(names.times, { n: count(request.pre.length) });
    lines.push([names.preempted, times, fill(names.recomputed, { n: count(request.recomputed) })]);
  }
  if (request.fin) lines.push([names.finish, words.finish_reasons[request.fin] ?? request.fin, ""]);
  return lines;
}
