"""What comes out of a comparison with other servers: figures, ratios to ours, and their table.

Where a peer could not be measured, figures of another run stand in its place, and say so. It knows
no process and no network.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.lab.peer_client import Group
from engine.telemetry.metrics import percentile

_MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Output tokens a second, and milliseconds; None where a recording does not tell."""

    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float | None
    itl_p50: float


MARKS: Mapping[str, Mapping[int, Figures]] = {
    "transformers": {
        1: Figures(tokens_per_second=19, ttft_p50=387, ttft_p95=414, itl_p50=47),
        4: Figures(tokens_per_second=35, ttft_p50=958, ttft_p95=1495, itl_p50=104),
        8: Figures(tokens_per_second=37, ttft_p50=2032, ttft_p95=4138, itl_p50=185),
    },
    "llama.cpp": {
        1: Figures(tokens_per_second=29, ttft_p50=1203, ttft_p95=1243, itl_p50=15.6),
        4: Figures(tokens_per_second=28, ttft_p50=8084, ttft_p95=None, itl_p50=18.0),
        8: Figures(tokens_per_second=28, ttft_p50=16756, ttft_p95=None, itl_p50=17.7),
    },
}
"""By family and streams: a mark to go by where a peer cannot be measured, from another run."""

MARKS_SETTING = (
    "SmolLM2-135M-Instruct on 2 cores with AMX, 24 requests of 256 tokens in and 64 out, measured "
    "by AIPerf; transformers 5 in float32 with continuous batching, llama-cpp-python 0.3.36 with "
    "Q4_1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ours over theirs: of tokens a second more is better, of times less; None where unknown."""

    throughput: float
    ttft_p50: float
    ttft_p95: float | None
    itl_p50: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One server with one number of streams.

    requests: how many its figures rest on; complete: of those, how many were answered in full
    length; recorded: the figures are from another run; fastest: no other server of its family, with
    other settings, made more tokens a second here; ratios: None for our own row.
    """

    name: str
    family: str
    streams: int
    requests: int
    complete: int
    figures: Figures
    ratios: Ratios | None = None
    fastest: bool = True
    recorded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a server answered, round by round."""

    name: str
    family: str
    groups: Sequence[Group]


def rows_of(
    servers: Sequence[Measured], streams: int, output_tokens: int, *, marks: bool = True
) -> list[Row]:
    """A row for each server, ours first, then marks for the families that are not among them.

    marks: whether the recorded figures are of the model and the kind of device that were measured.
    """
    rows = [_measured_row(server, streams, output_tokens) for server in servers]
    families = {row.family for row in rows}
    rows += [
        _recorded_row(family, streams, recorded[streams])
        for family, recorded in MARKS.items()
        if marks and family not in families and streams in recorded
    ]
    best: dict[str, float] = {}
    for row in rows:
        rate = row.figures.tokens_per_second
        best[row.family] = max(rate, best.get(row.family, rate))
    return [
        rows[0],
        *(
            replace(
                row,
                ratios=_ratios(rows[0].figures, row.figures),
                fastest=row.figures.tokens_per_second == best[row.family],
            )
            for row in rows[1:]
        ),
    ]


def figures_of(groups: Sequence[Group]) -> Figures:
    """Tokens a second as the median of the groups, TTFT and gaps over all requests together."""
    answers = [answer for group in groups for answer in group.answers]
    ttft = [answer.ttft for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps]
    return Figures(
        tokens_per_second=statistics.median(g.output_tokens / g.seconds for g in groups),
        ttft_p50=_milliseconds(ttft, 50),
        ttft_p95=_milliseconds(ttft, 95),
        itl_p50=_milliseconds(gaps, 50),
    )


def table(rows: Sequence[Row], failures: Mapping[str, str]) -> str:
    """The rows in lines of text, with what a reader must know of them below."""
    lines = [
        f"{'streams':<9}{'':24}{'tokens/s':>9}{'TTFT p50 / p95, ms':>21}{'ITL p50':>9}"
        f"{'  | ours over theirs: tokens/s':>27}{'TTFT p50 / p95':>17}{'ITL':>7}"
    ]
    tried = Counter((row.family, row.streams) for row in rows)
    for row in rows:
        figures = row.figures
        sign = " *" if row.fastest and tried[row.family, row.streams] > 1 else ""
        line = (
            f"{row.streams:<9}{row.name + sign:<24}{figures.tokens_per_second:>9.1f}"
            f"{figures.ttft_p50:>12,.0f} / {_number(figures.ttft_p95, ',.0f'):<6}"
            f"{figures.itl_p50:>9.1f}"
        )
        if row.ratios is not None:
            line += (
                f"  |{row.ratios.throughput:>27.2f}{row.ratios.ttft_p50:>10.2f} / "
                f"{_number(row.ratios.ttft_p95, '.2f'):<5}{row.ratios.itl_p50:>6.2f}"
            )
        lines.append(line)
    if max(tried.values()) > 1:
        lines.append("* the faster of the settings tried for this server and number of streams")
    return "\n".join([*lines, *_notes(rows, failures)])


def _notes(rows: Sequence[Row], failures: Mapping[str, str]) -> list[str]:
    notes = []
    if any(row.recorded for row in rows):
        notes.append(f"another run: not measured now but recorded, {MARKS_SETTING}")
    for row in rows:
        if row.complete < row.requests:
            notes.append(
                f"{row.name} with {row.streams} streams ended {row.requests - row.complete} of "
                f"{row.requests} answers early"
            )
    for name, reason in failures.items():
        notes.append(f"{name} could not be measured: {reason.removeprefix(name).strip()}")
    return notes


def _measured_row(server: Measured, streams: int, output_tokens: int) -> Row:
    answers = [answer for group in server.groups for answer in group.answers]
    return Row(
        name=server.name,
        family=server.family,
        streams=streams,
        requests=len(answers),
        complete=sum(answer.output_tokens >= output_tokens for answer in answers),
        figures=figures_of(server.groups),
    )


def _recorded_row(family: str, streams: int, mark: Figures) -> Row:
    return Row(
        name=f"{family}, another run",
        family=family,
        streams=streams,
        requests=0,
        complete=0,
        figures=mark,
        recorded=True,
    )


def _ratios(ours: Figures, theirs: Figures) -> Ratios:
    tail = None
    if ours.ttft_p95 is not None and theirs.ttft_p95 is not None:
        tail = ours.ttft_p95 / theirs.ttft_p95
    return Ratios(
        throughput=ours.tokens_per_second / theirs.tokens_per_second,
        ttft_p50=ours.ttft_p50 / theirs.ttft_p50,
        ttft_p95=tail,
        itl_p50=ours.itl_p50 / theirs.itl_p50,
    )


def _milliseconds(seconds: Sequence[float], percent: float) -> float:
    value = percentile(seconds, percent)
    assert value is not None, "every answer has two events and more"
    return _MILLISECONDS * value


def _number(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
