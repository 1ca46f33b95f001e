// Colours and the type stack, read from the page's CSS variables once a theme. Nothing here decides a
// colour: tokens.css does.

const NAMES = [
  "page", "surface", "surface-2", "line", "line-2", "grid", "ink", "ink-2", "ink-3",
  "prefill", "prefill-ink", "prefill-soft", "decode", "decode-ink", "decode-soft",
  "queue", "queue-soft", "prep", "deliver", "deliver-line", "own-band", "own-bar",
  "kv1", "kv2", "kv3", "kv4", "kv5", "kv6", "kv-shared", "kv-evict", "kv-free", "kv-other",
  "ok", "warn", "err", "font",
];

let cached = null;

/** {name: value} of every token, e.g. palette()["decode-ink"]. */
export function palette() {
  if (!cached) {
    const style = getComputedStyle(document.body);
    cached = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return cached;
}

/** Calls `changed` after the theme, the contrast mode or the talk mode changed. */
export function watchTheme(changed) {
  const forget = () => {
    cached = null;
    changed();
  };
  new MutationObserver(forget).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  for (const query of ["(forced-colors: active)", "(prefers-color-scheme: dark)"]) {
    matchMedia(query).addEventListener("change", forget);
  }
}
