// One picture's worth of facts, gathered once a frame and handed to every band: what is in the window,
// the shared axis, whose requests are whose. Bands add their own layout to it and draw from it alone.

import { TimeAxis } from "./axis.js";
import { TRAILING_TICKS } from "./statistics.js";

const TALL = 1000;

/** The moment lanes are read at; null for their newest numbers. */
export function readingTime(view) {
  if (view.cursor !== null) return view.cursor;
  return view.paused || view.zoomed ? view.domain()[1] : null;
}

/** app: the page's shared parts (app.js); width: of the stack in CSS pixels. */
export function buildScene(app, width) {
  const { trace, view } = app;
  const [t0, t1] = view.domain();
  const recent = trace.requestsBetween(t0 - TRAILING_TICKS, t1);
  app.kvColours.update(trace.live().filter((r) => r.sch !== null), (n) => app.own.has(n));
  return {
    trace,
    words: app.words,
    config: trace.config,
    sum: trace.sum,
    now: trace.now,
    edge: t1, // the moment the value column speaks of while there is no crosshair
    own: app.own,
    kvColours: app.kvColours,
    emphasis: app.emphasis,
    axis: new TimeAxis(width, t0, t1),
    recent,
    requests: recent.filter((r) => r.endsAt(trace.now) >= t0),
    cursor: view.cursor,
    readAt: readingTime(view),
    tall: window.innerHeight >= TALL,
    stretch: { gaps: 104, growth: 104 },
  };
}
