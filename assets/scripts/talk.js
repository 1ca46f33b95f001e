// Talk mode, for a projector: everything larger and lines thicker. page.css says how; this module
// switches it, by ?talk=1 or the settings panel, and remembers the choice.

const KEY = "phasescope.talk";
const CLASS = "ps-talk";

/** How much larger `element` is shown than its own pixels say; pointer positions have to be divided. */
export const zoomOf = (element) => element.currentCSSZoom ?? 1;

export function setTalk(on) {
  document.body.classList.toggle(CLASS, on);
  try {
    localStorage.setItem(KEY, on ? "1" : "");
  } catch {
    // The choice then lasts until the page is closed.
  }
}

/** Take up what the address asks for, else what was chosen before. */
export function recallTalk() {
  const asked = new URLSearchParams(location.search).get("talk");
  let chosen = asked;
  if (asked === null) {
    try {
      chosen = localStorage.getItem(KEY);
    } catch {
      return;
    }
  }
  document.body.classList.toggle(CLASS, chosen === "1");
}
