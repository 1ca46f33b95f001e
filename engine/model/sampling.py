"""Turns a batch of logits into one token a row: penalties, filters, the draw and log-probabilities.

A row's token depends on that row alone (its logits, parameters, seed and position), never on its
neighbours, its place in the batch or a generator's state: that is what makes a seeded request give
the same text alone, in a crowd and after a preemption. This module knows no request and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from engine.core.plan import SampledToken
from engine.core.request import SamplingParams
from engine.model.drawing import draw
from engine.model.transfer import to_device, to_host

NOT_FINITE = (
    "The model's logits held NaN or infinity, so no token could be chosen. Try again; if it "
    "happens again, serve the model in float32."
)
NOTHING_LEFT = (
    "No token was left to choose from: every logit was minus infinity, or of an end token that "
    "min_tokens rules out. Lower min_tokens."
)


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """What one row of logits needs to become a token.

    seed: the seed in effect (never None here); position: index of the output token to draw, 0 for
    the first; the id sequences are read for penalties only; end_token_ids: ids that end the text.
    """

    params: SamplingParams
    seed: int
    position: int
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    end_token_ids: frozenset[int]

    @property
    def masks_end(self) -> bool:
        """Whether end tokens are ruled out at this position."""
        params = self.params
        return self.position < params.min_tokens and not params.ignore_eos


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
    """Choose one token for each row of `logits` [num_rows, vocab_size] (any float dtype or device).

    In this order, as transformers' `generate` does: repetition penalty over prompt and output;
    frequency and presence penalties over the output (as OpenAI and vLLM define them); end tokens
    masked while `position < min_tokens`, unless `ignore_eos`; temperature; top_k (every token as
    likely as the k-th stays); top_p (the smallest set that reaches the mass, of equals the lowest
    ids first); min_p. Temperature 0 takes the largest score, of equals the lowest id.

    Log-probabilities are those of the model itself: log_softmax of the logits as they came. Minus
    infinity is a legal logit; a row with NaN or plus infinity, or with nothing left to choose, gets
    a `SampledToken` with `error` and leaves the other rows alone.

    Raises ValueError when the number of rows and the shape of the logits disagree.
    """
    if logits.ndim != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"{len(rows)} rows were given for logits of shape {tuple(logits.shape)}.")
    if not rows:
        return []
    raw = logits.detach().float()
    scores = _adjust(raw, rows)
    choose = _choose_on_host if raw.device.type == "cpu" else _choose_on_device
    chosen, tokens = choose(raw, scores, rows)
    _add_logprobs(tokens, raw, chosen, rows)
    return tokens


def _choose_on_host(
    raw: Tensor, scores: Tensor, rows: Sequence[SamplingRow]
) -> tuple[Tensor, list[SampledToken]]:
    """Row by row with numpy, whose searches through a vocabulary are the faster ones on a CPU."""
    lines = scores.numpy()
    chosen = lines.argmax(axis=-1)
    every = np.arange(len(rows))
    peaks = lines[every, chosen]
    raw_peaks = peaks if scores is raw else raw.numpy().max(axis=-1)
    for i, row in enumerate(rows):
        if not row.params.greedy:
            chosen[i] = draw(lines[i], row.params, uniform(row.seed, row.position))
    tokens = [
        _token(*column)
        for column in zip(chosen.tolist(), raw_peaks.tolist(), peaks.tolist(), strict=True)
    ]
    return torch.from_numpy(chosen), tokens


def _choose_on_device(
    raw: Tensor, scores: Tensor, rows: Sequence[SamplingRow]
) -> tuple[Tensor, list[SampledToken]]:
    """All rows together, with one copy to the host."""
    chosen = scores.argmax(dim=-1)
    peaks = scores.gather(1, chosen[:, None]).squeeze(1)
    raw_peaks = peaks if scores is raw else raw.amax(dim=-1)
    drawn = [i for i, row in enumerate(rows) if not row.params.greedy]
    if drawn:
        index = to_device(drawn, torch.long, raw.device)
        chosen[index] = _draw(scores[index], [rows[i] for i in drawn])
    # float64 holds every token id exactly.
    host = to_host(torch.stack([chosen.double(), raw_peaks.double(), peaks.double()]))
    return chosen, [_token(*column) for column in zip(*host, strict=True)]


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that decides output token `position` of a request with this seed."""
    key = seed.to_bytes(16, "little", signed=True) + position.to_bytes(8, "little")
    digest = blake2b(key, digest_size=8, person=b"sample").digest()
    # 52 bits, so that the product with a float64 total stays strictly below the total.
    return (int.from_bytes(digest, "little") >> 12) / 2**52


def _token(token_id: float, raw_peak: float, peak: float) -> SampledToken:
    if raw_peak != raw_peak or raw_peak == float("inf"):
        return SampledToken(error=NOT_FINITE)
    if peak == float("-inf"):
        return SampledToken(error=NOTHING_LEFT)
    return SampledToken(token_id=int(token_id))


def _adjust(raw: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Scores [num_rows, vocab_size] with penalties and end-token mask; `raw` if neither is on."""
    if not any(row.params.penalises or row.masks_end for row in rows):
        return raw
    scores = raw.clone()
    for row, row_scores in zip(rows, scores, strict=True):
        if row.params.penalises:
            _penalise(row_scores, row)
        if row.masks_end:
            row_scores.index_fill_(0, _ids(row_scores, row.end_token_ids), float("-inf"))
    return scores


def _penalise(scores: Tensor, row: SamplingRow) -> None:
    """Apply the row's penalties to its scores [vocab_size] in place."""
    params = row.params
    if params.repetition_penalty != 1.0:
        seen = _ids(scores, {*row.prompt_token_ids, *row.output_token_ids})
        values = scores[seen]
        # A penalty below the smallest float32 would turn 0 into NaN, and a small one may overflow a
        # good logit, which then simply stays the largest.
        limits = torch.finfo(scores.dtype)
        penalty = max(params.repetition_penalty, limits.tiny)
        values = torch.where(values < 0, values * penalty, values / penalty)
        scores[seen] = values.clamp(max=limits.max)
    if row.params.counts_tokens:
        counts = Counter(_known(scores, row.output_token_ids))
        written = _ids(scores, counts)
        times = to_device(list(counts.values()), torch.long, scores.device)
        scores[written] -= params.frequency_penalty * times + params.presence_penalty


def _ids(scores: Tensor, token_ids: Iterable[int]) -> Tensor:
    """The known ids as an index into the last dimension of the scores."""
    return to_device(_known(scores, token_ids), torch.long, scores.device)


def _known(scores: Tensor, token_ids: Iterable[int]) -> list[int]:
    """The ids that have a logit: a tokenizer may hold more tokens than the model writes."""
    return [token_id for token_id in token_ids if token_id < scores.shape[-1]]


def _draw(scores: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Token ids [num_rows] drawn from the filtered distribution of scores [num_rows, vocab_size].

    Inverse CDF in token id order, in float64: the token is the first whose cumulative weight
    exceeds the row's uniform number times the total.
    """
    params = [row.params for row in rows]
    temperature = _column(scores, [p.temperature for p in params])
    # Relative to the largest score, so that the smallest temperature can't overflow.
    relative = (scores - scores.amax(dim=-1, keepdim=True)).double()
    weights = relative.div_(temperature).exp_()
    _filter_top_k(weights, scores, params)
    _filter_top_p(weights, params)
    if any(p.min_p > 0.0 for p in params):
        # The likeliest token has weight 1, so its share of probability cancels out.
        weights.masked_fill_(weights < _column(scores, [p.min_p for p in params]), 0.0)
    cumulative = weights.cumsum(dim=-1)
    numbers = _column(scores, [uniform(row.seed, row.position) for row in rows])
    chosen = torch.searchsorted(cumulative, numbers * cumulative[:, -1:], right=True)
    # Only a row of NaN runs past the end; it becomes an error, but needs a legal index till then.
    return chosen.squeeze(1).clamp_(max=scores.shape[-1] - 1)


def _filter_top_k(weights: Tensor, scores: Tensor, params: Sequence[SamplingParams]) -> None:
    """Zero the weights of tokens less likely than the k-th, in place."""
    vocab_size = scores.shape[-1]
    limits = [p.top_k if 0 < p.top_k < vocab_size else 0 for p in params]
    if not any(limits):
        return
    limited = to_device([i for i, limit in enumerate(limits) if limit], torch.long, scores.device)
    last = to_device([limit - 1 for limit in limits if limit], torch.long, scores.device)
    largest = scores[limited].topk(max(limits), dim=-1).values
    floor = torch.full_like(scores[:, :1], float("-inf"))
    floor[limited] = largest.gather(1, last[:, None])
    weights.masked_fill_(scores < floor, 0.0)


def _filter_top_p(weights: Tensor, params: Sequence[SamplingParams]) -> None:
    """Zero the weights outside the smallest set that reaches top_p of the mass, in place."""
    limited = [i for i, p in enumerate(params) if p.top_p < 1.0]
    if not limited:
        return
    index = to_device(limited, torch.long, weights.device)
    kept = weights[index]
    ordered = kept.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    # A token stays while the mass of the likelier ones is below the mass wanted.
    wanted = _column(weights, [params[i].top_p for i in limited]) * kept.cumsum(dim=-1)[:, -1:]
    size = (before < wanted).sum(dim=-1, keepdim=True).clamp_(min=1)
    cutoff = ordered.gather(1, size - 1)
    room = size - (ordered > cutoff).sum(dim=-1, keepdim=True)
    ties = kept == cutoff
    surplus = ties & (ties.cumsum(dim=-1) > room)
    weights[index] = kept.masked_fill((kept < cutoff) | surplus, 0.0)


def _column(like: Tensor, values: Sequence[float]) -> Tensor:
    """One float64 a row, [num_rows, 1], on the device of `like`."""
    return to_device(values, torch.float64, like.device)[:, None]


def _add_logprobs(
    tokens: list[SampledToken], raw: Tensor, chosen: Tensor, rows: Sequence[SamplingRow]
) -> None:
    """Replace the tokens whose rows ask for log-probabilities by ones that carry them."""
    asked = [
        i for i, row in enumerate(rows) if row.params.logprobs is not None and not tokens[i].error
    ]
    if not asked:
        return
    index = to_device(asked, torch.long, raw.device)
    logprobs = raw[index].double().log_softmax(dim=-1)
    most = min(max(rows[i].params.logprobs or 0 for i in asked), raw.shape[-1])
    top = logprobs.topk(most, dim=-1)
    own = logprobs.gather(1, chosen[index][:, None])
    host = to_host(torch.cat([own, top.values, top.indices.double()], dim=-1))
    for i, (own_value, *rest) in zip(asked, host, strict=True):
        wanted = rows[i].params.logprobs or 0
        pairs = zip(rest[most:], rest[:most], strict=True)
        # An impossible token's log-probability is minus infinity, which JSON can't say.
        finite = [(int(token_id), value) for token_id, value in pairs if value > float("-inf")]
        tokens[i] = SampledToken(
            token_id=tokens[i].token_id,
            logprob=own_value,
            top_logprobs=tuple(finite[:wanted]),
        )
