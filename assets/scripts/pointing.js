// One rule for every mark that stands for a request: anything with data-request points at it while
// hovered or focused, and opens it when clicked. Lanes, blocks, rows, legends and the chat's footers
// need no listeners of their own.

export function numberOf(target) {
  const holder = target?.closest?.("[data-request]");
  return holder ? Number(holder.dataset.request) : null;
}

export function listenForRequests(app, open) {
  // The chat speaks of the live engine: its R7 is not the R7 of a recording.
  const strange = (target) => app.trace.recording && target?.closest?.("#ps-chat");
  const pointed = ({ target }) => (strange(target) ? null : numberOf(target));
  const point = (event) => app.emphasise(pointed(event));
  document.addEventListener("pointerover", point);
  document.addEventListener("focusin", point);
  document.addEventListener("focusout", () => app.emphasise(null));
  document.documentElement.addEventListener("pointerleave", () => app.emphasise(null));
  document.addEventListener("click", (event) => {
    const n = pointed(event);
    if (n !== null) open(n);
  });
}
