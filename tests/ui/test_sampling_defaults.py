"""What a chat starts with, and who may change it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidRequest
from ui.sampling_defaults import SamplingDefaults
from ui.sampling_form import DEFAULTS, sampling_params


def test_they_are_the_pages_own_until_they_are_changed() -> None:
    defaults = SamplingDefaults()
    assert defaults.values == DEFAULTS
    defaults.change({**DEFAULTS, "temperature": 0, "max_tokens": 50.0})
    assert defaults.values == {**DEFAULTS, "temperature": 0, "max_tokens": 50}
    defaults.change({})
    assert defaults.values == DEFAULTS


def test_a_visitors_own_numbers_come_first() -> None:
    defaults = SamplingDefaults()
    defaults.change({**DEFAULTS, "temperature": 0.2, "top_k": 5})
    form = defaults.fill({"temperature": 1.1, "top_k": None, "system": "Be brief."})
    params = sampling_params(form)
    assert (params.temperature, params.top_k) == (1.1, 5)
    assert form["system"] == "Be brief."


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("temperature", -1, "from 0 to 100"),
        ("top_p", 2, "above 0 to 1"),
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", 512, "below 512"),
        ("top_k", "many", "whole number"),
    ],
)
def test_a_bad_value_changes_nothing_and_names_its_limit(name: str, value: Any, limit: str) -> None:
    defaults = SamplingDefaults()
    with pytest.raises(InvalidRequest, match=name) as caught:
        defaults.change({**DEFAULTS, "seed": 3, name: value}, longest=512)
    assert limit in str(caught.value)
    assert defaults.values == DEFAULTS
