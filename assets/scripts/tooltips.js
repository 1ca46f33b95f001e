// Definitions open on hover, focus and tap, and close with Esc, leaving or a tap elsewhere. The text is in
// the page (role=tooltip); this only decides where and when it shows.

import { zoomOf } from "./talk.js";

const GAP = 6;
const EDGE = 8;

export function initTooltips() {
  let shown = null;
  const hide = () => {
    if (shown) shown.hidden = true;
    shown = null;
  };
  const show = (button) => {
    const tip = document.getElementById(button.getAttribute("aria-describedby"));
    if (tip === shown) return;
    hide();
    if (!tip) return;
    tip.hidden = false;
    place(tip, button.getBoundingClientRect());
    shown = tip;
  };
  const definition = (event) => event.target.closest?.(".ps-def");
  const open = (event) => (definition(event) ? show(definition(event)) : hide());
  document.addEventListener("pointerover", (event) => event.pointerType !== "touch" && open(event));
  document.addEventListener("focusin", open);
  document.addEventListener("focusout", hide);
  document.addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", hide, { capture: true, passive: true });
}

function place(tip, anchor) {
  const zoom = zoomOf(tip);
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(EDGE, anchor.left), document.documentElement.clientWidth - width - EDGE);
  const below = anchor.bottom + GAP;
  const fits = below + height < innerHeight;
  tip.style.left = `${Math.max(EDGE, left) / zoom}px`;
  tip.style.top = `${(fits ? below : anchor.top - GAP - height) / zoom}px`;
}
