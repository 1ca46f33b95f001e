// The card "Time to first token": in parts a request, or over time. Plotly draws; the rows come from
// ttft_parts.js.

import { clock, count, duration, seconds } from "./formats.js";
import { setText } from "./header.js";
import { paletteVersion } from "./palette.js";
import { Plot } from "./plot.js";
import { carries, percentileOfSorted } from "./statistics.js";
import { PARTS, ttftRows } from "./ttft_parts.js";
import { fill } from "./words.js";

const LEAST_MS = 900;
const DELIVERY_PX = 3.6;
const GUTTERS = 96;
const ROW = 15.5;
const AROUND = 42; // room for the quantiles above and the axis below
const TRAILING = 20; // first tokens behind each point of the running percentiles

export class TtftCard {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.drawn = "";
    const open = (point) => point?.customdata && app.open(point.customdata);
    const point = (at) => app.emphasise(at?.customdata || null);
    this.plots = Object.fromEntries([...element.querySelectorAll("[data-figure]")].map((box) =>
      [box.dataset.view, new Plot(box, { onClick: open, onHover: point, onResize: () => app.invalidate("size") })]));
    this.view = "parts";
    this.tabs = [...element.querySelectorAll("[data-choose]")];
    for (const button of this.tabs) button.addEventListener("click", () => this.#choose(button.dataset.choose));
  }

  #choose(view) {
    this.view = view;
    for (const button of this.tabs) button.ariaPressed = String(button.dataset.choose === view);
    for (const [name, { box }] of Object.entries(this.plots)) box.hidden = name !== view;
    this.element.querySelector("[data-role=legend]").hidden = view !== "parts";
    setText(this.element.querySelector("[data-role=caption]"), this.app.words.ttft_captions[view]);
    this.drawn = "";
    this.app.invalidate("size");
  }

  rows() {
    const { trace, view, own, words } = this.app;
    const requests = trace.requestsBetween(...view.domain());
    const read = requests.filter((r) => r.ttft !== null).length;
    return ttftRows(requests, (n) => own.has(n), fill(words.all_requests, { n: count(read) }));
  }

  draw(reasons) {
    const changed = ["view", "own", "theme", "size"].some((reason) => reasons.has(reason));
    const plot = this.plots[this.view];
    const due = ["data", "clock"].some((reason) => reasons.has(reason)) && plot.due(LEAST_MS);
    if (!plot.width || !(changed || (due && !this.app.view.paused))) return;
    const { box } = plot;
    const rows = this.rows();
    const { n, p50, p95 } = this.app.trace.sum?.ttft ?? { n: 0 };
    const now = JSON.stringify([rows, n, p50, p95, plot.width, plot.height, paletteVersion()]);
    if (now === this.drawn) return;
    this.drawn = now;
    this.element.querySelector("[data-role=empty]").hidden = rows.length > 0;
    box.style.visibility = rows.length ? "" : "hidden";
    if (this.view === "parts") this.#drawParts(rows, { n, p50, p95 });
    else this.#drawOverTime();
  }

  #drawParts(rows, quantiles) {
    const plot = this.plots.parts;
    const most = Math.max(1, ...rows.map((row) => row.total)) * 1.04;
    const least = (DELIVERY_PX * most) / Math.max(1, plot.width - GUTTERS);
    plot.box.style.height = `${rows.length ? AROUND + rows.length * ROW : AROUND}px`;
    plot.update((data, layout, colours) => {
      data.forEach((trace, i) => {
        const part = PARTS[i];
        trace.y = rows.map((row) => row.label);
        trace.customdata = rows.map((row) => row.n);
        trace.x = rows.map(({ parts }) => (part === "delivery" ? Math.max(parts[part], least) : parts[part]));
        trace.hovertext = rows.map(({ parts }) => duration(parts[part]));
      });
      const ticks = axisTicks(most, 5);
      Object.assign(layout.xaxis, { range: [0, most], tickvals: ticks, ticktext: ticks.map(tickLabel) });
      Object.assign(layout.yaxis, {
        range: [rows.length - 0.5, -0.5], tickvals: rows.map((row) => row.label),
        ticktext: rows.map((row) => (row.own ? `<b>${row.label}</b>` : row.label)),
      });
      layout.annotations = rows.map((row) => valueAt(row, colours));
      layout.shapes = rows.filter((row) => row.own).map((row) => band(rows.indexOf(row), colours));
      markQuantiles(layout, quantiles, most, colours);
    });
  }

  #drawOverTime() {
    const { trace, view, own } = this.app;
    const [t0, t1] = view.domain();
    const read = [...trace.requests.values()].filter((r) => r.ttft !== null && r.ftd <= t1).sort((a, b) => a.ftd - b.ftd);
    const running = runningTtft(read);
    const shown = (r) => r.ftd >= t0;
    this.plots.time.update((data, layout) => {
      const [others, mine, p50, p95] = data;
      for (const [trace_, isMine] of [[others, false], [mine, true]]) {
        const points = read.filter((r) => shown(r) && own.has(r.n) === isMine);
        trace_.x = points.map((r) => r.ftd);
        trace_.y = points.map((r) => r.ttft);
        trace_.customdata = points.map((r) => r.n);
        trace_.hovertext = points.map((r) => `${r.id}, ${duration(r.ttft)}`);
      }
      for (const [line, p] of [[p50, 50], [p95, 95]]) {
        const points = running.filter((point) => point.t >= t0 && point[p] !== null);
        line.x = points.map((point) => point.t);
        line.y = points.map((point) => point[p]);
      }
      const most = Math.max(1000, ...read.filter(shown).map((r) => r.ttft)) * 1.08;
      const ticks = axisTicks(most, 4);
      Object.assign(layout.yaxis, { range: [0, most], tickvals: ticks, ticktext: ticks.map(tickLabel) });
      const times = axisTicks(t1 - t0, 4).map((t) => t + Math.ceil(t0 / 10_000) * 10_000).filter((t) => t >= t0 && t <= t1);
      Object.assign(layout.xaxis, { range: [t0, t1], tickvals: times, ticktext: times.map((t) => clock(t)) });
    });
  }
}

/** Percentiles over the last TRAILING first tokens at each of them, null where n is too small. */
function runningTtft(read) {
  return read.map((request, i) => {
    const sample = Float64Array.from(read.slice(Math.max(0, i + 1 - TRAILING), i + 1), (r) => r.ttft).sort();
    const at = (p) => (carries(p, sample.length) ? percentileOfSorted(sample, p) : null);
    return { t: request.ftd, 50: at(50), 95: at(95) };
  });
}

function axisTicks(most, wanted) {
  const step = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 600_000]
    .find((s) => most / s <= wanted) ?? most / wanted;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

const tickLabel = (ticks) => (ticks < 10_000 ? (ticks ? `${ticks / 10} ms` : "0") : `${+seconds(ticks).toFixed(1)} s`);

const valueAt = (row, colours) => ({
  xref: "paper", x: 1, xanchor: "right", xshift: 50, y: row.label, showarrow: false,
  text: row.own ? `<b>${duration(row.total)}</b>` : duration(row.total),
  font: { size: 11, color: row.own ? colours.ink : colours["ink-2"] },
});

const band = (i, colours) => ({
  type: "rect", layer: "below", xref: "paper", x0: -0.3, x1: 1.4, y0: i - 0.5, y1: i + 0.5,
  line: { width: 0 }, fillcolor: colours["own-band"],
});

function markQuantiles(layout, { n, p50, p95 }, most, colours) {
  for (const [p, ticks, dash] of [[50, p50, "solid"], [95, p95, "dash"]]) {
    if (!carries(p, n) || ticks === null || ticks > most) continue;
    layout.shapes.push({
      type: "line", layer: "below", x0: ticks, x1: ticks, yref: "paper", y0: 0, y1: 1.02,
      line: { width: 1, dash, color: colours["ink-2"] },
    });
    const right = ticks > most / 2 && p === 50;
    layout.annotations.push({
      x: ticks, yref: "paper", y: 1, yanchor: "bottom", xanchor: right ? "right" : "left", showarrow: false,
      text: `p${p} ${duration(ticks)}`, font: { size: 11, color: colours["ink-2"] },
    });
  }
  separate(layout.annotations.slice(-2), most);
}

// Two rules close together: the left label moves to the left of its rule.
function separate(labels, most) {
  const [a, b] = labels;
  if (labels.length === 2 && a.yref === "paper" && b.yref === "paper" && b.x - a.x < most * 0.35) {
    if (a.x > most * 0.3) a.xanchor = "right";
    else b.xshift = 64;
  }
}
