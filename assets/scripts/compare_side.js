// One side of a comparison: lanes, engine steps and its time axis on three canvases, drawn with the
// bands of the live timeline. The panel (compare.js) says when, and keeps the view that both share.

import { TimeAxis } from "./axis.js";
import { requestsBand } from "./band_requests.js";
import { stepsBand } from "./band_steps.js";
import { finding } from "./compare_finding.js";
import { count, duration, plural, seconds } from "./formats.js";
import { setText } from "./header.js";
import { STEP, Trace } from "./trace.js";
import { Surface } from "./surface.js";
import { fill } from "./words.js";

const AXIS_HEIGHT = 18;
const BRACKET_Y = 15.5;
const HOOK = 4;
const NOBODY = { has: () => false };

export class CompareSide {
  constructor(element) {
    this.element = element;
    this.surfaces = {};
    for (const role of ["lanes", "steps", "axis"]) {
      this.surfaces[role] = new Surface(element.querySelector(`[data-role=${role}]`));
    }
    this.crosshair = element.querySelector(".ps-crosshair");
    this.shade = element.querySelector(".ps-selection");
  }

  /** data: one entry of `sides` in a result (see ui/compare_view.py). */
  load({ name, title, note, frame }, words) {
    this.trace = new Trace();
    this.trace.apply({ cursor: 0, epoch: name, frames: [frame] });
    this.trace.state = { name: "stopped" };
    this.requests = [...this.trace.requests.values()];
    this.finding = finding(this.requests);
    this.name = name;
    this.title = title;
    setText(this.element.querySelector("[data-role=title]"), title);
    setText(this.element.querySelector("[data-role=note]"), [note, this.#reading(words)].filter(Boolean).join(" "));
  }

  #reading(words) {
    const { long, read } = this.finding;
    if (!read) return "";
    const sentence = fill(words.read_in, { tokens: count(long.prompt), steps: plural(long.chunks.length, "step") });
    return `${sentence[0].toUpperCase()}${sentence.slice(1)}.`;
  }

  draw(view, shared, withAxis) {
    const width = this.element.clientWidth;
    if (!width) return;
    const scene = this.#scene(view, shared, width);
    this.axis = scene.axis;
    this.#drawLanes(scene, shared);
    this.#drawSteps(scene, shared);
    this.#drawAxis(scene, shared, withAxis);
    this.#drawOverlay(view);
  }

  #scene(view, { pageWords, words, tall }, width) {
    const [t0, t1] = view.domain();
    const largest = this.#largestStep();
    const { config } = this.trace;
    // A policy that reads whole prompts goes beyond the budget: then the scale ends at what it did.
    const beyond = largest > config.budget;
    return {
      trace: this.trace,
      words: beyond ? { ...pageWords, token_budget: words.largest_step, budget: words.largest } : pageWords,
      config: beyond ? { ...config, budget: largest } : config,
      now: this.trace.now,
      own: NOBODY,
      emphasis: null,
      axis: new TimeAxis(width, t0, t1),
      // The same lanes on both sides and at any zoom, whoever is in the window.
      requests: this.requests,
      cursor: view.cursor,
      readAt: view.cursor ?? (view.zoomed ? t1 : null),
      tall,
    };
  }

  #largestStep() {
    let largest = 0;
    for (let i = 0; i < this.trace.steps.length; i += 1) {
      largest = Math.max(largest, this.trace.steps.at(i)[STEP.prefill]);
    }
    return largest;
  }

  #drawLanes(scene, { colours, words }) {
    const surface = this.surfaces.lanes;
    surface.begin(scene.axis.width, requestsBand.layout(scene), colours);
    this.#tint(surface, scene.axis);
    requestsBand.draw(surface, scene);
    requestsBand.readout(surface, scene);
    this.#bracket(surface, scene.axis, words);
    const label = fill(words.side_label, {
      name: this.name, title: this.title, n: count(this.requests.length),
      steps: count(this.trace.steps.length), end: duration(this.trace.now),
      finding: this.#findingWords(words),
    });
    if (surface.canvas.ariaLabel !== label) surface.canvas.ariaLabel = label;
  }

  #tint(surface, axis) {
    const { read } = this.finding;
    if (!read || read[1] < axis.t0 || read[0] > axis.t1) return;
    const x = axis.clamped(read[0]);
    surface.rect(x, BRACKET_Y + 1, axis.clamped(read[1]) - x, surface.height, surface.colours["prefill-soft"]);
  }

  #findingWords(words) {
    const { kind, gap } = this.finding;
    return kind ? fill(words[kind], { time: duration(gap) }) : "";
  }

  // Its ends are exactly the ends of what it names; the words stay inside the plot.
  #bracket(surface, axis, words) {
    const { kind, from, to } = this.finding;
    if (!kind || to < axis.t0 || from > axis.t1) return;
    const { ink } = surface.colours;
    const [x0, x1] = [axis.clamped(from), axis.clamped(to)];
    const foot = BRACKET_Y + HOOK;
    surface.polyline([x0, foot, x0, BRACKET_Y, x1, BRACKET_Y, x1, foot], ink, { width: 1.2 });
    const style = { weight: 700, size: 12, colour: ink, align: "center" };
    const text = this.#findingWords(words);
    const half = surface.measure(text, style) / 2;
    const x = Math.min(Math.max((x0 + x1) / 2, axis.left + half), axis.right - half);
    surface.text(x, BRACKET_Y - 5, text, style);
  }

  #drawSteps(scene, { colours }) {
    const surface = this.surfaces.steps;
    surface.begin(scene.axis.width, stepsBand.layout(scene), colours);
    stepsBand.draw(surface, scene);
    stepsBand.readout(surface, scene);
  }

  #drawAxis({ axis }, { colours, words }, shown) {
    const surface = this.surfaces.axis;
    surface.canvas.hidden = !shown;
    if (!shown) return;
    surface.begin(axis.width, AXIS_HEIGHT, colours);
    const digits = axis.step < 0.1 ? 2 : axis.step < 1 ? 1 : 0;
    const style = { colour: colours["ink-3"] };
    for (const t of axis.ticks()) {
      surface.text(axis.x(t), 13, `${seconds(t).toFixed(digits)} s`, { ...style, align: "center" });
    }
    if (!axis.narrow) surface.text(0, 13, words.since_start, style);
  }

  #drawOverlay({ cursor, selection }) {
    const { axis, crosshair, shade } = this;
    const shown = cursor !== null && axis.inside(axis.x(cursor));
    crosshair.hidden = !shown;
    if (shown) crosshair.style.transform = `translateX(${axis.x(cursor)}px)`;
    shade.hidden = !selection;
    if (!selection) return;
    const [from, to] = selection.map((t) => axis.clamped(t));
    shade.style.transform = `translateX(${from}px)`;
    shade.style.width = `${to - from}px`;
  }
}
