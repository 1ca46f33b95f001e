// The block map: one cell a physical block of the KV cache, in order of its id, with a legend that
// counts. Where there are more blocks than cells, a cell stands for several.

import { count } from "./formats.js";
import { setText } from "./header.js";
import { blocksPerCell, cellsOf, countBlocks } from "./kv_cells.js";
import { palette } from "./palette.js";
import { Surface } from "./surface.js";
import { zoomOf } from "./talk.js";
import { BLOCK } from "./trace.js";
import { fill } from "./words.js";

const GAP = 1.5;
const WIDE = 420;
const COLUMNS = [36, 48, 64];
const MANY = [720, 1152]; // cells from which a narrow card needs more columns to stay low
const FADED = 0.18;
const REDRAWS = ["data", "view", "own", "emphasis", "theme", "size"];

export class KvMap {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.canvas = element.querySelector("canvas");
    this.surface = new Surface(this.canvas);
    this.caption = element.querySelector("[data-role=caption]");
    this.legend = element.querySelector("[data-role=legend]");
    this.items = new Map();
    this.cells = [];
    this.width = 0;
    for (const type of ["pointermove", "pointerdown"]) { // a tap does not move
      this.canvas.addEventListener(type, (event) => this.#point(event));
    }
    this.canvas.addEventListener("pointerleave", () => app.emphasise(null));
    new ResizeObserver(() => app.invalidate("size")).observe(this.canvas.parentElement);
  }

  draw(reasons) {
    const { trace, view, words } = this.app;
    // Asking for a size in the middle of a drawing forces a layout: it is asked when it changed.
    if (reasons.has("size")) this.width = this.canvas.parentElement.clientWidth;
    const { width } = this;
    if (!width || !REDRAWS.some((reason) => reasons.has(reason))) return;
    if (view.paused && reasons.size === 1 && reasons.has("data")) return;
    const kv = trace.kv ?? emptyPool(trace.config);
    if (!kv) return;
    if (kv === this.kv && reasons.size === 1 && reasons.has("data")) return;
    this.kv = kv;
    this.cells = cellsOf(kv, trace.config?.block_size ?? 16);
    this.#drawCells(width);
    const counts = countBlocks(kv);
    const used = kv.n - counts.free - counts.cached;
    const values = { used: count(used), cached: count(counts.cached), free: count(counts.free), all: count(kv.n) };
    const label = fill(used || counts.cached ? words.kv_label : words.kv_empty, values);
    if (this.canvas.ariaLabel !== label) this.canvas.ariaLabel = label;
    const k = blocksPerCell(kv.n);
    const caption = used || counts.cached ? (k === 1 ? words.kv_caption : fill(words.kv_caption_many, { k })) : label;
    setText(this.caption, caption);
    this.#writeLegend(counts);
  }

  #drawCells(width) {
    const level = MANY.filter((cells) => this.cells.length > cells).length;
    const columns = COLUMNS[Math.max(level, width > WIDE ? 1 : 0)];
    const pitch = (width + GAP) / columns;
    const height = Math.ceil(this.cells.length / columns) * pitch - GAP;
    this.grid = { columns, pitch };
    this.surface.begin(width, Math.ceil(height), palette());
    const { emphasis } = this.app;
    this.cells.forEach((cell, i) => {
      const x = (i % columns) * pitch;
      const y = Math.floor(i / columns) * pitch;
      const faded = emphasis !== null && !(cell.owner === emphasis && cell.state >= BLOCK.live);
      this.surface.fade(faded ? FADED : 1);
      this.#drawCell(cell, x, y, pitch - GAP);
    });
    this.surface.fade(1);
  }

  #drawCell({ state, owner, filled }, x, y, side) {
    const { surface } = this;
    const { colours } = surface;
    if (state === BLOCK.free) surface.box(x + 0.5, y + 0.5, side - 1, side - 1, colours["kv-free"]);
    else if (state === BLOCK.cached) surface.rounded(x, y, side, side, 1.2, colours["kv-evict"]);
    else {
      const colour = colours[state === BLOCK.shared ? "kv-shared" : this.app.kvColours.of(owner)];
      if (filled < 1) {
        surface.roundedBox(x + 0.5, y + 0.5, side - 1, side - 1, 1.2, colour);
        surface.rect(x, y + side * (1 - filled), side, side * filled, colour);
      } else surface.rounded(x, y, side, side, 1.2, colour);
      const dotted = state === BLOCK.shared || state === BLOCK.reused;
      if (dotted) surface.disc(x + side / 2, y + side / 2, side * 0.2, colours.surface);
    }
  }

  // The canvas stands for the request under the pointer, so that pointing.js can open it on a click.
  #point(event) {
    if (!this.grid) return;
    const { columns, pitch } = this.grid;
    const { left, top } = this.canvas.getBoundingClientRect();
    const scale = pitch * zoomOf(this.canvas);
    const column = Math.min(columns - 1, Math.floor((event.clientX - left) / scale));
    const cell = this.cells[Math.floor((event.clientY - top) / scale) * columns + column];
    const owner = cell && cell.state >= BLOCK.live ? cell.owner : null;
    if (owner === null) delete this.canvas.dataset.request;
    else this.canvas.dataset.request = owner;
    this.app.emphasise(owner);
  }

  #writeLegend(counts) {
    const { app } = this;
    const { words } = app;
    const named = [...counts.byOwner.keys()].filter((n) => app.kvColours.has(n)).sort((a, b) => a - b);
    named.sort((a, b) => (app.kvColours.of(b) === "kv1") - (app.kvColours.of(a) === "kv1"));
    let others = 0;
    for (const [n, blocks] of counts.byOwner) if (!app.kvColours.has(n)) others += blocks;
    const entries = named.map((n) => ({
      key: `R${n}`, request: n, swatch: app.kvColours.of(n), own: app.own.has(n),
      name: app.own.has(n) ? `R${n} ${words.you}` : `R${n}`, blocks: counts.byOwner.get(n),
    }));
    if (others) entries.push({ key: "others", swatch: "kv-other", name: words.kv_legend.others, blocks: others });
    const { shared, reused, cached, free } = words.kv_legend;
    if (counts.shared) {
      entries.push({ key: "shared", swatch: "kv-shared", dot: true, name: shared, blocks: counts.shared });
    }
    if (counts.reused || counts.shared) entries.push({ key: "dot", swatch: "dot", name: reused });
    entries.push({ key: "cached", swatch: "kv-evict", name: cached, blocks: counts.cached });
    entries.push({ key: "free", swatch: "free", name: free, blocks: counts.free });
    this.legend.replaceChildren(...entries.map((entry) => this.#item(entry)));
    const shown = new Set(entries.map(({ key }) => key));
    for (const key of this.items.keys()) if (!shown.has(key)) this.items.delete(key);
  }

  // Items are kept by key while they are shown: focus and hover stay while the counts change.
  #item({ key, request, swatch, own, dot, name, blocks }) {
    let item = this.items.get(key);
    if (!item) {
      item = document.createElement(request === undefined ? "span" : "button");
      item.className = "ps-legend-item";
      if (request !== undefined) {
        item.type = "button";
        item.dataset.request = request;
      }
      item.append(document.createElement("i"), document.createElement("span"));
      this.items.set(key, item);
    }
    const [mark, text] = item.children;
    mark.dataset.swatch = swatch;
    mark.dataset.dot = String(Boolean(dot));
    mark.style.setProperty("--swatch", `var(--${swatch})`);
    item.dataset.own = String(Boolean(own));
    setText(text, blocks === undefined ? name : `${name} ${count(blocks)}`);
    return item;
  }
}

function emptyPool(config) {
  if (!config) return null;
  const n = config.blocks;
  return { n, states: new Uint8Array(n), owners: new Int32Array(n), filled: new Map() };
}
