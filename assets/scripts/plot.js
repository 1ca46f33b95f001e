// A Plotly chart whose figure was built in Python (ui/figures.py): the browser changes its data and
// paints it with the theme's colours. plotly.js is loaded once, from this server.

import { palette } from "./palette.js";

const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false };
const MOST_SHARE = 0.03; // of the main thread's time, for one chart
let library = null;

function loadLibrary() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("live/plotly.js", document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.js could not be loaded from this server"));
    document.head.append(script);
  });
  return library;
}

/** Set the colours a figure asks for by token name in meta.paint: {"marker.color": "prefill"}. */
export function paint(part, colours) {
  for (const [path, token] of Object.entries(part.meta?.paint ?? {})) {
    const keys = path.split(".");
    const last = keys.pop();
    let target = part;
    for (const key of keys) target = target[key] ??= {};
    target[last] = colours[token];
  }
}

export class Plot {
  /** box: element with the figure as JSON in data-figure; handlers take one point, or null. */
  constructor(box, { onClick, onHover, onResize }) {
    this.box = box;
    this.figure = JSON.parse(box.dataset.figure);
    this.handlers = { onClick, onHover };
    this.started = false;
    this.queue = Promise.resolve();
    this.width = 0;
    this.height = 0;
    this.shownAt = -Infinity;
    this.cost = 0;
    // Measured where the layout is known anyway: asking in the middle of a drawing would force one.
    new ResizeObserver(() => {
      this.width = box.clientWidth;
      this.height = box.clientHeight;
      onResize();
    }).observe(box);
  }

  /** Whether new data may be shown: not before `leastMs`, and later where drawing takes long here. */
  due(leastMs) {
    return performance.now() - this.shownAt > Math.max(leastMs, this.cost / MOST_SHARE);
  }

  /** change(data, layout, colours) edits copies of the figure's parts before they are shown. */
  update(change) {
    const colours = palette();
    const { data, layout } = structuredClone(this.figure);
    paint(layout, colours);
    layout.font = { ...layout.font, family: colours.font };
    data.forEach((trace) => paint(trace, colours));
    change(data, layout, colours);
    layout.width = this.box.clientWidth;
    layout.height = this.box.clientHeight;
    this.queue = this.queue.then(() => this.#show(data, layout));
    return this.queue;
  }

  async #show(data, layout) {
    if (!this.box.isConnected || !this.box.clientWidth) return;
    let plotly;
    try {
      plotly = await loadLibrary();
    } catch (error) {
      this.box.textContent = error.message;
      return;
    }
    const begin = performance.now();
    await plotly.react(this.box, data, layout, CONFIG);
    this.shownAt = performance.now();
    this.cost = this.shownAt - begin;
    if (this.started) return;
    this.started = true;
    const { onClick, onHover } = this.handlers;
    if (onClick) this.box.on("plotly_click", ({ points }) => onClick(points[0]));
    if (onHover) {
      this.box.on("plotly_hover", ({ points }) => onHover(points[0]));
      this.box.on("plotly_unhover", () => onHover(null));
    }
  }
}
