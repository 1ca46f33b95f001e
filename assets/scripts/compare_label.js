// The words beside the title of the two timelines: what is under the crosshair, or the selected stretch
// in numbers for A and B. Pure: sides in, a line of text out.

import { duration, plural, seconds } from "./formats.js";
import { lowerBound } from "./ring.js";
import { summary } from "./statistics.js";
import { STEP } from "./trace.js";

/** Count, mean, min and max of the gaps between tokens of a trace in t0..t1. */
export function gapsBetween(trace, t0, t1) {
  const values = [];
  for (const request of trace.requests.values()) {
    const last = lowerBound(request.gapTimes, t1 + 1);
    for (let i = lowerBound(request.gapTimes, t0); i < last; i += 1) values.push(request.gapValues[i]);
  }
  return summary(values);
}

export function compareLabel(view, sides, otherwise) {
  if (view.selection) {
    const [t0, t1] = view.selection;
    return [duration(t1 - t0), ...sides.map(({ name, trace }) => selected(name, gapsBetween(trace, t0, t1)))].join(" · ");
  }
  if (view.cursor !== null) {
    const at = `${seconds(view.cursor).toFixed(2)} s`;
    return [at, ...sides.map(({ name, trace }) => atCursor(name, trace.stepAt(view.cursor)))].join(" · ");
  }
  return otherwise;
}

function selected(name, gaps) {
  if (!gaps.n) return `${name}: no gaps`;
  const [mean, min, max] = [gaps.mean, gaps.min, gaps.max].map(duration);
  return `${name}: ${plural(gaps.n, "gap")}, mean ${mean}, min ${min}, max ${max}`;
}

function atCursor(name, step) {
  if (!step) return `${name}: no step`;
  return `${name}: step of ${duration(step[STEP.d])}, ${step[STEP.prefill]} prefill, ${step[STEP.decode]} decode`;
}
