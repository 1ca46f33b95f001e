// The header's right-hand side: model and machine, the state in a word, light or dark.

import { percent } from "./formats.js";

const DOTS = {
  live: "ok", idle: "ok", busy: "ok", replay: "ok",
  loading: "warn", measuring: "warn", queue_full: "warn", kv_full: "warn", stuck: "warn",
  recovering: "warn", connecting: "warn", reconnecting: "warn",
  offline: "err", stopped: "err", failed: "err",
};
const THEME_KEY = "phasescope.theme";

/** The one state to show: the browser's own trouble first, then what the server says. */
export function stateName({ feed, told }) {
  if (told.recording) return told.state.name;
  if (feed.connection === "reconnecting" || feed.connection === "offline") return feed.connection;
  return told.state?.name ?? "connecting";
}

export class Header {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.machine = element.querySelector("[data-role=machine]");
    this.state = element.querySelector("[data-role=state]");
    this.dot = element.querySelector("[data-role=dot]");
    element.querySelector("[data-role=theme]").addEventListener("click", () => setTheme(!document.body.classList.contains("dark")));
    recallTheme();
  }

  draw(reasons) {
    if (!["data", "status", "size"].some((reason) => reasons.has(reason))) return;
    const { told: trace, words } = this.app;
    const name = stateName(this.app);
    let label = words.header_states[name] ?? name;
    if (name === "loading" && trace.state.progress !== null) label += ` ${percent(trace.state.progress, 1)} %`;
    setText(this.state, label);
    this.dot.dataset.kind = DOTS[name] ?? "warn";
    const { config } = trace;
    setText(this.machine, config ? [config.model, config.dtype, config.device].filter(Boolean).join(", ") : "");
  }
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show dark or light colours, and remember it. */
export function setTheme(dark) {
  document.body.classList.toggle("dark", dark);
  try {
    localStorage.setItem(THEME_KEY, dark ? "dark" : "light");
  } catch {
    // The choice then lasts until the page is closed.
  }
}

// Gradio follows ?__theme= and the system; a choice made here comes before the system's.
function recallTheme() {
  if (new URLSearchParams(location.search).has("__theme")) return;
  let chosen = null;
  try {
    chosen = localStorage.getItem(THEME_KEY);
  } catch {
    return;
  }
  if (chosen) document.body.classList.toggle("dark", chosen === "dark");
}
