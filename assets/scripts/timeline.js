// The timeline panel: four canvases on one time axis, one crosshair through all of them, and the
// controls beside the title. It arranges and schedules; bands draw, timeline_input.js listens.

import { gapsBand } from "./band_gaps.js";
import { growthBand } from "./band_growth.js";
import { requestsBand } from "./band_requests.js";
import { stepsBand } from "./band_steps.js";
import { LaneButtons } from "./lane_buttons.js";
import { palette } from "./palette.js";
import { buildScene, readingTime } from "./scene.js";
import { Surface } from "./surface.js";
import { timelineLabel } from "./timeline_label.js";
import { TimelineInput } from "./timeline_input.js";
import { WindowControls } from "./window_controls.js";

const BANDS = [requestsBand, stepsBand, gapsBand, growthBand];
const REDRAWS = ["data", "view", "own", "emphasis", "theme", "size"];
const FIT = "(min-width: 1321px) and (min-height: 860px)";
const LEAST_BAND = 64;
const MOST_BAND = 190;

export class Timeline {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.stack = element.querySelector(".ps-stack");
    this.label = element.querySelector("[data-role=label]");
    this.crosshair = element.querySelector(".ps-crosshair");
    this.shade = element.querySelector(".ps-selection");
    this.bands = BANDS.map((band) => {
      const canvas = element.querySelector(`[data-band=${band.name}] canvas`);
      return { band, canvas, surface: new Surface(canvas) };
    });
    this.lanes = new LaneButtons(element.querySelector(".ps-lanes"));
    this.controls = new WindowControls(element, app);
    this.room = { width: 0 };
    new TimelineInput(this.stack, app, { axis: () => this.scene?.axis, lanes: this.lanes });
    new ResizeObserver(() => app.invalidate("size")).observe(this.stack);
    addEventListener("resize", () => app.invalidate("size"));
  }

  draw(reasons) {
    if (reasons.has("size")) this.#measure();
    const { width } = this.room;
    if (!width) return; // a hidden tab: its ResizeObserver calls again
    const frozen = this.app.view.paused && reasons.size === 1 && reasons.has("data");
    const redraw = !this.scene || (!frozen && REDRAWS.some((reason) => reasons.has(reason)));
    if (redraw) this.#drawBands(width);
    else if (reasons.has("cursor")) this.#drawReadouts();
    this.#drawOverlay();
    const label = timelineLabel(this.scene, this.app);
    if (this.label.textContent !== label) this.label.textContent = label;
    this.controls.update();
  }

  // Sizes are asked for only when they have changed: asking between two panels' drawings would force
  // the browser to lay the page out for each of them.
  #measure() {
    const drawn = this.bands.reduce((sum, { canvas }) => sum + canvas.clientHeight, 0);
    this.room = {
      width: this.bands[0].canvas.parentElement.clientWidth,
      fits: matchMedia(FIT).matches,
      height: this.stack.clientHeight,
      words: this.stack.firstElementChild.offsetHeight - drawn,
    };
  }

  #drawBands(width) {
    const scene = (this.scene = buildScene(this.app, width));
    const colours = palette();
    this.#fitHeights(scene);
    for (const { band, canvas, surface } of this.bands) {
      surface.begin(width, band.layout(scene), colours);
      band.draw(surface, scene);
      band.readout(surface, scene);
      const label = band.label(scene);
      if (canvas.ariaLabel !== label) canvas.ariaLabel = label;
    }
    this.lanes.update(scene);
  }

  // Only the value column changes with the crosshair, so only that is drawn again.
  #drawReadouts() {
    const { scene } = this;
    const { view } = this.app;
    scene.cursor = view.cursor;
    scene.readAt = readingTime(view);
    for (const { band, surface } of this.bands) {
      const from = scene.axis.right + 4;
      if (band === requestsBand) {
        surface.begin(surface.width, surface.height, surface.colours);
        band.draw(surface, scene);
      } else surface.clear(from, 0, surface.width - from, surface.height - (band.foot ?? 0));
      band.readout(surface, scene);
    }
  }

  // In the layout without page scroll, the two tall bands take up what the others leave.
  #fitHeights(scene) {
    const natural = scene.tall ? { gaps: 138, growth: 150 } : { gaps: 104, growth: 104 };
    scene.stretch = natural;
    const { fits, height, words } = this.room;
    if (!fits) return;
    const fixed = this.bands.reduce((sum, { band }) => sum + band.layout(scene), 0) - natural.gaps - natural.growth;
    const padding = 14;
    const room = (height - padding - words - fixed) / (natural.gaps + natural.growth);
    const scaled = (height) => Math.round(Math.min(MOST_BAND, Math.max(LEAST_BAND, height * room)));
    scene.stretch = { gaps: scaled(natural.gaps), growth: scaled(natural.growth) };
  }

  #drawOverlay() {
    const { axis } = this.scene;
    const { cursor, selection } = this.app.view;
    const shown = cursor !== null && axis.inside(axis.x(cursor));
    this.crosshair.hidden = !shown;
    if (shown) this.crosshair.style.transform = `translateX(${axis.x(cursor)}px)`;
    this.shade.hidden = !selection;
    if (selection) {
      const [from, to] = selection.map((t) => axis.clamped(t));
      this.shade.style.transform = `translateX(${from}px)`;
      this.shade.style.width = `${to - from}px`;
    }
  }
}
