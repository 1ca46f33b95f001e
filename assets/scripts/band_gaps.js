// The band of gaps between tokens (ITL): a dot a token on a log scale, and running percentiles over the
// trailing 2 s where the count carries them.

import { duration, plural, TICKS_PER_SECOND } from "./formats.js";
import { lowerBound } from "./ring.js";
import { NEEDED, TRAILING_TICKS, carries, percentileOfSorted, runningPercentiles } from "./statistics.js";
import { nudgeApart } from "./axis.js";

const MOST_DOTS = 4000;
const TOP = 4;
const SPECK = 2.4;
const OWN_RADIUS = 2;
const FLOOR = TICKS_PER_SECOND / 50;
const CEILINGS = [0.5, 1.2, 5, 20, 100, 1000].map((s) => s * TICKS_PER_SECOND);
const GRID = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100].map((s) => s * TICKS_PER_SECOND);
const LINES = {
  99: { colour: "ink-3", width: 1.2, dash: [1.5, 3] },
  95: { colour: "ink-2", width: 1.2, dash: [5, 3] },
  50: { colour: "ink", width: 1.5, dash: [] },
};

export const gapsBand = {
  name: "gaps",

  layout(scene) {
    scene.gapsHeight = scene.stretch.gaps;
    return scene.gapsHeight + 6;
  },

  draw(surface, scene) {
    const { axis } = scene;
    const { colours } = surface;
    const gaps = gather(scene);
    const scale = (scene.gapScale = logScale(gaps, scene.gapsHeight));
    axis.grid(surface, surface.height);
    for (const value of GRID) {
      if (value <= scale.low || value >= scale.high) continue;
      surface.line(axis.left, scale.y(value), axis.right, scale.y(value), colours.grid);
      surface.text(axis.left - 8, scale.y(value) + 4, duration(value), { colour: colours["ink-3"], align: "right" });
    }
    const base = TOP + scene.gapsHeight;
    surface.line(axis.left, base, axis.right, base, colours["line-2"]);
    drawOthers(surface, axis, scale, gaps.others);
    drawOwn(surface, axis, scale, gaps.own);
    drawPercentiles(surface, axis, scale, gaps);
  },

  readout(surface, scene) {
    const { axis, gapScale: scale } = scene;
    const { colours } = surface;
    const samples = trailing(scene, scene.cursor ?? scene.edge);
    const left = axis.right + (axis.narrow ? 4 : 10);
    const labels = [];
    for (const p of [50, 95, 99]) {
      if (!carries(p, samples.length)) continue;
      const value = percentileOfSorted(samples, p);
      labels.push({ p, value, y: scale.y(value) + 4 });
    }
    for (const { p, value, y } of nudgeApart(labels, 13, TOP + 8, TOP + scene.gapsHeight)) {
      surface.text(left, y, `p${p}`, { colour: colours["ink-3"] });
      const x = left + surface.measure(`p${p} `);
      surface.text(x, y, duration(value), { colour: colours["ink-2"] });
    }
  },

  label(scene) {
    const { n, max } = scene.gapSummary ?? { n: 0, max: null };
    const longest = n ? `, the longest ${duration(max)}` : "";
    return `${scene.words.gaps_label} ${plural(n, "gap")}${longest}.`;
  },
};

/** {own, others} of {times, values}, plus all of them together, between the ends of the axis. */
function gather(scene) {
  const { axis } = scene;
  const sets = { own: { times: [], values: [] }, others: { times: [], values: [] } };
  const before = axis.t0 - TRAILING_TICKS;
  const all = { times: [], values: [] };
  let max = 0;
  let n = 0;
  for (const request of scene.recent) {
    const set = scene.own.has(request.n) ? sets.own : sets.others;
    const last = lowerBound(request.gapTimes, axis.t1 + 1);
    for (let i = lowerBound(request.gapTimes, before); i < last; i += 1) {
      const t = request.gapTimes[i];
      const value = request.gapValues[i];
      all.times.push(t);
      all.values.push(value);
      if (t < axis.t0) continue;
      set.times.push(t);
      set.values.push(value);
      n += 1;
      if (value > max) max = value;
    }
  }
  scene.gapSummary = { n, max };
  return { ...sets, all, max };
}

/** Gap values delivered in the 2 s up to `t`, ascending. */
function trailing(scene, t) {
  const values = [];
  for (const request of scene.recent) {
    const last = lowerBound(request.gapTimes, t + 1);
    for (let i = lowerBound(request.gapTimes, t - TRAILING_TICKS + 1); i < last; i += 1) {
      values.push(request.gapValues[i]);
    }
  }
  return Float64Array.from(values).sort();
}

// From 20 ms, or lower where a fast device needs it, to the next ceiling above the largest gap.
function logScale(gaps, height) {
  let least = FLOOR;
  for (const value of gaps.all.values) if (value > 0 && value < least) least = value;
  const low = least >= FLOOR ? FLOOR : Math.max(1, least * 0.7);
  const high = CEILINGS.find((c) => c > gaps.max) ?? gaps.max * 1.5;
  const span = Math.log(high / low);
  const y = (value) => TOP + height - (Math.log(Math.max(value, low) / low) / span) * height;
  return { low, high, y };
}

function drawOthers(surface, axis, scale, others) {
  const { colours } = surface;
  if (others.times.length <= MOST_DOTS) {
    drawSpecks(surface, axis, scale, others);
    return;
  }
  const limit = percentileOfSorted(Float64Array.from(others.values).sort(), 99);
  const bins = Math.max(1, Math.round(axis.right - axis.left));
  const low = new Float32Array(bins).fill(Infinity);
  const high = new Float32Array(bins).fill(-Infinity);
  const outliers = { times: [], values: [] };
  others.times.forEach((t, i) => {
    const value = others.values[i];
    if (value > limit) {
      outliers.times.push(t);
      outliers.values.push(value);
      return;
    }
    const bin = Math.min(bins - 1, Math.max(0, Math.floor(axis.x(t) - axis.left)));
    low[bin] = Math.min(low[bin], value);
    high[bin] = Math.max(high[bin], value);
  });
  surface.fade(0.6);
  for (let bin = 0; bin < bins; bin += 1) {
    if (low[bin] > high[bin]) continue;
    const top = scale.y(high[bin]);
    surface.rect(axis.left + bin, top, 1, Math.max(scale.y(low[bin]) - top, 1.5), colours.decode);
  }
  surface.fade(1);
  drawSpecks(surface, axis, scale, outliers);
}

// At this size a square is as good as a disc, and cheap: overlaps add up, so density stays visible.
function drawSpecks(surface, axis, scale, { times, values }) {
  const { context } = surface;
  context.fillStyle = surface.colours.decode;
  surface.fade(0.42);
  for (let i = 0; i < times.length; i += 1) {
    context.fillRect(axis.x(times[i]) - SPECK / 2, scale.y(values[i]) - SPECK / 2, SPECK, SPECK);
  }
  surface.fade(1);
}

function drawOwn(surface, axis, scale, { times, values }) {
  const { context } = surface;
  context.fillStyle = surface.colours["decode-ink"];
  context.beginPath();
  for (let i = 0; i < times.length; i += 1) {
    const [x, y] = [axis.x(times[i]), scale.y(values[i])];
    context.moveTo(x + OWN_RADIUS, y);
    context.arc(x, y, OWN_RADIUS, 0, 2 * Math.PI);
  }
  context.fill();
}

function drawPercentiles(surface, axis, scale, { all }) {
  if (all.times.length < NEEDED[50]) return;
  const points = Math.max(60, Math.round((axis.right - axis.left) / 5));
  const running = runningPercentiles(all.times, all.values, axis.t0, axis.t1, points);
  for (const p of [99, 95, 50]) {
    const line = [];
    running.times.forEach((t, i) => {
      const value = running[p][i];
      line.push(value === null ? NaN : axis.x(t), value === null ? NaN : scale.y(value));
    });
    const { colour, width, dash } = LINES[p];
    surface.fade(0.75);
    surface.polyline(line, surface.colours.surface, { width: 3.4 });
    surface.fade(1);
    surface.polyline(line, surface.colours[colour], { width, dash });
  }
}
