// Recordings on the page: opening one, the bundled one as a first look while the model loads, and the
// player's controls. What a recording is, recording.js knows; what draws it is the page as ever.

import { clock, TICKS_PER_SECOND } from "./formats.js";
import { setText } from "./header.js";
import { readRecording, NotARecording } from "./recording.js";
import { Trace } from "./trace.js";
import { fill } from "./words.js";

const FIRST_LOOK = "live/recordings/first-look.json.gz";
const LOADING = new Set(["loading", "measuring"]);
const TIMEOUT_MS = 10_000;

export class Replay {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.words = app.words.replay;
    this.find = (role) => element.querySelector(`[data-role=${role}]`);
    this.bar = element.querySelector(".ps-replay");
    this.error = element.querySelector(".ps-recording-error");
    this.file = this.find("file");
    this.playing = false;
    this.lookedFor = false;
    this.file.addEventListener("change", () => this.#open());
    this.find("back").addEventListener("click", () => this.#back());
    this.find("play").addEventListener("click", () => this.#toggle());
    this.find("position").addEventListener("input", (event) => this.#seek(Number(event.target.value) / 1000));
    document.addEventListener("click", (event) => this.#menu(event));
  }

  draw(reasons) {
    if (reasons.has("data") || reasons.has("status")) this.#lookFirst();
    const { trace } = this.app;
    this.bar.hidden = !trace.recording;
    const [pause, save] = ["pause", "save-recording"].map((role) => document.querySelector(`[data-role=${role}]`));
    if (pause) pause.hidden = Boolean(trace.recording); // the player has its own
    if (save) save.hidden = !this.app.live.config || Boolean(this.app.live.recording);
    if (!trace.recording) return;
    setText(this.find("about"), this.#sentence(trace));
    this.find("back").hidden = trace === this.app.live || this.app.firstLook;
    this.#drawPlayer();
  }

  #sentence({ recording, config }) {
    const date = new Date(recording.recorded).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
    const model = [config.model, config.dtype].filter(Boolean).join(", ");
    const sentence = this.app.firstLook ? this.words.first_look : this.words.about;
    return fill(sentence, { date, model, machine: recording.machine });
  }

  // While a model loads there is nothing to see: the bundled recording stands in until there is.
  async #lookFirst() {
    const { live, trace, firstLook } = this.app;
    const wanted = LOADING.has(live.state?.name) && !live.steps.length && !live.requests.size;
    if (firstLook && !wanted) this.#back();
    if (!wanted || trace !== live || this.lookedFor) return;
    this.lookedFor = true;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const response = await fetch(new URL(FIRST_LOOK, document.baseURI), { signal });
      if (!response.ok) return;
      const frame = await readRecording(await response.blob(), FIRST_LOOK, this.words);
      if (this.app.trace === this.app.live && LOADING.has(this.app.live.state.name)) this.#show(frame, true);
    } catch {
      // A first look is an extra: without it the charts stay empty until the model is loaded.
    }
  }

  #menu(event) {
    const menu = document.querySelector(".ps-recording-menu");
    if (event.target.closest("[data-role=open-recording]")) this.file.click();
    const chosen = event.target.closest("[data-role=open-recording], [data-role=save-recording]");
    if (menu?.open && (chosen || !menu.contains(event.target))) menu.open = false;
  }

  async #open() {
    const [file] = this.file.files;
    if (!file) return;
    try {
      this.#show(await readRecording(file, file.name, this.words), false);
      this.#say("");
    } catch (error) {
      if (!(error instanceof NotARecording)) throw error;
      this.#say(error.message);
    } finally {
      this.file.value = ""; // so that the same file can be chosen again
    }
  }

  #say(sentence) {
    this.error.hidden = !sentence;
    setText(this.error, sentence);
  }

  #show(frame, firstLook) {
    const trace = new Trace();
    trace.apply({ cursor: 1, epoch: "recording", frames: [frame] });
    this.playing = false;
    this.app.replay(trace, firstLook);
  }

  #back() {
    this.playing = false;
    this.#say("");
    this.app.replay(null, false);
  }

  // -- the player: a picture that is paused at a moment which moves on ------------------------------

  #span() {
    const { trace } = this.app;
    return [trace.firstEvent(), trace.lastEvent()];
  }

  #seek(share) {
    const [first, last] = this.#span();
    this.#moveTo(first + share * (last - first));
  }

  #moveTo(t) {
    const { view } = this.app;
    view.zoomed = null;
    view.pausedAt = t < this.#span()[1] ? t : null;
    this.app.invalidate("view");
  }

  #toggle() {
    this.playing = !this.playing;
    if (!this.playing) return;
    const { view } = this.app;
    const [first, last] = this.#span();
    if (view.edge() >= last) this.#moveTo(first + (last - first) / 1000);
    let before = performance.now();
    const step = (now) => {
      if (!this.playing || !this.app.trace.recording) return;
      const speed = Number(this.find("speed").value);
      this.#moveTo(view.edge() + ((now - before) / 1000) * speed * TICKS_PER_SECOND);
      before = now;
      if (view.pausedAt === null) this.playing = false;
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    this.app.invalidate("view");
  }

  #drawPlayer() {
    const [first, last] = this.#span();
    const at = this.app.view.edge();
    const position = this.find("position");
    if (document.activeElement !== position || this.playing) {
      position.value = Math.round((1000 * (at - first)) / Math.max(1, last - first));
    }
    position.ariaValueText = clock(at - first, 1);
    setText(this.find("time"), `${clock(at - first, 1)} of ${clock(last - first, 1)}`);
    setText(this.find("play"), this.playing ? this.words.pause : this.words.play);
  }
}
