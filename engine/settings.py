"""What can be set from outside, by flag or environment, checked before anything is loaded.

Read before torch is imported, so it must not import torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS

ENV_PREFIX = "PHASESCOPE_"
# What Spaces and Gradio call the same things; our own names come first.
_OTHER_NAMES = {"host": ("GRADIO_SERVER_NAME",), "port": ("GRADIO_SERVER_PORT",)}
DTYPES = ("auto", "float32", "bfloat16", "float16")


def _setting(default: Any, text: str, **limits: Any) -> Any:
    return field(default=default, metadata={"help": text, **limits})


def names_in(text: str | None) -> tuple[str, ...]:
    """The names in a setting that lists several, separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a start can be given; the help texts say what each is.

    Raises InvalidRequest naming the setting that is out of range.
    """

    model: str | None = _setting(
        None, "hub id, folder or .gguf file; default: the bundled SmolLM2-135M-Instruct"
    )
    replay: str | None = _setting(
        None, "file of a recording to show instead of an engine; no model is loaded then"
    )
    device: str = _setting("auto", "auto, cpu, cuda, cuda:1, mps, xpu")
    dtype: str = _setting("auto", "number format of weights and KV cache", choices=DTYPES)
    threads: int = _setting(0, "threads of the model's arithmetic; 0: one a core")
    kernels: bool = _setting(
        True, "on a CPU, compile kernels for it at the first start, where a compiler is there"
    )
    host: str = _setting("127.0.0.1", "address to listen on; 0.0.0.0 for every one")
    port: int = _setting(7860, "port of page and routes", low=1, high=65535)
    budget: int = _setting(256, "token budget: positions one step may compute", low=1, high=65536)
    slots: int = _setting(8, "requests that may hold a slot at once", low=1, high=1024)
    queue: int = _setting(64, "requests that may wait beside them", low=1, high=10000)
    context: int = _setting(4096, "longest prompt and answer together, in tokens", low=2)
    kv_blocks: int = _setting(0, "16-token blocks of the KV cache; 0: by free memory", low=0)
    prefix_caching: bool = _setting(True, "reuse the KV blocks of equal prompt openings")
    policy: str = _setting("chunked", "how a step is filled", choices=tuple(sorted(POLICIES)))
    queue_order: str = _setting(
        "first-come", "who of those waiting comes first", choices=tuple(sorted(QUEUE_ORDERS))
    )
    stuck_after: float = _setting(60.0, "seconds a step may take before it counts as stuck", low=1)
    api_key: str | None = _setting(
        None,
        "keys that open the API, separated by commas; better set in the environment, where no "
        "process list shows them; default: no key is needed",
        secret=True,
    )
    api_limit: int = _setting(
        0, "API requests one client may have running and queued; 0: as the queue holds", low=0
    )
    api_queue_limit: int = _setting(
        0, "API requests of one client that may wait for a slot; 0: as the queue holds", low=0
    )
    api_token_limit: int = _setting(
        0,
        "tokens that one API client's running and queued requests may hold, prompts and output "
        "limits together; 0: as the KV cache holds",
        low=0,
    )
    admin_key: str | None = _setting(
        None,
        "key that the settings panel and a restart ask for, for a server that strangers can reach; "
        "better set in the environment; default: everybody may change the engine",
        secret=True,
    )
    cors_origins: str | None = _setting(
        None, "pages whose scripts may use the API, separated by commas, or *; default: none"
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value, limits = getattr(self, item.name), item.metadata
            low, high = limits.get("low"), limits.get("high")
            if "choices" in limits and value not in limits["choices"]:
                known = ", ".join(limits["choices"])
                raise InvalidRequest(
                    f"{item.name} must be one of {known}; got {value!r}.", field=item.name
                )
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                limit = f"from {low} to {high}" if high is not None else f"at least {low}"
                raise InvalidRequest(f"{item.name} must be {limit}; got {value}.", field=item.name)
        if self.threads < 0:
            raise InvalidRequest("threads must be at least 0.", field="threads")
        if self.slots > self.budget:
            raise InvalidRequest(
                f"slots ({self.slots}) must not exceed budget ({self.budget}): each running "
                f"request needs a token of every step.",
                field="slots",
            )


def parse(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from flags, else from `PHASESCOPE_...`, else the defaults.

    Exits with a sentence, as argparse does, for what cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="PhaseScope: watch a language model being served.",
        epilog=f"Each flag can be set in the environment too, as {ENV_PREFIX}MODEL and so on.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for item in fields(Settings):
        flag = "--" + item.name.replace("_", "-")
        text = item.metadata["help"]
        default = _default(item)
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            kind = str if default is None else type(default)
            choices = item.metadata.get("choices")
            parser.add_argument(flag, type=kind, choices=choices, help=text, metavar=_meta(item))
    parser.set_defaults(**{item.name: _default(item) for item in fields(Settings)})
    try:
        given = _from_environment(environ)
        # Defaults are shown by --help, which is no place for a key.
        hidden = {item.name for item in fields(Settings) if item.metadata.get("secret")}
        parser.set_defaults(**{name: given[name] for name in given if name not in hidden})
        values = vars(parser.parse_args(arguments))
        values |= {name: given[name] for name in hidden & given.keys() if values[name] is None}
        return Settings(**values)
    except InvalidRequest as error:
        parser.error(str(error))


def _default(item: Field[Any]) -> Any:
    # As Any: dataclasses describe a field's default as something that may be missing.
    return item.default


def _meta(item: Field[Any]) -> str | None:
    """The word for a flag's value; argparse shows the choices by itself where there are some."""
    return None if "choices" in item.metadata else item.name.rsplit("_", 1)[-1].upper()


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in fields(Settings):
        names = (ENV_PREFIX + item.name.upper(), *_OTHER_NAMES.get(item.name, ()))
        name = next((name for name in names if environ.get(name, "").strip()), None)
        if name is None:
            continue
        text = environ[name].strip()
        kind = str if _default(item) is None else type(_default(item))
        try:
            values[item.name] = _boolean(text) if kind is bool else kind(text)
        except ValueError:
            raise InvalidRequest(
                f"{name} must be {_describe(kind)}; got {text!r}.", field=item.name
            ) from None
    return values


def _boolean(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True}
    words |= {"0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _describe(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")
