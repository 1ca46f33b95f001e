// What each first token waited for, as numbers: the four parts of TTFT a request, which requests are
// shown, and the mean of all when there are many. Pure functions.

import { MOST_LINES } from "./band_growth.js";

export const PARTS = ["preparation", "queue", "prefill", "delivery"];
const MOST_ROWS = 12;

/** The four parts in ticks; they add up to TTFT exactly. Null before the first token. */
export function ttftParts(request) {
  const { sub, que, sch, fts, ftd } = request;
  if ([que, sch, fts, ftd].includes(null)) return null;
  return { preparation: que - sub, queue: sch - que, prefill: fts - sch, delivery: ftd - fts };
}

/** Rows of the chart, top first: {label, n, own, parts, total}. */
export function ttftRows(requests, isOwn, allLabel) {
  const read = requests.filter((request) => ttftParts(request) !== null);
  const newest = [...read].sort((a, b) => a.ftd - b.ftd).slice(-MOST_ROWS);
  const kept = new Set(newest.map((request) => request.n));
  if (read.length > MOST_ROWS) {
    const mine = read.filter((request) => isOwn(request.n)).slice(-MOST_ROWS);
    for (const request of mine) kept.add(request.n);
    for (const request of newest) {
      if (kept.size <= MOST_ROWS) break;
      if (!isOwn(request.n)) kept.delete(request.n);
    }
  }
  const rows = read
    .filter((request) => kept.has(request.n))
    .map((r) => ({ label: r.id, n: r.n, own: isOwn(r.n), parts: ttftParts(r), total: r.ttft }));
  if (read.length > MOST_LINES) rows.unshift(meanRow(read, allLabel));
  return rows;
}

function meanRow(requests, label) {
  const parts = Object.fromEntries(PARTS.map((part) => [part, 0]));
  for (const request of requests) {
    const own = ttftParts(request);
    for (const part of PARTS) parts[part] += own[part] / requests.length;
  }
  return { label, n: null, own: false, parts, total: PARTS.reduce((sum, part) => sum + parts[part], 0) };
}
