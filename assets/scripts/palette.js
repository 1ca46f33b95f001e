// Colours and the type stack, read from the page's CSS variables once a theme. Nothing here decides a
// colour: tokens.css does.

const NAMES = [
  "page", "surface", "surface-2", "line", "line-2", "grid", "ink", "ink-2", "ink-3",
  "prefill", "prefill-ink", "prefill-soft", "decode", "decode-ink", "decode-soft",
  "queue", "queue-soft", "prep", "deliver", "deliver-line", "own-band", "own-bar",
  "kv1", "kv2", "kv3", "kv4", "kv5", "kv6", "kv-shared", "kv-evict", "kv-free", "kv-other",
  "ok", "warn", "err", "outline", "font", "weight",
];

const FORCED = "(forced-colors: active)";

let cached = null;
let changes = 0;

/** {name: value} of every token, e.g. palette()["decode-ink"]. */
export function palette() {
  if (!cached) {
    const style = getComputedStyle(document.body);
    cached = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    if (matchMedia(FORCED).matches) resolveSystemColours(cached);
  }
  return cached;
}

// With forced colours tokens are names such as CanvasText, which Plotly does not know.
function resolveSystemColours(colours) {
  const probe = document.createElement("i");
  probe.style.forcedColorAdjust = "none";
  document.body.append(probe);
  for (const [name, value] of Object.entries(colours)) {
    if (!CSS.supports("color", value)) continue;
    probe.style.color = value;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

/** A number that is another one once the colours are. */
export const paletteVersion = () => changes;

/** Calls `changed` after the theme, the contrast mode or the talk mode changed. */
export function watchTheme(changed) {
  const forget = () => {
    cached = null;
    changes += 1;
    changed();
  };
  new MutationObserver(forget).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  for (const query of [FORCED, "(prefers-color-scheme: dark)"]) {
    matchMedia(query).addEventListener("change", forget);
  }
}
