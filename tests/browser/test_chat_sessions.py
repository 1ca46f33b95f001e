"""Who may stop, see and free an answer: tabs, visitors and added users."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from engine.core.request import FinishReason
from tests.browser.chat_page import ANSWER, FOOTER, newest, opened, send, wait_for_end
from tests.browser.chat_server import ChatServer
from tests.stub_service import wait_until


def test_stop_ends_the_request_within_a_few_steps_and_keeps_the_answer(
    chat: Page, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.runner.pace = 0.05
    send(chat, "say words without end ")
    expect(chat.locator(ANSWER).first).to_contain_text("words without end words")
    number = newest(server)
    said_when_asked: list[int] = []
    stop = server.answers.stop

    def counting(session: str) -> None:
        said_when_asked.append(len(server.service.store.find(number).token_sampled))
        stop(session)

    monkeypatch.setattr(server.answers, "stop", counting)
    chat.click("#ps-stop")
    wait_until(lambda: server.service.store.find(number).finish_reason is not None, timeout=20)
    # Steps, not seconds: a busy machine is slow to bring the click to the server.
    said = len(server.service.store.find(number).token_sampled)
    assert said - said_when_asked[0] <= 5
    wait_for_end(chat)
    record = server.service.store.find(number)
    assert record is not None
    assert record.finish_reason is FinishReason.CANCELLED
    taken = len(record.token_delivered)
    expect(chat.locator(FOOTER)).to_contain_text(f"stopped by you after {taken} tokens")
    expect(chat.locator(ANSWER).first).to_contain_text("words without end words")
    assert server.answers.num_running == 0
    expect(chat.locator("#ps-stop")).to_be_disabled()


def test_a_closed_tab_frees_its_request(browser: Browser, server: ChatServer) -> None:
    context = browser.new_context()
    tab = opened(context.new_page(), server)
    tab.click("#ps-chat-settings button")
    tab.fill("#ps-max-tokens input", "5000")
    send(tab, "say for ever and ever ")
    expect(tab.locator(ANSWER).first).to_contain_text("for ever and ever")
    number = newest(server)
    context.close()
    wait_until(lambda: server.service.store.find(number).complete, timeout=5)
    assert server.service.store.find(number).finish_reason is FinishReason.CANCELLED
    assert server.answers.num_running == 0


def test_a_tab_closed_while_its_request_waits_frees_it_too(
    browser: Browser, server: ChatServer
) -> None:
    server.runner.pace = 1.0
    context = browser.new_context()
    tab = opened(context.new_page(), server)
    send(tab, "say nothing yet ")
    expect(tab.locator(FOOTER)).to_be_visible()
    number = newest(server)
    context.close()
    wait_until(lambda: server.service.store.find(number).complete, timeout=6)
    assert server.service.store.find(number).finish_reason is FinishReason.CANCELLED


def test_two_visitors_see_only_their_own(browser: Browser, page: Page, server: ChatServer) -> None:
    server.runner.pace = 0.05
    other_context = browser.new_context()
    one, two = opened(other_context.new_page(), server), opened(page, server)
    answers: list[str] = []
    one.on("response", lambda answer: answers.append(answer.text()) if _is_feed(answer) else None)
    send(one, "say vermilion ")
    send(two, "say ultramarine ")
    for tab, mine in ((one, "vermilion vermilion"), (two, "ultramarine ultramarine")):
        expect(tab.locator(ANSWER).first).to_contain_text(mine)
    two.click("#ps-chat-settings button")
    two.fill("#ps-system textarea", "Only ultramarine knows this.")
    two.click("#ps-stop")
    wait_for_end(two)
    assert one.locator(".ps-running").count() == 1, "the other visitor's Stop ended it"
    for tab, others in ((one, "ultramarine"), (two, "vermilion")):
        assert others not in tab.content()
    one.wait_for_timeout(1000)
    assert answers
    assert not re.search("vermilion|ultramarine", "".join(answers))
    one.click("#ps-chat-settings button")
    expect(one.locator("#ps-system textarea")).to_have_value("")
    own = [set(tab.evaluate("[...window.phasescope.own.numbers]")) for tab in (one, two)]
    assert all(own)
    assert not own[0] & own[1]
    one.click("#ps-stop")
    other_context.close()


def _is_feed(answer: Response) -> bool:
    return "live/feed" in answer.url and answer.status == 200


def test_three_sessions_in_turn_share_one_engine(
    page: Page, server: ChatServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for visitor in ("first", "second", "third"):
        opened(page, server)  # each time a session of its own
        send(page, f"once I am the {visitor}.")
        wait_for_end(page)
        assert page.locator("#ps-log .user-row").count() == 1
        assert page.locator(ANSWER).first.inner_text() == f"I am the {visitor}."
    assert [thread.name for thread in threading.enumerate()].count("engine") == 1
    printed = "".join(capfd.readouterr())
    assert not re.search(r"pickle|deepcopy|Traceback", printed), printed


def test_added_users_are_lanes_and_can_be_stopped(chat: Page, server: ChatServer) -> None:
    before = newest(server)
    server.runner.pace = 0.05
    chat.click("#ps-add-visitors")
    expect(chat.locator("#ps-stop-visitors")).to_be_visible()
    wait_until(lambda: newest(server) == before + 5)
    chat.wait_for_function(f"window.phasescope.trace.requests.has({before + 5})")
    assert chat.locator("#ps-log .user-row").count() == 0
    assert not chat.evaluate(f"window.phasescope.own.has({before + 5})")
    chat.click("#ps-stop-visitors")
    wait_until(lambda: not server.service.store.live(), timeout=2)
    expect(chat.locator("#ps-stop-visitors")).to_be_hidden()


def test_users_with_a_shared_document_find_it_in_the_cache(chat: Page, server: ChatServer) -> None:
    before = newest(server)
    server.runner.pace = 0.003
    chat.click("#ps-visitors-kind input")
    chat.get_by_role("option", name="Shared document").click()
    chat.fill("#ps-visitors-count input", "3")
    chat.press("#ps-visitors-count input", "Tab")
    expect(chat.locator("#ps-add-visitors")).to_have_text("Add 3 users")
    chat.click("#ps-add-visitors")
    wait_until(lambda: newest(server) == before + 3, timeout=20)
    wait_until(lambda: not server.service.store.live(), timeout=20)
    cached = [server.service.store.find(before + n).num_cached_tokens for n in (1, 2, 3)]
    assert min(cached[1:]) > 900
    chat.fill("#ps-visitors-count input", "0.5")
    chat.press("#ps-visitors-count input", "Tab")
    chat.click("#ps-add-visitors")
    expect(chat.get_by_text("Add a whole number of users")).to_be_visible()
    assert newest(server) == before + 3
