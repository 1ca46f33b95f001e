// Which request has which colour in the KV panels. A request keeps its colour while it lives, so that
// the eye can follow it; kv1 is always the visitor's newest request.

const OTHERS = ["kv2", "kv3", "kv4", "kv5", "kv6"];
const CLEARLY_LARGER = 1.25;

export class KvColours {
  constructor() {
    this.slots = new Map(); // colour name -> request number
    this.byRequest = new Map();
  }

  /** live: requests in the cache now; isOwn(n). */
  update(live, isOwn) {
    const mine = live.filter((request) => isOwn(request.n)).at(-1);
    const size = new Map(live.map((request) => [request.n, request.levels().at(-1)?.[1] ?? 0]));
    for (const [name, n] of this.slots) {
      if (!size.has(n) || n === mine?.n) this.slots.delete(name);
    }
    const uncoloured = live
      .map((request) => request.n)
      .filter((n) => n !== mine?.n && ![...this.slots.values()].includes(n))
      .sort((a, b) => size.get(b) - size.get(a) || a - b);
    for (const name of OTHERS) {
      if (!this.slots.has(name) && uncoloured.length) this.slots.set(name, uncoloured.shift());
    }
    this.#swapForLargest(uncoloured, size);
    this.byRequest = new Map([...this.slots].map(([name, n]) => [n, name]));
    if (mine) this.byRequest.set(mine.n, "kv1");
  }

  #swapForLargest(uncoloured, size) {
    if (!uncoloured.length) return;
    const [name, smallest] = [...this.slots].sort((a, b) => size.get(a[1]) - size.get(b[1]))[0];
    if (size.get(uncoloured[0]) > CLEARLY_LARGER * size.get(smallest)) this.slots.set(name, uncoloured[0]);
  }

  /** Token name of the colour of live request `n`; kv-other when it has none of its own. */
  of(n) {
    return this.byRequest.get(n) ?? "kv-other";
  }

  has(n) {
    return this.byRequest.has(n);
  }
}
