"""Rules of the drawing, as pure functions: layout, counts, colours, rows and bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Module = Callable[[str, str], Any]


@pytest.mark.parametrize(
    ("requests", "mode"),
    [
        (1, "full"),
        (12, "full"),
        (13, "thin"),
        (40, "thin"),
        (41, "raster"),
        (100, "raster"),
        (101, "counts"),
    ],
)
def test_the_number_of_requests_decides_how_they_are_drawn(
    module: Module, requests: int, mode: str
) -> None:
    assert module("lane_layout.js", f"m.modeFor({requests})") == mode


def test_own_lanes_stay_full_and_are_pinned_when_dense(module: Module) -> None:
    layout = "m.layOut(Array.from({length: N}, (_, n) => ({n})), (n) => n % 30 === 7, false)"
    thin = module("lane_layout.js", layout.replace("N", "30"))
    assert [row["height"] for row in thin["rows"]][6:9] == [10, 28, 10]
    raster = module("lane_layout.js", layout.replace("N", "64"))
    assert [row["request"]["n"] for row in raster["rows"]][:3] == [7, 37, 0]
    assert raster["rows"][2]["height"] == 4
    assert raster["others"]["count"] == 62
    counts = module("lane_layout.js", layout.replace("N", "500"))
    assert [row["request"]["n"] for row in counts["rows"]] == [397, 427, 457, 487]
    assert counts["others"]["count"] == 496


def test_phase_counts_add_up_to_the_requests_alive(module: Module) -> None:
    requests = (
        "[{sub: 0, sch: 40, fts: 60, ended: true, endsAt: () => 100},"
        " {sub: 50, sch: null, fts: null, ended: false, endsAt: (now) => now}]"
    )
    got = module("phase_counts.js", f"m.countPhases({requests}, 0, 100, 10, 100)")
    at = got
    assert at["queue"] == [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert at["prefill"] == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert at["decode"] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("blocks", "k"), [(576, 1), (1536, 1), (1537, 2), (4096, 4), (100_000, 128)]
)
def test_large_pools_share_cells(module: Module, blocks: int, k: int) -> None:
    assert module("kv_cells.js", f"m.blocksPerCell({blocks})") == k


def test_block_counts_and_cells(module: Module) -> None:
    pool = (
        "{n: 6, states: Uint8Array.of(2, 3, 4, 1, 0, 2), owners: Int32Array.of(9, 9, 9, 4, 0, 8),"
        " filled: new Map([[0, 4]])}"
    )
    counts = module(
        "kv_cells.js",
        f"(() => {{ const c = m.countBlocks({pool}); return [c.free, c.cached, c.shared, "
        f"c.reused, [...c.byOwner]]; }})()",
    )
    assert counts == [1, 1, 1, 1, [[9, 2], [8, 1]]]
    cells = module("kv_cells.js", f"m.cellsOf({pool}, 16)")
    assert [cell["filled"] for cell in cells] == [0.25, 1, 1, 1, 1, 1]


def test_kv_colours_stay_with_their_request(module: Module) -> None:
    got = module(
        "kv_colours.js",
        "(() => { const k = new m.KvColours(); const live = (...list) => list.map(([n, tokens]) =>"
        " ({n, levels: () => [[0, tokens]]})); const own = (n) => n === 9;"
        " k.update(live([1, 50], [2, 60]), own); const before = k.of(1);"
        " k.update(live([1, 50], [3, 900], [9, 10]), own);"
        " const others = live([1, 50], [3, 900], [4, 9], [5, 9], [6, 9], [7, 9], [8, 9], [9, 10]);"
        " k.update(others, own); return [before === k.of(1), k.of(9), k.of(3) !== 'kv-other',"
        " others.filter((r) => k.of(r.n) === 'kv-other').length]; })()",
    )
    assert got == [True, "kv1", True, 2]


def test_headline_shows_only_percentiles_the_count_carries(module: Module) -> None:
    names = [
        [value["name"] for value in module("headline.js", f"m.headlineValues({{n: {n}, max: 9}})")]
        for n in (0, 1, 2, 19, 20)
    ]
    assert names == [[""], ["max"], ["p50", "max"], ["p50", "max"], ["p50", "p95"]]


def test_polling_slows_down_when_hidden_hosted_or_failing(module: Module) -> None:
    got = module(
        "feed.js",
        "[m.pollInterval('localhost', false), m.pollInterval('localhost', true),"
        " m.pollInterval('a.hf.space', false), ...[1, 2, 3, 4, 9].map(m.backoff)]",
    )
    assert got == [400, 1000, 2000, 1000, 2000, 4000, 8000, 8000]


def test_ttft_parts_add_up_exactly(module: Module) -> None:
    parts = module("ttft_parts.js", "m.ttftParts({sub: 3, que: 17, sch: 401, fts: 999, ftd: 1013})")
    assert parts == {"preparation": 14, "queue": 384, "prefill": 598, "delivery": 14}
    assert sum(parts.values()) == 1010
    assert (
        module("ttft_parts.js", "m.ttftParts({sub: 3, que: 17, sch: null, fts: null, ftd: null})")
        is None
    )


def test_many_first_tokens_become_twelve_rows_with_own_kept_and_a_mean(module: Module) -> None:
    requests = (
        "Array.from({length: 64}, (_, i) => ({n: i, id: 'R' + i, sub: 0, que: 10, sch: 20, fts: 30,"
        " ftd: 40 + i, ttft: 40 + i}))"
    )
    rows = module("ttft_parts.js", f"m.ttftRows({requests}, (n) => n === 3, 'all 64')")
    assert [row["label"] for row in rows][:2] == ["all 64", "R3"]
    assert len(rows) == 13
    assert rows[0]["total"] == pytest.approx(71.5)


def test_hex_bins_keep_every_point(module: Module) -> None:
    identity = "{toX: (v) => v, toY: (v) => v, fromX: (v) => v, fromY: (v) => v}"
    points = "Array.from({length: 3000}, (_, i) => ({x: i % 50, y: i % 7}))"
    bins = module("roofline_points.js", f"m.hexBins({points}, 6, {identity})")
    assert sum(b["count"] for b in bins) == 3000
    assert len(bins) < 60
