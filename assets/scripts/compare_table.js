// "Show as table" of the timelines: the requests of the drawn runs, each in one row with both sides'
// numbers. Pure: sides in, texts out.

import { count, DASH, duration, seconds } from "./formats.js";
import { fill } from "./words.js";

const MOST_ROWS = 200;

/** {caption, head, rows}: texts only; sides as in compare.js, words of ui/words_compare.py. */
export function requestTable(sides, words) {
  const total = Math.max(...sides.map(({ requests }) => requests.length));
  const shown = Math.min(total, MOST_ROWS);
  const head = sides.flatMap(({ name }) => words.table_side.map((title) => named(title, name, sides)));
  const rows = Array.from({ length: shown }, (_, i) => row(sides.map(({ requests }) => requests[i])));
  return {
    caption: fill(words.table_caption, { n: count(shown), total: count(total) }),
    head: [...words.table_head, ...head],
    rows,
  };
}

const named = (title, name, sides) => fill(title, { name: sides.length > 1 ? name : "" }).trim();

function row(requests) {
  const first = requests.find(Boolean);
  const facts = [first.id, count(first.prompt), count(first.max), since(first.sub)];
  const each = requests.flatMap((r) =>
    r ? [count(r.cached), duration(r.ttft), duration(r.longestPause), since(r.end)] : [DASH, DASH, DASH, DASH]);
  return [...facts, ...each];
}

const since = (t) => (t === null || t === undefined ? DASH : `${seconds(t).toFixed(2)} s`);
