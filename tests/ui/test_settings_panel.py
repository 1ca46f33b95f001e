"""What the settings panel does to the engine, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.core.request import SamplingParams
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until
from ui import admin_key, settings_change
from ui.admin_key import AdminKey
from ui.feed import Feed
from ui.routes import routes
from ui.settings_change import NAMES, SettingsChange
from ui.words_settings import SETTINGS

LONG = SamplingParams(max_tokens=1500, ignore_eos=True)


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner(seconds=0.002))
    yield service
    service.close()


def changed(service: EngineService, **changes: Any) -> list[Any]:
    values = SettingsChange(service).current()
    for name, value in changes.items():
        values[NAMES.index(name)] = value
    return values


def test_the_fields_show_what_the_engine_has(service: EngineService) -> None:
    service.reconfigure(max_batched_tokens=99)
    shown = [99, 8, 64, 0, 256, "chunked", "first-come", True]
    assert SettingsChange(service).current() == shown


def test_limits_change_without_ending_a_request(service: EngineService) -> None:
    stream = service.submit([65] * 50, LONG)
    wanted = {
        "max_running": 3,
        "max_waiting": 5,
        "long_prompt_threshold": 16,
        "queue_order": "shortest-prompt",
    }
    answer = SettingsChange(service).apply(changed(service, **wanted), None)
    assert answer.text == SETTINGS["applied"]
    assert {name: getattr(service.config, name) for name in wanted} == wanted
    assert [record.finished for record in service.store.live()] == [None]
    stream.close()


@pytest.mark.parametrize(
    "changes",
    [{"num_blocks": 100}, {"prefix_caching": False}, {"policy": "static"}],
)
def test_a_restart_is_asked_for_and_then_done(
    service: EngineService, changes: dict[str, Any]
) -> None:
    streams = [service.submit([65] * 50, LONG) for _ in range(10)]
    wait_until(lambda: sum(r.scheduled is not None for r in service.store.live()) == 8)
    change, values, before = SettingsChange(service), changed(service, **changes), service.engine
    asked = change.apply(values, None)
    assert "8 running requests and 2 waiting requests will end" in asked.text
    assert service.engine is before
    done = change.apply(values, asked.question)
    assert done.text == SETTINGS["restarted"]
    assert service.engine is not before
    assert {name: getattr(service.config, name) for name in changes} == changes
    wait_until(lambda: all(record.finished for record in service.store.live()))
    for stream in streams:
        stream.close()


def test_an_agreement_holds_for_no_other_change(service: EngineService) -> None:
    change = SettingsChange(service)
    asked = change.apply(changed(service, num_blocks=100), None)
    again = change.apply(changed(service, num_blocks=50), asked.question)
    assert again.question
    assert again.text.startswith(SETTINGS["ask_again"])
    assert service.config.num_blocks == 256


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"max_batched_tokens": 0}, "Token budget must be from 1 to 65,536; got 0."),
        ({"max_batched_tokens": 4}, "max_running (8) must not exceed max_batched_tokens (4)."),
        ({"max_running": 2.5}, "Slots must be a whole number; got 2.5."),
        ({"max_waiting": None}, "Queue limit must be a whole number; got nothing."),
        ({"max_waiting": float("nan")}, "Queue limit must be a whole number; got nan."),
        ({"max_waiting": 1e9}, "Queue limit must be from 1 to 10,000; got 1,000,000,000."),
        ({"num_blocks": -1}, "KV blocks must be at least 1; got -1."),
        (
            {"long_prompt_threshold": -1},
            "Long-prompt threshold must be from 0 to 65,536; got -1.",
        ),
        (
            {"policy": "fair"},
            "policy must be one of chunked, prefill-first, static; got 'fair'.",
        ),
        (
            {"num_blocks": 2000},
            "KV blocks must be at most 1,024: that is 8 slots at the full context of 2,048 "
            "tokens. Got 2,000.",
        ),
    ],
)
def test_a_bad_value_is_answered_with_its_limit(
    service: EngineService, changes: dict[str, Any], sentence: str
) -> None:
    before = service.config
    answer = SettingsChange(service).apply(changed(service, **changes), None)
    assert (answer.ok, answer.text) == (False, sentence)
    assert service.config == before


def test_a_pool_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(report: Any) -> Any:
        parts = stub_build(ScriptedRunner())(report)
        return replace(parts, info=replace(parts.info, device="2-core CPU"))

    service = EngineService(build)
    service.start()
    wait_until(lambda: service.config is not None and service.health()[0])
    monkeypatch.setattr(settings_change.host, "free_memory", lambda: 300 * 16 * 64)
    answer = SettingsChange(service).apply(changed(service, num_blocks=300), None)
    service.close()
    assert not answer.ok
    assert "at most 278: that is what half of this machine's free memory holds" in answer.text


def test_without_an_engine_it_says_so() -> None:
    service = started(ScriptedRunner())
    values = changed(service, max_running=2)
    service.close()
    assert not SettingsChange(service).apply(values, None).ok


def test_unchanged_values_restart_nothing(service: EngineService) -> None:
    before = service.engine
    assert SettingsChange(service).apply(changed(service), None).text == SETTINGS["unchanged"]
    assert service.engine is before


@pytest.mark.parametrize(
    ("given", "opens"), [("secret", True), ("Secret", False), ("", False), (None, False)]
)
def test_only_its_key_opens_a_lock(given: str | None, opens: bool) -> None:
    key = AdminKey("secret")
    assert key.required
    assert key.opens(given) is opens


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_nothing_is_locked(key: str | None) -> None:
    assert not AdminKey(key).required
    assert AdminKey(key).opens(None)


def test_a_restart_by_route_needs_the_key(
    service: EngineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.routes.WRONG_KEY_SECONDS", 0.01)
    client = TestClient(Starlette(routes=routes(service, Feed(service), AdminKey("secret"))))
    for headers in ({}, {admin_key.HEADER: "guess"}):
        refused = client.post("/live/restart", headers=headers)
        assert refused.status_code == 401
        assert "X-Admin-Key" in json.loads(refused.content)["error"]["message"]
    # The engine serves, so there is nothing to restart: the key was taken.
    assert client.post("/live/restart", headers={admin_key.HEADER: "secret"}).status_code == 409
