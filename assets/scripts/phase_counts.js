// More than a hundred requests are counted instead of drawn: how many were writing, reading and waiting
// in each pixel column, stacked, against the number of slots.

import { fill } from "./words.js";

/** Mean number of requests in each phase in `bins` bins of t0..t1: {decode, prefill, queue}. */
export function countPhases(requests, t0, t1, bins, now) {
  const width = (t1 - t0) / bins;
  const phases = { decode: new Float32Array(bins), prefill: new Float32Array(bins), queue: new Float32Array(bins) };
  const add = (phase, from, to) => {
    if (to <= t0 || from >= t1) return;
    const first = Math.max(0, Math.floor((from - t0) / width));
    const last = Math.min(bins - 1, Math.floor((to - t0) / width));
    for (let bin = first; bin <= last; bin += 1) {
      const start = t0 + bin * width;
      phase[bin] += Math.max(0, Math.min(to, start + width) - Math.max(from, start)) / width;
    }
  };
  for (const request of requests) {
    const end = request.endsAt(now);
    const scheduled = request.sch ?? end;
    const read = request.fts ?? end;
    add(phases.queue, request.sub, scheduled);
    add(phases.prefill, scheduled, Math.max(scheduled, read));
    if (request.fts !== null) add(phases.decode, read, end);
  }
  return phases;
}

export function drawCounts(surface, scene, { y, height }) {
  const { axis } = scene;
  const { colours } = surface;
  const bins = Math.max(1, Math.round(axis.right - axis.left));
  // The band is drawn again for every move of the crosshair, which changes no count.
  const phases = (scene.phases ??= countPhases(scene.requests, axis.t0, axis.t1, bins, scene.now));
  let most = scene.config.slots;
  for (let i = 0; i < bins; i += 1) {
    most = Math.max(most, phases.decode[i] + phases.prefill[i] + phases.queue[i]);
  }
  const base = y + height;
  const scale = (height * 0.96) / most;
  const step = [1, 2, 5, 10, 20, 50, 100, 200].find((s) => most / s <= 4.5) ?? 500;
  for (let v = step; v <= most; v += step) {
    surface.line(axis.left, base - v * scale, axis.right, base - v * scale, colours.grid);
    surface.text(axis.left - 8, base - v * scale + 4, String(v), { colour: colours["ink-3"], align: "right" });
  }
  stackArea(surface, axis, [
    [phases.decode, colours.decode], [phases.prefill, colours.prefill], [phases.queue, colours.queue],
  ], base, scale);
  const limit = base - scene.config.slots * scale;
  surface.line(axis.left, limit, axis.right, limit, colours.ink, { dash: [3, 3] });
  surface.line(axis.left, base, axis.right, base, colours["line-2"]);
  const slots = fill(scene.words.slots_of, { n: scene.config.slots });
  surface.text(axis.right + 10, limit + 4, slots, { colour: colours["ink-2"] });
}

/** Areas of one-pixel bins stacked from the bottom: [[values, colour], ...]. */
export function stackArea(surface, axis, areas, base, scale) {
  const bins = areas[0][0].length;
  const floor = new Float32Array(bins);
  const width = (axis.right - axis.left) / bins;
  for (const [values, colour] of areas) {
    surface.context.fillStyle = colour;
    surface.context.beginPath();
    for (let i = 0; i < bins; i += 1) {
      if (values[i] <= 0) continue;
      const x = axis.left + i * width;
      surface.context.rect(x, base - (floor[i] + values[i]) * scale, width + 0.35, values[i] * scale);
      floor[i] += values[i];
    }
    surface.context.fill();
  }
}
