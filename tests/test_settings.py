"""Settings from flags and environment: named, bounded, and refused with a sentence."""

from __future__ import annotations

import pytest

from engine.core.errors import InvalidRequest
from engine.settings import Settings, names_in, parse


def test_defaults_serve_this_machine_only() -> None:
    settings = parse([], {})
    assert settings == Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 7860)


def test_a_flag_wins_over_the_environment() -> None:
    environ = {"PHASESCOPE_BUDGET": "64", "PHASESCOPE_PREFIX_CACHING": "off"}
    settings = parse(["--budget", "128"], environ)
    assert settings.budget == 128
    assert not settings.prefix_caching
    assert parse(["--prefix-caching"], environ).prefix_caching


def test_what_gradio_calls_host_and_port_is_understood() -> None:
    environ = {"GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SERVER_PORT": "7000"}
    settings = parse([], environ)
    assert (settings.host, settings.port) == ("0.0.0.0", 7000)
    assert parse([], environ | {"PHASESCOPE_PORT": "7001"}).port == 7001


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 0},
        {"port": 70_000},
        {"budget": 0},
        {"slots": 300, "budget": 256},
        {"context": 1},
        {"queue": 0},
        {"threads": -1},
        {"stuck_after": float("nan")},
        {"stuck_after": 0.0},
        {"dtype": "int8"},
        {"policy": "guess"},
    ],
)
def test_values_out_of_range_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Settings(**wrong)  # type: ignore[arg-type]
    assert caught.value.field in wrong


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--budget", "lots"], {}, "budget"),
        (["--slots", "0"], {}, "slots must be from 1 to 1024"),
        ([], {"PHASESCOPE_SLOTS": "many"}, "PHASESCOPE_SLOTS must be a whole number"),
        ([], {"PHASESCOPE_PREFIX_CACHING": "perhaps"}, "true or false"),
        (["--colour", "red"], {}, "--colour"),
    ],
)
def test_a_bad_start_ends_with_a_sentence(
    arguments: list[str],
    environ: dict[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments, environ)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"], {})
    shown = capsys.readouterr().out
    for name in Settings.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in shown


def test_keys_come_from_flag_or_environment_and_are_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environ = {"PHASESCOPE_API_KEY": "from-the-environment"}
    assert parse([], environ).api_key == "from-the-environment"
    assert parse(["--api-key", "a,b"], environ).api_key == "a,b"
    assert parse([], {}).api_key is None
    with pytest.raises(SystemExit):
        parse(["--help"], environ)
    assert "from-the-environment" not in capsys.readouterr().out


def test_several_names_in_one_setting() -> None:
    assert names_in(None) == ()
    assert names_in(" a, b ,,c") == ("a", "b", "c")
