// A focusable button over every lane the canvas draws: what a mouse, a finger, a keyboard or a screen
// reader takes hold of. Buttons are kept by request, so that focus survives every redraw.

import { count, duration } from "./formats.js";
import { fill, stateWord } from "./words.js";

export class LaneButtons {
  /** container: positioned over the canvas. */
  constructor(container) {
    this.container = container;
    this.buttons = new Map();
  }

  update(scene) {
    const { rows } = scene.lanes;
    const wanted = new Set(rows.map((row) => row.request.n));
    for (const [n, button] of this.buttons) {
      if (wanted.has(n)) continue;
      button.remove();
      this.buttons.delete(n);
    }
    let previous = null;
    for (const row of rows) {
      const button = this.buttons.get(row.request.n) ?? this.#create(row.request.n);
      place(button, row);
      const label = describe(row, scene);
      if (button.ariaLabel !== label) button.ariaLabel = label;
      const next = previous ? previous.nextSibling : this.container.firstChild;
      if (next !== button) this.container.insertBefore(button, next);
      previous = button;
    }
  }

  /** Focus the lane `by` rows from the focused one; the first or last when none is. */
  move(by) {
    const all = [...this.container.children];
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[next]?.focus();
  }

  #create(n) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "ps-lane";
    button.dataset.request = n;
    this.buttons.set(n, button);
    return button;
  }
}

// What the browser makes of a style reads otherwise than what it was given: the latter is remembered.
function place(button, { y, height }) {
  const style = `top:${y}px;height:${height}px`;
  if (button.placed === style) return;
  button.placed = style;
  button.style.cssText = style;
}

function describe({ request, own }, { words }) {
  const { ttft } = request;
  const first = ttft === null ? words.no_token_yet : fill(words.first_token_in, { time: duration(ttft) });
  return fill(words.lane_label, {
    id: own ? `${request.id}, ${words.yours}` : request.id,
    state: stateWord(words, request.st),
    prompt: count(request.prompt),
    first,
    out: count(request.out),
  });
}
