// Which stretch of time both timelines show: one zoom, one crosshair, one selection for A and B. Pure
// state over two traces; it offers what timeline_input.js asks of a view.

import { TICKS_PER_SECOND } from "./formats.js";
import { scaled } from "./zoom.js";

const SHORTEST = TICKS_PER_SECOND / 50;
const MARGIN = 1.015;

export class PairView {
  constructor(traces) {
    this.end = Math.max(SHORTEST, ...traces.map((trace) => trace.lastEvent())) * MARGIN;
    this.zoomed = null;
    this.cursor = null;
    this.selection = null;
  }

  /** [t0, t1] in ticks since the start of the runs. */
  domain() {
    return this.zoomed ?? [0, this.end];
  }

  /** Scale the axis by `factor` (below 1 is closer) about time `t`. */
  zoom(factor, t) {
    this.show(...scaled(this.domain(), factor, t, SHORTEST));
  }

  pan(ticks) {
    const [t0, t1] = this.domain();
    this.show(t0 + ticks, t1 + ticks);
  }

  /** Show exactly [t0, t1], kept within the runs. */
  show(t0, t1) {
    const span = Math.min(Math.max(t1 - t0, SHORTEST), this.end);
    const start = Math.min(Math.max(t0, 0), this.end - span);
    this.zoomed = span >= this.end ? null : [start, start + span];
  }

  unzoom() {
    this.zoomed = null;
    this.selection = null;
  }
}
