"""What an experiment leaves: a frozen result that says under which conditions its numbers hold, and
its exports. Nothing here runs anything, knows a folder or the page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.core.records import RequestRecord, StepRecord
from engine.lab.codec import from_plain, to_plain
from engine.lab.measures import (
    LATENCIES,
    PERCENTILES,
    Cost,
    Limits,
    RunSummary,
)
from engine.lab.verdict import Verdict, change_words, is_same
from engine.telemetry.metrics import Distribution, to_json_value

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeline:
    """The requests and steps of one run, for the timelines; times are seconds since its start."""

    pair: int
    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Everything measured under one configuration.

    config: the fields of its `EngineConfig`. latency: metric to `Distribution` over the requests of
    all runs, seconds. gap_percentiles: from typical to worst. good_share: of all sent requests,
    those that met the limits. timeline: of the first counted run.
    """

    name: str
    config: dict[str, Any]
    runs: tuple[RunSummary, ...]
    requests: dict[str, int]
    latency: dict[str, Distribution]
    gap_percentiles: dict[str, float | None]
    throughput: float | None
    goodput: float | None
    good_share: float | None
    prefix_hit_rate: float | None
    peak_concurrency: int
    seconds: float
    cost: Cost | None
    timeline: RunTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value on both sides, and the change in words; `better` only where one is claimed."""

    a: float | None
    b: float | None
    change: str
    better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """One metric of the difference table; seconds, or tokens and requests a second.

    counts: samples of A and B. cells: by column (`p50`, `p95`, `p99`, or `all` for a rate).
    """

    metric: str
    counts: tuple[int, int]
    cells: dict[str, Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One experiment: one side, or two with a verdict.

    created: Unix seconds. simulated: nothing of it was measured. machine: model, device and so on.
    workload: `Workload.describe()` of the first pair, with the seeds of all. differences: setting,
    value of A, value of B.
    """

    id: str
    title: str
    created: float
    simulated: bool
    machine: dict[str, Any]
    workload: dict[str, Any]
    limits: Limits
    sides: tuple[Side, ...]
    differences: tuple[tuple[str, str, str], ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The result as strict JSON."""
        return json.dumps(to_json_value(to_plain(self)), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result that `to_json` wrote; raises ValueError for anything else."""
        try:
            return from_plain(cls, json.loads(text))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a result file: {error}") from None

    def difference_table(self) -> list[DifferenceRow]:
        """The rows of the difference table; empty for one side."""
        if len(self.sides) < 2:
            return []
        a, b = self.sides
        rows = []
        for metric in (*LATENCIES, "input_preparation", "queueing", "prefill", "delivery"):
            before, after = a.latency[metric], b.latency[metric]
            cells = {
                column: self._cell(
                    f"{metric}.{column}", getattr(before, column), getattr(after, column)
                )
                for column in PERCENTILES
            }
            rows.append(
                DifferenceRow(metric=metric, counts=(before.count, after.count), cells=cells)
            )
        for metric in ("throughput", "goodput"):
            counts = (len(a.runs), len(b.runs))
            cell = self._cell(metric, getattr(a, metric), getattr(b, metric))
            rows.append(DifferenceRow(metric=metric, counts=counts, cells={"all": cell}))
        return rows

    def csv_lines(self) -> Iterator[str]:
        """One line a run, with the conditions in every line, so that each stands for itself."""
        measures = sorted(
            {name for side in self.sides for run in side.runs for name in run.measures}
        )
        settings = sorted({name for side in self.sides for name in side.config})
        conditions = _flat(
            {
                "result": self.id,
                "title": self.title,
                "simulated": self.simulated,
                **{f"machine.{name}": value for name, value in self.machine.items()},
                **{f"workload.{name}": value for name, value in self.workload.items()},
                "limits.ttft_seconds": self.limits.ttft_seconds,
                "limits.tpot_seconds": self.limits.tpot_seconds,
            }
        )
        yield _csv_line(
            [
                *conditions,
                *("side", "position", "pair", "window_seconds", "finished", "failed", "refused"),
                *("prefix_hit_rate", "lateness.p50", "lateness.max"),
                *measures,
                *(f"config.{name}" for name in settings),
            ]
        )
        for side in self.sides:
            for run in side.runs:
                yield _csv_line(
                    [
                        *conditions.values(),
                        *(side.name, run.position, run.pair, run.seconds),
                        *(run.requests.get(n) for n in ("finished", "failed", "refused")),
                        *(run.prefix_hit_rate, run.lateness.p50, run.lateness.max),
                        *(run.measures.get(name) for name in measures),
                        *(side.config.get(name) for name in settings),
                    ]
                )

    def send_lines(self) -> Iterator[str]:
        """Planned and actual sending of every request as CSV, in seconds since its run's start."""
        yield _csv_line(["side", "position", "request", "planned", "actual", "lateness", "error"])
        for side in self.sides:
            for run in side.runs:
                for sent in run.sends:
                    yield _csv_line(
                        [
                            *(side.name, run.position, sent.index, sent.planned, sent.actual),
                            *(sent.lateness, sent.error),
                        ]
                    )

    def _cell(self, measure: str, a: float | None, b: float | None) -> Cell:
        if not a or not b:
            return Cell(a=a, b=b, change="", better=None)
        finding = self.verdict.findings.get(measure) if self.verdict else None
        agrees = finding is not None and (finding.ratio > 1) == (b > a) and not is_same(b / a)
        better = finding.better if finding is not None and agrees else None
        return Cell(a=a, b=b, change=change_words(b / a), better=better)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Nested values as JSON text, so that each fits a cell."""
    return {
        name: json.dumps(value) if isinstance(value, dict | list | tuple) else value
        for name, value in values.items()
    }


def _csv_line(cells: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow([_neutral(to_json_value(cell)) for cell in cells])
    return line.getvalue()


def _neutral(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
