// What the panels of one page share: the trace, the view, own requests, the feed, and a single drawing
// loop that runs at most once an animation frame. It mounts nothing itself.

import { Feed } from "./feed.js";
import { KvColours } from "./kv_colours.js";
import { OwnRequests } from "./own.js";
import { watchTheme } from "./palette.js";
import { Trace } from "./trace.js";
import { View } from "./view.js";
import { pageWords } from "./words.js";

export const VERSION = 1;
const KEPT_TIMINGS = 120;

class App {
  constructor() {
    this.trace = new Trace();
    this.view = new View(this.trace);
    this.kvColours = new KvColours();
    this.own = new OwnRequests(() => this.invalidate("own"));
    this.emphasis = null; // number of the request under the pointer or the focus
    this.feed = new Feed(this.trace, {
      onData: () => {
        this.own.enter(this.trace.epoch);
        this.invalidate("data");
      },
      onStatus: () => this.invalidate("status"),
    });
    this.panels = new Set();
    this.reasons = new Set();
    this.frame = 0;
    this.drawTimes = [];
    this.receivedAt = 0;
  }

  get words() {
    return pageWords();
  }

  start() {
    watchTheme(() => this.invalidate("theme"));
    setInterval(() => this.invalidate("clock"), 1000);
    this.feed.start();
  }

  /** panel: {element, draw(reasons)}; it leaves by itself once its element is gone. */
  add(panel) {
    this.panels.add(panel);
    this.invalidate("size");
  }

  /** reason: data, status, view, cursor, emphasis, own, theme, size or clock. */
  invalidate(reason) {
    if (reason === "data") this.receivedAt = performance.now();
    this.reasons.add(reason);
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Server time now, in ticks, carried on from the last frame by the browser's own clock. */
  serverNow() {
    return this.trace.now + (performance.now() - this.receivedAt) * 10;
  }

  emphasise(n) {
    if (n === this.emphasis) return;
    this.emphasis = n;
    this.invalidate("emphasis");
  }

  #draw() {
    this.frame = 0;
    const { reasons } = this;
    this.reasons = new Set();
    const start = performance.now();
    for (const panel of this.panels) {
      if (panel.element.isConnected) panel.draw(reasons);
      else this.panels.delete(panel);
    }
    this.drawTimes.push({ ms: performance.now() - start, reasons: [...reasons] });
    if (this.drawTimes.length > KEPT_TIMINGS) this.drawTimes.shift();
  }
}

export const app = new App();
