// Lanes and engine steps as they happen, over the form of the Workload tab: the live timeline's bands
// and window, without its hands.

import { requestsBand } from "./band_requests.js";
import { stepsBand } from "./band_steps.js";
import { palette } from "./palette.js";
import { buildScene } from "./scene.js";
import { Surface } from "./surface.js";
import { Tables } from "./tables.js";

const REDRAWS = ["data", "view", "own", "theme", "size"];
const AXIS_HEIGHT = 18;

/** The table beneath them: of the live engine too, whatever the Chat tab shows. */
export class LiveTables extends Tables {
  get source() {
    return this.app.livePart;
  }
}

export class LiveLanes {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.box = element.querySelector(".ps-live-canvases");
    const surface = (role) => new Surface(element.querySelector(`[data-role=${role}]`));
    this.bands = [[requestsBand, surface("lanes")], [stepsBand, surface("steps")]];
    this.axis = surface("axis");
    new ResizeObserver(() => app.invalidate("size")).observe(this.box);
  }

  draw(reasons) {
    const width = this.box.clientWidth;
    if (!width || !REDRAWS.some((reason) => reasons.has(reason))) return;
    const scene = buildScene(this.app.livePart, width);
    scene.words = { ...scene.words, no_requests: scene.words.no_traffic };
    const colours = palette();
    for (const [band, surface] of this.bands) {
      surface.begin(width, band.layout(scene), colours);
      band.draw(surface, scene);
      band.readout(surface, scene);
      const label = band.label(scene);
      if (surface.canvas.ariaLabel !== label) surface.canvas.ariaLabel = label;
    }
    this.axis.begin(width, AXIS_HEIGHT, colours);
    scene.axis.labels(this.axis, 13, this.app.words.clock_axis);
  }
}
