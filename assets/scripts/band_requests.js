// The band of request lanes: one row a request, or their sum when there are too many. Draws from a
// scene alone (see scene.js) and keeps no state.

import { count, duration } from "./formats.js";
import { drawMarks } from "./lane_marks.js";
import { layOut } from "./lane_layout.js";
import { drawCounts } from "./phase_counts.js";
import { fill, stateWord } from "./words.js";

export const requestsBand = {
  name: "requests",
  gutterFrom: 0,

  layout(scene) {
    scene.lanes = layOut(scene.requests, (n) => scene.own.has(n), scene.tall);
    return scene.lanes.rows.length || scene.lanes.others ? scene.lanes.height : 72;
  },

  draw(surface, scene) {
    const { axis, lanes, words } = scene;
    axis.grid(surface, surface.height);
    if (!scene.requests.length) {
      const middle = (axis.left + axis.right) / 2;
      surface.text(middle, surface.height / 2 + 4, words.no_requests, {
        colour: surface.colours["ink-2"], align: "center", size: 12,
      });
      return;
    }
    const heading = { colour: surface.colours["ink-3"] };
    surface.text(0, 10, axis.narrow ? words.lane_head_narrow : words.lane_head, heading);
    for (const row of lanes.rows) drawRow(surface, scene, row);
    if (lanes.mode === "counts") drawCounts(surface, scene, lanes.others);
    if (lanes.others) drawOthersLabel(surface, scene);
  },

  readout(surface, scene) {
    const { axis, lanes, words } = scene;
    if (!scene.requests.length) return;
    const heading = scene.cursor === null ? words.output_head : words.at_cursor;
    surface.text(axis.right + 10, 10, heading, { colour: surface.colours["ink-3"] });
    for (const row of lanes.rows) if (labelled(row, scene)) drawValue(surface, scene, row);
  },

  label(scene) {
    const own = scene.requests.filter((request) => scene.own.has(request.n)).length;
    return fill(scene.words.requests_label, { n: count(scene.requests.length), own: count(own) });
  },
};

const labelled = (row, scene) => row.full || scene.emphasis === row.request.n;

function drawRow(surface, scene, row) {
  const { axis } = scene;
  const { colours } = surface;
  const { request, own, y, height, bar } = row;
  const centre = y + height / 2;
  const emphasised = scene.emphasis === request.n;
  if (own && row.full) {
    surface.rounded(0, y + 1, axis.width, height - 2, 4, colours["own-band"]);
    surface.rounded(0, y + 1, 3, height - 2, 1.5, colours["own-bar"]);
  } else if (emphasised) {
    surface.rounded(0, y, axis.width, height, row.full ? 4 : 1, colours["surface-2"]);
  }
  drawMarks(surface, axis, request, { centre, bar, own, full: row.full }, scene.now);
  if (labelled(row, scene)) drawName(surface, scene, row, centre);
  if (row.full) drawAnnotation(surface, scene, row, centre);
}

function drawName(surface, scene, { request, own, full }, centre) {
  const { axis, words } = scene;
  const { colours } = surface;
  if (!full) surface.clear(0, centre - 8, axis.left - 4, 16);
  const x = own && full ? 9 : 0;
  const name = { colour: own ? colours.ink : colours["ink-2"], weight: own ? 700 : 400, size: 12 };
  surface.text(x, centre + 4, request.id, name);
  if (axis.narrow) return;
  if (own && full) {
    const left = x + surface.measure(request.id, name) + 5;
    const pill = surface.measure(words.you, { weight: 600 }) + 9;
    surface.rounded(left, centre - 8, pill, 16, 8, colours.ink);
    surface.text(left + pill / 2, centre + 4, words.you, {
      colour: colours.surface, align: "center", weight: 600,
    });
  }
  if (request.prompt) surface.text(axis.left - 10, centre + 4, count(request.prompt), {
    colour: colours["ink-2"], align: "right",
  });
}

// Words in the empty space left of the arrival, the longest form that fits.
function drawAnnotation(surface, scene, { request, own }, centre) {
  const { axis, words } = scene;
  if (request.ttft === null || request.sub < axis.t0) return;
  const x = axis.x(request.sub) - 7;
  const short = duration(request.ttft);
  const plain = fill(words.first_token_in, { time: short });
  const forms = [plain, short];
  if (own && request.cached > 0) {
    const reused = fill(words.reused, { cached: count(request.cached), prompt: count(request.prompt) });
    forms.unshift(`${reused} · ${plain}`);
  }
  const fitting = forms.find((form) => surface.measure(form) < x - axis.left - 4);
  if (!fitting) return;
  const colour = own ? surface.colours.ink : surface.colours["ink-3"];
  surface.text(x, centre + 4, fitting, { colour, align: "right" });
}

function drawValue(surface, scene, row) {
  const { axis, readAt, words } = scene;
  const { request, own, y, height } = row;
  const { colours } = surface;
  const baseline = y + height / 2 + 4;
  if (!row.full) surface.clear(axis.right + 6, baseline - 12, axis.width - axis.right, 16);
  const state = readAt === null ? request.st : request.stateAt(readAt);
  const value = readAt === null ? valueNow(request) : valueAt(request, readAt, state);
  const style = { colour: own ? colours.ink : colours["ink-2"], weight: own ? 700 : 400, size: own ? 12 : 11 };
  const word = stateWord(words, state);
  if (value) surface.text(axis.right + 10, baseline, value, style);
  if (axis.narrow && value) return;
  const colour = { writing: "decode-ink", reading: "prefill-ink", failed: "err" }[state] ?? "ink-3";
  if (axis.narrow) surface.text(axis.right + 10, baseline, word, { colour: colours[colour] });
  else surface.text(axis.width - 4, baseline, word, { colour: colours[colour], align: "right" });
}

function valueNow(request) {
  if (request.ftd === null) return "";
  return `${count(request.out)}${request.ended ? "" : " …"}`;
}

function valueAt(request, t, state) {
  if (state === "reading") return count(request.levelAt(t));
  const delivered = request.deliveredAt(t);
  return delivered ? `y${delivered}` : "";
}

function drawOthersLabel(surface, scene) {
  const { axis, lanes, words } = scene;
  const { colours } = surface;
  const y = lanes.others.y;
  const lines = lanes.mode === "counts" ? words.counts_label : words.raster_label;
  const hidden = lanes.rows.some((row) => !row.full && scene.emphasis === row.request.n);
  if (axis.narrow || hidden) return;
  const n = count(lanes.others.count);
  lines.forEach((line, i) => surface.text(0, y + 9 + 14 * i, fill(line, { n }), { colour: colours["ink-2"] }));
  if (lanes.mode === "raster") {
    words.raster_hint.forEach((line, i) => surface.text(axis.right + 10, y + 9 + 14 * i, line, {
      colour: colours["ink-3"],
    }));
  }
}
