"""The shapes of replies, as the OpenAPI document states them.

Replies are written as plain dictionaries, since one is made for every token; tests hold them
against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FinishWord = Literal["stop", "length", "cancelled"]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(_Reply):
    """What was wrong, in a sentence, and in words for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(_Reply):
    """Every refusal."""

    error: ErrorDetail


class PromptTokensDetails(_Reply):
    """Where the prompt's keys and values came from."""

    cached_tokens: int


class Usage(_Reply):
    """Token ids read and written; a prompt counts once however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Timings(_Reply):
    """What the engine measured of one choice; seconds, null where there is no value."""

    index: int
    request: str = Field(description="its name on the page")
    ttft_seconds: float | None
    ttft_parts: dict[str, float | None]
    tpot_seconds: float | None
    longest_pause_seconds: float | None
    e2e_seconds: float | None
    engine_ttft_seconds: float | None
    engine_tpot_seconds: float | None
    engine_e2e_seconds: float | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_recomputed_tokens: int
    num_steps: int
    num_preemptions: int


class ChatMessage(_Reply):
    """The answer."""

    role: Literal["assistant"]
    content: str


class ChatChoice(_Reply):
    """One answer and why it ended; `cancelled` when the server stopped it."""

    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: FinishWord


class ChatReply(_Reply):
    """A whole answer, not streamed."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: list[Timings] | None = None


class CompletionChoice(_Reply):
    """One continuation and why it ended; `cancelled` when the server stopped it."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: FinishWord


class CompletionReply(_Reply):
    """A whole completion, not streamed."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    timings: list[Timings] | None = None


class Model(_Reply):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(_Reply):
    """Every model that is served: one."""

    object: Literal["list"]
    data: list[Model]


class TokenizeReply(_Reply):
    """A text as token ids."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None
