// The line of words beside the timeline's title: the window, or what is under the crosshair, or the
// selected stretch in numbers, or how far behind a paused picture is.

import { clock, count, duration, plural, rate, seconds, TICKS_PER_SECOND } from "./formats.js";
import { lowerBound } from "./ring.js";
import { summary } from "./statistics.js";
import { BOUNDS, STEP } from "./trace.js";
import { fill } from "./words.js";

const LONG = 600 * TICKS_PER_SECOND;

export function timelineLabel(scene, app) {
  const { view, feed, words } = app;
  if (view.selection) return selectionLabel(scene, view.selection);
  if (scene.cursor !== null) return cursorLabel(scene);
  const parts = [windowLabel(scene)];
  if (app.trace.recording) parts.push(words.replay.label);
  else if (view.paused) parts.push(fill(words.paused_behind, { time: duration(view.behind()) }));
  else if (feed.connection === "reconnecting" || feed.connection === "offline") {
    parts.push(fill(words.last_data, { time: plural(Math.round(feed.silence() / 1000), "second") }));
  } else if (app.trace.state?.name === "idle" && view.edge() > 0) {
    parts.push(fill(words.idle_for, { time: clock(app.serverNow() - view.edge()) }));
  } else if (app.trace.state?.name === "stopped") {
    parts.push(fill(words.stopped_at, { time: clock(view.edge()) }));
  }
  return parts.filter(Boolean).join(" · ");
}

const spanWords = (ticks) => (ticks < LONG ? duration(ticks) : `${clock(ticks)} min`);

function windowLabel({ trace, axis }) {
  const [from, to] = trace.stepsBetween(axis.t0, axis.t1);
  if (to <= from) return trace.steps.length ? spanWords(axis.t1 - axis.t0) : "";
  const first = count(trace.steps.at(from)[STEP.n]);
  const last = count(trace.steps.at(to - 1)[STEP.n]);
  const steps = to - from === 1 ? `step ${first}` : `steps ${first} to ${last}`;
  return `${spanWords(axis.t1 - axis.t0)}, ${steps}`;
}

function cursorLabel({ trace, cursor, words }) {
  const step = trace.stepAt(cursor);
  const parts = [clock(cursor, 2)];
  if (!step) parts.push(words.no_step);
  else {
    parts.push(`step ${count(step[STEP.n])}`, duration(step[STEP.d]));
    if (step[STEP.bound]) parts.push(BOUNDS[step[STEP.bound]]);
  }
  return parts.join(" · ");
}

/** Count, mean, min and max of the gaps delivered in a stretch, and what the engine did in it. */
function selectionFacts(scene, [t0, t1]) {
  const values = [];
  for (const request of scene.trace.requestsBetween(t0, t1)) {
    const last = lowerBound(request.gapTimes, t1 + 1);
    for (let i = lowerBound(request.gapTimes, t0); i < last; i += 1) values.push(request.gapValues[i]);
  }
  const [from, to] = scene.trace.stepsBetween(t0, t1);
  let tokens = 0;
  for (const r of scene.trace.requests.values()) tokens += lowerBound(r.tokens, t1 + 1) - lowerBound(r.tokens, t0);
  return { span: t1 - t0, steps: to - from, perSecond: tokens / seconds(t1 - t0), gaps: summary(values) };
}

function selectionLabel(scene, range) {
  const { span, steps, gaps, perSecond } = selectionFacts(scene, range);
  const parts = [duration(span), plural(steps, "step"), plural(gaps.n, "gap")];
  if (gaps.n) {
    parts.push(`mean ${duration(gaps.mean)}`, `min ${duration(gaps.min)}`, `max ${duration(gaps.max)}`);
  }
  parts.push(`${rate(perSecond)} tok/s`);
  return parts.join(" · ");
}
