"""The page's pure modules, imported in a real browser and asked for values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ui.words import DASH

Module = Callable[[str, str], Any]

BASE = (
    "n: 1, id: 'R1', st: 'writing', prompt: 100, cached: 0, max: 9, out: 0, fin: null, sub: 0,"
    " que: 10, sch: 20, fts: null, ftd: null, ltd: null, end: null, pre: [], recomputed: 0, "
    "kv_end: null"
)


def request(entries: str, expression: str) -> str:
    """Merge feed entries into one Request and evaluate an expression over ``r``."""
    return (
        f"(() => {{ const r = new m.Request(1); for (const e of [{entries}])"
        f" r.merge({{{BASE}, ...e}}); return {expression}; }})()"
    )


def frame(extra: str) -> str:
    return f"{{now: 0, state: {{name: 'live'}}, sum: {{}}, steps: [], reqs: [], {extra}}}"


def answer(extra: str) -> str:
    return f"{{cursor: 1, epoch: 'a', frames: [{frame(extra)}]}}"


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        ("1340", "134 ms"),
        ("9994", "999 ms"),
        ("9996", "1.00 s"),
        ("20400", "2.04 s"),
        ("157000", "15.7 s"),
        ("99960", "10.0 s"),
        ("3", "0.3 ms"),
        ("0", "0 ms"),
        ("null", DASH),
    ],
)
def test_duration_uses_the_unit_of_its_size(module: Module, ticks: str, text: str) -> None:
    assert module("formats.js", f"m.duration({ticks})") == text


def test_rates_clock_and_bytes(module: Module) -> None:
    rates = module("formats.js", "[m.rate(0), m.rate(18.64), m.rate(135.2)]")
    assert rates == ["0", "18.6", "135"]
    times = module("formats.js", "[m.clock(1390049, 2), m.clock(599999)]")
    assert times == ["2:19.00", "1:00"]
    assert module("formats.js", "m.mebibytes(5368709)") == "5.1 MiB"


@pytest.mark.parametrize(("samples", "low", "high"), [([40], 40, 40), ([10, 30], 10, 30)])
def test_percentiles_of_few_samples_stay_within_them(
    module: Module, samples: list[int], low: int, high: int
) -> None:
    for p in (50, 95, 99):
        value = module("statistics.js", f"m.percentile({samples}, {p})")
        assert low <= value <= high


def test_no_sample_gives_no_percentile(module: Module) -> None:
    assert module("statistics.js", "[m.percentile([], 50), m.summary([]).mean]") == [None, None]


def test_running_percentiles_agree_with_sorting(module: Module) -> None:
    rnd = random.Random(1)
    times = [rnd.randrange(0, 100_000) for _ in range(1500)]
    values = [rnd.choice((300, 330, 2400)) + rnd.randrange(50) for _ in times]
    result = module("statistics.js", f"m.runningPercentiles({times}, {values}, 20000, 100000, 60)")
    checked = 0
    for t, p50, p95 in zip(result["times"], result["50"], result["95"], strict=True):
        window = sorted(v for s, v in zip(times, values, strict=True) if t - 20_000 < s <= t)
        if len(window) < 20:
            continue
        for p, got in ((50, p50), (95, p95)):
            # the histogram answers with one of the two samples around the rank, within 1 %
            rank = (len(window) - 1) * p // 100
            around = window[max(0, rank - 1) : rank + 2]
            assert min(around) * 0.985 <= got <= max(around) * 1.015
        checked += 1
    assert checked > 30


def test_running_percentiles_are_withheld_where_the_count_does_not_carry_them(
    module: Module,
) -> None:
    result = module("statistics.js", "m.runningPercentiles([100, 200, 300], [5, 6, 7], 0, 400, 10)")
    assert [p for p in result["50"] if p is not None]
    assert not [p for p in result["95"] + result["99"] if p is not None]


def test_ring_keeps_the_newest(module: Module) -> None:
    values = module(
        "ring.js",
        "(() => { const r = new m.Ring(3); for (const v of [1,2,3,4,5]) r.push(v);"
        " return [r.length, r.at(0), r.last(), r.at(3) ?? null, r.lowerBound(4, (v) => v)]; })()",
    )
    assert values == [3, 3, 5, None, 1]


def test_tokens_of_one_step_share_its_gap(module: Module) -> None:
    entry = "{ftd: 1000, tok: [0, 1000, [400, 0, 0, 0, 400, 0, 0, 0]]}"
    got = module("request.js", request(entry, "[r.gapValues, r.longestPause]"))
    assert got == [[100] * 8, 400]


def test_a_step_that_arrives_in_two_answers_is_still_divided(module: Module) -> None:
    entries = "{tok: [0, 1000, [400]]}, {tok: [2, 1400, [500]]}"
    assert module("request.js", request(entries, "r.gapValues")) == [200, 200, 500]


def test_the_wait_for_the_first_token_is_no_gap(module: Module) -> None:
    entry = "{ftd: 10000, tok: [0, 10000, [1000, 1000]]}"
    got = module("request.js", request(entry, "[r.gapValues, r.longestPause, r.ttft]"))
    assert got == [[1000, 1000], 1000, 10000]


def test_the_cache_holds_all_but_the_newest_token(module: Module) -> None:
    entry = (
        "{chunks: [0, [[20, 10, 60, 0], [30, 10, 40, 0]]], fts: 40, ftd: 45, tok: [0, 45, [10, "
        "10, 10]], out: 4}"
    )
    levels = module("request.js", request(entry, "[35, 40, 45, 75].map((t) => r.levelAt(t))"))
    assert levels == [60, 100, 100, 103]


def test_cached_prompt_tokens_are_there_from_the_start(module: Module) -> None:
    entry = "{cached: 64, chunks: [0, [[20, 10, 36, 0]]]}"
    assert module("request.js", request(entry, "[r.levelAt(25), r.levelAt(30)]")) == [64, 100]


def test_preemption_empties_the_cache_and_waits_again(module: Module) -> None:
    entry = (
        "{chunks: [0, [[20, 10, 100, 0], [90, 10, 103, 1]]], fts: 30, ftd: 31, pre: [[60, 102]],"
        " tok: [0, 31, [10, 10, 70]], out: 4}"
    )
    expression = "[[59, 61, 100, 121].map((t) => r.levelAt(t)), r.stateAt(70), r.stateAt(95)]"
    assert module("request.js", request(entry, expression)) == [
        [102, 0, 103, 103],
        "queued",
        "writing",
    ]


def test_a_resumed_request_counts_what_it_found_in_the_cache(module: Module) -> None:
    entry = (
        "{chunks: [0, [[20, 10, 100, 0], [90, 10, 39, 1]]], fts: 30, ftd: 31, pre: [[60, 102]],"
        " tok: [0, 31, [10, 10, 70]], out: 4}"
    )
    assert module("request.js", request(entry, "[61, 100].map((t) => r.levelAt(t))")) == [0, 103]


def test_the_cache_does_not_fill_while_a_request_waits(module: Module) -> None:
    entry = (
        "{chunks: [0, [[20, 10, 100, 0], [90, 10, 103, 1]]], fts: 30, ftd: 31, pre: [[60, 102]],"
        " tok: [0, 31, [10, 10, 70]], out: 4}"
    )
    after = module("request.js", request(entry, "r.levels().filter(([t]) => t >= 60 && t < 100)"))
    assert {level for t, level in after} == {0}
    assert max(t for t, _ in after) == 90


def test_state_at_a_time_names_every_phase(module: Module) -> None:
    entry = "{st: 'done', fts: 40, ftd: 45, ltd: 60, end: 60, tok: [0, 45, [15]], out: 2}"
    expression = "[-1, 5, 15, 25, 50, 60].map((t) => r.stateAt(t))"
    assert module("request.js", request(entry, expression)) == [
        "",
        "preparing",
        "queued",
        "reading",
        "writing",
        "done",
    ]


def test_trace_stays_bounded_and_keeps_live_requests(module: Module) -> None:
    many = (
        "Array.from({length: 700}, (_, i) => ({" + BASE + ", n: i, sub: i,"
        " st: i < 5 ? 'writing' : 'done', end: i}))"
    )
    steps = "Array.from({length: 5000}, (_, i) => [i, i * 10, 9, 0, 1, 1, 0, 1, 0, null, null, 0])"
    got = module(
        "trace.js",
        "(() => { const t = new m.Trace(); t.apply({cursor: 1, epoch: 'a', frames: ["
        f"{frame(f'reset: true, reqs: {many}, steps: {steps}')}]}});"
        " return [t.requests.size, t.steps.length, t.requests.has(2), t.requests.has(699),"
        " t.steps.at(0)[0]]; })()",
    )
    assert got == [600, 4000, True, True, 1000]


def test_reset_drops_what_an_earlier_server_said(module: Module) -> None:
    got = module(
        "trace.js",
        "(() => { const t = new m.Trace(); const one = (extra) => ({cursor: 1, epoch: extra, "
        "frames: ["
        + frame("reset: true, reqs: [{" + BASE + "}]")
        + "]}); t.apply(one('a')); t.apply({cursor: 0, epoch: 'b', frames: ["
        + frame("reset: true")
        + "]}); return [t.requests.size, t.epoch, t.cursor]; })()",
    )
    assert got == [0, "b", 0]


def test_a_repeated_frame_adds_no_step_twice(module: Module) -> None:
    step = "[[7, 0, 10, 0, 1, 1, 0, 1, 0, null, null, 0]]"
    got = module(
        "trace.js",
        "(() => { const t = new m.Trace(); for (const c of [1, 2]) t.apply({cursor: c, epoch: 'a',"
        f" frames: [{frame(f'steps: {step}')}]}}); return t.steps.length; }})()",
    )
    assert got == 1


def test_the_last_four_hundred_steps_make_the_window(module: Module) -> None:
    steps = (
        "Array.from({length: 900}, (_, i) => [i, i * 300, 290, 0, 1, 1, 0, 1, 0, null, null, 0])"
    )
    got = module(
        "view.js",
        "(async () => { const {Trace} = await load('trace.js');"
        " const t = new Trace(); const v = new m.View(t); t.apply({cursor: 1, epoch: 'a', frames: ["
        f"{frame(f'now: 270000, steps: {steps}')}]}}); const all = v.domain(); "
        f"v.choose('seconds-10');"
        " const ten = v.domain(); v.pause(); t.now += 50000; return [all, ten, v.domain(), "
        "v.behind()]; })()",
    )
    assert got == [[150_000, 270_000], [170_000, 270_000], [170_000, 270_000], 50_000]


def test_a_window_of_steps_does_not_reach_across_an_idle_hour(module: Module) -> None:
    steps = (
        "[[1, 0, 100], [2, 100, 100], [3, 36000000, 100]].map((s) => [...s, 0, 1, 1, 0, 1, 0, "
        "null, null, 0])"
    )
    got = module(
        "view.js",
        "(async () => { const {Trace} = await load('trace.js');"
        " const t = new Trace(); const v = new m.View(t); t.apply({cursor: 1, epoch: 'a', frames: ["
        f"{frame(f'now: 36000100, steps: {steps}')}]}}); return v.domain(); }})()",
    )
    assert got[0] > 35_900_000


def test_roofline_points_skip_steps_without_work(module: Module) -> None:
    work = "0, 1, 1, 0, 1, 0, 1e9, 1e8"
    steps = (
        f"[[1, 0, 100, {work}, 1], [2, 100, 100, 9{work[1:]}, 2], [3, 200, 100, {work}, 3],"
        " [4, 300, 100, 0, 1, 1, 0, 1, 0, null, null, 0]]"
    )
    got = module(
        "roofline_points.js",
        "(async () => { const {Trace} = await load('trace.js'); const t = new Trace();"
        f" t.apply({answer(f'steps: {steps}')}); return m.rooflinePoints(t, 0, 1000); }})()",
    )
    assert {kind: len(points) for kind, points in got.items()} == {
        "decode": 1,
        "prefill": 1,
        "overhead": 1,
    }
    assert got["decode"][0] == {"x": 10, "y": 1e11, "n": 1}


def test_own_numbers_survive_a_reload_but_not_another_server(module: Module) -> None:
    got = module(
        "own.js",
        "(() => { const kept = {}; const storage = {getItem: (k) => kept[k] ?? null, setItem: "
        "(k, v) => (kept[k] = v)};"
        " const make = () => new m.OwnRequests(() => {}, storage); const a = make(); a.add(3); "
        "a.enter('e1'); a.add('18');"
        " const b = make(); b.enter('e1'); const c = make(); c.enter('e2'); a.enter('e2');"
        " return [[...b.numbers], [...c.numbers], a.newest(), a.has('x')]; })()",
    )
    assert got == [[3, 18], [], None, False]
