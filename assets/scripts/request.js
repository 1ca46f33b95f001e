// One request as the browser knows it: the scalars of the feed, its prefill chunks, its token times,
// and what follows from them (gaps, phase at a time, tokens in the KV cache). Pure data: it draws
// nothing and never holds a prompt or an answer.

import { lowerBound } from "./ring.js";

const ENDED = new Set(["done", "cancelled", "failed"]);

export class Request {
  constructor(n) {
    this.n = n;
    this.chunks = [];
    this.tokens = [];
    this.firstHeld = 0; // index of the output token that tokens[0] belongs to
    this.gapTimes = [];
    this.gapValues = [];
    this.longestPause = null;
    this.version = 0;
    this.levelCache = { version: -1, points: [] };
  }

  get ended() {
    return ENDED.has(this.st);
  }

  /** Time to first token in ticks, null before there is one. */
  get ttft() {
    return this.ftd === null ? null : this.ftd - this.sub;
  }

  /** The moment this request left the picture, or `now`. */
  endsAt(now) {
    return this.ended ? (this.end ?? this.ltd ?? now) : now;
  }

  /** Take over what one feed entry says. */
  merge(entry) {
    const { chunks, tok, ...scalars } = entry;
    Object.assign(this, scalars);
    if (chunks) {
      this.chunks.length = Math.min(this.chunks.length, chunks[0]);
      this.chunks.push(...chunks[1]);
    }
    if (tok) this.#mergeTokens(tok);
    this.version += 1;
  }

  #mergeTokens([from, first, gaps]) {
    let keep = from - this.firstHeld;
    if (keep < 0 || keep > this.tokens.length) {
      this.firstHeld = from;
      keep = 0;
    }
    this.tokens.length = keep;
    let t = first;
    this.tokens.push(t);
    for (const gap of gaps) this.tokens.push((t += gap));
    this.#extendGaps(keep);
  }

  // Tokens of one step arrive at one time: each of k gets 1/k of the step's gap (the ITL), while the
  // undivided gap decides the longest pause. The last group may still have been growing, so gaps
  // are rebuilt from its start.
  #extendGaps(changedFrom) {
    const { tokens } = this;
    let i = Math.min(changedFrom, tokens.length - 1);
    while (i > 0 && tokens[i] === tokens[i - 1]) i -= 1;
    const kept = lowerBound(this.gapTimes, tokens[i]);
    this.gapTimes.length = kept;
    this.gapValues.length = kept;
    while (i < tokens.length) {
      let j = i + 1;
      while (j < tokens.length && tokens[j] === tokens[i]) j += 1;
      if (i > 0) {
        const gap = tokens[i] - tokens[i - 1];
        this.longestPause = Math.max(this.longestPause ?? 0, gap);
        for (let k = i; k < j; k += 1) {
          this.gapTimes.push(tokens[k]);
          this.gapValues.push(gap / (j - i));
        }
      }
      i = j;
    }
  }

  /** Output tokens delivered up to `t`. */
  deliveredAt(t) {
    const held = lowerBound(this.tokens, t + 1);
    return held === 0 && this.firstHeld === 0 ? 0 : this.firstHeld + held;
  }

  /** What the request was doing at `t`: one of the states of the feed, or "" before submission. */
  stateAt(t) {
    if (t < this.sub) return "";
    if (this.ended && this.end !== null && t >= this.end) return this.st;
    if (this.que === null || t < this.que) return "preparing";
    if (this.sch === null || t < this.sch) return "queued";
    if (this.waitingAgainAt(t)) return "queued";
    return this.fts === null || t < this.fts ? "reading" : "writing";
  }

  /** True between a preemption and the start of the chunk that resumes the request. */
  waitingAgainAt(t) {
    return this.waits().some(([from, to]) => t >= from && t < (to ?? Infinity));
  }

  /** [from, to] of each wait after a preemption; `to` is null while it lasts. */
  waits() {
    return this.pre.map(([t]) => {
      const resumed = this.chunks.find((chunk) => chunk[0] >= t);
      return [t, resumed ? resumed[0] : this.ended ? (this.end ?? t) : null];
    });
  }

  /**
   * [t, tokens] points of this request's tokens in the KV cache, ascending in t. Follows from the
   * chunks and token times: the newest token is not in the cache yet.
   */
  levels() {
    if (this.levelCache.version !== this.version) {
      this.levelCache = { version: this.version, points: cacheLevels(this) };
    }
    return this.levelCache.points;
  }

  /** Tokens in the KV cache at `t`. */
  levelAt(t) {
    const points = this.levels();
    let low = 0;
    let high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= t) low = middle + 1;
      else high = middle;
    }
    return low ? points[low - 1][1] : 0;
  }
}

function cacheLevels(request) {
  if (request.sch === null) return [];
  const events = [];
  for (const [t, d, tokens] of request.chunks) events.push([t, 1, d, tokens]);
  for (const [t] of request.pre) events.push([t, 0, 0, reusedAfter(request, t)]);
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const points = [[request.sch, request.cached]];
  let level = request.cached;
  let decodedFrom = 0;
  for (const [t, isChunk, d, tokens] of events) {
    decodedFrom = pushDecoded(points, request, decodedFrom, t);
    if (isChunk) {
      // Nothing grows between chunks, so the line stays level up to the start of this one.
      points.push([t, points.at(-1)[1]], [t, level]);
      level += tokens;
      points.push([t + d, level]);
    } else {
      level = tokens; // comes back with the first chunk; until then the request holds nothing
      points.push([t, 0]);
    }
  }
  pushDecoded(points, request, decodedFrom, Infinity);
  return points;
}

// Tokens that a preempted request found in the prefix cache when it resumed: what its chunks did not
// have to compute again. Known once the chunks are through, that is with the next token.
function reusedAfter(request, preempted) {
  const next = request.pre.find(([t]) => t > preempted)?.[0] ?? Infinity;
  const chunks = request.chunks.filter(([t]) => t >= preempted && t < next);
  if (!chunks.length) return 0;
  const [start, took] = chunks.at(-1);
  const through = request.tokens.some((t) => t >= start + took && t < next);
  const known = request.prompt + request.deliveredAt(preempted);
  const computed = chunks.reduce((sum, chunk) => sum + chunk[2], 0);
  return through ? Math.max(0, known - computed) : 0;
}

// Token i (from 0) is delivered while prompt + i positions are computed.
function pushDecoded(points, request, from, until) {
  let i = from;
  for (; i < request.tokens.length && request.tokens[i] < until; i += 1) {
    const last = points.at(-1);
    const level = request.prompt + request.firstHeld + i;
    if (request.tokens[i] >= last[0]) points.push([request.tokens[i], level]);
  }
  return i;
}
