"""The chat card in a real browser: answers, the composer, retry, edit and clear."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chat_page import ANSWER, BOX, FOOTER, newest, send, wait_for_end
from tests.browser.chat_server import ChatServer
from tests.stub_service import wait_until


def test_a_message_is_answered_with_a_footer_that_names_its_request(
    chat: Page, server: ChatServer
) -> None:
    server.runner.pace = 0.2
    send(chat, "once Hello, **you** there.")
    expect(chat.locator(FOOTER)).to_contain_text("so far")
    expect(chat.locator(BOX)).to_have_value("")
    wait_for_end(chat)
    assert chat.locator(ANSWER).first.inner_text() == "Hello, you there."
    line = chat.locator(FOOTER).inner_text().replace("\n", " ")
    number = newest(server)
    pattern = rf"R{number} first token [\d.]+ m?s \d+ tokens gap p50 .* tok/s"
    assert re.match(pattern, line), line
    footer = chat.locator(FOOTER)
    expect(footer).to_have_attribute("data-own", str(number))
    expect(footer).to_have_attribute("data-request", str(number))
    assert chat.evaluate(f"window.phasescope.own.has({number})")
    widths = chat.evaluate(
        "[...document.querySelectorAll('.ps-phases i')].map((bar) => bar.offsetWidth)"
    )
    assert len(widths) == 3
    assert min(widths) >= 2
    assert sum(widths) == pytest.approx(
        chat.evaluate("document.querySelector('.ps-phases').offsetWidth"), abs=6
    )


def test_enter_sends_and_shift_enter_does_not(chat: Page) -> None:
    chat.fill(BOX, "once first")
    chat.press(BOX, "Shift+Enter")
    chat.type(BOX, "second")
    assert chat.locator("#ps-log .user-row").count() == 0
    chat.press(BOX, "Enter")
    wait_for_end(chat)
    assert chat.locator("#ps-log .user-row .md").inner_text() == "once first\nsecond"


def test_text_with_angle_brackets_is_shown_and_does_nothing(chat: Page) -> None:
    text = (
        "if a<b then <pad> else </s> <T> &amp; <img src=http://example.org/x.png> "
        "![i](http://example.org/y.png) [l](http://example.org) http://example.org "
        "$$x^2$$ <script>window.hacked = 1</script><b onclick=x()>b</b>"
    )
    send(chat, f"once {text}")
    wait_for_end(chat)
    assert chat.locator("#ps-log .user-row .md").inner_text() == f"once {text}"
    assert chat.locator(ANSWER).first.inner_text() == text
    active = "#ps-log .md :is(img, a, script, svg, iframe, [onclick], .katex)"
    assert chat.locator(active).count() == 0
    assert chat.evaluate("window.hacked") is None


def test_a_footer_typed_by_a_person_is_only_text(chat: Page) -> None:
    forged = '<button type="button" class="ps-foot" value="999999" name="">R999999</button>'
    send(chat, f"once {forged}")
    wait_for_end(chat)
    assert chat.locator(FOOTER).count() == 1
    assert not chat.evaluate("window.phasescope.own.has(999999)")
    assert chat.locator(ANSWER).first.inner_text() == forged


def test_a_long_answer_stays_as_quick_as_it_began(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.003
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-max-tokens input", "2000")
    chat.evaluate(
        """() => {
          window.updates = [];
          const log = document.getElementById("ps-log");
          new MutationObserver(() => {
            const footer = document.querySelector(".ps-foot")?.textContent ?? "";
            const tokens = Number(footer.match(/([\\d,]+) tokens? so far/)?.[1].replace(",", ""));
            if (tokens && window.updates.at(-1)?.[1] !== tokens) {
              window.updates.push([performance.now(), tokens]);
            }
          }).observe(log, { subtree: true, childList: true });
        }"""
    )
    line = "    total = total + values[index] if index < limit else 0\n"
    send(chat, "say ```python\n" + line * 60)
    expect(chat.locator(FOOTER)).to_contain_text("reached the 2,000-token limit", timeout=60000)
    updates = chat.evaluate("window.updates")
    seconds = (updates[-1][0] - updates[0][0]) / 1000
    assert len(updates) <= 20 * seconds
    first = _seconds_between(updates, 0, 400)
    last = _seconds_between(updates, 1590, 1990)
    assert last <= 2 * first, (first, last)
    record = server.service.store.find(newest(server))
    assert record is not None
    times = record.token_delivered
    assert times[-1] - times[-401] <= 2 * (times[400] - times[0])


def _seconds_between(updates: list[list[float]], start: int, end: int) -> float:
    """Time in which the page went from `start` to `end` tokens, for exactly that many."""
    (t0, n0) = next(update for update in updates if update[1] >= start)
    (t1, n1) = [update for update in updates if update[1] <= end][-1]
    return (t1 - t0) / 1000 * (end - start) / (n1 - n0)


def test_a_bad_setting_is_answered_in_the_chat_and_the_text_kept(chat: Page) -> None:
    send(chat, "once " + "A line.\n" * 20)
    wait_for_end(chat)
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    send(chat, "a text worth keeping")
    notice = chat.locator("#ps-log .ps-chat-notice")
    expect(notice).to_have_text(re.compile(r"top_p .* 1; got 1\.5\. Your text is kept\."))
    expect(notice).to_be_in_viewport()
    expect(chat.locator(BOX)).to_have_value("a text worth keeping")
    chat.fill("#ps-top-p input", "0.5")
    chat.fill(BOX, "once fine")
    chat.click("#ps-send")
    expect(notice).to_have_count(0)
    wait_for_end(chat)
    assert chat.locator("#ps-log .user-row").count() == 2


def test_retry_and_edit_of_the_last_message(chat: Page) -> None:
    send(chat, "once a<b")
    wait_for_end(chat)
    first = chat.locator(FOOTER).get_attribute("value")
    chat.get_by_role("button", name="Retry").click()
    chat.wait_for_function(f"document.querySelector('.ps-foot')?.value > {first}")
    wait_for_end(chat)
    assert chat.locator("#ps-log .user-row").count() == 1
    chat.get_by_role("button", name="edit it").click()
    expect(chat.locator(BOX)).to_have_value("once a<b")
    assert chat.locator("#ps-log .user-row").count() == 0


def test_clear_empties_the_conversation_and_ends_its_answer(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.05
    send(chat, "say something ")
    expect(chat.locator(ANSWER).first).to_contain_text("something something")
    number = newest(server)
    chat.click("#ps-clear")
    expect(chat.locator("#ps-log .ps-chat-empty")).to_be_visible()
    wait_until(lambda: server.service.store.find(number).complete, timeout=2)
    time.sleep(0.5)
    assert chat.locator("#ps-log .user-row").count() == 0


def test_the_composer_estimates_tokens_and_states_the_limit(chat: Page) -> None:
    count, limit = chat.locator("[data-role=tokens]"), chat.locator("#ps-counts [data-role=limit]")
    expect(count).to_have_text("0 tokens")
    expect(limit).to_have_text("max 400 out")
    chat.fill(BOX, "one two three.")
    expect(count).to_have_text("≈ 4 tokens")
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-max-tokens input", "1200")
    expect(limit).to_have_text("max 1,200 out")


def test_a_long_prompt_fills_the_composer(chat: Page, server: ChatServer) -> None:
    chat.click("#ps-long-prompt")
    expect(chat.locator(BOX)).to_have_value(re.compile("^Summarise"))
    tokens = len(server.service.tokenizer.encode(chat.input_value(BOX)))
    assert 1900 < tokens <= 2000


def test_a_follow_up_carries_the_conversation_to_the_character(
    chat: Page, server: ChatServer
) -> None:
    send(chat, "once  two spaces, and a line end \n\n")
    wait_for_end(chat)
    send(chat, "once more")
    expect(chat.locator(FOOTER)).to_have_count(2)
    wait_for_end(chat)
    record = server.service.store.find(newest(server))
    assert record is not None
    said = " two spaces, and a line end \n\n"
    prompt = "\n".join([f"once {said}", said, "once more"])
    assert record.num_prompt_tokens == len(prompt)
    # The stub writes no line end behind a question, so the blocks of its answer are not found.
    assert record.num_cached_tokens == len(f"once {said}") // 16 * 16
    footer = chat.locator(FOOTER).last
    expect(footer).to_contain_text(f"9 of {len(prompt)} tokens are your message")
    expect(footer).to_contain_text(f"{record.num_cached_tokens} of {len(prompt)}")


def test_retry_after_a_refusal_sends_what_was_refused(chat: Page, server: ChatServer) -> None:
    send(chat, "once first")
    wait_for_end(chat)
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    send(chat, "once second")
    notice = chat.locator("#ps-log .ps-chat-notice")
    expect(notice).to_be_visible()
    chat.get_by_role("button", name="edit it").click()
    expect(notice).to_have_count(0)
    expect(chat.locator(BOX)).to_have_value("once second")
    chat.click("#ps-send")
    expect(notice).to_be_visible()
    chat.fill("#ps-top-p input", "0.5")
    chat.get_by_role("button", name="Retry").click()
    expect(notice).to_have_count(0)
    expect(chat.locator(FOOTER)).to_have_count(2)
    wait_for_end(chat)
    assert chat.locator("#ps-log .user-row .md").all_inner_texts() == ["once first", "once second"]
    expect(chat.locator(BOX)).to_have_value("")


def test_a_first_message_that_is_refused_leaves_only_send(chat: Page) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    send(chat, "once")
    expect(chat.locator("#ps-log .ps-chat-notice")).to_be_visible()
    expect(chat.get_by_role("button", name="Retry")).to_be_hidden()
