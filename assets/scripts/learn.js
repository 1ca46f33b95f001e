// The picture of a lesson: the one band of the timeline that answers its question, for each side of the
// run, with one bracket over it. It fetches the run that Python names and knows no lesson.

import { TimeAxis } from "./axis.js";
import { growthBand } from "./band_growth.js";
import { requestsBand } from "./band_requests.js";
import { stepsBand } from "./band_steps.js";
import { seconds } from "./formats.js";
import { setText } from "./header.js";
import { KvColours } from "./kv_colours.js";
import { palette } from "./palette.js";
import { STEP, Trace } from "./trace.js";
import { Surface } from "./surface.js";
import { fill } from "./words.js";

const BANDS = { requests: requestsBand, steps: stepsBand, growth: growthBand };
const REDRAWS = ["theme", "size", "lesson"];
const NOBODY = { has: () => false };
const BRACKET_HEIGHT = 24;
const BRACKET_Y = 17;
const HOOK = 5;
const AXIS_HEIGHT = 18;
const GROWTH_HEIGHT = 180;
const ROOM = 1.03; // of the length of a run, so that its end is not at the very edge

export class Lesson {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.tab = document.getElementById("ps-learn");
    this.card = element.querySelector(".ps-lesson");
    this.words = JSON.parse(this.card.dataset.learnWords);
    this.error = element.querySelector("[role=alert]");
    this.legend = element.querySelector("[data-role=legend]");
    this.sides = [...element.querySelectorAll(".ps-lesson-side")].map((side) => new LessonSide(side));
    this.told = null;
    new ResizeObserver(() => app.invalidate("size")).observe(element);
    new MutationObserver(() => this.#look()).observe(this.tab, {
      childList: true, subtree: true, attributes: true, attributeFilter: ["data-lesson"],
    });
    this.#look();
  }

  draw(reasons) {
    if (this.card.hidden || !REDRAWS.some((reason) => reasons.has(reason))) return;
    const shown = this.#shown();
    const most = (value) => Math.max(...shown.map(value));
    // One scale for both sides.
    const scale = {
      until: ROOM * most((side) => side.trace.now),
      budget: most((side) => side.budget()),
      slots: most((side) => side.trace.config.slots),
    };
    for (const side of shown) side.draw(scale, this.lesson, this.words, this.app.words);
  }

  #shown() {
    return this.sides.filter((side) => side.trace);
  }

  // Python names the run in the numbers beside the picture, and takes them away with a new lesson.
  #look() {
    const told = this.tab.querySelector("[data-lesson]")?.dataset.lesson ?? null;
    if (told === this.told) return;
    this.told = told;
    this.card.hidden = told === null;
    if (told !== null) this.#load(told);
  }

  async #load(told) {
    const lesson = JSON.parse(told);
    for (const side of this.sides) side.clear();
    const left = () => told !== this.told; // another lesson was opened meanwhile
    try {
      const { sides } = await fetchRun(lesson.result);
      if (left()) return;
      for (const [index, side] of sides.entries()) this.sides[index].load(side, lesson, sides.length > 1);
      this.lesson = lesson;
      setText(this.error, "");
    } catch {
      if (left()) return;
      setText(this.error, this.words.failed);
    }
    this.error.hidden = !this.error.textContent;
    this.legend.hidden = lesson.band !== "requests";
    this.app.invalidate("lesson");
  }
}

async function fetchRun(result) {
  const response = await fetch(new URL(`live/result/${result}.json`, document.baseURI));
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

class LessonSide {
  constructor(element) {
    this.element = element;
    this.name = element.dataset.side;
    const surface = (role) => new Surface(element.querySelector(`[data-role=${role}]`));
    [this.bracket, this.band, this.axis] = ["bracket", "band", "axis"].map(surface);
    this.clear();
  }

  clear() {
    this.trace = null;
    this.element.hidden = true;
  }

  load({ name, title, frame }, { engine }, named) {
    this.trace = new Trace();
    this.trace.apply({ cursor: 0, epoch: name, frames: [frame] });
    this.trace.state = { name: "stopped" };
    this.trace.config = { ...this.trace.config, ...engine };
    this.element.hidden = false;
    this.element.querySelector(".ps-side-head").hidden = !named;
    setText(this.element.querySelector("[data-role=title]"), title);
  }

  /** The token budget, or the largest step where a policy goes beyond it. */
  budget() {
    let most = this.trace.config.budget;
    for (let i = 0; i < this.trace.steps.length; i += 1) most = Math.max(most, this.trace.steps.at(i)[STEP.prefill]);
    return most;
  }

  draw(scale, lesson, words, pageWords) {
    const width = this.element.clientWidth;
    if (!width) return;
    const scene = this.#scene(width, scale, pageWords);
    const colours = palette();
    const band = BANDS[lesson.band];
    this.band.begin(width, band.layout(scene), colours);
    band.draw(this.band, scene);
    band.readout(this.band, scene);
    const marked = lesson.bracket.side === this.name ? lesson.bracket : null;
    this.#drawBracket(scene.axis, marked, colours);
    // The band of the cache carries the axis itself.
    this.axis.canvas.hidden = lesson.band === "growth";
    if (!this.axis.canvas.hidden) this.#drawAxis(scene.axis, words, colours);
    this.band.canvas.ariaLabel = marked
      ? fill(words.picture, { side: this.name, band: words.bands[lesson.band], text: marked.text })
      : `${this.name}: ${band.label(scene)}`;
  }

  #scene(width, { until, budget, slots }, words) {
    const { trace } = this;
    const requests = [...trace.requests.values()];
    return {
      trace,
      words,
      config: { ...trace.config, budget, slots },
      sum: null,
      now: trace.now,
      edge: trace.now,
      own: NOBODY,
      kvColours: new KvColours(),
      emphasis: null,
      axis: new TimeAxis(width, 0, until),
      recent: requests,
      requests,
      cursor: null,
      readAt: null,
      tall: false,
      stretch: { growth: GROWTH_HEIGHT },
    };
  }

  // Its ends are the ends of what it names; the words stay inside the plot.
  #drawBracket(axis, marked, colours) {
    const surface = this.bracket;
    surface.canvas.hidden = !marked;
    if (!marked) return;
    surface.begin(axis.width, BRACKET_HEIGHT, colours);
    const [x0, x1] = [axis.clamped(marked.from), axis.clamped(marked.to)];
    const foot = BRACKET_Y + HOOK;
    surface.polyline([x0, foot, x0, BRACKET_Y, x1, BRACKET_Y, x1, foot], colours.ink, { width: 1.2 });
    const style = { weight: 700, size: 12, colour: colours.ink, align: "center" };
    const half = surface.measure(marked.text, style) / 2;
    const x = Math.min(Math.max((x0 + x1) / 2, half), Math.max(half, axis.width - half));
    surface.text(x, BRACKET_Y - 5, marked.text, style);
  }

  #drawAxis(axis, words, colours) {
    const surface = this.axis;
    surface.begin(axis.width, AXIS_HEIGHT, colours);
    const digits = axis.step < 0.1 ? 2 : axis.step < 1 ? 1 : 0;
    for (const t of axis.ticks()) {
      surface.text(axis.x(t), 13, `${seconds(t).toFixed(digits)} s`, { colour: colours["ink-3"], align: "center" });
    }
    if (!axis.narrow) surface.text(0, 13, words.since_start, { colour: colours["ink-3"] });
  }
}
