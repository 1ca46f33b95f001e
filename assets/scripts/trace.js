// Everything the browser knows of the engine: the feed's frames merged into bounded stores. Pure data
// without a document, a clock or a network, so that tests can feed it and read it back.

import { Ring } from "./ring.js";
import { Request } from "./request.js";

export const MAX_STEPS = 4000;
export const MAX_REQUESTS = 600;

/** Columns of a step row, as on the wire. */
export const STEP = Object.freeze({
  n: 0, t: 1, d: 2, prefill: 3, decode: 4, running: 5, waiting: 6, used: 7, evictable: 8,
  flops: 9, bytes: 10, bound: 11,
});
export const BOUNDS = ["", "memory-bound", "compute-bound", "overhead-bound"];
export const BLOCK = Object.freeze({ free: 0, cached: 1, live: 2, reused: 3, shared: 4 });

export class Trace {
  constructor() {
    this.steps = new Ring(MAX_STEPS);
    this.requests = new Map();
    this.version = 0;
    this.#empty();
    this.epoch = null;
    this.cursor = -1;
  }

  #empty() {
    this.steps.clear();
    this.requests.clear();
    this.config = null;
    this.state = null;
    this.sum = null;
    this.kv = null;
    this.recording = null; // {recorded, machine} of what is no live engine
    this.now = 0;
  }

  /** Merge one answer of the feed. Returns true when what was held had to be dropped. */
  apply({ cursor, epoch, frames }) {
    const reset = frames.some((frame) => frame.reset);
    for (const frame of frames) this.#merge(frame);
    this.cursor = cursor;
    this.epoch = epoch;
    this.version += 1;
    return reset;
  }

  // A frame leaves out what has not changed.
  #merge(frame) {
    if (frame.reset) this.#empty();
    this.now = frame.now;
    if (frame.config) this.config = frame.config;
    if (frame.state) this.state = frame.state;
    if (frame.sum) this.sum = frame.sum;
    if (frame.recording) this.recording = frame.recording;
    const newest = this.steps.last()?.[STEP.n] ?? -1;
    for (const step of frame.steps ?? []) if (step[STEP.n] > newest) this.steps.push(step);
    for (const entry of frame.reqs ?? []) this.#request(entry.n).merge(entry);
    if (this.requests.size > MAX_REQUESTS) this.#forget();
    if (frame.kv) this.kv = unpackBlocks(frame.kv);
  }

  #request(n) {
    let request = this.requests.get(n);
    if (!request) {
      request = new Request(n);
      this.requests.set(n, request);
    }
    return request;
  }

  // Ended requests go first, oldest first; a flood of live ones must still stay bounded.
  #forget() {
    const oldestFirst = [...this.requests.values()].sort((a, b) => a.n - b.n);
    const order = [...oldestFirst.filter((r) => r.ended), ...oldestFirst.filter((r) => !r.ended)];
    for (const request of order.slice(0, this.requests.size - MAX_REQUESTS)) {
      this.requests.delete(request.n);
    }
  }

  /** Requests seen between t0 and t1, by arrival. */
  requestsBetween(t0, t1) {
    const found = [];
    for (const request of this.requests.values()) {
      if (request.sub <= t1 && request.endsAt(this.now) >= t0) found.push(request);
    }
    return found.sort((a, b) => a.n - b.n);
  }

  /** Requests that hold a slot or wait for one, by arrival. */
  live() {
    return [...this.requests.values()].filter((r) => !r.ended).sort((a, b) => a.n - b.n);
  }

  /** Index range [from, to) of the steps that touch t0..t1. */
  stepsBetween(t0, t1) {
    const from = this.steps.lowerBound(t0, (step) => step[STEP.t] + step[STEP.d]);
    const to = this.steps.lowerBound(t1, (step) => step[STEP.t]);
    return [from, Math.max(from, to)];
  }

  /** The step that ran at `t`; null while the engine was idle. */
  stepAt(t) {
    const index = this.steps.lowerBound(t, (step) => step[STEP.t] + step[STEP.d]);
    const step = this.steps.at(index);
    return step && step[STEP.t] <= t ? step : null;
  }

  /** Time of the newest thing that happened, in ticks. */
  lastEvent() {
    const step = this.steps.last();
    let last = step ? step[STEP.t] + step[STEP.d] : 0;
    for (const r of this.requests.values()) last = Math.max(last, r.sub, r.ltd ?? 0, r.end ?? 0);
    return last;
  }

  /** Time of the oldest thing still held. */
  firstEvent() {
    let first = this.steps.length ? this.steps.at(0)[STEP.t] : this.now;
    for (const request of this.requests.values()) first = Math.min(first, request.sub);
    return first;
  }
}

/** Runs of blocks spread out: {n, states, owners, filled}; `filled` maps a block to its share of 16. */
function unpackBlocks({ n, runs, last }) {
  const states = new Uint8Array(n);
  const owners = new Int32Array(n);
  let block = 0;
  for (const [length, state, owner] of runs) {
    states.fill(state, block, block + length);
    owners.fill(owner, block, block + length);
    block += length;
  }
  return { n, states, owners, filled: new Map(last.map(([, id, filled]) => [id, filled])) };
}
