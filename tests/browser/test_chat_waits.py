"""Answers whose tokens are coloured by their wait, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.chat_page import ANSWER, BOX, FOOTER, newest, send, wait_for_end
from tests.browser.chat_server import ChatServer


def test_tokens_are_coloured_by_their_wait(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.02
    switch = chat.get_by_label("Colour tokens by their wait")
    expect(switch).to_be_hidden()
    text = "if a<b then <pad> **bold** 'q' \"d\" </s>"
    send(chat, f"once {text}")
    wait_for_end(chat)
    plain = chat.locator(ANSWER).first.inner_html()
    switch.check()
    answer = chat.locator(ANSWER).first
    expect(answer.locator(".ps-w")).to_have_count(len(text))
    assert answer.inner_text() == text
    expect(chat.locator(".ps-wait-legend")).to_contain_text(re.compile(r"under \d+ ms"))
    assert answer.locator(".ps-w4").count() <= len(text) // 2
    tip = chat.locator(".ps-wait-tip")
    answer.locator(".ps-w").nth(3).hover()
    expect(tip).to_have_text(
        re.compile(r"^token 4 · [\d.]+ ms after the one before · read [\d.]+ m?s after sending$")
    )
    chat.mouse.move(1, 1)
    expect(tip).to_be_hidden()
    chat.focus(BOX)
    send(chat, "once plainly")
    expect(chat.locator(FOOTER)).to_have_count(2)
    wait_for_end(chat)
    assert server.service.store.find(newest(server)).num_prompt_tokens == len(
        f"once {text}\n{text}\nonce plainly"
    )
    expect(chat.locator(".ps-waits")).to_have_count(2)
    switch.uncheck()
    expect(chat.locator(".ps-w")).to_have_count(0)
    assert chat.locator(ANSWER).first.inner_html() == plain
    assert chat.locator(".ps-waits").count() == 0


def test_coloured_tokens_are_reached_with_the_keyboard(chat: Page) -> None:
    send(chat, "once Hello there")
    wait_for_end(chat)
    chat.get_by_label("Colour tokens by their wait").check()
    expect(chat.locator(".ps-waits")).to_have_attribute("role", "group")
    chat.focus("#ps-colour input")
    chat.keyboard.press("Shift+Tab")
    while not chat.evaluate("document.activeElement.classList.contains('ps-waits')"):
        assert chat.evaluate("document.activeElement !== document.body")
        chat.keyboard.press("Shift+Tab")
    tip = chat.locator(".ps-wait-tip")
    expect(tip).to_contain_text(re.compile(r"^token 1 · read"))
    chat.keyboard.press("ArrowRight")
    expect(tip).to_contain_text(re.compile(r"^token 2 · "))
    chat.keyboard.press("ArrowLeft")
    chat.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text(re.compile(r"^token 1 · "))
    chat.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_recorded_probabilities_are_shown_with_their_tokens(chat: Page, server: ChatServer) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-logprobs textarea, #ps-logprobs input", "7")
    send(chat, "once fine")
    expect(chat.locator("#ps-log .ps-chat-notice")).to_contain_text("logprobs must be")
    chat.fill("#ps-logprobs textarea, #ps-logprobs input", "0")
    chat.click("#ps-send")
    wait_for_end(chat)
    chat.get_by_label("Colour tokens by their wait").check()
    chat.locator(".ps-w").nth(1).hover()
    expect(chat.locator(".ps-wait-tip")).to_contain_text(re.compile(r"probability 50 %$"))
