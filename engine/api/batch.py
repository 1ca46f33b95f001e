"""One call's engine requests: submitted together, read as one sequence of events, ended together.

Each prompt of a call and each of its choices is a request of its own to the engine. This module
knows the service and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.api.shares import Share
from engine.core.errors import InvalidRequest
from engine.core.request import (
    SEED_LIMIT,
    FinishReason,
    Request,
    SampledLogprob,
    SamplingParams,
)
from engine.mailbox import Token, TokenStream
from engine.service import EngineService

_OWN_ENDS = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer in the making. `request` is the engine's own: it is read and never changed."""

    index: int
    prompt_index: int
    stream: TokenStream
    request: Request


@dataclass(frozen=True, slots=True)
class Event:
    """One token of a choice with the text it makes certain, its end, or both.

    `finish_reason` is set on a choice's last event and only there; `token` is None where the end
    came without one. `num_output_tokens` are the choice's so far.
    """

    choice: Choice
    token: Token | None
    text: str
    finish_reason: FinishReason | None
    num_output_tokens: int

    @property
    def logprob(self) -> SampledLogprob | None:
        """The token's log-probability, where it was asked for."""
        entries = self.choice.request.logprobs
        if self.token is None or self.token.index >= len(entries):
            return None
        return entries[self.token.index]


class Batch:
    """The choices of one call; whoever made it closes it."""

    def __init__(self, choices: Sequence[Choice], share: Share) -> None:
        self.choices = choices
        self._share = share

    def close(self) -> None:
        """Stop what still runs: its blocks are free before the engine's next step."""
        for choice in self.choices:
            choice.stream.close()
        self._share.close()

    async def events(self) -> AsyncIterator[Event]:
        """Every event of every choice as it comes; raises RequestFailed when one fails."""
        queue: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        readers = [asyncio.create_task(_forward(choice, queue)) for choice in self.choices]
        num_open = len(readers)
        try:
            while num_open:
                item = await queue.get()
                if item is None:
                    num_open -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item
        finally:
            for reader in readers:
                reader.cancel()

    def usage(self) -> dict[str, Any]:
        """Token ids read and written so far; a prompt counts once for all its choices."""
        prompts = {choice.prompt_index: choice.request for choice in reversed(self.choices)}
        return usage(
            sum(request.num_prompt_tokens for request in prompts.values()),
            sum(choice.request.num_output_tokens for choice in self.choices),
            sum(request.num_cached_tokens or 0 for request in prompts.values()),
        )


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Usage as OpenAI writes it."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def check_size(service: EngineService, num_requests: int) -> None:
    """Refuse a call that asks for more requests than the engine can ever hold."""
    config = service.config
    if config is not None and num_requests > (limit := config.max_running + config.max_waiting):
        raise InvalidRequest(
            f"The call asks for {num_requests} answers; the engine holds at most {limit} requests. "
            f"Send fewer prompts, or a smaller n.",
            field="prompt",
        )


def slots_of(service: EngineService) -> tuple[int, int]:
    """All slots of the engine, and those that nobody holds now."""
    engine = service.engine
    if engine is None:
        return 0, 0
    slots = engine.config.max_running
    return slots, slots - len(engine.scheduler.running)


def submit(
    service: EngineService,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    num_choices: int,
    share: Share,
    **options: Any,
) -> Batch:
    """Submit every prompt `num_choices` times; all of them or, if one is refused, none.

    Choice i of a prompt draws with seed + i where a seed is given. Options are those of
    `EngineService.submit`. Raises what that raises, and ApiError when the client would hold too
    many tokens.
    """
    choices: list[Choice] = []
    batch = Batch(choices, share)
    try:
        share.reserve(num_choices * _most_tokens(service, prompts, params))
        for prompt_index, token_ids in enumerate(prompts):
            for offset in range(num_choices):
                own = replace(params, seed=_shifted(params.seed, offset))
                stream, request = service.submit_request(token_ids, own, **options)
                share.add(request)
                choices.append(Choice(len(choices), prompt_index, stream, request))
    except BaseException:
        batch.close()
        raise
    return batch


def _most_tokens(
    service: EngineService, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> int:
    """What one choice of each prompt may come to, in tokens: no answer outgrows the context."""
    context = service.config.max_model_len if service.config else 0
    return sum(
        max(len(prompt), min(len(prompt) + params.max_tokens, context)) for prompt in prompts
    )


def _shifted(seed: int | None, offset: int) -> int | None:
    if seed is None:
        return None
    return (seed + offset + SEED_LIMIT) % (2 * SEED_LIMIT) - SEED_LIMIT


async def _forward(choice: Choice, queue: asyncio.Queue[Event | Exception | None]) -> None:
    try:
        async for event in _events_of(choice):
            queue.put_nowait(event)
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)  # raised again where the events are read


async def _events_of(choice: Choice) -> AsyncIterator[Event]:
    request, count, ended = choice.request, 0, False
    async for token in choice.stream:
        count = token.index + 1
        # Set when the token was sampled, so that it is known before the token arrives here.
        reason = request.finish_reason
        ended = reason in _OWN_ENDS and count == request.num_output_tokens
        yield Event(choice, token, token.text, reason if ended else None, count)
    ending = choice.stream.ending
    if not ended and ending is not None:
        yield Event(choice, None, ending.text, ending.reason, count)
