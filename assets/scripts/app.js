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
const NOBODY = Object.freeze({ has: () => false, newest: () => null });

class App {
  constructor() {
    this.live = new Trace();
    this.trace = this.live; // what the charts draw: the live engine, or a recording
    this.firstLook = false; // a recording in the charts alone, while the model loads
    this.view = new View(this.trace);
    this.kvColours = new KvColours();
    const own = new OwnRequests(() => this.invalidate("own"));
    this.liveOwn = own;
    this.own = own;
    this.emphasis = null; // number of the request under the pointer or the focus
    this.feed = new Feed(this.live, {
      onData: () => {
        own.enter(this.live.epoch);
        this.receivedAt = performance.now();
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

  /** The trace that header, headline and composer speak of: never a recording that only stands in. */
  get told() {
    return this.firstLook ? this.live : this.trace;
  }

  /** Trace, view and own requests of the live engine, for panels that never show a recording. */
  get livePart() {
    if (this.trace === this.live) return this;
    const { live, liveOwn, kvColours, words } = this;
    return { trace: live, view: new View(live), own: liveOwn, kvColours, words, emphasis: null };
  }

  /** Draw a recording instead of the live engine; null goes back to it. */
  replay(trace, firstLook) {
    this.firstLook = firstLook;
    this.trace = trace ?? this.live;
    this.own = trace ? NOBODY : this.liveOwn; // the recording's R7 is nobody's here
    this.emphasis = null;
    this.view.trace = this.trace;
    this.view.cursor = null;
    this.view.resume();
    for (const reason of ["data", "view", "own", "status"]) this.invalidate(reason);
  }

  /** panel: {element, draw(reasons)}; it leaves by itself once its element is gone. */
  add(panel) {
    this.panels.add(panel);
    this.invalidate("size");
  }

  /** reason: data, status, view, cursor, emphasis, own, theme, size or clock. */
  invalidate(reason) {
    this.reasons.add(reason);
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** The live engine's time now, in ticks, carried on from its last frame by the browser's own clock. */
  serverNow() {
    return this.live.now + (performance.now() - this.receivedAt) * 10;
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
