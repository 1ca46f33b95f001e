// Percentiles as the page's definitions have them: linear interpolation over the samples, shown only
// where the count carries them. Nothing here knows what the samples are.

import { TICKS_PER_SECOND } from "./formats.js";

export const TRAILING_TICKS = 2 * TICKS_PER_SECOND;

/** Smallest sample count at which each percentile may be shown. */
export const NEEDED = { 50: 2, 95: 20, 99: 100 };

export const carries = (p, n) => n >= NEEDED[p];

/** Percentile `p` of ascending samples; null without samples. */
export function percentileOfSorted(sorted, p) {
  if (!sorted.length) return null;
  const position = ((sorted.length - 1) * p) / 100;
  const low = Math.floor(position);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (position - low);
}

export function percentile(samples, p) {
  return percentileOfSorted(Float64Array.from(samples).sort(), p);
}

/** {n, mean, min, max} of samples; the numbers are null without any. */
export function summary(samples) {
  let sum = 0;
  let min = Infinity;
  let max = -Infinity;
  for (const value of samples) {
    sum += value;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  const n = samples.length;
  return n ? { n, mean: sum / n, min, max } : { n, mean: null, min: null, max: null };
}

// Bins of one per cent of the value, from 0.1 ms to over an hour: below a pixel on a log axis.
const BIN = Math.log(1.01);
const BINS = 1800;
const binOf = (ticks) => Math.min(BINS - 1, Math.max(0, Math.round(Math.log(Math.max(1, ticks)) / BIN)));

/** The percentiles that `n` samples carry, from one walk up the histogram; null for the others. */
function fromHistogram(histogram, n) {
  const found = { 50: null, 95: null, 99: null };
  let bin = 0;
  let seen = histogram[0];
  for (const p of [50, 95, 99]) {
    if (!carries(p, n)) break;
    const rank = ((n - 1) * p) / 100;
    while (seen <= rank) seen += histogram[++bin];
    found[p] = Math.exp(bin * BIN);
  }
  return found;
}

/**
 * Running percentiles over the trailing 2 s.
 *
 * times, values: samples in ticks, in any order. Returns {times, 50, 95, 99}: one entry a sampling
 * point, null where fewer samples than NEEDED lie in the trailing window. About `points` points.
 */
export function runningPercentiles(times, values, t0, t1, points) {
  const perWindow = Math.max(1, Math.round((TRAILING_TICKS * points) / Math.max(1, t1 - t0)));
  const interval = TRAILING_TICKS / perWindow;
  const firstBucket = -perWindow;
  const buckets = Math.ceil((t1 - t0) / interval) - firstBucket + 1;
  const { order, starts } = bucketSort(times, t0, interval, firstBucket, buckets);
  const histogram = new Int32Array(BINS);
  const result = { times: [], 50: [], 95: [], 99: [] };
  let n = 0;
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    for (let i = starts[bucket]; i < starts[bucket + 1]; i += 1, n += 1) {
      histogram[binOf(values[order[i]])] += 1;
    }
    const leaving = bucket - perWindow;
    if (leaving >= 0) {
      for (let i = starts[leaving]; i < starts[leaving + 1]; i += 1, n -= 1) {
        histogram[binOf(values[order[i]])] -= 1;
      }
    }
    const t = t0 + (bucket + firstBucket) * interval;
    if (t < t0) continue;
    result.times.push(Math.min(t, t1));
    const found = fromHistogram(histogram, n);
    for (const p of [50, 95, 99]) result[p].push(found[p]);
  }
  return result;
}

/** Bucket b holds samples in (t0 + (b + first - 1) * interval, t0 + (b + first) * interval]. */
function bucketSort(times, t0, interval, first, buckets) {
  const which = new Int32Array(times.length);
  const starts = new Int32Array(buckets + 1);
  for (let i = 0; i < times.length; i += 1) {
    const bucket = Math.ceil((times[i] - t0) / interval) - first;
    which[i] = bucket >= 0 && bucket < buckets ? bucket : -1;
    if (which[i] >= 0) starts[which[i] + 1] += 1;
  }
  for (let b = 0; b < buckets; b += 1) starts[b + 1] += starts[b];
  const next = starts.slice(0, buckets);
  const order = new Int32Array(starts[buckets]);
  for (let i = 0; i < times.length; i += 1) {
    if (which[i] >= 0) order[next[which[i]]++] = i;
  }
  return { order, starts };
}
