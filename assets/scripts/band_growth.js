// The band of KV cache growth: tokens in the cache over time, a line a request, or own lines over the
// total when there are too many. It also carries the labels of the shared time axis.

import { count, mebibytes, plural } from "./formats.js";
import { nudgeApart } from "./axis.js";
import { STEP } from "./trace.js";
import { stackArea } from "./phase_counts.js";

const LABEL_AT = 20;
const TOP = 4;
const FOOT = 18;
const FADED = 0.35;
const TICK_PX = 30; // a tick carries two lines of text
export const MOST_LINES = 40;

export const growthBand = {
  name: "growth",
  foot: FOOT,

  layout(scene) {
    scene.growthHeight = scene.stretch.growth;
    return scene.growthHeight + 6 + FOOT;
  },

  draw(surface, scene) {
    const { axis, words } = scene;
    const total = scene.requests.length > MOST_LINES;
    const scale = (scene.growthScale = linearScale(scene, total));
    axis.grid(surface, TOP + scene.growthHeight + 4);
    drawScale(surface, scene, scale);
    if (total) drawTotal(surface, scene, scale);
    for (const request of scene.requests) {
      const own = scene.own.has(request.n);
      if (!total || own) drawRequest(surface, scene, scale, request, own);
    }
    surface.fade(1);
    axis.labels(surface, surface.height - 3, words.clock_axis);
  },

  readout(surface, scene) {
    const { axis, growthScale: scale, kvColours } = scene;
    const { colours } = surface;
    const at = scene.cursor ?? scene.edge;
    const total = scene.requests.length > MOST_LINES;
    if (total) {
      const y = scale.y(scale.most) + 4;
      surface.text(axis.right + 10, y, scene.words.capacity, { colour: colours["ink-2"] });
    }
    const labels = scene.requests
      .filter((r) => !r.ended && (total ? scene.own.has(r.n) : kvColours.has(r.n)))
      .map((r) => ({ request: r, tokens: r.levelAt(at), y: scale.y(r.levelAt(scene.edge)) + 4 }));
    for (const { request, tokens, y } of nudgeApart(labels, 12.5, TOP + 8, TOP + scene.growthHeight)) {
      const own = scene.own.has(request.n);
      surface.rounded(axis.right + 8, y - 8, 8, 8, 1.5, colours[kvColours.of(request.n)]);
      const full = `${request.id} ${count(tokens)}`;
      const room = surface.width - axis.right - LABEL_AT;
      const label = surface.measure(full, { weight: 600 }) <= room ? full : request.id;
      surface.text(axis.right + LABEL_AT, y, label, {
        colour: own ? colours.ink : colours["ink-2"], weight: own ? 700 : 400,
      });
    }
  },

  label(scene) {
    const { sum, config } = scene;
    if (!sum || !config) return scene.words.growth_label;
    return `${scene.words.growth_label} ${count(sum.used)} of ${plural(config.blocks, "block")} in use.`;
  },
};

function linearScale(scene, total) {
  const { config } = scene;
  let most = 400;
  if (total && config) most = config.blocks * config.block_size;
  else {
    for (const request of scene.requests) {
      for (const [t, level] of request.levels()) if (t <= scene.axis.t1 && level > most) most = level;
    }
  }
  const step = [100, 200, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000]
    .find((s) => most / s <= Math.min(3.2, scene.growthHeight / TICK_PX)) ?? 500_000;
  const height = scene.growthHeight;
  const y = (tokens) => TOP + height - (tokens / (most * 1.08)) * height;
  return { most, step, y };
}

function drawScale(surface, scene, { most, step, y }) {
  const { axis, config } = scene;
  const style = { colour: surface.colours["ink-3"], align: "right" };
  const x = axis.left - 8;
  for (let v = step; v <= most; v += step) {
    surface.line(axis.left, y(v), axis.right, y(v), surface.colours.grid);
    const both = config && !axis.narrow;
    surface.text(x, y(v) + (both ? -1 : 4), count(v), style);
    if (both) surface.text(x, y(v) + 11, mebibytes(v * config.kv_bytes), style);
  }
  surface.text(x, y(0) + 3, "0", style);
  surface.line(axis.left, y(0), axis.right, y(0), surface.colours["line-2"]);
}

function drawRequest(surface, scene, scale, request, own) {
  const { axis } = scene;
  const { colours } = surface;
  const points = request.levels();
  if (!points.length) return;
  const coloured = !request.ended && scene.kvColours.has(request.n);
  const name = request.ended ? "ink-3" : scene.kvColours.of(request.n);
  surface.fade(scene.emphasis !== null && scene.emphasis !== request.n ? FADED : 1);
  const until = Math.min(request.endsAt(scene.edge), axis.t1);
  const line = thin(points, axis, scale, until);
  const width = own ? 2.6 : coloured || request.ended ? 1.6 : 1;
  surface.polyline(line, colours[name], { width });
  if (request.ended) drawKept(surface, scene, scale, request, points.at(-1)[1]);
}

// What stays in the prefix cache after the end: dotted until its blocks are reused or evicted.
function drawKept(surface, scene, scale, request, level) {
  const { axis } = scene;
  const { colours } = surface;
  const end = request.endsAt(scene.now);
  if (end > axis.t1 || !level) return;
  const y = scale.y(level);
  const until = axis.clamped(request.kv_end ?? axis.t1);
  const x = axis.clamped(end);
  if (until > x) surface.line(x, y, until, y, colours["ink-3"], { dash: [1.5, 3] });
  if (axis.inside(axis.x(end))) surface.disc(axis.x(end), y, 2.6, colours.surface, colours["ink-3"], 1.4);
}

/** Level points as a pixel line, at most one a pixel column; a fall to 0 is drawn upright. */
function thin(points, axis, scale, until) {
  const line = [];
  let before = null;
  let lastX = -Infinity;
  for (const [t, level] of points) {
    if (t > until) break;
    const x = axis.x(t);
    if (x < axis.left) {
      before = level;
      continue;
    }
    if (!line.length) {
      const fromEdge = before !== null;
      line.push(fromEdge ? axis.left : x, scale.y(fromEdge ? before : 0));
    }
    if (level === 0 && line.length) line.push(x, line.at(-1));
    else if (x - lastX < 1 && line.length > 4) line.length -= 2;
    line.push(x, scale.y(level));
    lastX = x;
    before = level;
  }
  if (before === null) return line;
  if (!line.length) line.push(axis.left, scale.y(before));
  line.push(axis.clamped(until), scale.y(before));
  return line;
}

// Blocks in use and cached, per pixel the last step's count, against the capacity of the pool.
function drawTotal(surface, scene, scale) {
  const { axis, trace, config } = scene;
  if (!config) return;
  const { colours } = surface;
  const bins = Math.max(1, Math.round(axis.right - axis.left));
  const used = new Float32Array(bins);
  const cached = new Float32Array(bins);
  const { steps } = trace;
  let index = steps.lowerBound(axis.t0, (step) => step[STEP.t] + step[STEP.d]) - 1;
  for (let bin = 0; bin < bins; bin += 1) {
    const t = axis.time(axis.left + bin + 1);
    while (index + 1 < steps.length && steps.at(index + 1)[STEP.t] + steps.at(index + 1)[STEP.d] <= t) index += 1;
    const step = steps.at(index);
    if (!step || t > scene.edge) continue;
    used[bin] = step[STEP.used] * config.block_size;
    cached[bin] = step[STEP.evictable] * config.block_size;
  }
  const perToken = (scale.y(0) - scale.y(scale.most)) / scale.most;
  stackArea(surface, axis, [[used, colours["kv-other"]], [cached, colours["kv-evict"]]], scale.y(0), perToken);
  const top = scale.y(scale.most);
  surface.line(axis.left, top, axis.right, top, colours.ink, { dash: [3, 3] });
}
