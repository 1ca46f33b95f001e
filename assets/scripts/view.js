// Which stretch of time all bands show: the selected window, zoom, pause, crosshair and selection.
// Pure state over a Trace; whoever draws asks domain() and changes it through the methods.

import { TICKS_PER_SECOND } from "./formats.js";
import { STEP } from "./trace.js";
import { scaled } from "./zoom.js";

export const WINDOWS = {
  "steps-100": { steps: 100 },
  "steps-400": { steps: 400 },
  "steps-2000": { steps: 2000 },
  "seconds-10": { seconds: 10 },
  "seconds-60": { seconds: 60 },
  all: {},
};
const SHORTEST = 2 * TICKS_PER_SECOND;
const SHORTEST_ZOOM = TICKS_PER_SECOND / 20;
// A window of steps does not reach across an idle hour to fill its count.
const LONGEST_IDLE = 60 * TICKS_PER_SECOND;
const STILL = new Set(["idle", "stopped", "failed", "loading", "measuring", "replay"]);

export class View {
  constructor(trace) {
    this.trace = trace;
    this.window = "steps-400";
    this.zoomed = null; // [t0, t1] while the reader looks at a stretch of their own
    this.pausedAt = null;
    this.cursor = null;
    this.selection = null;
  }

  /** "Now" of the axis: the last event while nothing happens, so that idle charts stand still. */
  edge() {
    if (this.pausedAt !== null) return this.pausedAt;
    const { trace } = this;
    return STILL.has(trace.state?.name) ? trace.lastEvent() || trace.now : trace.now;
  }

  get paused() {
    return this.pausedAt !== null;
  }

  /** [t0, t1] in ticks. */
  domain() {
    if (this.zoomed) return this.zoomed;
    const t1 = this.edge();
    const { steps, seconds } = WINDOWS[this.window];
    if (seconds) return [t1 - seconds * TICKS_PER_SECOND, t1];
    const t0 = steps ? this.#startOfSteps(steps, t1) : this.trace.firstEvent();
    const span = Math.max(SHORTEST, t1 - t0);
    const everything = !steps || this.trace.steps.length < steps;
    return [t1 - span * (everything ? 1.04 : 1), t1];
  }

  #startOfSteps(wanted, t1) {
    const { steps } = this.trace;
    const end = steps.lowerBound(t1, (step) => step[STEP.t]);
    let index = Math.max(0, end - 1);
    const stop = Math.max(0, end - wanted);
    while (index > stop) {
      const before = steps.at(index - 1);
      if (steps.at(index)[STEP.t] - before[STEP.t] - before[STEP.d] > LONGEST_IDLE) break;
      index -= 1;
    }
    const start = steps.at(index)?.[STEP.t] ?? t1;
    if (index > 0 && end - index >= wanted) return start;
    // With less history than the window holds, the oldest visible request shows from its arrival.
    let first = start;
    for (const r of this.trace.requests.values()) {
      if (r.sub < first && r.endsAt(t1) > start && start - r.sub < LONGEST_IDLE) first = r.sub;
    }
    return first;
  }

  choose(window) {
    if (!(window in WINDOWS)) return;
    this.window = window;
    this.zoomed = null;
    this.selection = null;
  }

  pause() {
    this.pausedAt = this.edge();
  }

  resume() {
    this.pausedAt = null;
    this.zoomed = null;
    this.selection = null;
  }

  /** Ticks the picture is behind the engine. */
  behind() {
    return this.pausedAt === null ? 0 : this.trace.now - this.pausedAt;
  }

  /** Scale the axis by `factor` (below 1 is closer) about time `t`. */
  zoom(factor, t) {
    this.show(...scaled(this.domain(), factor, t, SHORTEST_ZOOM));
  }

  pan(ticks) {
    const [t0, t1] = this.domain();
    this.show(t0 + ticks, t1 + ticks);
  }

  /** Show exactly [t0, t1], kept within what is known. */
  show(t0, t1) {
    const edge = this.edge();
    const first = Math.min(this.trace.firstEvent(), edge - SHORTEST);
    const span = Math.min(t1 - t0, edge - first);
    const end = Math.min(Math.max(t1, first + span), edge);
    this.zoomed = span >= edge - first ? null : [end - span, end];
  }

  unzoom() {
    this.zoomed = null;
    this.selection = null;
  }
}
