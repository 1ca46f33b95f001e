// The bar under the header: what is wrong or being waited for, in a sentence, and the one thing to do
// about it. Empty while all is well.

import { percent, plural } from "./formats.js";
import { setText, stateName } from "./header.js";
import { fill } from "./words.js";

const ACTIONS = { failed: "retry_load", stopped: "restart", stuck: "restart", offline: "retry" };
const SHOWN = new Set(["loading", "measuring", "failed", "stopped", "stuck", "recovering", "reconnecting", "offline"]);

export class Notice {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.bar = element.querySelector(".ps-notice");
    this.text = element.querySelector("[data-role=text]");
    this.progress = element.querySelector("progress");
    this.key = element.querySelector("input");
    this.button = element.querySelector("button");
    this.button.addEventListener("click", () => this.#act());
    this.message = "";
  }

  draw(reasons) {
    if (!["data", "status", "clock", "size"].some((reason) => reasons.has(reason))) return;
    const name = stateName(this.app);
    if (name !== this.name) {
      this.message = "";
      this.key.hidden = true;
    }
    this.name = name;
    this.bar.hidden = !SHOWN.has(name);
    if (this.bar.hidden) return;
    this.bar.dataset.kind = ["failed", "stopped", "offline"].includes(name) ? "err" : "warn";
    setText(this.text, this.message || this.#sentence(name));
    const progress = name === "loading" ? this.app.told.state.progress : null;
    this.progress.hidden = progress === null;
    if (progress !== null) {
      this.progress.value = progress;
      this.progress.ariaValueText = `${percent(progress, 1)} %`;
    }
    this.button.hidden = !ACTIONS[name];
    if (ACTIONS[name]) setText(this.button, this.app.words[ACTIONS[name]]);
  }

  #sentence(name) {
    const { words, told: trace, feed } = this.app;
    if (name === "reconnecting" || name === "offline") {
      const time = plural(Math.round(feed.silence() / 1000), "second");
      return fill(words.notices[name], { time });
    }
    return trace.state.text || words.notices[name];
  }

  #answer({ ok, status }) {
    if (status === 401) {
      this.message = this.app.words.restart_locked;
      this.key.hidden = false;
      this.key.focus();
    } else if (!ok) {
      this.message = fill(this.app.words.restart_refused, { status });
    }
  }

  async #act() {
    if (this.name === "offline") {
      this.app.feed.retry();
      return;
    }
    this.button.disabled = true;
    this.message = this.app.words.restarting;
    try {
      const headers = this.key.value ? { "X-Admin-Key": this.key.value } : {};
      const response = await fetch(new URL("live/restart", document.baseURI), { method: "POST", headers });
      this.#answer(response);
    } catch {
      this.message = this.app.words.restart_unreachable;
    } finally {
      this.button.disabled = false;
      this.app.invalidate("status");
    }
  }
}
