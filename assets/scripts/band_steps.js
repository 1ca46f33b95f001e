// The band of engine steps: prefill tokens upwards against the token budget, decode tokens downwards
// against the slots. Its cost depends on pixels and steps, never on the number of requests.

import { count, plural } from "./formats.js";
import { STEP } from "./trace.js";

const TOP = 8;

export const stepsBand = {
  name: "steps",

  layout(scene) {
    scene.strip = scene.tall ? { up: 72, down: 28 } : { up: 56, down: 22 };
    return scene.strip.up + scene.strip.down + TOP + 4;
  },

  draw(surface, scene) {
    const { axis, strip, config, words } = scene;
    const { colours } = surface;
    axis.grid(surface, surface.height);
    const zero = TOP + strip.up;
    if (config) {
      const bars = collect(scene, axis);
      drawPrefill(surface, bars, zero, strip.up / config.budget);
      drawDecode(surface, bars, zero + 1.5, strip.down / config.slots);
    }
    surface.line(axis.left, TOP, axis.right, TOP, colours["ink-2"], { dash: [3, 3] });
    surface.line(axis.left, zero + 0.5, axis.right, zero + 0.5, colours["line-2"]);
    drawScale(surface, axis, zero, strip, config);
    if (!axis.narrow) {
      surface.text(0, zero - strip.up / 2 + 4, words.prefill, { colour: colours["prefill-ink"] });
      surface.text(0, zero + strip.down / 2 + 6, words.decode, { colour: colours["decode-ink"] });
    }
  },

  readout(surface, scene) {
    const { axis, strip, words } = scene;
    const style = { colour: surface.colours["ink-2"] };
    const step = scene.cursor === null ? null : scene.trace.stepAt(scene.cursor);
    const up = step ? `${count(step[STEP.prefill])} ${words.prefill}` : axis.narrow ? words.budget : words.token_budget;
    const down = step ? `${count(step[STEP.decode])} ${words.decode}` : words.slots;
    surface.text(axis.right + 10, TOP + 4, up, style);
    surface.text(axis.right + 10, TOP + strip.up + strip.down + 4, down, style);
  },

  label(scene) {
    const [from, to] = scene.trace.stepsBetween(scene.axis.t0, scene.axis.t1);
    return `${scene.words.steps_label} ${plural(to - from, "step")}.`;
  },
};

function drawScale(surface, axis, zero, strip, config) {
  const style = { colour: surface.colours["ink-3"], align: "right" };
  const x = axis.left - 8;
  surface.text(x, zero + 4, "0", style);
  if (!config) return;
  surface.text(x, TOP + 4, count(config.budget), style);
  surface.text(x, zero + strip.down + 4, count(config.slots), style);
}

/**
 * Bars in pixels: [{x0, x1, prefill, decode}]. Steps that share a pixel column become one bar with
 * the largest prefill and the mean decode of the column.
 */
function collect(scene, axis) {
  const { trace } = scene;
  const [from, to] = trace.stepsBetween(axis.t0, axis.t1);
  const bars = [];
  let column = null;
  for (let i = from; i < to; i += 1) {
    const step = trace.steps.at(i);
    const x0 = axis.clamped(step[STEP.t]);
    const x1 = axis.clamped(step[STEP.t] + step[STEP.d]);
    if (x1 - x0 >= 1) {
      bars.push({ x0, x1, prefill: step[STEP.prefill], decode: step[STEP.decode] });
      column = null;
    } else if (column && Math.floor(x0) === column.pixel) {
      column.steps += 1;
      column.sum += step[STEP.decode];
      column.x1 = Math.max(column.x1, x1);
      column.prefill = Math.max(column.prefill, step[STEP.prefill]);
      column.decode = column.sum / column.steps;
    } else {
      column = { pixel: Math.floor(x0), steps: 1, sum: step[STEP.decode], x0, x1,
        prefill: step[STEP.prefill], decode: step[STEP.decode] };
      bars.push(column);
    }
  }
  return bars;
}

const gapOf = (bar) => (bar.x1 - bar.x0 > 4 ? 1 : 0);

function drawPrefill(surface, bars, zero, scale) {
  for (const bar of bars) {
    if (!bar.prefill) continue;
    const height = bar.prefill * scale;
    surface.mark(bar.x0, zero - height, Math.max(bar.x1 - bar.x0 - gapOf(bar), 1), height, surface.colours.prefill);
  }
}

// Narrow equal neighbours merge, so that the strip is crisp and not a moiré; idle time stays empty.
function drawDecode(surface, bars, top, scale) {
  const colour = surface.colours.decode;
  let run = null;
  const flush = () => {
    if (run) surface.mark(run.x0, top, Math.max(run.x1 - run.x0, 0.7), run.decode * scale, colour);
    run = null;
  };
  for (const bar of bars) {
    const wide = gapOf(bar);
    if (run && (wide || run.decode !== bar.decode || bar.x0 - run.x1 > 1)) flush();
    if (!bar.decode) continue;
    if (wide) surface.mark(bar.x0, top, bar.x1 - bar.x0 - 1, bar.decode * scale, colour);
    else if (run) run.x1 = bar.x1;
    else run = { ...bar };
  }
  flush();
}
