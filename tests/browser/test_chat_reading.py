"""Reading an answer while it is written: selected text, and announcements."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.chat_page import ANSWER, send, wait_for_end
from tests.browser.chat_server import ChatServer


def test_text_selected_in_a_growing_answer_stays_selected(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.03
    send(chat, "say Select **these** words while more of them come. ")
    answer = chat.locator(ANSWER).first
    expect(answer).to_contain_text("more of them come. Select")
    box = answer.bounding_box()
    assert box is not None
    chat.mouse.move(box["x"] + 4, box["y"] + 10)
    chat.mouse.down()
    for step in range(1, 9):
        chat.mouse.move(box["x"] + 4 + 14 * step, box["y"] + 10)
        chat.wait_for_timeout(80)
    chat.mouse.up()
    selected = chat.evaluate("getSelection().toString()")
    assert selected.startswith("elect") or selected.startswith("Select")
    length = chat.evaluate(f"document.querySelector('{ANSWER}').textContent.length")
    chat.wait_for_function(f"document.querySelector('{ANSWER}').textContent.length > {length} + 30")
    assert chat.evaluate("getSelection().toString()") == selected
    chat.mouse.click(box["x"] + 4, box["y"] + 10)
    chat.wait_for_timeout(400)
    assert chat.evaluate("getSelection().isCollapsed")
    chat.click("#ps-stop")
    wait_for_end(chat)


def test_selected_text_does_not_scroll_away(chat: Page) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-max-tokens input", "3000")
    send(chat, "say many words that fill the card from top to bottom in the end ")
    area = "document.querySelector('#ps-log [role=log]')"
    at_end = f"{area}.scrollTop + {area}.offsetHeight > {area}.scrollHeight - 100"
    chat.wait_for_function(f"{area}.scrollTop > 50")
    assert chat.evaluate(at_end)
    chat.evaluate(
        "getSelection().selectAllChildren(document.querySelector('#ps-log .user-row .md'))"
    )
    top = chat.evaluate(f"{area}.scrollTop")
    chat.wait_for_timeout(1000)
    assert chat.evaluate(f"{area}.scrollTop") == top
    chat.click("#ps-stop")
    wait_for_end(chat)


def test_answers_are_announced_by_sentences(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.05  # so that no two sentences end in one update
    assert chat.locator("#ps-log [role=log]").get_attribute("aria-live") == "off"
    chat.evaluate(
        """() => {
          window.said = [];
          const region = document.querySelector(".ps-said");
          new MutationObserver(() => window.said.push(region.textContent))
            .observe(region, { childList: true });
        }"""
    )
    send(chat, "once This is one. And another one! Then the rest")
    wait_for_end(chat)
    expect(chat.locator(".ps-said")).to_have_text("Then the rest")
    assert chat.evaluate("window.said") == ["This is one.", "And another one!", "Then the rest"]
    assert chat.locator("#ps-log [data-testid][aria-label]").count() == 0
