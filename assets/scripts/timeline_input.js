// Hands on the timeline: pointer, wheel and keys turned into changes of the view. It draws nothing.

import { zoomOf } from "./talk.js";
import { STEP } from "./trace.js";

const DRAG_PX = 5;
const CLOSER = 0.8;

export class TimelineInput {
  /**
   * stack: the element that holds all bands; axis(): the axis drawn last; lanes: the LaneButtons.
   */
  constructor(stack, app, { axis, lanes }) {
    Object.assign(this, { stack, app, axis, lanes, drag: null });
    stack.addEventListener("pointermove", (event) => this.#move(event));
    stack.addEventListener("pointerdown", (event) => this.#down(event));
    stack.addEventListener("pointerup", (event) => this.#up(event));
    stack.addEventListener("pointercancel", () => (this.drag = null));
    stack.addEventListener("pointerleave", (event) => this.#leave(event));
    stack.addEventListener("click", (event) => this.#click(event), true);
    stack.addEventListener("dblclick", () => this.#change("view", () => this.app.view.unzoom()));
    stack.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    stack.addEventListener("keydown", (event) => this.#key(event));
  }

  #time(event) {
    const axis = this.axis();
    if (!axis) return null;
    const canvas = this.stack.querySelector("canvas");
    const x = (event.clientX - canvas.getBoundingClientRect().left) / zoomOf(canvas);
    return axis.inside(x) ? axis.time(x) : null;
  }

  #change(reason, change) {
    change();
    this.app.invalidate(reason);
  }

  #cursor(t) {
    if (t !== this.app.view.cursor) this.#change("cursor", () => (this.app.view.cursor = t));
  }

  #down(event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const t = this.#time(event);
    if (t !== null) this.drag = { x: event.clientX, t, pan: event.shiftKey, moved: false };
  }

  #move(event) {
    const t = this.#time(event);
    const { drag } = this;
    if (drag && !drag.moved && Math.abs(event.clientX - drag.x) > DRAG_PX) {
      drag.moved = true;
      this.stack.setPointerCapture(event.pointerId);
    }
    if (!drag?.moved) {
      if (event.pointerType !== "touch") this.#cursor(t);
    } else if (t !== null) this.#dragTo(t, drag);
  }

  #dragTo(t, drag) {
    const { view } = this.app;
    if (drag.pan) this.#change("view", () => view.pan(drag.t - t));
    else this.#change("cursor", () => {
      view.selection = t < drag.t ? [t, drag.t] : [drag.t, t];
      view.cursor = t;
    });
  }

  #up(event) {
    const { drag } = this;
    this.drag = null;
    if (drag?.moved) this.swallowClick = true;
    else if (event.pointerType === "touch") this.#cursor(this.#time(event));
    else if (drag && this.app.view.selection) {
      this.#change("cursor", () => (this.app.view.selection = null));
    }
  }

  // The click that ends a drag is not a click on the lane beneath.
  #click(event) {
    if (!this.swallowClick) return;
    this.swallowClick = false;
    event.stopPropagation();
  }

  #leave(event) {
    if (!this.drag?.moved && event.pointerType !== "touch") this.#cursor(null);
  }

  // A bare wheel scrolls the page; with Ctrl, Cmd or Alt (or a pinch) it zooms, sideways it pans.
  #wheel(event) {
    const t = this.#time(event);
    if (t === null) return;
    const { view } = this.app;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      this.#change("view", () => view.zoom(event.deltaY > 0 ? 1 / CLOSER : CLOSER, t));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && view.zoomed) {
      event.preventDefault();
      this.#change("view", () => view.pan(event.deltaX / this.axis().perTick));
    }
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = this.#actions()[event.key];
    if (!action || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    action(event);
  }

  #actions() {
    const { view } = this.app;
    const [t0, t1] = view.domain();
    const centre = view.cursor ?? (t0 + t1) / 2;
    const zoom = (factor) => () => this.#change("view", () => view.zoom(factor, centre));
    const sideways = (by) => (event) =>
      event.shiftKey ? this.#change("view", () => view.pan((by * (t1 - t0)) / 4)) : this.#step(by);
    return {
      ArrowUp: () => this.lanes.move(-1),
      ArrowDown: () => this.lanes.move(1),
      ArrowLeft: sideways(-1),
      ArrowRight: sideways(1),
      "+": zoom(CLOSER),
      "=": zoom(CLOSER),
      "-": zoom(1 / CLOSER),
      0: () => this.#change("view", () => view.unzoom()),
      Escape: () => this.#escape(),
    };
  }

  #escape() {
    const { view } = this.app;
    if (view.cursor === null && !view.selection) document.activeElement.blur();
    this.#change("cursor", () => {
      view.cursor = null;
      view.selection = null;
    });
  }

  // To the middle of the step before or after the one under the crosshair.
  #step(by) {
    const { view, trace } = this.app;
    const { steps } = trace;
    const [from, to] = trace.stepsBetween(...view.domain());
    if (to <= from) return;
    let index = to - 1;
    if (view.cursor !== null) {
      index = steps.lowerBound(view.cursor, (step) => step[STEP.t] + step[STEP.d]) + by;
    }
    const step = steps.at(Math.min(to - 1, Math.max(from, index)));
    this.#cursor(step[STEP.t] + step[STEP.d] / 2);
  }
}
