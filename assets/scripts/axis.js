// The time axis that all bands of the timeline share: time to pixels and back, and its ticks.

import { TICKS_PER_SECOND, clock } from "./formats.js";

const TICK_SECONDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200];

/** Under this width the gutters narrow and secondary words go. */
const NARROW = 520;

export class TimeAxis {
  constructor(width, t0, t1) {
    this.narrow = width < NARROW;
    this.width = width;
    this.left = this.narrow ? 54 : 104;
    this.right = width - (this.narrow ? 66 : 102);
    this.t0 = t0;
    this.t1 = t1;
    this.perTick = (this.right - this.left) / (t1 - t0);
    const room = this.narrow ? 52 : 62;
    this.step = TICK_SECONDS.find((s) => s * TICKS_PER_SECOND * this.perTick >= room) ?? 14_400;
  }

  x(t) {
    return this.left + (t - this.t0) * this.perTick;
  }

  /** x, kept inside the plot. */
  clamped(t) {
    return Math.min(this.right, Math.max(this.left, this.x(t)));
  }

  time(x) {
    return this.t0 + (x - this.left) / this.perTick;
  }

  inside(x) {
    return x >= this.left && x <= this.right;
  }

  ticks() {
    const step = this.step * TICKS_PER_SECOND;
    const times = [];
    for (let t = Math.ceil(Math.max(0, this.t0) / step) * step; t <= this.t1; t += step) times.push(t);
    return times;
  }

  grid(surface, height) {
    for (const t of this.ticks()) {
      surface.line(this.x(t), 0, this.x(t), height, surface.colours.grid);
    }
  }

  labels(surface, y, name) {
    const style = { colour: surface.colours["ink-3"] };
    const digits = this.step < 0.1 ? 2 : this.step < 1 ? 1 : 0;
    for (const t of this.ticks()) {
      const x = Math.min(this.x(t), this.right - 2);
      surface.text(x, y, clock(t, digits), { ...style, align: "center" });
    }
    if (!this.narrow) surface.text(0, y, name, style);
  }
}

/** Push labels {y} at least `gap` apart, upwards from `lowest`, and down again below `highest`. */
export function nudgeApart(labels, gap, highest, lowest) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = labels.length - 1, limit = lowest; i >= 0; i -= 1) {
    labels[i].y = Math.min(labels[i].y, limit);
    limit = labels[i].y - gap;
  }
  for (let i = 0, limit = highest; i < labels.length; i += 1) {
    labels[i].y = Math.max(labels[i].y, limit);
    limit = labels[i].y + gap;
  }
  return labels;
}
