"""The table of the newest runs: a row a run, named by its shape, so that shapes can be compared.

Each result is read once and its row kept. The table is the same for every visitor: which run is
open, and by which column it is sorted, is the business of assets/scripts/runs_table.js.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from engine.core.errors import PhaseScopeError
from engine.lab.measures import LATENCIES, PERCENTILES
from engine.lab.result_store import ResultStore
from engine.lab.results import Result, Side
from engine.telemetry.metrics import Distribution, shown_percentiles
from ui.compare_report import definition, percent, simulated_tag
from ui.formats import counted, duration, rate
from ui.words import DASH
from ui.words_compare import COMPARE
from ui.words_workload import WORKLOAD
from ui.workload_report import money

MAX_ROWS: Final = 12
_SINGLE: Final = {
    "throughput": "tok/s",
    "goodput": "req/s",
    "hits": "share",
    "errors": "requests",
    "cost": "a million",
}
"""Columns that hold one number a run, and its unit."""

_NUM_COLUMNS: Final = 1 + len(LATENCIES) * len(PERCENTILES) + len(_SINGLE)


class RunsTable:
    """The newest `MAX_ROWS` runs of one side that a store keeps."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._rows: dict[str, str] = {}

    def html(self) -> str:
        """The table as it is now; reads the results that it has not yet seen."""
        names = [entry.id for entry in self._store.list() if entry.num_sides == 1][:MAX_ROWS]
        rows = {name: row for name in names if (row := self._rows.get(name) or self._row(name))}
        self._rows = rows
        return table(list(rows.values()))

    def _row(self, name: str) -> str:
        try:
            return run_row(self._store.load(name))
        except PhaseScopeError:
            return ""  # deleted meanwhile, or damaged


def table(rows: Sequence[str]) -> str:
    """The table around its rows, or with what to do where there are none."""
    body = "".join(rows) or (
        f'<tr class="ps-no-runs"><td colspan="{_NUM_COLUMNS}">{WORKLOAD["empty"]}</td></tr>'
    )
    groups = "".join(
        f'<th colspan="{len(PERCENTILES)}" scope="colgroup">{definition(metric)}</th>'
        for metric in LATENCIES
    )
    singles = "".join(f'<th scope="colgroup">{definition(metric)}</th>' for metric in _SINGLE)
    labels = "".join(map(_sorter, [*PERCENTILES * len(LATENCIES), *_SINGLE.values()]))
    return (
        '<div class="ps-runs" role="region" tabindex="0" aria-labelledby="ps-runs-title">'
        f"<table><thead><tr><td></td>{groups}{singles}</tr>"
        f'<tr><th scope="col">{WORKLOAD["shape"]}</th>{labels}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f'<p class="ps-cap">{COMPARE["uncarried"]}</p>'
    )


def run_row(result: Result) -> str:
    """One run: its shape and conditions, which open it, and its numbers."""
    side = result.sides[0]
    latencies = "".join(
        cell for metric in LATENCIES for cell in _latency_cells(side.latency[metric])
    )
    return (
        f'<tr data-run="{escape(result.id)}">{_head(result, side)}{latencies}'
        f"{''.join(_single_cells(result, side))}</tr>"
    )


def _sorter(name: str) -> str:
    return f'<th scope="col"><button type="button" class="ps-sort">{name}</button></th>'


def _head(result: Result, side: Side) -> str:
    when = time.strftime("%d %b %H:%M", time.localtime(result.created))
    title, tag = escape(result.title), simulated_tag(result.simulated)
    workload, config = result.workload, side.config
    traffic = f"{counted(workload['requests'], 'request')}, {workload['arrivals']}"
    settings = (
        f"{config['policy']}, budget {config['max_batched_tokens']:,}, "
        f"{config['max_running']} slots"
    )
    return (
        f'<th scope="row"><button type="button" class="ps-run" aria-label="{COMPARE["open"]}: '
        f'{title}, {when}">{title}</button> {tag}'
        f"<small>{when}: {escape(traffic)}</small><small>{escape(settings)}</small></th>"
    )


def _latency_cells(values: Distribution) -> Iterator[str]:
    """The percentiles that the count carries, the maximum where it carries no more, and dashes."""
    samples = f"n {values.count:,}"
    columns = shown_percentiles(values.count)[: len(PERCENTILES)]
    for index, column in enumerate(columns):
        value = getattr(values, column)
        above = column if column == "max" else ""
        yield _cell(value, duration(value), above=above, below=samples if index == 0 else "")
    yield from [_cell(None, DASH)] * (len(PERCENTILES) - len(columns))


def _single_cells(result: Result, side: Side) -> Iterator[str]:
    tokens = side.throughput
    window = f"in {duration(side.seconds)}"
    yield _cell(tokens, DASH if tokens is None else rate(tokens).split(" ")[0], below=window)
    good = "" if side.good_share is None else f"{percent(side.good_share)} good"
    yield _cell(side.goodput, DASH if side.goodput is None else f"{side.goodput:.2f}", below=good)
    yield _cell(side.prefix_hit_rate, percent(side.prefix_hit_rate))
    failed = side.requests["failed"] + side.requests["refused"]
    yield _cell(failed, f"{failed:,}")
    cost = side.cost.per_million_output_tokens if side.cost is not None else None
    yield _cell(cost, money(cost))


def _cell(value: float | None, text: str, *, above: str = "", below: str = "") -> str:
    """A number as it is shown, and as it is sorted by."""
    key = "" if value is None else f' data-value="{value!r}"'
    tag = f"<small>{above}</small> " if above else ""
    note = f"<small>{below}</small>" if below else ""
    return f"<td{key}><span>{tag}{text}</span>{note}</td>"
