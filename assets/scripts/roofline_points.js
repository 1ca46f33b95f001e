// Steps as points under the roof: work per byte moved, and work per second. Pure functions.

import { TICKS_PER_SECOND } from "./formats.js";
import { STEP } from "./trace.js";

export const MOST_POINTS = 1000;
const OVERHEAD = 3;

/** {decode, prefill, overhead}: lists of {x: FLOP per byte, y: FLOP per second, n: step}. */
export function rooflinePoints(trace, t0, t1) {
  const points = { decode: [], prefill: [], overhead: [] };
  const [from, to] = trace.stepsBetween(t0, t1);
  for (let i = from; i < to; i += 1) {
    const step = trace.steps.at(i);
    const flops = step[STEP.flops];
    const bytes = step[STEP.bytes];
    if (!flops || !bytes || !step[STEP.d]) continue;
    const point = { x: flops / bytes, y: (flops * TICKS_PER_SECOND) / step[STEP.d], n: step[STEP.n] };
    if (step[STEP.bound] === OVERHEAD) points.overhead.push(point);
    else if (step[STEP.prefill]) points.prefill.push(point);
    else points.decode.push(point);
  }
  return points;
}

/**
 * Points gathered in hexagonal bins of `size` px: [{x, y, count}] at the bins' centres.
 * toX, toY map a point to pixels; fromX, fromY map back.
 */
export function hexBins(points, size, { toX, toY, fromX, fromY }) {
  const height = size * Math.sqrt(3);
  const bins = new Map();
  for (const point of points) {
    const [px, py] = [toX(point.x), toY(point.y)];
    const even = [Math.round(px / size), Math.round(py / height)];
    const odd = [Math.round(px / size - 0.5) + 0.5, Math.round(py / height - 0.5) + 0.5];
    const away = ([i, j]) => (px - i * size) ** 2 + (py - j * height) ** 2;
    const [i, j] = away(even) <= away(odd) ? even : odd;
    const key = `${i} ${j}`;
    const bin = bins.get(key) ?? { x: fromX(i * size), y: fromY(j * height), count: 0 };
    bin.count += 1;
    bins.set(key, bin);
  }
  return [...bins.values()];
}
