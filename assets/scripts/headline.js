// The six headline numbers. They change at most twice a second, and a percentile appears only when
// its count carries it; below that the largest sample stands in, or a dash.

import { count, durationParts, percent, plural, rate } from "./formats.js";
import { setText } from "./header.js";
import { carries } from "./statistics.js";

const LEAST_MS = 500;

export class Headline {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.changedAt = -Infinity;
    this.timer = 0;
  }

  draw(reasons) {
    if (!["data", "status", "size"].some((reason) => reasons.has(reason)) || this.timer) return;
    const wait = this.changedAt + LEAST_MS - performance.now();
    if (wait <= 0) this.#write();
    else this.timer = setTimeout(() => this.#write(), wait);
  }

  #write() {
    this.timer = 0;
    this.changedAt = performance.now();
    const { told: trace, words } = this.app;
    const { sum, config } = trace;
    if (!sum) return;
    const set = (role, text) => setText(this.element.querySelector(`[data-role=${role}]`), text);
    set("running", count(sum.run));
    set("slots", config ? `of ${plural(config.slots, "slot")}` : "");
    set("waiting", count(sum.wait));
    const blocks = sum.used + sum.evictable + sum.free;
    set("kv", percent(sum.used, blocks));
    set("kv-blocks", `${count(sum.used)} of ${plural(blocks, "block")}`);
    this.#meter(sum, blocks);
    set("output", rate(sum.tps));
    set("output-window", `last ${count(sum.tps_window)} s`);
    this.#latency("ttft", sum.ttft, words.requests_count);
    this.#latency("itl", sum.itl, words.gaps_count);
  }

  #meter({ used, evictable }, blocks) {
    const width = (n) => `${blocks ? (100 * n) / blocks : 0}%`;
    this.element.querySelector("[data-role=meter-used]").style.width = width(used);
    this.element.querySelector("[data-role=meter-cached]").style.width = width(evictable);
  }

  #latency(metric, sample, [one, many]) {
    const root = this.element.querySelector(`[data-metric=${metric}]`);
    setText(root.querySelector("[data-role=n]"), plural(sample.n, one, many));
    const shown = headlineValues(sample);
    root.querySelectorAll("[data-role=quantile]").forEach((slot, i) => {
      slot.hidden = !shown[i];
      if (!shown[i]) return;
      const { value, unit } = durationParts(shown[i].ticks);
      setText(slot.querySelector("[data-role=name]"), shown[i].name);
      setText(slot.querySelector("[data-role=value]"), value);
      setText(slot.querySelector("[data-role=unit]"), unit);
    });
  }
}

/** Up to two {name, ticks}: p50 and p95 where n carries them, else the largest; a dash without any. */
export function headlineValues({ n, p50, p95, max }) {
  if (n === 0) return [{ name: "", ticks: null }];
  const shown = carries(50, n) ? [{ name: "p50", ticks: p50 }] : [];
  shown.push(carries(95, n) ? { name: "p95", ticks: p95 } : { name: "max", ticks: max });
  return shown;
}
