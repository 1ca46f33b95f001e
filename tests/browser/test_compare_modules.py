"""The arithmetic of the Compare tab's scripts, without a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Module = Callable[[str, str], Any]

STREAM = "{prompt: 50, sch: 0, fts: 900, tokens: [1000, 2000, %s, 30000]}"


def found(module: Module, *requests: str) -> dict[str, Any]:
    listed = ", ".join(requests)
    result = module("compare_finding.js", f"m.finding([{listed}])")
    return {name: result[name] for name in ("kind", "from", "to", "gap", "read")}


LONG = "{prompt: 1500, sch: 5000, fts: 25000, tokens: [25000, 26000]}"


def test_silence_while_a_long_prompt_is_read_spans_exactly_the_gap(module: Module) -> None:
    result = found(module, STREAM % "4000, 26000", STREAM % "3500, 26500", LONG)
    assert result == {
        "kind": "no_token",
        "from": 4000,
        "to": 26000,
        "gap": 22000,
        "read": [5000, 25000],
    }


def test_tokens_of_any_stream_break_the_silence(module: Module) -> None:
    every = ", ".join(str(t) for t in range(4000, 27000, 2500))
    result = found(module, STREAM % every, STREAM % every, LONG)
    assert result == {
        "kind": "longest_gap",
        "from": 5000,
        "to": 25000,
        "gap": 2500,
        "read": [5000, 25000],
    }


def test_a_silence_of_less_than_a_second_is_the_longest_gap(module: Module) -> None:
    quick = "{prompt: 1500, sch: 5000, fts: 12000, tokens: [12000]}"
    result = found(module, STREAM % "4500, 12500, 20000", STREAM % "4500, 12500, 20000", quick)
    assert (result["kind"], result["gap"]) == ("longest_gap", 8000)
    assert (result["from"], result["to"]) == (5000, 12000)


def test_without_a_long_prompt_the_longest_gap_of_all_is_marked(module: Module) -> None:
    result = found(module, STREAM % "3000", STREAM % "9000, 10000")
    assert result == {
        "kind": "longest_gap",
        "from": 3000,
        "to": 30000,
        "gap": 27000,
        "read": None,
    }


@pytest.mark.parametrize(
    "requests",
    [
        [],
        ["{prompt: 5, sch: null, fts: null, tokens: []}"],
        [LONG, "{prompt: 5, sch: 0, fts: null, tokens: []}"],
        ["{prompt: 1500, sch: null, fts: null, tokens: []}", "{prompt: 5, sch: 0, tokens: []}"],
    ],
)
def test_where_nothing_was_written_there_is_no_bracket(module: Module, requests: list[str]) -> None:
    assert found(module, *requests)["kind"] is None


VIEW = "const trace = {lastEvent: () => 100000}; const v = new m.PairView([trace, trace]);"


def viewed(module: Module, script: str) -> Any:
    return module("compare_view.js", f"(() => {{ {VIEW} {script} }})()")


def test_the_view_begins_with_all_of_both_runs(module: Module) -> None:
    longer = "new m.PairView([{lastEvent: () => 10000}, {lastEvent: () => 90000}]).domain()"
    first, last = module("compare_view.js", longer)
    assert first == 0
    assert 90000 < last < 95000


def test_zooming_keeps_the_time_under_the_pointer(module: Module) -> None:
    t0, t1 = viewed(module, "v.zoom(0.5, 40000); return v.domain();")
    assert t1 - t0 == pytest.approx(0.5 * 101500)
    assert (40000 - t0) / (t1 - t0) == pytest.approx(40000 / 101500)


def test_the_view_stays_within_the_runs(module: Module) -> None:
    whole = pytest.approx(101500)
    assert viewed(module, "v.zoom(0.5, 0); v.pan(-5000); return v.domain()[0];") == 0
    assert viewed(module, "v.zoom(0.5, 0); v.pan(1e9); return v.domain()[1];") == whole
    assert viewed(module, "v.zoom(0.5, 0); v.zoom(9, 0); return v.zoomed;") is None
    assert viewed(
        module, "v.zoom(1e-9, 500); return v.domain()[1] - v.domain()[0];"
    ) == pytest.approx(200)


def test_a_selected_stretch_is_told_for_both_sides(module: Module) -> None:
    text = module(
        "compare_label.js",
        """(() => {
          const trace = (gapTimes, gapValues) =>
            ({ requests: new Map([[1, { gapTimes, gapValues }]]) });
          const sides = [
            { name: "A", trace: trace([100, 200, 900], [100, 300, 700]) },
            { name: "B", trace: trace([5000], [10]) },
          ];
          const view = { selection: [50, 250], cursor: null };
          return m.compareLabel(view, sides, "");
        })()""",
    )
    assert text == "20 ms · A: 2 gaps, mean 20 ms, min 10 ms, max 30 ms · B: no gaps"


def test_a_request_has_a_row_with_the_answer_length_it_asked_for(module: Module) -> None:
    request = "{id: 'r1', prompt: 50, max: 64, out: 3, sub: 0, cached: 0, ttft: 900, end: null}"
    words = "{table_caption: '{n} of {total}', table_head: [], table_side: []}"
    sides = f"[{{name: 'A', requests: [{request}]}}, {{name: 'B', requests: []}}]"
    table = module("compare_table.js", f"m.requestTable({sides}, {words})")
    assert table["rows"][0][:3] == ["r1", "50", "64"]
    assert len(table["rows"][0]) == 4 + 2 * 4


def test_the_live_axis_zooms_about_the_pointer_down_to_its_least(module: Module) -> None:
    got = module(
        "view.js",
        "(async () => { const {Trace} = await load('trace.js'); const t = new Trace();"
        " t.now = 1000000; t.firstEvent = () => 0; const v = new m.View(t);"
        " v.show(200000, 600000); v.zoom(0.5, 300000); const near = v.domain();"
        " v.zoom(1e-9, 300000); return [near, v.domain()]; })()",
    )
    assert got[0] == [250_000, 450_000]
    assert got[1][1] - got[1][0] == pytest.approx(500)


def test_runs_are_sorted_by_a_column_and_those_without_a_value_are_last(module: Module) -> None:
    head = "<th><button class=ps-sort>p50</button></th><th><button class=ps-sort>p95</button></th>"
    rows = "".join(
        f"<tr data-run={name}><th><button class=ps-run>{name}</button></th>"
        f"<td>-</td><td{value}></td></tr>"
        for name, value in (("a", ' data-value="0.3"'), ("b", ""), ("c", ' data-value="0.2"'))
    )
    found = module(
        "runs_table.js",
        """await (async () => {
          document.body.innerHTML = `<div id=ps-workload-run><p id=ps-workload-report>
            <i data-result=c></i></p><div id=t></div></div>`;
          const element = document.querySelector("#t"), opened = [];
          const write = () => {
            element.innerHTML = `<table><thead><tr>HEAD</tr></thead><tbody>ROWS</tbody></table>`;
          };
          const all = (selector) => [...element.querySelectorAll(selector)];
          const order = () => all("[data-run]").map((row) => row.dataset.run).join("");
          const press = (selector, n) => all(selector)[n].click();
          write();
          m.watchRuns(element, (name) => opened.push(name));
          const found = [order()];
          press(".ps-sort", 1); found.push(order());
          press(".ps-sort", 1); found.push(order());
          press(".ps-run", 0);
          write();
          await new Promise((done) => setTimeout(done, 50));
          found.push(order(), opened.join(), element.querySelector("[aria-current]").dataset.run);
          document.body.innerHTML = "";
          return found;
        })()""".replace("HEAD", head).replace("ROWS", rows),
    )
    assert found == ["abc", "cab", "acb", "acb", "a", "c"]
