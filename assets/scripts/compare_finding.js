// What the brackets over A and B say: how long nobody got a token while the longest prompt was read, or
// the longest gap meanwhile. Pure arithmetic over one trace.

import { TICKS_PER_SECOND } from "./formats.js";

/** A prompt this many times the median is the long one that holds others up. */
const LONG_PROMPT = 3;
const SILENCE = TICKS_PER_SECOND;

/**
 * What stands out in a run.
 *
 * Returns {long, read, kind, from, to, gap}: `long` is the request with the outstanding prompt and
 * `read` = [t0, t1] the time in which it is read (both null without one); `kind` is "no_token" or
 * "longest_gap", null without a gap; from and to are the ends of the bracket; gap is in ticks.
 */
export function finding(requests) {
  const long = longPrompt(requests);
  const read = long && long.sch !== null && long.fts !== null ? [long.sch, long.fts] : null;
  const none = { long, read, kind: null, from: 0, to: 0, gap: 0 };
  if (!read) {
    const gap = longestGap(requests, -Infinity, Infinity);
    return gap ? { ...none, kind: "longest_gap", from: gap[0], to: gap[1], gap: gap[1] - gap[0] } : none;
  }
  const others = requests.filter((request) => request !== long);
  const silence = longestSilence(others, read);
  if (silence && silence[1] - silence[0] > SILENCE) {
    return { ...none, kind: "no_token", from: silence[0], to: silence[1], gap: silence[1] - silence[0] };
  }
  const gap = longestGap(others, ...read);
  return gap ? { ...none, kind: "longest_gap", from: read[0], to: read[1], gap: gap[1] - gap[0] } : none;
}

/** The request whose prompt stands out; null where all are of a kind. */
export function longPrompt(requests) {
  if (requests.length < 2) return null;
  const sorted = [...requests].sort((a, b) => a.prompt - b.prompt);
  const longest = sorted.at(-1);
  const median = sorted[(sorted.length - 1) >> 1].prompt;
  return longest.prompt >= LONG_PROMPT * median ? longest : null;
}

/** [from, to] of the longest gap of one request that touches t0..t1; null without one. */
function longestGap(requests, t0, t1) {
  let longest = null;
  for (const { tokens } of requests) {
    for (let i = 1; i < tokens.length; i += 1) {
      if (tokens[i] < t0 || tokens[i - 1] > t1) continue;
      const better = !longest || tokens[i] - tokens[i - 1] > longest[1] - longest[0];
      if (better) longest = [tokens[i - 1], tokens[i]];
    }
  }
  return longest;
}

/** [from, to] of the longest stretch touching the reading in which nobody who was writing got a token. */
function longestSilence(requests, [t0, t1]) {
  const writing = requests.filter(({ tokens }) => tokens.length && tokens[0] <= t1 && tokens.at(-1) >= t0);
  const times = writing.flatMap((request) => request.tokens).sort((a, b) => a - b);
  let longest = null;
  for (let i = 1; i < times.length; i += 1) {
    if (times[i] < t0 || times[i - 1] > t1) continue;
    if (!longest || times[i] - times[i - 1] > longest[1] - longest[0]) longest = [times[i - 1], times[i]];
  }
  return longest;
}
