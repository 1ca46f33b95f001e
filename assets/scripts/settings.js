// The settings panel's browser side: the header's button that opens it, and what only this browser
// keeps, colours and talk mode. The engine's fields are Gradio's and talk to the server by themselves.

import { setTheme } from "./header.js";
import { setTalk } from "./talk.js";

const PANEL = "#ps-settings";
const CLOSE = "[data-role=close-settings]";

export class Settings {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.panel = element.closest(PANEL);
    this.opener = document.querySelector("[data-role=settings]");
    this.opener.hidden = false;
    this.opener.addEventListener("click", () => this.#toggle());
    this.panel.addEventListener("click", (event) => {
      if (event.target.closest(CLOSE)) this.#toggle();
    });
    this.dark = element.querySelector("[data-role=dark]");
    this.talk = element.querySelector("[data-role=talk]");
    this.dark.addEventListener("change", () => setTheme(this.dark.checked));
    this.talk.addEventListener("change", () => setTalk(this.talk.checked));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#isOpen()) this.#toggle();
    });
    new MutationObserver(() => this.#keepFocus()).observe(this.panel, { subtree: true, childList: true });
    new MutationObserver(() => this.#follow()).observe(this.panel, { attributes: true, attributeFilter: ["class"] });
  }

  draw(reasons) {
    if (!reasons.has("theme") && !reasons.has("size")) return;
    this.dark.checked = document.body.classList.contains("dark");
    this.talk.checked = document.body.classList.contains("ps-talk");
  }

  #isOpen() {
    return this.panel.classList.contains("open");
  }

  // Gradio's own toggle is hidden: it would lie over the page's edge.
  #toggle() {
    this.panel.querySelector(".toggle-button").click();
  }

  // A button that asked and was answered is gone; the next thing to press is beside it.
  #keepFocus() {
    if (!this.#isOpen() || document.activeElement !== document.body) return;
    this.panel.querySelector("#ps-settings-buttons button")?.focus({ preventScroll: true });
  }

  #follow() {
    const open = this.#isOpen();
    if (String(open) === this.opener.ariaExpanded) return;
    this.opener.ariaExpanded = String(open);
    const target = open ? this.panel.querySelector(CLOSE) : this.opener;
    requestAnimationFrame(() => target.focus({ preventScroll: true }));
  }
}
