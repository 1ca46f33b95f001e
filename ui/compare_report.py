"""A result in words and tables: the workload line, the verdict, the difference table, exports.

Pure functions from a `Result` to HTML; every text of a result is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from typing import Final, NamedTuple

from engine.lab.measures import LATENCIES, PERCENTILES
from engine.lab.result_store import MAX_RESULTS, ResultEntry
from engine.lab.results import Cell, DifferenceRow, Result, Side
from engine.lab.verdict import MIN_PAIRS, change_words, duration_words, is_same
from engine.telemetry.metrics import shown_percentiles
from ui.formats import counted, duration
from ui.words import DASH
from ui.words_compare import COMPARE, METRICS, PARTS

RESULT_ROUTE: Final = "live/result/"
_tips = count(1)


class _Shown(NamedTuple):
    """A pair of values as the table prints it; `tag` says when it is no percentile but the max."""

    a: str
    b: str
    cell: Cell | None
    tag: str = ""


def workload_line(result: Result) -> str:
    """What was run, under which conditions: always beside the numbers."""
    workload, side = result.workload, result.sides[0]
    facts = [
        f"prompt {_range(workload['prompt_tokens'])} tokens",
        f"output {_range(workload['output_tokens'])} tokens",
        f"<b>{workload['requests']:,}</b> requests, {escape(str(workload['arrivals']))}",
        f"up to <b>{max(s.peak_concurrency for s in result.sides)}</b> at once",
        f"window <b>{duration(side.seconds / len(side.runs))}</b>",
        _runs(result),
    ]
    if not workload["streamed"]:
        facts.append("not streamed")
    machine = result.machine
    where = ", ".join(str(machine[key]) for key in ("model", "dtype", "device") if key in machine)
    tag = simulated_tag(result.simulated)
    line = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<p class="ps-workload-line"><b>{escape(result.title)}</b>{tag}{line}'
        f"<span>{escape(where)}</span></p>"
    )


def report(result: Result) -> str:
    """The verdict; its mark tells the page's script which timelines to draw."""
    verdict = result.verdict
    sentence = escape(verdict.sentence) if verdict else ""
    test = ""
    if verdict is not None:
        pairs = f"{counted(verdict.num_pairs, 'pair')} of runs"
        test = f"<span>{pairs}; {escape(verdict.test)}.</span>"
    notes = "".join(f"<span>{escape(note)}</span>" for note in _all_notes(result))
    return (
        f'<div class="ps-verdict" data-result="{escape(result.id)}">'
        f'<p class="ps-verdict-sentence" role="status">{sentence}</p>'
        f'<p class="ps-cap">{test}{notes}</p></div>'
    )


def difference_table(result: Result) -> str:
    """The card with A, B and change for each metric, percentile by percentile."""
    if len(result.sides) < 2:
        return ""
    claimed = len(result.sides[0].runs) >= MIN_PAIRS
    legend = COMPARE["legend_claimed" if claimed else "legend_few"]
    groups = "".join(f'<th colspan="3" scope="colgroup">{name}</th>' for name in PERCENTILES)
    sides = '<th scope="col">A</th><th scope="col">B</th><th scope="col">change</th>'
    rows = "".join(_rows(result))
    return (
        '<section class="ps-card ps-difference" aria-labelledby="ps-difference-title">'
        f'<div class="ps-card-head"><h2 id="ps-difference-title">{COMPARE["difference"]}</h2>'
        f'<span class="ps-cap">{legend}</span></div>'
        '<div class="ps-difference-scroll" role="region" tabindex="0" '
        'aria-labelledby="ps-difference-title">'
        f'<table><thead><tr><td rowspan="2"></td>{groups}</tr>'
        f"<tr>{sides * len(PERCENTILES)}</tr></thead><tbody>{rows}</tbody></table>"
        f'</div><p class="ps-cap ps-difference-foot">{COMPARE["uncarried"]}</p></section>'
    )


def exports(result: Result) -> str:
    """Links to the files of a result and to itself, in a menu."""
    base = f"{RESULT_ROUTE}{escape(result.id)}"
    links = (
        (f"{base}/runs.csv", COMPARE["export_csv"]),
        (f"{base}/sends.csv", COMPARE["export_sends"]),
        (f"{base}/full.json", COMPARE["export_json"]),
        (f"{base}/trace.json", COMPARE["export_trace"]),
    )
    items = "".join(f'<a href="{href}" download>{text}</a>' for href, text in links)
    here = f'<a href="?result={escape(result.id)}">{COMPARE["link"]}</a>'
    return (
        f'<details class="ps-menu"><summary class="ps-button">{COMPARE["export"]}</summary>'
        f'<div class="ps-menu-items">{items}{here}</div></details>'
    )


def results_list(entries: Sequence[ResultEntry]) -> str:
    """All kept results, newest first, with buttons that the page's script hears."""
    if not entries:
        return f'<p class="ps-empty">{COMPARE["no_results"].format(most=MAX_RESULTS)}</p>'
    return f'<ul class="ps-results">{"".join(map(_entry, entries))}</ul>'


def gap_caption(a: Side, b: Side) -> str:
    """Up to which percentile the gaps of A and B agree, and how far they part behind it."""
    pairs = [(name, a.gap_percentiles[name], b.gap_percentiles[name]) for name in a.gap_percentiles]
    known = [(name, x, y) for name, x, y in pairs if x and y]
    if not known:
        return "No gaps between tokens were measured."
    parting = next((i for i, (_, x, y) in enumerate(known) if not is_same(y / x)), None)
    if parting is None:
        return "A and B agree from the typical gap to the worst."
    start = f"Up to {known[parting - 1][0]} the two agree. " if parting else ""
    widest, x, y = max(known, key=lambda item: max(item[1] / item[2], item[2] / item[1]))
    words = duration_words(x, y)
    return (
        f"{start}They part from {known[parting][0]} on, most at {widest}: "
        f"A {words[0]}, B {words[1]}."
    )


def gap_table(sides: Sequence[Side]) -> str:
    """The numbers of the gap chart, folded away: a row for each percentile, a column a side."""
    rows = [
        [name, *(DASH if value is None else duration(value) for value in values)]
        for name in sides[0].gap_percentiles
        for values in [[side.gap_percentiles[name] for side in sides]]
    ]
    return as_table(COMPARE["gaps"], ["", *(side.name for side in sides)], rows)


def as_table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    summary: str = COMPARE["as_table"],
) -> str:
    """The numbers of a chart, folded away beneath it; all texts are escaped."""
    top = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<details class="ps-as-table"><summary>{escape(summary)}</summary>'
        f'<div class="ps-table" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div></details>"
    )


def definition(metric: str) -> str:
    """The name of a metric as a button that opens its definition."""
    label, _, text = METRICS[metric]
    tip = f"ps-compare-tip-{next(_tips)}"
    return (
        f'<button type="button" class="ps-def" aria-describedby="{tip}">{label}'
        f'</button><span role="tooltip" class="ps-tip" id="{tip}" hidden>{escape(text)}</span>'
    )


def simulated_tag(simulated: bool) -> str:
    """The mark of what was not measured."""
    return f'<span class="ps-tag">{COMPARE["simulated_tag"]}</span>' if simulated else ""


def percent(share: float | None) -> str:
    """`54 %` of a share, a dash for none."""
    return DASH if share is None else f"{share * 100:.0f} %"


def _rows(result: Result) -> Iterator[str]:
    table = {row.metric: row for row in result.difference_table()}
    order: list[str] = ["ttft", *PARTS, *(name for name in LATENCIES if name != "ttft")]
    for metric in order:
        yield _latency_row(result, table[metric])
    for metric, unit in (("throughput", "tok/s"), ("goodput", "req/s")):
        if metric == "throughput" or result.limits.given:
            yield _rate_row(result, table[metric], unit)
    yield _plain_row("hits", [_hits(side) for side in result.sides], result)
    yield _plain_row("errors", [_errors(side) for side in result.sides], result)


def _latency_row(result: Result, row: DifferenceRow) -> str:
    cells = "".join(_cells(shown) for shown in _shown_latencies(result, row))
    kind = ' class="ps-part"' if row.metric in PARTS else ""
    return f"<tr{kind}>{_name(row.metric, row.counts)}{cells}</tr>"


def _shown_latencies(result: Result, row: DifferenceRow) -> Iterator[_Shown]:
    """The percentiles that both counts carry, and the maximum where they carry no more."""
    columns = shown_percentiles(min(row.counts))
    for column in columns:
        yield _maximum(result, row.metric) if column == "max" else _pair(row.cells[column])
    yield from [_Shown(DASH, DASH, None)] * (len(PERCENTILES) - len(columns))


def _maximum(result: Result, metric: str) -> _Shown:
    a, b = (side.latency[metric].max for side in result.sides)
    if not a or not b:
        return _pair(Cell(a=a, b=b, change="", better=None))._replace(tag="max")
    finding = result.verdict.findings.get(f"{metric}.max") if result.verdict else None
    agrees = finding is not None and (finding.ratio > 1) == (b > a) and not is_same(b / a)
    better = finding.better if finding is not None and agrees else None
    return _pair(Cell(a=a, b=b, change=change_words(b / a), better=better))._replace(tag="max")


def _pair(cell: Cell) -> _Shown:
    if cell.a is None or cell.b is None:
        return _Shown(DASH, DASH, None)
    if not cell.a and not cell.b:
        return _Shown("0", "0 ms", None)
    a, b = duration_words(cell.a, cell.b)
    return _Shown(a.split(" ")[0], b, cell)


def _rate_row(result: Result, row: DifferenceRow, unit: str) -> str:
    cell = row.cells["all"]
    if cell.a is None or cell.b is None:
        return _plain_row(row.metric, [DASH, DASH], result)
    digits = 2 if row.metric == "goodput" else 1
    shown = _Shown(f"{cell.a:.{digits}f}", f"{cell.b:.{digits}f} {unit}", cell)
    each = [[run.measures[row.metric] or 0.0 for run in side.runs] for side in result.sides]
    spread = ", ".join(
        f"{side.name} {min(values):.{digits}f} to {max(values):.{digits}f}"
        for side, values in zip(result.sides, each, strict=True)
    )
    good = ""
    if row.metric == "goodput":
        shares = ", ".join(f"{s.name} {percent(s.good_share)}" for s in result.sides)
        good = f"; within the limits: {shares}"
    rest = f'<td colspan="6" class="ps-spread">mean over runs; range {spread} {unit}{good}</td>'
    return f"<tr>{_name(row.metric, row.counts)}{_cells(shown)}{rest}</tr>"


def _plain_row(metric: str, values: Sequence[str], result: Result) -> str:
    counts = (len(result.sides[0].runs), len(result.sides[1].runs))
    cells = _cells(_Shown(values[0], values[1], None))
    return f'<tr>{_name(metric, counts)}{cells}<td colspan="6"></td></tr>'


def _name(metric: str, counts: tuple[int, int]) -> str:
    _, noun, _ = METRICS[metric]
    a, b = counts
    samples = counted(a, noun) if a == b else f"{a:,} and {counted(b, noun)}"
    return f'<th scope="row">{definition(metric)}<small>{samples}</small></th>'


def _cells(shown: _Shown) -> str:
    tag = f"<small>{shown.tag}</small> " if shown.tag else ""
    return f"<td>{tag}{shown.a}</td><td><b>{shown.b}</b></td><td>{_change(shown.cell)}</td>"


def _change(cell: Cell | None) -> str:
    if cell is None or not cell.change:
        return ""
    if cell.better is None:
        return f'<span class="ps-same">{cell.change}</span>'
    word, kind = ("better", "ps-better") if cell.better else ("worse", "ps-worse")
    hidden = f'<span class="ps-unseen">{word}: </span>'
    return f'<span class="ps-pill {kind}">{hidden}{cell.change}</span>'


def _entry(entry: ResultEntry) -> str:
    name = escape(entry.id)
    when = time.strftime("%d %b %H:%M", time.localtime(entry.created))
    tag = simulated_tag(entry.simulated)
    title, summary = escape(entry.title), escape(entry.summary)
    return (
        f"<li><span><b>{title}</b> {tag}<small>{when}</small><br>{summary}</span>"
        f'<button type="button" class="ps-button" data-open="{name}" aria-label="'
        f'{COMPARE["open"]}: {title}, {when}">{COMPARE["open"]}</button>'
        f'<button type="button" class="ps-button" data-delete="{name}" aria-label="'
        f'{COMPARE["delete"]}: {title}, {when}">{COMPARE["delete"]}</button></li>'
    )


def _all_notes(result: Result) -> Iterator[str]:
    yield from result.notes
    yield from result.workload.get("notes", ())
    late = max((run.lateness.max or 0.0 for side in result.sides for run in side.runs), default=0.0)
    if late > 0.05:
        yield f"Requests were sent up to {duration(late)} after their planned time."


def _range(limits: Sequence[int]) -> str:
    low, high = limits
    return f"<b>{low:,}</b>" if low == high else f"<b>{low:,} to {high:,}</b>"


def _runs(result: Result) -> str:
    runs, seeds = len(result.sides[0].runs), _seeds(result.workload["seeds"])
    if len(result.sides) < 2:
        return f"<b>{runs}</b> {'run' if runs == 1 else 'runs'}, seed {seeds}"
    return f"<b>{runs}</b> {'run' if runs == 1 else 'runs'} per side, same seeds ({seeds})"


def _seeds(seeds: Sequence[dict[str, int] | None]) -> str:
    numbers = [entry["lengths"] for entry in seeds if entry is not None]
    if not numbers:
        return "not drawn"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _hits(side: Side) -> str:
    return percent(side.prefix_hit_rate)


def _errors(side: Side) -> str:
    return f"{side.requests['failed'] + side.requests['refused']:,}"
