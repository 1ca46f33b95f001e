// A canvas in CSS pixels: sharp at every device pixel ratio, with the few marks the bands are made of.
// It knows colours only as strings handed to it.

import { zoomOf } from "./talk.js";

const OUTLINED_PX = 3;

export class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.width = 0;
    this.height = 0;
    this.zoom = 1;
    this.patterns = new Map();
  }

  /** Size to `width` x `height` CSS pixels, clear, and take this theme's colours. */
  begin(width, height, colours) {
    if (this.colours !== colours) {
      this.patterns.clear();
      this.zoom = zoomOf(this.canvas); // changes with talk mode alone, and so do the colours' weights
    }
    const ratio = (window.devicePixelRatio || 1) * this.zoom;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${height}px`;
    }
    this.weight = Number(colours.weight) || 1;
    Object.assign(this, { width, height, colours });
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.globalAlpha = 1;
  }

  clear(x, y, width, height) {
    this.context.clearRect(x, y, width, height);
  }

  fade(alpha) {
    this.context.globalAlpha = alpha;
  }

  rect(x, y, width, height, colour) {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
  }

  /** A filled mark, with an outline where the reader's system has forced its colours on the page. */
  mark(x, y, width, height, colour) {
    this.rect(x, y, width, height, colour);
    const { outline } = this.colours;
    if (outline && width >= OUTLINED_PX && height >= OUTLINED_PX) {
      const [left, top] = [Math.round(x), Math.round(y)];
      this.box(left + 0.5, top + 0.5, Math.round(width) - 1, Math.round(height) - 1, outline);
    }
  }

  box(x, y, width, height, colour, lineWidth = 1) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = lineWidth * this.weight;
    this.context.strokeRect(x, y, width, height);
  }

  rounded(x, y, width, height, radius, colour) {
    this.context.beginPath();
    this.context.roundRect(x, y, width, height, radius);
    this.context.fillStyle = colour;
    this.context.fill();
  }

  roundedBox(x, y, width, height, radius, colour, dash = []) {
    this.context.beginPath();
    this.context.roundRect(x, y, width, height, radius);
    this.#stroke(colour, 1, dash);
  }

  disc(x, y, radius, fill, stroke = null, lineWidth = 1.6) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    if (fill) {
      this.context.fillStyle = fill;
      this.context.fill();
    }
    if (stroke) this.#stroke(stroke, lineWidth, []);
  }

  /** A horizontal or vertical hairline falls on whole pixels. */
  line(x1, y1, x2, y2, colour, { width = 1, dash = [] } = {}) {
    const crisp = (v) => (width === 1 ? Math.round(v - 0.5) + 0.5 : v);
    this.context.beginPath();
    if (x1 === x2) {
      this.context.moveTo(crisp(x1), y1);
      this.context.lineTo(crisp(x2), y2);
    } else if (y1 === y2) {
      this.context.moveTo(x1, crisp(y1));
      this.context.lineTo(x2, crisp(y2));
    } else {
      this.context.moveTo(x1, y1);
      this.context.lineTo(x2, y2);
    }
    this.#stroke(colour, width, dash);
  }

  /** points: flat [x0, y0, x1, y1, ...]; a NaN pair breaks the line. */
  polyline(points, colour, { width = 1.5, dash = [] } = {}) {
    const { context } = this;
    context.beginPath();
    context.lineJoin = "round";
    let pen = false;
    for (let i = 0; i < points.length; i += 2) {
      if (Number.isNaN(points[i])) {
        pen = false;
      } else if (pen) {
        context.lineTo(points[i], points[i + 1]);
      } else {
        context.moveTo(points[i], points[i + 1]);
        pen = true;
      }
    }
    this.#stroke(colour, width, dash);
  }

  #stroke(colour, width, dash) {
    this.context.setLineDash(dash);
    this.context.strokeStyle = colour;
    this.context.lineWidth = width * this.weight;
    this.context.stroke();
    if (dash.length) this.context.setLineDash([]);
  }

  text(x, y, words, { colour, align = "left", weight = 400, size = 11 }) {
    const { context } = this;
    context.font = `${weight} ${size}px ${this.colours.font}`;
    context.textAlign = align;
    context.textBaseline = "alphabetic";
    context.fillStyle = colour;
    context.fillText(words, x, y);
  }

  measure(words, { weight = 400, size = 11 } = {}) {
    this.context.font = `${weight} ${size}px ${this.colours.font}`;
    return this.context.measureText(words).width;
  }

  /** The 45 degree hatch of waiting. */
  hatch() {
    if (!this.patterns.has("hatch")) {
      const ratio = (window.devicePixelRatio || 1) * this.zoom;
      const side = Math.round(7 * ratio);
      const tile = new OffscreenCanvas(side, side);
      const pen = tile.getContext("2d");
      pen.fillStyle = this.colours["queue-soft"];
      pen.fillRect(0, 0, side, side);
      pen.strokeStyle = this.colours.queue;
      pen.lineWidth = 1.7 * ratio;
      pen.beginPath();
      for (const shift of [-side, 0, side]) {
        pen.moveTo(shift - 1, side + 1);
        pen.lineTo(shift + side + 1, -1);
      }
      pen.stroke();
      const pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / ratio));
      this.patterns.set("hatch", pattern);
    }
    return this.patterns.get("hatch");
  }
}
