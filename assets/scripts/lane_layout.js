// How many requests are in the window decides how they are drawn: full lanes, thin rows, a raster, or
// counts by phase. Pure arithmetic: rows in, rectangles out.

const PINNED = 4;
const HEAD = 16;
const RASTER_ROW = 4;
const THIN_ROW = 10;
const COUNTS_HEIGHT = 150;

/** "full", "thin", "raster" or "counts" for a number of requests. */
export function modeFor(requests) {
  if (requests <= 12) return "full";
  if (requests <= 40) return "thin";
  return requests <= 100 ? "raster" : "counts";
}

/**
 * Rows of the requests in the window.
 *
 * requests: by arrival; isOwn(n): of this session; tall: the window has room for larger lanes.
 * Returns {mode, rows: [{request, own, full, y, height, bar}], others: {y, height, count}, height}:
 * `others` is the area of the rows or counts that carry no label (null without one).
 */
export function layOut(requests, isOwn, tall) {
  const mode = modeFor(requests.length);
  const size = { full: tall ? 28 : 22, own: tall ? 34 : 28 };
  if (mode === "full") return stack(requests, isOwn, mode, size, requests.length === 1);
  if (mode === "thin") return stack(requests, isOwn, mode, { ...size, full: THIN_ROW }, false);
  return pinned(requests, isOwn, mode, size.own);
}

function stack(requests, isOwn, mode, size, single) {
  let y = HEAD;
  const rows = requests.map((request) => {
    const own = isOwn(request.n);
    const full = own || mode === "full";
    const height = single ? 34 : own ? size.own : size.full;
    const bar = single ? 18 : own ? 16 : mode === "thin" ? 7 : 11;
    const row = { request, own, full, y, height, bar };
    y += height;
    return row;
  });
  return { mode, rows, others: null, height: y + 3 };
}

function pinned(requests, isOwn, mode, ownHeight) {
  const mine = requests.filter((request) => isOwn(request.n)).slice(-PINNED);
  const pinnedNumbers = new Set(mine.map((request) => request.n));
  const rest = requests.filter((request) => !pinnedNumbers.has(request.n));
  let y = HEAD;
  const rows = mine.map((request) => {
    const row = { request, own: true, full: true, y, height: ownHeight, bar: 16 };
    y += ownHeight;
    return row;
  });
  if (mine.length) y += 6;
  const top = y;
  if (mode === "counts") {
    const others = { y: top, height: COUNTS_HEIGHT, count: rest.length };
    return { mode, rows, others, rest, height: top + COUNTS_HEIGHT + 5 };
  }
  for (const request of rest) {
    rows.push({ request, own: isOwn(request.n), full: false, y, height: RASTER_ROW, bar: 3 });
    y += RASTER_ROW;
  }
  return { mode, rows, others: { y: top, height: y - top, count: rest.length }, height: y + 5 };
}
