// The panel of the two timelines. It watches for the mark of a result in the tab, fetches that result's
// runs, and draws both sides under one view. It runs nothing and knows no form.

import { compareLabel } from "./compare_label.js";
import { CompareSide } from "./compare_side.js";
import { requestTable } from "./compare_table.js";
import { writeTable } from "./table_element.js";
import { PairView } from "./compare_view.js";
import { compareWords } from "./compare_words.js";
import { setText } from "./header.js";
import { palette } from "./palette.js";
import { TimelineInput } from "./timeline_input.js";

const TAB = ".ps-scope";
const OPEN_FORM = "ps-form-open";
const WIDE = "(min-width: 1500px)";
const TALL = 1000;
const STACKED_KEY = "phasescope.compare.stacked";
const NO_LANES = { move() {} };

export class Compare {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.tab = element.closest(TAB);
    this.card = element.querySelector(".ps-compare-timelines");
    this.words = compareWords(this.card);
    this.find = (role) => element.querySelector(`[data-role=${role}]`);
    this.label = this.find("label");
    this.pair = element.querySelector(".ps-pair");
    this.sides = [...element.querySelectorAll(".ps-pair-side")].map((side) => new CompareSide(side));
    this.shown = null;
    this.loaded = false;
    this.view = new PairView([]);
    this.message = "";
    this.stacked = localStorage.getItem(STACKED_KEY) === "true";
    this.#listen();
    new MutationObserver(() => this.#look()).observe(this.tab, { childList: true, subtree: true });
    this.#look();
  }

  #listen() {
    const redraw = () => this.app.invalidate("compare");
    const controls = (change) => () => {
      change();
      redraw();
    };
    this.find("unzoom").addEventListener("click", controls(() => this.view.unzoom()));
    this.find("zoom-selection").addEventListener("click", controls(() => this.#zoomToSelection()));
    this.find("arrange").addEventListener("click", controls(() => {
      this.stacked = !this.stacked;
      localStorage.setItem(STACKED_KEY, String(this.stacked));
    }));
    this.find("table").addEventListener("toggle", () => this.#writeTable());
    matchMedia(WIDE).addEventListener("change", redraw);
    new ResizeObserver(redraw).observe(this.pair);
    for (const side of this.sides) {
      const panel = this;
      const hands = {
        invalidate: redraw,
        get view() {
          return panel.view;
        },
        get trace() {
          return side.trace;
        },
      };
      new TimelineInput(side.element, hands, { axis: () => side.axis, lanes: NO_LANES });
    }
  }

  #zoomToSelection() {
    this.view.show(...this.view.selection);
    this.view.selection = null;
  }

  // The verdict's element names the result; Python writes it whenever one is to be seen.
  #look() {
    const id = this.tab.querySelector("[data-result]")?.dataset.result ?? null;
    if (!id || id === this.shown) return;
    this.shown = id;
    this.tab.classList.remove(OPEN_FORM);
    this.#nameInAddress(id);
    this.#fetch(id);
  }

  #nameInAddress(id) {
    const url = new URL(location.href);
    url.searchParams.set("result", id);
    history.replaceState(history.state, "", url);
  }

  async #fetch(id) {
    this.card.hidden = false;
    this.loaded = false;
    this.message = this.words.loading;
    this.app.invalidate("compare");
    try {
      const answer = await fetch(new URL(`live/result/${id}.json`, document.baseURI));
      const data = await answer.json();
      if (id !== this.shown) return;
      if (!answer.ok) throw new Error(data.error.message);
      this.#load(data);
    } catch (error) {
      this.message = this.words.not_loaded.replace("{reason}", error.message);
    }
    this.app.invalidate("compare");
  }

  #load(data) {
    data.sides.forEach((side, i) => this.sides[i].load(side, this.words));
    this.num = data.sides.length;
    this.view = new PairView(this.active.map((side) => side.trace));
    this.message = data.caption;
    this.loaded = true;
    this.#writeTable();
  }

  // Filled while it is open: nobody else needs its hundreds of cells.
  #writeTable() {
    const table = this.find("table");
    if (!table.open || !this.loaded) return;
    writeTable(table.querySelector(".ps-table"), requestTable(this.active, this.words));
  }

  get active() {
    return this.sides.slice(0, this.num);
  }

  draw(reasons) {
    const needed = ["compare", "theme", "size"].some((reason) => reasons.has(reason));
    if (!needed || this.card.hidden) return;
    this.pair.hidden = !this.loaded;
    this.find("table").hidden = !this.loaded;
    if (!this.loaded) {
      setText(this.label, this.message);
      return;
    }
    const wide = matchMedia(WIDE).matches && this.num > 1;
    const columns = wide && !this.stacked;
    this.#controls(wide, columns);
    this.pair.dataset.columns = columns;
    const shared = {
      colours: palette(), words: this.words, pageWords: this.app.words, tall: innerHeight >= TALL,
    };
    this.sides.forEach((side, i) => (side.element.hidden = i >= this.num));
    this.active.forEach((side, i) => side.draw(this.view, shared, columns || i === this.num - 1));
    setText(this.label, compareLabel(this.view, this.active, this.message));
  }

  #controls(wide, columns) {
    this.find("unzoom").hidden = !this.view.zoomed;
    this.find("zoom-selection").hidden = !this.view.selection;
    const arrange = this.find("arrange");
    arrange.hidden = !wide;
    arrange.ariaPressed = String(columns);
    setText(arrange, columns ? this.words.stacked : this.words.columns);
  }
}
