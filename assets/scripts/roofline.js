// The card "What limits each step": the steps of the window under this machine's measured ceilings.
// Plotly draws; the points come from roofline_points.js.

import { count, plural } from "./formats.js";
import { paletteVersion } from "./palette.js";
import { Plot } from "./plot.js";
import { hexBins, MOST_POINTS, rooflinePoints } from "./roofline_points.js";
import { fill } from "./words.js";

const LEAST_MS = 1500;
const BIN_PX = 6;
const DECADE_PX = 34;
const MARGINS = { x: 52, y: 52 };

export class Roofline {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.empty = element.querySelector("[data-role=empty]");
    this.plot = new Plot(element.querySelector("[data-figure]"), { onResize: () => app.invalidate("size") });
    this.drawn = "";
  }

  draw(reasons) {
    const { trace, view, words } = this.app;
    const changed = ["view", "theme", "size"].some((reason) => reasons.has(reason));
    const due = ["data", "clock"].some((reason) => reasons.has(reason)) && this.plot.due(LEAST_MS);
    const { box, width, height } = this.plot;
    if (!width || !(changed || (due && !view.paused))) return;
    const roof = trace.config?.roof ?? null;
    const points = rooflinePoints(trace, ...view.domain());
    const n = points.decode.length + points.prefill.length + points.overhead.length;
    this.empty.hidden = Boolean(roof) && n > 0;
    if (!roof) this.empty.textContent = words.roof_unknown;
    else if (!n) this.empty.textContent = words.roof_empty;
    box.style.visibility = roof ? "" : "hidden";
    const last = trace.steps.last()?.[0];
    const now = [n, last, view.domain(), width, height, paletteVersion()].join();
    if (!roof || now === this.drawn) return;
    this.drawn = now;
    box.ariaLabel = fill(words.roof_label, { steps: plural(n, "step"), overhead: count(points.overhead.length) });
    this.#show(roof, points, n);
  }

  #show(roof, points, n) {
    const { width, height } = this.plot;
    const unit = roof.flops >= 2e12 ? { name: "TFLOP/s", size: 1e12 } : { name: "GFLOP/s", size: 1e9 };
    const range = rangesOf(roof, points);
    const scale = pixels(range, width - MARGINS.x, height - MARGINS.y);
    this.plot.update((data, layout, colours) => {
      const [line, ridge, ...marks] = data;
      drawRoof(line, ridge, roof, range, unit);
      ["decode", "prefill", "overhead"].forEach((kind, i) => {
        setPoints(marks[i], n > MOST_POINTS ? hexBins(points[kind], BIN_PX, scale) : points[kind], unit);
      });
      Object.assign(layout.xaxis, logAxis(range.x, 1, scale.perX));
      Object.assign(layout.yaxis, logAxis(range.y, unit.size, scale.perY));
      layout.annotations = annotations(roof, range, scale, unit, this.app.words, colours);
    });
  }
}

// Below the lowest point the words memory-bound and compute-bound have their line.
const LABEL_ROOM = 0.16;

function rangesOf(roof, points) {
  const all = [...points.decode, ...points.prefill, ...points.overhead];
  const ridge = roof.flops / roof.bytes;
  const xs = all.map((p) => p.x);
  const ys = all.map((p) => p.y);
  const x = [Math.min(0.6, ...xs.map((v) => v * 0.8)), Math.max(320, ridge * 4, ...xs.map((v) => v * 1.2))];
  const y = [Math.min(roof.bytes * x[0], ...ys.map((v) => v * LABEL_ROOM)), roof.flops * 1.6];
  return { x, y };
}

// Pixels of a log-log point and back, for bins and the slope of the roof.
function pixels({ x, y }, width, height) {
  const perX = width / Math.log(x[1] / x[0]);
  const perY = height / Math.log(y[1] / y[0]);
  return {
    perX,
    perY,
    slope: (Math.atan2(perY, perX) * 180) / Math.PI,
    toX: (v) => Math.log(v / x[0]) * perX,
    toY: (v) => Math.log(v / y[0]) * perY,
    fromX: (px) => x[0] * Math.exp(px / perX),
    fromY: (px) => y[0] * Math.exp(px / perY),
  };
}

function drawRoof(line, ridge, roof, { x, y }, unit) {
  const corner = roof.flops / roof.bytes;
  line.x = [x[0], corner, x[1]];
  line.y = [x[0] * roof.bytes, roof.flops, roof.flops].map((v) => v / unit.size);
  ridge.x = [corner, corner];
  ridge.y = [roof.flops, y[0]].map((v) => v / unit.size);
}

function setPoints(trace, points, unit) {
  trace.x = points.map((point) => point.x);
  trace.y = points.map((point) => point.y / unit.size);
  if (points[0]?.count === undefined) {
    trace.hovertext = points.map((point) => `step ${count(point.n)}`);
    return;
  }
  const most = Math.max(...points.map((point) => point.count));
  trace.hovertext = points.map((point) => plural(point.count, "step"));
  trace.marker.opacity = points.map((point) => 0.25 + 0.75 * (point.count / most));
  trace.marker.size = BIN_PX;
}

// Decades, and 3 between them where there is room for the text.
function logAxis([low, high], size, pxPerUnit) {
  const [from, to] = [Math.log10(low / size), Math.log10(high / size)];
  const sparse = to - from > 2.6 || pxPerUnit * Math.LN10 < DECADE_PX;
  const ticks = [];
  for (let e = Math.floor(from); e <= to; e += 1) {
    for (const m of sparse ? [1] : [1, 3]) {
      const at = Math.log10(m) + e;
      if (at >= from && at <= to) ticks.push(m * 10 ** e);
    }
  }
  const text = ticks.map((v) => (v < 1 ? String(+v.toPrecision(1)) : count(v)));
  return { range: [from, to], tickvals: ticks, ticktext: text };
}

function annotations(roof, { x, y }, scale, unit, words, colours) {
  const base = { showarrow: false, font: { size: 11, color: colours.ink } };
  const quiet = {
    ...base, font: { size: 11, color: colours["ink-3"] },
    xref: "paper", yref: "paper", y: 0, yanchor: "bottom",
  };
  const ridge = roof.flops / roof.bytes;
  const middle = Math.sqrt(x[0] * ridge);
  const rate = (v) => (v < 10 ? v.toFixed(1) : count(v));
  return [
    { ...base, x: Math.log10(middle), y: Math.log10((middle * roof.bytes) / unit.size),
      textangle: -scale.slope, yshift: 9, xshift: -5,
      text: fill(words.roof_memory, { rate: `${rate(roof.bytes / 1e9)} GB/s` }) },
    { ...base, xref: "paper", x: 1, xanchor: "right", y: Math.log10(roof.flops / unit.size), yanchor: "bottom",
      text: fill(words.roof_compute, { rate: `${rate(roof.flops / unit.size)} ${unit.name}` }) },
    { ...quiet, x: 0, xanchor: "left", xshift: 3, text: words.memory_bound },
    { ...quiet, x: 1, xanchor: "right", text: words.compute_bound },
  ];
}
