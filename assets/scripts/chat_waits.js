// Answers whose tokens are coloured by their wait: the numbers of the token under the pointer, and of
// the one that arrow keys have reached. They come with the answer, in attributes (ui/waits.py).

import { fill } from "./words.js";

const TOKEN = ".ps-w";
const ACTIVE = "ps-active";
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 };
const GAP = 6;
const EDGE = 8;

/** Show the numbers of tokens in `log` in `tip`; returns what is to be called after each change. */
export function showWaits(log, tip, words) {
  let active = null;
  const point = (token) => {
    active?.classList.remove(ACTIVE);
    active = token;
    tip.hidden = !token;
    if (!token) return;
    token.classList.add(ACTIVE);
    tip.textContent = describeToken(token.getAttribute("value"), token.getAttribute("label"), words);
    place(tip, boxOf(token));
  };
  log.addEventListener("pointerover", (event) => point(event.target.closest(TOKEN)));
  log.addEventListener("pointerleave", () => point(null));
  log.addEventListener("focusout", () => point(null));
  log.addEventListener("focusin", (event) => {
    if (event.target.matches(".ps-waits:focus-visible")) point(event.target.querySelector(TOKEN));
  });
  log.addEventListener("keydown", (event) => {
    const text = event.target.closest(".ps-waits");
    if (!text) return;
    if (event.key === "Escape") point(null);
    if (!(event.key in STEPS)) return;
    const tokens = [...text.querySelectorAll(TOKEN)];
    const next = tokens.indexOf(active) + STEPS[event.key];
    point(tokens[Math.min(tokens.length - 1, Math.max(0, next))]);
    active.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  });
  addEventListener("scroll", () => active && place(tip, boxOf(active)), { capture: true, passive: true });
  return () => {
    if (active && !active.isConnected) point(null);
    markTexts(log, words);
  };
}

/** "token 12 · 302 ms after the one before · ..." of what a token's attributes say. */
export function describeToken(value, label, words) {
  const [tokens, gap, at, share] = value.split("|");
  const several = tokens.includes("-");
  const parts = [fill(several ? words.wait_tokens : words.wait_token, { n: tokens.replace("-", "–") })];
  if (gap) parts.push(fill(several ? words.wait_gaps : words.wait_gap, { gap }));
  parts.push(fill(words.wait_at, { at }));
  if (share) parts.push(fill(words.wait_share, { share }));
  if (label) parts.push(label);
  return parts.join(" · ");
}

/** A coloured text can be reached with the Tab key; one that is not any more cannot. */
function markTexts(log, words) {
  for (const text of log.querySelectorAll(".bot-row .md")) {
    const coloured = text.querySelector(TOKEN) !== null;
    if (coloured === text.classList.contains("ps-waits")) continue;
    text.classList.toggle("ps-waits", coloured);
    if (coloured) {
      text.tabIndex = 0;
      text.setAttribute("role", "group");
      text.setAttribute("aria-label", words.coloured);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) text.removeAttribute(name);
    }
  }
}

/** The first line's part of a token, which may be broken over two; empty boxes have none. */
const boxOf = (token) => token.getClientRects()[0] ?? token.getBoundingClientRect();

function place(tip, token) {
  const right = document.documentElement.clientWidth - tip.offsetWidth - EDGE;
  tip.style.left = `${Math.max(EDGE, Math.min(token.left, right))}px`;
  const above = token.top - GAP - tip.offsetHeight;
  tip.style.top = `${above > EDGE ? above : token.bottom + GAP}px`;
}
