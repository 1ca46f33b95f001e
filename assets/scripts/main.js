// Entry point: the page's panels call mount(kind, element) as they appear; the first one starts the feed.
// window.phasescope is what the chat (own.add) and the tests may touch.

import { app, VERSION } from "./app.js";
import { Compare } from "./compare.js";
import { TurnBanner } from "./compare_banner.js";
import { Drawer } from "./drawer.js";
import { Header } from "./header.js";
import { Headline } from "./headline.js";
import { KvMap } from "./kv_map.js";
import { Lesson } from "./learn.js";
import { Notice } from "./notice.js";
import { Offset } from "./offset.js";
import { listenForRequests } from "./pointing.js";
import { Replay } from "./replay.js";
import { Roofline } from "./roofline.js";
import { Settings } from "./settings.js";
import { Tables } from "./tables.js";
import { recallTalk } from "./talk.js";
import { LiveLanes, LiveTables } from "./workload_lanes.js";
import { Timeline } from "./timeline.js";
import { TtftCard } from "./ttft.js";
import { initTooltips } from "./tooltips.js";

const PANELS = {
  header: [Header],
  headline: [Headline],
  notice: [Notice],
  replay: [Replay],
  timeline: [Timeline, Offset, Tables],
  kv: [KvMap, Tables],
  ttft: [TtftCard, Tables],
  roofline: [Roofline, Tables],
  drawer: [Drawer],
  settings: [Settings],
  timelines: [Compare],
  run: [Compare],
  lanes: [LiveLanes, LiveTables],
  lesson: [Lesson],
  turn: [TurnBanner],
};
const CHAT = "ps-chat";
let started = false;

/** Panels and the chat appear in no fixed order; resolves with the first match of `selector`. */
function present(selector) {
  return new Promise((resolve) => {
    const look = () => {
      const found = document.querySelector(selector);
      if (found) resolve(found);
      else requestAnimationFrame(look);
    };
    look();
  });
}

export async function mount(kind, element) {
  await present("[data-role=settings]");
  if (!started) start();
  for (const Panel of PANELS[kind]) app.add(new Panel(element, app));
}

function start() {
  started = true;
  app.start();
  initTooltips();
  recallTalk();
  listenForRequests(app, (n) => app.open(n));
  present(`#${CHAT}`).then((chat) => app.own.watch(chat));
  window.phasescope = { app, trace: app.trace, own: app.own, version: VERSION };
}
