// The bar over the chat while an experiment has the engine alone: what runs, for how long at most, and
// who else waits. The feed says all of it.

import { clock } from "./formats.js";
import { setText } from "./header.js";
import { compareWords } from "./compare_words.js";
import { fill } from "./words.js";

export class TurnBanner {
  constructor(element, app) {
    this.element = element;
    this.app = app;
    this.bar = element.querySelector(".ps-turn");
    this.words = compareWords(this.bar);
  }

  draw(reasons) {
    if (!["data", "clock", "size"].some((reason) => reasons.has(reason))) return;
    const turn = this.app.live.state?.turn;
    this.bar.hidden = !turn;
    if (!turn) return;
    const [label, end, waiting] = turn;
    const time = clock(Math.max(0, end - this.app.serverNow()));
    const more = waiting ? fill(this.words.banner_waiting, { n: waiting }) : "";
    setText(this.bar.firstElementChild, fill(this.words.banner, { time, label }) + more);
  }
}
