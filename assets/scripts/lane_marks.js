// The marks of one request on the time axis: waiting, preparation, prefill chunks, first token, tokens,
// end. It draws inside the bar it is given and knows no row but that.

import { lowerBound } from "./ring.js";

const MERGE_PX = 2;

/** Draw `request` as a bar of `bar` px about `centre`. `full` adds life line, circle and caps. */
export function drawMarks(surface, axis, request, { centre, bar, own, full }, now) {
  const colours = surface.colours;
  const top = centre - bar / 2;
  const end = axis.clamped(request.endsAt(now));
  if (full) surface.line(axis.clamped(request.sub), centre + 0.5, end, centre + 0.5, colours["line-2"]);
  drawWaiting(surface, axis, request, top, bar, now, full);
  drawChunks(surface, axis, request, top, bar);
  drawTokens(surface, axis, request, top, bar, full ? 1.5 : 0.9);
  if (!full) {
    if (request.st === "failed") surface.rect(end - 1, top, 2, bar, colours.err);
    return;
  }
  drawCuts(surface, axis, request, top, bar);
  if (request.ftd !== null && axis.inside(axis.x(request.ftd))) {
    surface.disc(axis.x(request.ftd), centre, own ? 4 : 3.4, colours.surface, colours.ink);
  }
  if (request.ended && axis.inside(axis.x(request.endsAt(now)))) drawEnd(surface, request, end, top, bar);
}

function drawWaiting(surface, axis, request, top, bar, now, full) {
  const { colours } = surface;
  const until = request.endsAt(now);
  const prepared = request.que ?? until;
  span(surface, axis, request.sub, prepared, top, bar, colours.prep, 2);
  const fill = full ? surface.hatch() : colours.queue;
  if (request.que !== null) {
    const scheduled = request.sch ?? until;
    const least = request.sch === null ? 3 : 0;
    span(surface, axis, request.que, scheduled, top, bar, fill, least);
  }
  for (const [from, to] of request.waits()) span(surface, axis, from, to ?? until, top, bar, fill, 2);
}

// Parts shorter than half a pixel would be a smear of colour, unless they have a least width.
function span(surface, axis, from, to, top, bar, fill, least) {
  if (to < axis.t0 || from > axis.t1) return;
  const x0 = axis.clamped(from);
  const width = Math.max(axis.clamped(to) - x0, least);
  if (width >= 0.5) surface.mark(x0, top, width, bar, fill);
}

function drawChunks(surface, axis, request, top, bar) {
  for (const [t, d] of request.chunks) {
    if (t + d < axis.t0 || t > axis.t1) continue;
    const x0 = axis.clamped(t);
    const width = axis.clamped(t + d) - x0;
    surface.mark(x0, top, Math.max(width - (width > 4 ? 1 : 0), 2), bar, surface.colours.prefill);
  }
}

// Ticks closer than 2 px merge into a solid run, so that a stall stays a gap at any zoom.
function drawTokens(surface, axis, request, top, bar, tick) {
  const { tokens } = request;
  const last = lowerBound(tokens, axis.t1 + 1);
  let i = lowerBound(tokens, axis.t0);
  while (i < last) {
    const from = axis.x(tokens[i]);
    let to = from;
    i += 1;
    while (i < last && axis.x(tokens[i]) - to < MERGE_PX) {
      to = axis.x(tokens[i]);
      i += 1;
    }
    const x0 = Math.max(axis.left, from - tick / 2);
    surface.mark(x0, top, Math.min(axis.right, to + tick / 2) - x0, bar, surface.colours.decode);
  }
}

// A preemption cuts the lane: a dashed upright where its blocks were taken away.
function drawCuts(surface, axis, request, top, bar) {
  for (const [t] of request.pre) {
    const x = axis.x(t);
    if (!axis.inside(x)) continue;
    surface.rect(x - 1.5, top - 2, 3, bar + 4, surface.colours.surface);
    surface.line(x, top - 3, x, top + bar + 3, surface.colours.ink, { dash: [2, 2] });
  }
}

function drawEnd(surface, request, x, top, bar) {
  const { ink, err } = surface.colours;
  if (request.st === "failed") {
    const middle = top + bar / 2;
    surface.line(x - 3, middle - 4, x + 5, middle + 4, err, { width: 2 });
    surface.line(x - 3, middle + 4, x + 5, middle - 4, err, { width: 2 });
  } else {
    surface.line(x + 1.5, top - 2, x + 1.5, top + bar + 2, ink, { width: 2 });
  }
}
