"""The sampling that a chat starts with on this server, until it is stopped.

One value for all chats; a visitor's own numbers come before it. It knows no component of the page.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.errors import InvalidRequest
from ui.sampling_form import DEFAULTS, sampling_params


class SamplingDefaults:
    """Values of the sampling form's number fields, by name."""

    def __init__(self) -> None:
        self._values: dict[str, object] = dict(DEFAULTS)

    @property
    def values(self) -> dict[str, object]:
        """The values by name, in the order of the form."""
        return dict(self._values)

    def change(self, values: Mapping[str, object], *, longest: int | None = None) -> None:
        """Take over values for chats that begin from now on; an empty one is as the page has it.

        longest: tokens that prompt and answer may have together, None while no model is loaded.
        Raises InvalidRequest naming the field and its limits; then nothing has changed.
        """
        params = sampling_params({name: values.get(name) for name in DEFAULTS})
        if longest is not None and params.max_tokens >= longest:
            raise InvalidRequest(
                f"max_tokens must be below {longest:,}, which is the context that prompt and "
                f"answer share; got {params.max_tokens:,}.",
                field="max_tokens",
            )
        self._values = {name: getattr(params, name) for name in DEFAULTS}

    def fill(self, form: Mapping[str, object]) -> dict[str, object]:
        """A chat's form in which fields that were left empty stand for these defaults."""
        given = {name: value for name, value in form.items() if value is not None}
        return {**form, **self._values, **given}
