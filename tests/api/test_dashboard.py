"""The Grafana dashboard asks only for what /metrics tells, and can be imported as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.server import served

FILE = Path(__file__).resolve().parents[2] / "assets" / "grafana" / "phasescope.json"
NAME = re.compile(r"(?:vllm|phasescope):\w+")
GRID_WIDTH = 24


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return value


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """Every sample that a server tells once it has served something: name -> its labels."""
    with served(max_batched_tokens=32) as server:
        server.complete(prompt="x" * 40, max_tokens=3, stream=True)
        server.idle()
        text = server.http.get("/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    labels: dict[str, set[str]] = {}
    for sample in samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def charts(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in charts(dashboard):
        yield from (target["expr"] for target in panel["targets"])


def test_every_metric_asked_for_is_told(
    dashboard: dict[str, Any], told: dict[str, set[str]]
) -> None:
    models = dashboard["templating"]["list"][1]["query"]["query"]
    asked = {name for expr in (*expressions(dashboard), models) for name in NAME.findall(expr)}
    assert {name.partition(":")[0] for name in asked} == {"vllm", "phasescope"}
    assert asked <= told.keys()


def test_every_label_asked_for_is_told(
    dashboard: dict[str, Any], told: dict[str, set[str]]
) -> None:
    for expr in expressions(dashboard):
        names = NAME.findall(expr)
        # One selection a metric, by model; the labels that a sum keeps; nothing else.
        assert expr.count('{model_name=~"$model_name"}') == len(names) == expr.count("{")
        wanted = {"model_name", *re.findall(r"by \((\w+)\)", expr)}
        assert all(wanted <= told[name] for name in names), expr


def test_legends_name_labels_that_the_sum_keeps(dashboard: dict[str, Any]) -> None:
    for panel in charts(dashboard):
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown == set(re.findall(r"by \((\w+)\)", target["expr"])) - {"le"}


def test_counters_are_asked_for_as_rates(dashboard: dict[str, Any]) -> None:
    for expr in expressions(dashboard):
        assert expr.count("(") == expr.count(")")
        for name in NAME.findall(expr):
            if name.endswith(("_total", "_sum", "_count", "_bucket")):
                assert f"rate({name}{{" in expr


def test_it_can_be_imported(dashboard: dict[str, Any]) -> None:
    assert dashboard["id"] is None  # Grafana gives one
    assert {"title", "uid", "schemaVersion", "time", "templating", "panels"} <= dashboard.keys()
    assert len(dashboard["uid"]) <= 40
    variables = {entry["name"]: entry for entry in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    sources = [panel["datasource"] for panel in charts(dashboard)]
    sources += [target["datasource"] for panel in charts(dashboard) for target in panel["targets"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert all(panel["title"] and panel["description"] for panel in charts(dashboard))
    for panel in charts(dashboard):
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_panels_have_places_of_their_own(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_WIDTH
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not cells & taken
        taken |= cells
