// From block map to cells and counts: which colour each cell has, and how many blocks are whose.
// Pure functions over what the feed says of the pool.

import { BLOCK } from "./trace.js";

const MOST_CELLS = 1536;

/** Blocks a cell stands for: 1, 2, 4, 8 ... */
export function blocksPerCell(blocks) {
  let k = 1;
  while (blocks / k > MOST_CELLS) k *= 2;
  return k;
}

/**
 * Cells of the map: [{state, owner, filled}] in block order; `filled` is the share of a live request's
 * last block that holds tokens (1 elsewhere). With several blocks a cell, the commonest kind wins.
 */
export function cellsOf(kv, blockSize) {
  const k = blocksPerCell(kv.n);
  const cells = [];
  for (let block = 0; block < kv.n; block += k) {
    if (k === 1) {
      const filled = kv.filled.has(block) ? kv.filled.get(block) / blockSize : 1;
      cells.push({ state: kv.states[block], owner: kv.owners[block], filled });
    } else cells.push({ ...commonest(kv, block, Math.min(kv.n, block + k)), filled: 1 });
  }
  return cells;
}

function commonest(kv, from, to) {
  const seen = new Map();
  let best = null;
  for (let block = from; block < to; block += 1) {
    const state = kv.states[block];
    const owner = state === BLOCK.cached || state === BLOCK.free ? 0 : kv.owners[block];
    const key = `${state} ${owner}`;
    const kind = seen.get(key) ?? { state, owner, blocks: 0 };
    kind.blocks += 1;
    seen.set(key, kind);
    if (!best || kind.blocks > best.blocks) best = kind;
  }
  return { state: best.state, owner: best.owner };
}

/** {free, cached, shared, reused, byOwner: Map n -> blocks} of the pool. */
export function countBlocks(kv) {
  const counts = { free: 0, cached: 0, shared: 0, reused: 0, byOwner: new Map() };
  for (let block = 0; block < kv.n; block += 1) {
    const state = kv.states[block];
    if (state === BLOCK.free) counts.free += 1;
    else if (state === BLOCK.cached) counts.cached += 1;
    else if (state === BLOCK.shared) counts.shared += 1;
    else {
      const owner = kv.owners[block];
      if (state === BLOCK.reused) counts.reused += 1;
      counts.byOwner.set(owner, (counts.byOwner.get(owner) ?? 0) + 1);
    }
  }
  return counts;
}
