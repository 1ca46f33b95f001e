"""What clients may send: one model a route, which also makes up the OpenAPI document.

Fields that are not here are accepted and ignored, and null counts as absent. Ranges are checked by
`SamplingParams`, so that the page and the API refuse the same things in the same words.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WithJsonSchema
from pydantic.functional_validators import AfterValidator, WrapValidator
from pydantic_core import PydanticCustomError

from engine.core.errors import InvalidRequest
from engine.core.request import MAX_LOGPROBS, SamplingParams

MAX_CHOICES = 8
"""Most choices of one prompt, the `n` of a request."""

DEFAULT_COMPLETION_TOKENS = 16
"""`max_tokens` of a completion that names none, as OpenAI has it."""

MAX_SALT_LENGTH = 256
MAX_PRIORITY = 2**31 - 1


def _in_one_sentence(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """The union's value, or one refusal instead of one for each of its branches."""
    try:
        return check(value)
    except ValueError:
        raise PydanticCustomError(
            "prompt",
            "must be a string, a list of strings, a list of token ids or a list of such lists",
        ) from None


Prompt = Annotated[
    str | list[str] | list[int] | list[list[int]],
    WrapValidator(_in_one_sentence),
]


def _with_known_roles(value: Any) -> Any:
    """The messages with OpenAI's newer name for the system role as templates know it."""
    if not isinstance(value, list):
        return value
    return [
        {**message, "role": "system"}
        if isinstance(message, dict) and message.get("role") == "developer"
        else message
        for message in value
    ]


# The tokenizer checks messages, for the page as well; here they are only described.
Messages = Annotated[
    Any,
    AfterValidator(_with_known_roles),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {
                        "type": "string",
                        "enum": ["system", "developer", "user", "assistant"],
                    },
                    "content": {
                        "anyOf": [
                            {"type": "string"},
                            {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["type", "text"],
                                    "properties": {
                                        "type": {"type": "string", "const": "text"},
                                        "text": {"type": "string"},
                                    },
                                },
                            },
                        ]
                    },
                },
            },
        }
    ),
]


class _Body(BaseModel):
    # Numbers as numbers: "5" and true are mistakes that a client wants to hear of.
    model_config = ConfigDict(strict=True, extra="ignore")


class _Turns(_Body):
    add_generation_prompt: bool | None = Field(
        None, description="open the assistant's turn; default: yes, unless the last message goes on"
    )
    continue_final_message: bool | None = Field(
        None, description="go on with the last message, which must be the assistant's"
    )

    def opening(self) -> tuple[bool, bool]:
        """Whether the assistant's turn is opened, and whether the last message goes on.

        Raises InvalidRequest when both ways are asked for at once.
        """
        continues = self.continue_final_message or False
        if continues and self.add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt exclude each other: either the "
                "last message goes on or a new turn opens.",
                field="continue_final_message",
            )
        opens = not continues if self.add_generation_prompt is None else self.add_generation_prompt
        return opens, continues


class StreamOptions(_Body):
    """What a stream carries beside its tokens."""

    include_usage: bool | None = Field(
        None, description="end with a chunk without choices that holds the usage"
    )
    continuous_usage_stats: bool | None = Field(
        None, description="with include_usage: every chunk holds the usage so far"
    )


class Generation(_Body):
    """What chat and plain completions have in common."""

    model: str | None = Field(None, description="as in /v1/models; default: the one served")
    stream: bool | None = Field(None, description="send one event a token")
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, description="choices for each prompt", ge=1, le=MAX_CHOICES)
    seed: int | None = Field(None, description="choice i of n draws with seed + i")
    stop: str | list[str] | None = Field(None, description="up to 16 strings that end the text")
    temperature: float | None = Field(None, description="0 is greedy; default: 1")
    top_p: float | None = None
    top_k: int | None = Field(None, description="0 or -1 keeps all tokens")
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    priority: int | None = Field(
        None,
        description="low numbers first, where the queue's order goes by priority; else no effect",
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
    )
    cache_salt: str | None = Field(
        None,
        description="keeps the prompt's cached blocks apart from those of other salts",
        max_length=MAX_SALT_LENGTH,
    )
    return_timings: bool | None = Field(
        None, description="our own: what the engine measured of each choice"
    )

    @property
    def num_choices(self) -> int:
        """Choices for each prompt."""
        return self.n or 1

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def counts_along(self) -> bool:
        """Whether every chunk of a stream holds the usage so far."""
        options = self.stream_options
        return self.includes_usage and bool(options and options.continuous_usage_stats)

    def _params(self, max_tokens: int, logprobs: int | None) -> SamplingParams:
        names = (
            "temperature",
            "top_p",
            "min_p",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
            "seed",
            "min_tokens",
            "ignore_eos",
        )
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        top_k = 0 if self.top_k in (None, -1) else self.top_k
        return SamplingParams(
            **given, top_k=top_k or 0, stop=stop, max_tokens=max_tokens, logprobs=logprobs
        )


class ChatRequest(Generation, _Turns):
    """A conversation to be answered."""

    messages: Messages
    max_completion_tokens: int | None = Field(
        None, description="most output tokens; default: until the context is full"
    )
    max_tokens: int | None = Field(
        None, description="the older name; max_completion_tokens goes before it"
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, description="alternatives a token; needs logprobs")

    def params(self, context: int) -> SamplingParams:
        """How to sample; `context` is the output limit where none is given.

        Raises InvalidRequest naming the field that is out of range.
        """
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true.", field="top_logprobs")
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= MAX_LOGPROBS:
            raise InvalidRequest(
                f"top_logprobs must be a whole number from 0 to {MAX_LOGPROBS}; got "
                f"{self.top_logprobs}.",
                field="top_logprobs",
            )
        given = (self.max_completion_tokens, self.max_tokens, context)
        limit = next(value for value in given if value is not None)
        return self._params(limit, (self.top_logprobs or 0) if self.logprobs else None)


class CompletionRequest(Generation):
    """Plain text, or token ids, to be continued."""

    prompt: Prompt
    max_tokens: int | None = Field(
        None,
        description=f"most output tokens; default: {DEFAULT_COMPLETION_TOKENS}; 0 with echo "
        "gives back the prompt alone",
    )
    logprobs: int | None = Field(None, description="alternatives a token, 0 to 20")
    echo: bool | None = Field(None, description="put the prompt in front of the text")
    add_special_tokens: bool | None = Field(
        None, description="begin a text as the tokenizer does, such as with a start token"
    )

    @property
    def only_echo(self) -> bool:
        """Whether nothing is to be generated."""
        return bool(self.echo) and self.max_tokens == 0

    def params(self) -> SamplingParams:
        """How to sample; raises InvalidRequest naming the field that is out of range."""
        if self.echo and self.logprobs is not None:
            raise InvalidRequest(
                "echo with logprobs would need log-probabilities of the prompt, which are not "
                "computed; leave one of them out.",
                field="logprobs",
            )
        limit = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        return self._params(max(limit, 1) if self.only_echo else limit, self.logprobs)

    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one; raises InvalidRequest when there is none."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if prompt and isinstance(prompt[0], int):
            return [[item for item in prompt if isinstance(item, int)]]
        several = [item for item in prompt if not isinstance(item, int)]
        if not several:
            raise InvalidRequest("The prompt is empty; send at least one token.", field="prompt")
        return list(several)


class TokenizeRequest(_Turns):
    """A text or a conversation to be turned into token ids."""

    model: str | None = None
    prompt: str | None = Field(None, description="a text; or send messages")
    messages: Messages | None = None
    add_special_tokens: bool | None = Field(None, description="for a text; default: yes")
    return_token_strs: bool | None = Field(None, description="tell each token's text too")
