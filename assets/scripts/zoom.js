// The rule by which every time axis zooms. Pure arithmetic over [t0, t1] in ticks.

/** The stretch scaled by `factor` (below 1 is closer) so that time `t` keeps its place on the axis. */
export function scaled([t0, t1], factor, t, shortest) {
  const span = Math.max(shortest, (t1 - t0) * factor);
  const start = t - ((t - t0) / (t1 - t0)) * span;
  return [start, start + span];
}
