"""Which of two sides is better, said in one sentence and only as far as the runs can carry it.

Each measure is compared pair by pair with an exact sign-flip permutation test (Fisher's test of
paired differences): under chance each pair's log ratio might as well have the other sign. With
fewer than six pairs its p-value cannot fall below 5 %, whatever was measured, and nothing is
claimed. Each measure is tested by itself; that is stated beside the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

MIN_PAIRS = 6
MAX_PAIRS = 12
SIGNIFICANCE = 0.05
SAME_WITHIN = 0.03

TEST = (
    "exact two-sided sign-flip permutation test of the paired log ratios, each measure by itself, "
    f"at {SIGNIFICANCE * 100:.0f} %; differences within {SAME_WITHIN * 100:.0f} % count as none"
)

# What the sentence may name, in its words; the percentile that a small sample can carry.
_LATENCY_WORDS = {
    "longest_pause.max": "the longest pause in a stream",
    "ttft.p50": "the median time to first token",
    "ttft.max": "the longest time to first token",
    "itl.p50": "the median gap between tokens",
    "itl.p95": "the 95th percentile of gaps between tokens",
    "tpot.p50": "the median time for each output token",
    "e2e.p50": "the median time to the last token",
    "engine_ttft.p50": "the median time until the first token is sampled",
    "engine_e2e.p50": "the median time until the last token is sampled",
}


class VerdictKind(StrEnum):
    """What the runs say."""

    BETTER = "better"
    WORSE = "worse"
    MIXED = "mixed"
    SAME = "no difference"
    TOO_FEW = "too few runs to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One measure on both sides.

    a and b: geometric means over the pairs' runs. ratio: b / a. p_value: of the paired test. real:
    whether the difference is claimed: enough pairs, beyond chance and beyond 3 %. better: whether
    B has the better value then; None where no difference is claimed.
    """

    measure: str
    a: float
    b: float
    ratio: float
    num_pairs: int
    p_value: float
    real: bool
    better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The sentence, what it rests on, and the finding of every measure, by name."""

    kind: VerdictKind
    sentence: str
    test: str
    num_pairs: int
    findings: dict[str, Finding]


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Two-sided p-value of the exact sign-flip test that the differences are around 0.

    It is the share of all 2**n ways to choose signs whose sum is at least as far from 0 as the
    one observed; 1 without differences. Meant for at most `MAX_PAIRS`.
    """
    observed = abs(math.fsum(differences)) * (1 - 1e-12)
    signs = product((1, -1), repeat=len(differences))
    extreme = sum(
        abs(math.fsum(s * d for s, d in zip(flips, differences, strict=True))) >= observed
        for flips in signs
    )
    return float(extreme / 2.0 ** len(differences))


def find(measure: str, a: Sequence[float | None], b: Sequence[float | None]) -> Finding | None:
    """Compare one measure over pairs of runs; None when no pair has a value above 0 on each side.

    Less is better, except of throughput and goodput.
    """
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x and y and x > 0 and y > 0]
    if not pairs:
        return None
    differences = [math.log(y / x) for x, y in pairs]
    ratio = math.exp(math.fsum(differences) / len(pairs))
    p_value = sign_flip_p_value(differences)
    real = len(pairs) >= MIN_PAIRS and p_value < SIGNIFICANCE and not is_same(ratio)
    more_is_better = measure in ("throughput", "goodput")
    return Finding(
        measure=measure,
        a=_geometric_mean([x for x, _ in pairs]),
        b=_geometric_mean([y for _, y in pairs]),
        ratio=ratio,
        num_pairs=len(pairs),
        p_value=p_value,
        real=real,
        better=(ratio > 1) == more_is_better if real else None,
    )


def judge(
    a: Sequence[Mapping[str, float | None]], b: Sequence[Mapping[str, float | None]], change: str
) -> Verdict:
    """The verdict on pairs of runs, given by their measures; `change` says in words what B is."""
    names = sorted(set().union(*a, *b))
    findings: dict[str, Finding] = {}
    for name in names:
        finding = find(name, [run.get(name) for run in a], [run.get(name) for run in b])
        if finding is not None:
            findings[name] = finding
    kind = _kind(len(a), findings)
    return Verdict(
        kind=kind,
        sentence=_sentence(kind, len(a), findings, change),
        test=TEST,
        num_pairs=len(a),
        findings=findings,
    )


def is_same(ratio: float) -> bool:
    """Whether a ratio of two values counts as no change."""
    return abs(ratio - 1) <= SAME_WITHIN + 1e-9


def change_words(ratio: float) -> str:
    """A ratio B / A as the table says it: `no change`, `16 % higher`, or a multiple."""
    if is_same(ratio):
        return "no change"
    word = "higher" if ratio > 1 else "lower"
    times = max(ratio, 1 / ratio)
    if times >= 2:
        return f"{times:.1f}\N{MULTIPLICATION SIGN} {word}"
    return f"{abs(ratio - 1) * 100:.0f} % {word}"


def duration_words(a: float, b: float) -> tuple[str, str]:
    """Two durations in the unit of the larger one: milliseconds below 1 s, else seconds."""
    largest = max(a, b)
    if largest < 1:
        digits = 0 if min(a, b) >= 0.01 else 1
        return f"{a * 1e3:.{digits}f} ms", f"{b * 1e3:.{digits}f} ms"
    digits = 2 if largest < 10 else 1
    return f"{a:.{digits}f} s", f"{b:.{digits}f} s"


def _kind(num_pairs: int, findings: Mapping[str, Finding]) -> VerdictKind:
    if num_pairs < MIN_PAIRS:
        return VerdictKind.TOO_FEW
    named = [findings[name] for name in (*_LATENCY_WORDS, "throughput") if name in findings]
    gains = any(finding.better is True for finding in named)
    losses = any(finding.better is False for finding in named)
    if gains and losses:
        return VerdictKind.MIXED
    if gains:
        return VerdictKind.BETTER
    return VerdictKind.WORSE if losses else VerdictKind.SAME


def _sentence(
    kind: VerdictKind, num_pairs: int, findings: Mapping[str, Finding], change: str
) -> str:
    if kind is VerdictKind.TOO_FEW:
        runs = "pair of runs was" if num_pairs == 1 else "pairs of runs were"
        return (
            f"Too few runs to tell from noise: {num_pairs} {runs} made, and at least "
            f"{MIN_PAIRS} are needed."
        )
    if kind is VerdictKind.SAME:
        named = [findings[name] for name in (*_LATENCY_WORDS, "throughput") if name in findings]
        if all(is_same(finding.ratio) for finding in named):
            return "A and B perform the same on this workload."
        return "No difference between A and B stands out from noise on this workload."
    latencies = [findings[name] for name in _LATENCY_WORDS if name in findings]
    gain = _largest([finding for finding in latencies if finding.better is True])
    loss = _largest([finding for finding in latencies if finding.better is False])
    subject = f"{change[:1].upper()}{change[1:]} (B)"
    if kind is VerdictKind.WORSE:
        subject = f"A wins on this workload: {change} (B)"
    gain_words = "brings no gain in latency" if gain is None else _latency_words(gain, "cuts")
    loss_words = "costs nothing measurable" if loss is None else _latency_words(loss, "raises")
    if kind is VerdictKind.WORSE and loss is not None:
        gain_words, loss_words = loss_words, "gains nothing measurable"
    return f"{subject} {gain_words}, {loss_words}, and {_throughput_words(findings)}."


def _latency_words(finding: Finding, verb: str) -> str:
    a, b = duration_words(finding.a, finding.b)
    return f"{verb} {_LATENCY_WORDS[finding.measure]} from {a} to {b}"


def _throughput_words(findings: Mapping[str, Finding]) -> str:
    finding = findings.get("throughput")
    if finding is None or is_same(finding.ratio):
        return "leaves throughput unchanged"
    if not finding.real:
        return "shows no change in throughput that stands out from noise"
    verb = "raises" if finding.better else "lowers"
    return f"{verb} throughput from {finding.a:.1f} to {finding.b:.1f} tok/s"


def _largest(findings: Sequence[Finding]) -> Finding | None:
    return max(findings, key=lambda finding: abs(math.log(finding.ratio)), default=None)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
