// A bounded, ordered store: the oldest entry goes when a new one does not fit.
// It knows nothing of what it holds, except through the key function handed to lowerBound.

export class Ring {
  constructor(capacity) {
    this.capacity = capacity;
    this.items = new Array(capacity);
    this.head = 0;
    this.length = 0;
  }

  clear() {
    this.items.fill(undefined);
    this.head = 0;
    this.length = 0;
  }

  push(item) {
    if (this.length < this.capacity) {
      this.items[(this.head + this.length) % this.capacity] = item;
      this.length += 1;
    } else {
      this.items[this.head] = item;
      this.head = (this.head + 1) % this.capacity;
    }
  }

  /** Entry `index`, 0 being the oldest one held; undefined outside. */
  at(index) {
    if (index < 0 || index >= this.length) return undefined;
    return this.items[(this.head + index) % this.capacity];
  }

  last() {
    return this.at(this.length - 1);
  }

  /** First index whose key is not below `value`; keys must not fall. */
  lowerBound(value, key) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(this.at(middle)) < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** First index of a sorted array whose value is not below `value`. */
export function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
