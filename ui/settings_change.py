"""Changes of the engine's limits: checked, asked about when they restart it, and applied.

It keeps nothing between two calls and knows no component of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any, Final, NamedTuple

from engine import host
from engine.core.config import EngineConfig
from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError
from engine.service import EngineService
from engine.settings import Settings
from ui.words_settings import SETTINGS


class Number(NamedTuple):
    """A whole-number field: its name in EngineConfig and in Settings, its label and one line.

    setting: the setting whose limits hold for it; low: its least value where that is another.
    """

    name: str
    setting: str
    label: str
    hint: str
    low: int = 1


class Choice(NamedTuple):
    """A field with a few values: its name in EngineConfig and in Settings, its label and a line."""

    name: str
    label: str
    hint: str

    @property
    def values(self) -> tuple[str, ...]:
        """What it can be set to."""
        return tuple(_limits(self.name)["choices"])


NUMBERS: Final = (
    Number(
        "max_batched_tokens",
        "budget",
        "Token budget",
        "max_batched_tokens: positions one step may compute. Changes between two steps.",
    ),
    Number(
        "max_running",
        "slots",
        "Slots",
        "max_running: requests computed side by side. Changes between two steps.",
    ),
    Number(
        "max_waiting",
        "queue",
        "Queue limit",
        "max_waiting: requests that may wait beside them. Changes between two steps.",
    ),
    Number(
        "long_prompt_threshold",
        "budget",
        "Long-prompt threshold",
        "long_prompt_threshold: most positions of one prompt in a step of chunked prefill; 0 for "
        "the whole budget. Changes between two steps.",
        low=0,
    ),
    Number(
        "num_blocks",
        "kv_blocks",
        "KV blocks",
        "num_blocks: size of the KV cache. Restarts the engine.",
    ),
)
CHOICES: Final = (
    Choice(
        "policy",
        "Policy",
        "How a step is filled: chunked prefill reads long prompts in pieces beside the decoding, "
        "prefill-first stops it for them, static serves a batch to its end. Restarts the engine.",
    ),
    Choice(
        "queue_order",
        "Queue order",
        "Who of those waiting comes first. Changes between two steps.",
    ),
)
PREFIX_CACHING: Final = "prefix_caching"
NAMES: Final = (*(field.name for field in (*NUMBERS, *CHOICES)), PREFIX_CACHING)
"""Names in EngineConfig of all fields, in the order in which they are shown."""

# As at the start: main memory is shared with the page and with whatever else runs.
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """What the panel says to a click, and the change it asks to be confirmed, if it asks."""

    text: str
    ok: bool = True
    question: str = ""


def shown_answer(answer: Answer) -> str:
    """The answer as HTML, announced where it appears; empty for none."""
    if not answer.text:
        return ""
    kind = "ask" if answer.question else "ok" if answer.ok else "err"
    return f'<p role="status" data-kind="{kind}">{escape(answer.text)}</p>'


class SettingsChange:
    """What Apply and its confirmation do to one service."""

    def __init__(self, service: EngineService) -> None:
        self._service = service

    def current(self) -> list[Any]:
        """The engine's values in the order of the fields; None for each while none serves."""
        config = self._service.config
        if config is None:
            return [None] * len(NAMES)
        return [getattr(config, name) for name in NAMES]

    def apply(self, values: Sequence[Any], agreed: str | None) -> Answer:
        """Take over the fields' values; a restart only if exactly this change was agreed to.

        agreed: the `question` of the answer that asked, None on the first click. Blocks until the
        values hold.
        """
        try:
            config = self._service.config
            if config is None:
                raise EngineStopped(self._service.state.reason or SETTINGS["not_serving"])
            wanted = self._wanted(config, values)
            if wanted == config:
                return Answer(SETTINGS["unchanged"])
            question = json.dumps(values)
            restarts = not config.same_pool(wanted)
            if restarts and agreed != question:
                changed = SETTINGS["ask_again"] if agreed else ""
                return Answer(changed + self._restart_sentence(), question=question)
            self._service.reconfigure(
                **{name: getattr(wanted, name) for name in _changed(config, wanted)}
            )
        except PhaseScopeError as error:
            return Answer(str(error), ok=False)
        return Answer(SETTINGS["restarted" if restarts else "applied"])

    def _wanted(self, config: EngineConfig, values: Sequence[Any]) -> EngineConfig:
        given = dict(zip(NAMES, values, strict=True))
        numbers = {number.name: _whole_number(number, given[number.name]) for number in NUMBERS}
        # EngineConfig itself refuses a policy or an order that it does not know.
        given[PREFIX_CACHING] = bool(given[PREFIX_CACHING])
        wanted = replace(config, **(given | numbers))
        if wanted.num_blocks != config.num_blocks:
            self._check_blocks(config, wanted)
        return wanted

    def _check_blocks(self, config: EngineConfig, wanted: EngineConfig) -> None:
        """Raise InvalidRequest for a pool that is larger than of use, or than fits."""
        most = wanted.max_running * -(-wanted.max_model_len // wanted.block_size)
        why = SETTINGS["blocks_by_context"].format(
            slots=wanted.max_running, context=f"{wanted.max_model_len:,}"
        )
        info = self._service.info
        if info is not None and "CPU" in info.device:
            bytes_per_block = info.kv_bytes_per_token * config.block_size
            # The pool in use makes room for the new one.
            free = host.free_memory() + config.num_blocks * bytes_per_block
            affordable = int(free * _MEMORY_SHARE / bytes_per_block)
            if affordable < most:
                most, why = affordable, SETTINGS["blocks_by_memory"]
        if wanted.num_blocks > most:
            sentence = SETTINGS["too_many_blocks"].format(
                most=f"{most:,}", why=why, value=f"{wanted.num_blocks:,}"
            )
            raise InvalidRequest(sentence, field="num_blocks")

    def _restart_sentence(self) -> str:
        live = [record for record in self._service.store.live() if record.finished is None]
        waiting = sum(record.scheduled is None for record in live)
        counts = {"running": len(live) - waiting, "waiting": waiting}
        if not live:
            return SETTINGS["restart_idle"]
        parts = [
            SETTINGS[name].format(n=n, request="request" if n == 1 else "requests")
            for name, n in counts.items()
            if n
        ]
        return SETTINGS["restart_busy"].format(
            requests=" and ".join(parts), be="is" if len(live) == 1 else "are"
        )


def _changed(config: EngineConfig, wanted: EngineConfig) -> list[str]:
    return [name for name in NAMES if getattr(config, name) != getattr(wanted, name)]


def _limits(setting: str) -> Mapping[str, Any]:
    return next(item.metadata for item in fields(Settings) if item.name == setting)


def _whole_number(number: Number, value: object) -> int:
    # A number field hands over a float where a person typed a fraction.
    if not isinstance(value, int | float) or not float(value).is_integer():
        shown = "nothing" if value is None else value
        raise InvalidRequest(
            SETTINGS["whole"].format(label=number.label, value=shown), field=number.name
        )
    low, high = number.low, _limits(number.setting).get("high")
    if value < low or (high is not None and value > high):
        sentence = SETTINGS["range" if high else "at_least"].format(
            label=number.label,
            low=low,
            high=f"{high:,}" if high else "",
            value=f"{int(value):,}",
        )
        raise InvalidRequest(sentence, field=number.name)
    return int(value)
