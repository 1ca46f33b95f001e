// One rule for every mark that stands for a request: anything with data-request points at it while
// hovered or focused, and opens it when clicked. Lanes, blocks, rows, legends and the chat's footers
// need no listeners of their own.

export function numberOf(target) {
  const holder = target?.closest?.("[data-request]");
  return holder ? Number(holder.dataset.request) : null;
}

export function listenForRequests(app, open) {
  const point = (event) => app.emphasise(numberOf(event.target));
  document.addEventListener("pointerover", point);
  document.addEventListener("focusin", point);
  document.addEventListener("focusout", () => app.emphasise(null));
  document.documentElement.addEventListener("pointerleave", () => app.emphasise(null));
  document.addEventListener("click", (event) => {
    const n = numberOf(event.target);
    if (n !== null) open(n);
  });
}
