"""Drawing a token from one row of scores on the CPU: filters, then the inverse of the cumulative
distribution.

The same rule as the batched one for accelerators in `engine.model.sampling`, but a row at a time: a
vocabulary is large and the tokens that matter are few, so it pays to find those first. Knows no
request, no batch and no torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core.request import SamplingParams

_Floats = NDArray[np.floating[Any]]
_Ids = NDArray[np.intp]

# Tokens less likely than this share of the likeliest are looked at only where the filters need
# them: in a trained model's distributions a few hundred of a vocabulary's tokens are above it.
_LIKELY = 1e-5


def draw(scores: NDArray[np.float32], params: SamplingParams, number: float) -> int:
    """The token id drawn from one row's `scores` [vocab_size] at a temperature above 0.

    top_k keeps every token as likely as the k-th; top_p the smallest set that reaches the mass, of
    equals the lowest ids first; min_p what has that share of the likeliest token's probability. Of
    what is kept, in token id order, it is the first whose cumulative weight exceeds `number`, which
    lies in [0, 1), times the total. A row without a finite peak gives 0.
    """
    peak = scores.max()
    if not np.isfinite(peak):
        return 0
    filtered = 0 < params.top_k < len(scores) or params.top_p < 1.0 or params.min_p > 0.0
    if not filtered:
        return _pick(_weights(scores, peak, params.temperature), number)
    ids = np.flatnonzero(scores >= peak + np.log(max(_LIKELY, params.min_p)) * params.temperature)
    if 0 < params.top_k < len(scores):
        ids = _largest(scores, ids, params.top_k)
    weights = np.exp((scores[ids].astype(np.float64) - peak) / params.temperature)
    if params.top_p < 1.0:
        ids, weights = _nucleus(scores, peak, ids, weights, params)
    if params.min_p > 0.0:
        # The likeliest token has weight 1, so its share of probability cancels out.
        kept = weights >= params.min_p
        ids, weights = ids[kept], weights[kept]
    return int(ids[_pick(weights, number)])


def _weights(scores: _Floats, peak: np.float32, temperature: float) -> _Floats:
    """Probabilities relative to the likeliest token's; float32 is as exact as the scores are."""
    with np.errstate(over="ignore", under="ignore"):  # a tiny temperature: 0 is what is meant
        weights: _Floats = np.exp((scores - peak) / np.float32(max(temperature, 1e-30)))
    return weights


def _largest(scores: _Floats, likely: _Ids, count: int) -> _Ids:
    """Ids of the tokens at least as likely as number `count`; `likely` are the likeliest."""
    ids = likely if len(likely) >= count else np.arange(len(scores))
    floor = np.partition(scores[ids], -count)[-count]
    kept: _Ids = ids[scores[ids] >= floor]
    return kept


def _nucleus(
    scores: _Floats, peak: np.float32, ids: _Ids, weights: _Floats, params: SamplingParams
) -> tuple[_Ids, _Floats]:
    """The smallest set that reaches top_p of the mass that top_k has left, in id order."""
    if 0 < params.top_k < len(scores):
        total = float(weights.sum())
    else:
        total = float(_weights(scores, peak, params.temperature).sum(dtype=np.float64))
    if weights.sum() < params.top_p * total:
        # Flatter than a trained model's: every token counts.
        ids = np.arange(len(scores))
        weights = np.exp((scores.astype(np.float64) - peak) / params.temperature)
        total = float(weights.sum())
    order = np.argsort(-weights, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    size = max(1, int(np.count_nonzero(before < params.top_p * total)))
    kept = np.sort(order[:size])
    return ids[kept], weights[kept]


def _pick(weights: _Floats, number: float) -> int:
    cumulative = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    return min(index, len(weights) - 1)
