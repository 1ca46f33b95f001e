"""What the settings' fields mean, and how a bad value is answered."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidRequest
from ui.sampling_form import DEFAULTS, sampling_params


def test_empty_fields_stand_for_their_defaults() -> None:
    params = sampling_params(dict.fromkeys(DEFAULTS))
    assert params == sampling_params({})
    assert params == sampling_params(DEFAULTS)
    assert params.max_tokens == 400
    assert params.seed is None
    assert params.logprobs is None


def test_whole_numbers_may_come_as_the_browser_sends_them() -> None:
    params = sampling_params({"top_k": 40.0, "seed": " -7 ", "max_tokens": 12.0})
    assert (params.top_k, params.seed, params.max_tokens) == (40, -7, 12)


@pytest.mark.parametrize(("value", "number"), [("", None), (" ", None), ("0", 0), (" 5 ", 5)])
def test_logprobs_are_recorded_only_where_asked_for(value: str, number: int | None) -> None:
    assert sampling_params({"logprobs": value}).logprobs == number


def test_stop_strings_are_lines() -> None:
    assert sampling_params({"stop": "END\n\n two words \n"}).stop == ("END", " two words ")


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("temperature", -0.1, "from 0 to 100"),
        ("temperature", float("nan"), "finite"),
        ("temperature", "hot", "finite"),
        ("top_p", 0, "above 0 to 1"),
        ("top_p", 1.5, "above 0 to 1"),
        ("top_k", -1, "at least 0"),
        ("top_k", 1.5, "whole number"),
        ("min_p", 2, "from 0 to 1"),
        ("repetition_penalty", 0, "above 0"),
        ("presence_penalty", 3, "from -2 to 2"),
        ("frequency_penalty", float("inf"), "from -2 to 2"),
        ("seed", "0.5", "whole number"),
        ("seed", "9" * 5000, "whole number"),
        ("seed", str(2**63), "whole number"),
        ("logprobs", "6", "from 0 to 5"),
        ("logprobs", "-1", "from 0 to 5"),
        ("logprobs", "some", "or empty to record none"),
        ("max_tokens", 0, "at least 1"),
        ("stop", "x" * 300, "1 to 256 characters"),
        ("stop", "\n".join("abcdefghijklmnopq"), "limit is 16"),
        ("stop", ["a"], "text"),
    ],
)
def test_a_bad_value_is_answered_with_field_and_limit(field: str, value: Any, limit: str) -> None:
    with pytest.raises(InvalidRequest, match=field) as caught:
        sampling_params({field: value})
    assert limit in str(caught.value)
