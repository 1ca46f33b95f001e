// Reads a recording in the browser: a file's bytes to a frame of the live feed, or a sentence about
// what is wrong with it. The format and its rules are told in ui/recording.py. Nothing is sent anywhere.

import { fill } from "./words.js";

const FORMAT = "phasescope-recording";
const VERSION = 1;
export const MAX_BYTES = 16_000_000;
const MAX_STEPS = 4000;
const MAX_REQUESTS = 600;
const MAX_BLOCKS = 1_000_000;
const MAX_COUNT = 2 ** 53;
const MAX_DEPTH = 16;
const DATE = /^[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)$/;
const STEP_COLUMNS = 12;
const HISTORY = ["now", "sum", "steps", "reqs", "kv"];
const STATES = new Set(["preparing", "queued", "reading", "writing", "done", "cancelled", "failed"]);
const COUNTS = ["n", "prompt", "cached", "max", "out", "sub", "recomputed"];
const TIMES = ["que", "sch", "fts", "ftd", "ltd", "end", "kv_end"];
const SUM_COUNTS = ["run", "wait", "used", "evictable", "free", "tps", "tps_window"];
const ENGINE_COUNTS = ["budget", "slots", "blocks", "block_size", "kv_bytes"];

/** The sentence why a file cannot be shown. */
export class NotARecording extends Error {}

/** blob: a File or Blob; words: `words.replay` of the page. Rejects with NotARecording. */
export async function readRecording(blob, name, words) {
  const refuse = (word, values = {}) => new NotARecording(fill(words[word], { name, ...values }));
  const bytes = await unpacked(blob, refuse);
  let found;
  try {
    found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw refuse("not_json");
  }
  if (found?.format !== FORMAT) throw refuse("other_format", { format: FORMAT });
  if (found.version !== VERSION) throw refuse("other_version", { version: String(found.version), known: VERSION });
  const part = firstProblem(found);
  if (part) throw refuse("damaged", { part });
  return frameOf(found);
}

function frameOf(found) {
  const frame = {
    reset: true,
    config: found.engine,
    state: { name: "replay", progress: null, text: "", since: 0, turn: null },
    recording: { recorded: found.recorded, machine: found.machine },
  };
  for (const name of HISTORY) if (found[name] !== undefined) frame[name] = found[name];
  return frame;
}

async function unpacked(blob, refuse) {
  const tooLarge = () => refuse("too_large", { limit: MAX_BYTES / 1e6 });
  if (blob.size > MAX_BYTES) throw tooLarge();
  const bytes = new Uint8Array(await blob.arrayBuffer());
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const pieces = [];
  // Counted on the way: a small file can unpack to more than the memory holds.
  for (let size = 0; ;) {
    const { done, value } = await reader.read().catch(() => {
      throw refuse("damaged_gzip");
    });
    if (done) return new Uint8Array(await new Blob(pieces).arrayBuffer());
    size += value.length;
    if (size > MAX_BYTES) throw tooLarge();
    pieces.push(value);
  }
}

const isNumber = (value) => typeof value === "number" && Math.abs(value) < 1e300;
const isCount = (value) => Number.isInteger(value) && Math.abs(value) <= MAX_COUNT;
const isNumberOrNull = (value) => value === null || isNumber(value);
const hasNumbers = (value, names) => Boolean(value) && names.every((name) => isNumber(value[name]));
const isRow = (row, columns) => Array.isArray(row) && row.length === columns && row.every(isNumber);
const isTable = (rows, columns) => Array.isArray(rows) && rows.every((row) => isRow(row, columns));
const isList = (rows, most) => Array.isArray(rows) && rows.length <= most;

function isDate(value) {
  if (typeof value !== "string" || !DATE.test(value)) return false;
  const date = new Date(value);
  // The 30th of February is read as the 2nd of March, and 24:00 as the next day.
  return !Number.isNaN(date.getTime()) && date.toISOString().slice(0, 19) === value.slice(0, 19);
}

/** Whether it can be written as UTF-8: JSON can name half a character (a lone surrogate). */
function isPlain(value, depth = MAX_DEPTH) {
  if (typeof value === "string") return !/\p{Surrogate}/u.test(value);
  if (value === null || typeof value !== "object") return true;
  const parts = Array.isArray(value) ? value : Object.entries(value).flat();
  return depth > 0 && parts.every((part) => isPlain(part, depth - 1));
}

/** Name of the first part that the page could not draw; null for a sound recording. */
function firstProblem(found) {
  const { steps = [], reqs = [], kv } = found;
  if (!isPlain(found)) return "its text";
  const heading = headingProblem(found);
  if (heading) return heading;
  if (!isList(steps, MAX_STEPS)) return "steps";
  if (!isList(reqs, MAX_REQUESTS)) return "reqs";
  const step = steps.findIndex((row) => !(Array.isArray(row) && row.length === STEP_COLUMNS && row.every(isNumberOrNull)));
  if (step >= 0) return `steps[${step}]`;
  const request = reqs.findIndex((entry) => !isRequest(entry));
  if (request >= 0) return `reqs[${request}]`;
  return kv === undefined || isBlockMap(kv) ? null : "kv";
}

function headingProblem({ recorded, machine, now, engine, sum }) {
  if (!isDate(recorded)) return "recorded";
  if (typeof machine !== "string") return "machine";
  if (!isNumber(now)) return "now";
  const named = ["model", "dtype", "device"].every((name) => typeof engine?.[name] === "string");
  if (!named || !hasNumbers(engine, ENGINE_COUNTS)) return "engine";
  if ((engine.roof ?? null) !== null && !hasNumbers(engine.roof, ["flops", "bytes", "overhead"])) return "engine.roof";
  if (!hasNumbers(sum, SUM_COUNTS)) return "sum";
  const metric = ["ttft", "itl"].find((name) => !isNumber(sum[name]?.n) || !Object.values(sum[name]).every(isNumberOrNull));
  return metric ? `sum.${metric}` : null;
}

function isRequest(entry) {
  if (!entry || !COUNTS.every((name) => isCount(entry[name]))) return false;
  if (!STATES.has(entry.st) || entry.id !== `R${entry.n}`) return false;
  const { fin, pre, chunks = [0, []], tok = [0, 0, []] } = entry;
  return (fin === null || typeof fin === "string")
    && TIMES.every((name) => entry[name] === null || isCount(entry[name]))
    && isTable(pre, 2)
    && Array.isArray(chunks) && chunks.length === 2 && isNumber(chunks[0]) && isTable(chunks[1], 4)
    && Array.isArray(tok) && tok.length === 3 && isNumber(tok[0]) && isNumber(tok[1]) && Array.isArray(tok[2]) && tok[2].every(isNumber);
}

const isBlockMap = (kv) =>
  isCount(kv?.n) && kv.n >= 0 && kv.n <= MAX_BLOCKS && isTable(kv.runs, 3) && isTable(kv.last, 3);
