// The controls beside the timeline's title: window, pause, and what can be done with a selection.

import { seconds, TICKS_PER_SECOND } from "./formats.js";
import { WINDOWS } from "./view.js";

const REMEMBER_MS = 400;

export class WindowControls {
  constructor(element, app) {
    this.app = app;
    this.select = element.querySelector("[data-role=window]");
    this.pauseButton = element.querySelector("[data-role=pause]");
    this.actions = element.querySelector("[data-role=selection-actions]");
    this.unzoomButton = element.querySelector("[data-role=unzoom]");
    const { view } = app;
    const change = (action) => () => {
      action();
      app.invalidate("view");
    };
    this.select.addEventListener("change", change(() => view.choose(this.select.value)));
    this.pauseButton.addEventListener("click", () => this.togglePause());
    this.unzoomButton.addEventListener("click", change(() => view.unzoom()));
    element.querySelector("[data-role=zoom-selection]").addEventListener("click", change(() => {
      view.show(...view.selection);
      view.selection = null;
    }));
    element.querySelector("[data-role=clear-selection]").addEventListener("click", change(() => {
      view.selection = null;
    }));
    document.addEventListener("keydown", (event) => this.#space(event));
    this.wanted = this.#recall();
    this.remembered = null;
    this.timer = 0;
  }

  togglePause() {
    const { view } = this.app;
    if (view.paused) view.resume();
    else view.pause();
    this.app.invalidate("view");
  }

  update() {
    const { view, words, trace } = this.app;
    if (this.wanted && trace.epoch) this.#restore();
    const now = JSON.stringify([view.window, view.zoomed]);
    this.remembered ??= now;
    if (now !== this.remembered && !this.timer) {
      this.timer = setTimeout(() => this.#remember(), REMEMBER_MS);
    }
    this.select.value = view.window;
    this.actions.hidden = !view.selection;
    this.select.hidden = Boolean(view.selection);
    this.unzoomButton.hidden = !view.zoomed || Boolean(view.selection);
    this.pauseButton.ariaPressed = String(view.paused);
    const label = view.paused ? words.resume : words.pause;
    const text = this.pauseButton.querySelector("[data-role=pause-label]");
    if (text.textContent !== label) text.textContent = label;
  }

  #space(event) {
    if (event.key !== " " || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = "input, select, textarea, button, a, summary, [contenteditable=true], [role=button], [role=tab]";
    if (event.target.closest?.(field) || !this.pauseButton.offsetWidth) return;
    event.preventDefault();
    this.togglePause();
  }

  // Window and zoom are part of the address, so that a copied link opens the same picture. Browsers
  // limit how often an address may change: a drag writes it once.
  #remember() {
    const { view, trace } = this.app;
    this.timer = 0;
    this.remembered = JSON.stringify([view.window, view.zoomed]);
    const address = new URL(location.href);
    address.searchParams.set("window", view.window);
    for (const name of ["from", "to", "run"]) address.searchParams.delete(name);
    if (view.zoomed) {
      const [from, to] = view.zoomed.map((t) => seconds(t).toFixed(3));
      for (const [name, value] of Object.entries({ from, to, run: trace.epoch })) {
        address.searchParams.set(name, value);
      }
    }
    history.replaceState(history.state, "", address);
  }

  /** The window is chosen at once; returns the zoom, which must wait for data, or null. */
  #recall() {
    const query = new URLSearchParams(location.search);
    if (query.get("window") in WINDOWS) this.app.view.choose(query.get("window"));
    const [from, to] = ["from", "to"].map((name) => Number.parseFloat(query.get(name)) * TICKS_PER_SECOND);
    return to > from ? { from, to, run: query.get("run") } : null;
  }

  #restore() {
    const { from, to, run } = this.wanted;
    this.wanted = null;
    if (run !== this.app.trace.epoch) return; // times of another server mean nothing here
    this.app.view.show(from, to);
    this.app.invalidate("view");
  }
}
