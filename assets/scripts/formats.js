// Numbers as the page prints them. Times come in ticks of 0.1 ms, as on the wire; nothing here
// knows about requests, charts or the document.

export const TICKS_PER_SECOND = 10_000;
export const DASH = "–";

const integers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234.6 -> "1,235". */
export const count = (n) => integers.format(n);

/** Seconds of a time in ticks. */
export const seconds = (ticks) => ticks / TICKS_PER_SECOND;

/** {value, unit} of a duration in ticks: 134 ms, 2.04 s, 15.7 s; under 10 ms one decimal. */
export function durationParts(ticks) {
  if (ticks === null || ticks === undefined || !Number.isFinite(ticks)) {
    return { value: DASH, unit: "" };
  }
  const ms = ticks / 10;
  if (ms < 9.95) return { value: ms === 0 ? "0" : ms.toFixed(1), unit: "ms" };
  if (ms < 999.5) return { value: String(Math.round(ms)), unit: "ms" };
  if (ms < 9995) return { value: (ms / 1000).toFixed(2), unit: "s" };
  return { value: (ms / 1000).toFixed(1), unit: "s" };
}

export function duration(ticks) {
  const { value, unit } = durationParts(ticks);
  return unit ? `${value} ${unit}` : value;
}

/** Tokens a second: one decimal under 50. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return DASH;
  return perSecond < 49.95 && perSecond > 0 ? perSecond.toFixed(1) : count(perSecond);
}

export const mebibytes = (bytes) => `${(bytes / 1_048_576).toLocaleString("en-US", {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
})} MiB`;

/** A time since service start as m:ss, with `digits` decimals of the second. */
export function clock(ticks, digits = 0) {
  const unit = 10 ** digits;
  const rounded = Math.round(seconds(Math.max(0, ticks)) * unit);
  const minutes = Math.floor(rounded / (60 * unit));
  const rest = (rounded - minutes * 60 * unit) / unit;
  const [whole, fraction] = rest.toFixed(digits).split(".");
  return `${minutes}:${whole.padStart(2, "0")}${fraction ? `.${fraction}` : ""}`;
}

export function percent(part, whole) {
  return whole > 0 ? String(Math.round((100 * part) / whole)) : "0";
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
