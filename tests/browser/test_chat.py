"""The chat card in a real browser, over the real service with a stub model."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from engine.contracts import Build, EngineParts, Report, ServiceStatus
from engine.core.request import FinishReason
from tests.browser.chat_server import ChatServer, serve_chat
from tests.browser.conftest import free_port
from tests.stub_service import wait_until

BOX = "#ps-message textarea"
ANSWER = "#ps-log .bot-row .md"
FOOTER = "#ps-log .ps-foot"


@pytest.fixture(scope="module")
def served(browser: Browser) -> Iterator[ChatServer]:
    with serve_chat(free_port()) as server:
        yield server


@pytest.fixture
def server(served: ChatServer) -> Iterator[ChatServer]:
    served.runner.pace = 0.01
    yield served
    served.runner.pace = 0.0
    wait_until(lambda: not served.service.store.live(), timeout=20)


@pytest.fixture
def chat(page: Page, server: ChatServer) -> Page:
    return _open(page, server)


def _open(page: Page, server: ChatServer, query: str = "__theme=light") -> Page:
    page.goto(f"{server.url}?{query}")
    page.wait_for_selector(BOX)
    page.wait_for_function("window.phasescope?.trace.version > 0")
    expect(page.locator("#ps-send")).to_be_enabled()
    return page


def _send(page: Page, text: str) -> None:
    page.fill(BOX, text)
    page.click("#ps-send")


def _finished(page: Page) -> None:
    page.wait_for_function(
        "document.querySelector('.ps-foot') && !document.querySelector('.ps-running')"
    )


def _newest(server: ChatServer) -> int:
    records = [*server.service.store.records(), *server.service.store.live()]
    return max((record.number for record in records), default=0)


def test_a_message_is_answered_with_a_footer_that_names_its_request(
    chat: Page, server: ChatServer
) -> None:
    server.runner.pace = 0.2
    _send(chat, "once Hello, **you** there.")
    expect(chat.locator(FOOTER)).to_contain_text("so far", timeout=5000)
    expect(chat.locator(BOX)).to_have_value("")
    _finished(chat)
    assert chat.locator(ANSWER).first.inner_text() == "Hello, you there."
    line = chat.locator(FOOTER).inner_text().replace("\n", " ")
    number = _newest(server)
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
    _finished(chat)
    assert chat.locator("#ps-log .user-row .md").inner_text() == "once first\nsecond"


def test_text_with_angle_brackets_is_shown_and_does_nothing(chat: Page) -> None:
    text = (
        "if a<b then <pad> else </s> <T> &amp; <img src=http://example.org/x.png> "
        "![i](http://example.org/y.png) [l](http://example.org) http://example.org "
        "$$x^2$$ <script>window.hacked = 1</script><b onclick=x()>b</b>"
    )
    _send(chat, f"once {text}")
    _finished(chat)
    assert chat.locator("#ps-log .user-row .md").inner_text() == f"once {text}"
    assert chat.locator(ANSWER).first.inner_text() == text
    active = "#ps-log .md :is(img, a, script, svg, iframe, [onclick], .katex)"
    assert chat.locator(active).count() == 0
    assert chat.evaluate("window.hacked") is None


def test_a_footer_typed_by_a_person_is_only_text(chat: Page) -> None:
    forged = '<button type="button" class="ps-foot" value="999999" name="">R999999</button>'
    _send(chat, f"once {forged}")
    _finished(chat)
    assert chat.locator(FOOTER).count() == 1
    assert not chat.evaluate("window.phasescope.own.has(999999)")
    assert chat.locator(ANSWER).first.inner_text() == forged


def test_stop_ends_the_request_within_a_second_and_keeps_the_answer(
    chat: Page, server: ChatServer
) -> None:
    server.runner.pace = 0.05
    _send(chat, "say words without end ")
    expect(chat.locator(ANSWER).first).to_contain_text("words without end words")
    number = _newest(server)
    began = time.monotonic()
    chat.click("#ps-stop")
    wait_until(lambda: server.service.store.find(number).finish_reason is not None, timeout=1)
    _finished(chat)
    assert time.monotonic() - began < 1.5
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
    tab = _open(context.new_page(), server)
    tab.click("#ps-chat-settings button")
    tab.fill("#ps-max-tokens input", "5000")
    _send(tab, "say for ever and ever ")
    expect(tab.locator(ANSWER).first).to_contain_text("for ever and ever")
    number = _newest(server)
    context.close()
    wait_until(lambda: server.service.store.find(number).complete, timeout=5)
    assert server.service.store.find(number).finish_reason is FinishReason.CANCELLED
    assert server.answers.num_running == 0


def test_a_tab_closed_while_its_request_waits_frees_it_too(
    browser: Browser, server: ChatServer
) -> None:
    server.runner.pace = 1.0
    context = browser.new_context()
    tab = _open(context.new_page(), server)
    _send(tab, "say nothing yet ")
    expect(tab.locator(FOOTER)).to_be_visible()
    number = _newest(server)
    context.close()
    wait_until(lambda: server.service.store.find(number).complete, timeout=6)
    assert server.service.store.find(number).finish_reason is FinishReason.CANCELLED


def test_two_visitors_see_only_their_own(browser: Browser, page: Page, server: ChatServer) -> None:
    server.runner.pace = 0.05
    other_context = browser.new_context()
    one, two = _open(page, server), _open(other_context.new_page(), server)
    answers: list[str] = []
    one.on("response", lambda answer: answers.append(answer.text()) if _is_feed(answer) else None)
    _send(one, "say vermilion ")
    _send(two, "say ultramarine ")
    for tab, mine in ((one, "vermilion vermilion"), (two, "ultramarine ultramarine")):
        expect(tab.locator(ANSWER).first).to_contain_text(mine)
    two.click("#ps-chat-settings button")
    two.fill("#ps-system textarea", "Only ultramarine knows this.")
    two.click("#ps-stop")
    _finished(two)
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
    browser: Browser, server: ChatServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for visitor in ("first", "second", "third"):
        context = browser.new_context()
        tab = _open(context.new_page(), server)
        _send(tab, f"once I am the {visitor}.")
        _finished(tab)
        assert tab.locator(ANSWER).first.inner_text() == f"I am the {visitor}."
        context.close()
    assert [thread.name for thread in threading.enumerate()].count("engine") == 1
    printed = "".join(capfd.readouterr())
    assert not re.search(r"pickle|deepcopy|Traceback", printed), printed


def test_a_long_answer_stays_as_quick_as_it_began(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.005
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-max-tokens input", "3000")
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
    _send(chat, "say ```python\n" + line * 60)
    expect(chat.locator(FOOTER)).to_contain_text("reached the 3,000-token limit", timeout=60000)
    updates = chat.evaluate("window.updates")
    seconds = (updates[-1][0] - updates[0][0]) / 1000
    assert len(updates) <= 20 * seconds
    first = _seconds_between(updates, 0, 500)
    last = _seconds_between(updates, 2490, 2990)
    assert last <= 2 * first, (first, last)
    record = server.service.store.find(_newest(server))
    assert record is not None
    times = record.token_delivered
    assert times[-1] - times[-501] <= 2 * (times[500] - times[0])


def _seconds_between(updates: list[list[float]], start: int, end: int) -> float:
    """Time in which the page went from `start` to `end` tokens, for exactly that many."""
    (t0, n0) = next(update for update in updates if update[1] >= start)
    (t1, n1) = [update for update in updates if update[1] <= end][-1]
    return (t1 - t0) / 1000 * (end - start) / (n1 - n0)


def test_a_bad_setting_is_answered_in_the_chat_and_the_text_kept(chat: Page) -> None:
    _send(chat, "once " + "A line.\n" * 20)
    _finished(chat)
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    _send(chat, "a text worth keeping")
    notice = chat.locator("#ps-log .ps-chat-notice")
    expect(notice).to_have_text(re.compile(r"top_p .* 1; got 1\.5\. Your text is kept\."))
    expect(notice).to_be_in_viewport()
    expect(chat.locator(BOX)).to_have_value("a text worth keeping")
    chat.fill("#ps-top-p input", "0.5")
    chat.fill(BOX, "once fine")
    chat.click("#ps-send")
    expect(notice).to_have_count(0)
    _finished(chat)
    assert chat.locator("#ps-log .user-row").count() == 2


def test_retry_and_edit_of_the_last_message(chat: Page) -> None:
    _send(chat, "once a<b")
    _finished(chat)
    first = chat.locator(FOOTER).get_attribute("value")
    chat.get_by_role("button", name="Retry").click()
    chat.wait_for_function(f"document.querySelector('.ps-foot')?.value > {first}")
    _finished(chat)
    assert chat.locator("#ps-log .user-row").count() == 1
    chat.get_by_role("button", name="edit it").click()
    expect(chat.locator(BOX)).to_have_value("once a<b")
    assert chat.locator("#ps-log .user-row").count() == 0


def test_clear_empties_the_conversation_and_ends_its_answer(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.05
    _send(chat, "say something ")
    expect(chat.locator(ANSWER).first).to_contain_text("something something")
    number = _newest(server)
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


def test_added_users_are_lanes_and_can_be_stopped(chat: Page, server: ChatServer) -> None:
    before = _newest(server)
    server.runner.pace = 0.05
    chat.click("#ps-add-visitors")
    expect(chat.locator("#ps-stop-visitors")).to_be_visible()
    wait_until(lambda: _newest(server) == before + 5)
    chat.wait_for_function(f"window.phasescope.trace.requests.has({before + 5})")
    assert chat.locator("#ps-log .user-row").count() == 0
    assert not chat.evaluate(f"window.phasescope.own.has({before + 5})")
    chat.click("#ps-stop-visitors")
    wait_until(lambda: not server.service.store.live(), timeout=2)
    expect(chat.locator("#ps-stop-visitors")).to_be_hidden()


def test_users_with_a_shared_document_find_it_in_the_cache(chat: Page, server: ChatServer) -> None:
    before = _newest(server)
    server.runner.pace = 0.003
    chat.click("#ps-visitors-kind input")
    chat.get_by_role("option", name="Shared document").click()
    chat.fill("#ps-visitors-count input", "3")
    chat.press("#ps-visitors-count input", "Tab")
    expect(chat.locator("#ps-add-visitors")).to_have_text("Add 3 users")
    chat.click("#ps-add-visitors")
    wait_until(lambda: _newest(server) == before + 3, timeout=20)
    wait_until(lambda: not server.service.store.live(), timeout=20)
    cached = [server.service.store.find(before + n).num_cached_tokens for n in (1, 2, 3)]
    assert min(cached[1:]) > 900
    chat.fill("#ps-visitors-count input", "0.5")
    chat.press("#ps-visitors-count input", "Tab")
    chat.click("#ps-add-visitors")
    expect(chat.get_by_text("Add a whole number of users")).to_be_visible()
    assert _newest(server) == before + 3


def test_a_follow_up_carries_the_conversation_to_the_character(
    chat: Page, server: ChatServer
) -> None:
    _send(chat, "once  two spaces, and a line end \n\n")
    _finished(chat)
    _send(chat, "once more")
    expect(chat.locator(FOOTER)).to_have_count(2)
    _finished(chat)
    record = server.service.store.find(_newest(server))
    assert record is not None
    said = " two spaces, and a line end \n\n"
    prompt = "\n".join([f"once {said}", said, "once more"])
    assert record.num_prompt_tokens == len(prompt)
    # The stub writes no line end behind a question, so the blocks of its answer are not found.
    assert record.num_cached_tokens == len(f"once {said}") // 16 * 16
    footer = chat.locator(FOOTER).last
    expect(footer).to_contain_text(f"9 of {len(prompt)} tokens are your message")
    expect(footer).to_contain_text(f"{record.num_cached_tokens} of {len(prompt)}")


def test_tokens_are_coloured_by_their_wait(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.02
    switch = chat.get_by_label("Colour tokens by their wait")
    expect(switch).to_be_hidden()
    text = "if a<b then <pad> **bold** 'q' \"d\" </s>"
    _send(chat, f"once {text}")
    _finished(chat)
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
    _send(chat, "once plainly")
    expect(chat.locator(FOOTER)).to_have_count(2)
    _finished(chat)
    assert server.service.store.find(_newest(server)).num_prompt_tokens == len(
        f"once {text}\n{text}\nonce plainly"
    )
    expect(chat.locator(".ps-waits")).to_have_count(2)
    switch.uncheck()
    expect(chat.locator(".ps-w")).to_have_count(0)
    assert chat.locator(ANSWER).first.inner_html() == plain
    assert chat.locator(".ps-waits").count() == 0


def test_coloured_tokens_are_reached_with_the_keyboard(chat: Page) -> None:
    _send(chat, "once Hello there")
    _finished(chat)
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


def test_text_selected_in_a_growing_answer_stays_selected(chat: Page, server: ChatServer) -> None:
    server.runner.pace = 0.03
    _send(chat, "say Select **these** words while more of them come. ")
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
    _finished(chat)


def test_retry_after_a_refusal_sends_what_was_refused(chat: Page, server: ChatServer) -> None:
    _send(chat, "once first")
    _finished(chat)
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    _send(chat, "once second")
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
    _finished(chat)
    assert chat.locator("#ps-log .user-row .md").all_inner_texts() == ["once first", "once second"]
    expect(chat.locator(BOX)).to_have_value("")


def test_a_first_message_that_is_refused_leaves_only_send(chat: Page) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-top-p input", "1.5")
    _send(chat, "once")
    expect(chat.locator("#ps-log .ps-chat-notice")).to_be_visible()
    expect(chat.get_by_role("button", name="Retry")).to_be_hidden()


def test_recorded_probabilities_are_shown_with_their_tokens(chat: Page, server: ChatServer) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-logprobs textarea, #ps-logprobs input", "7")
    _send(chat, "once fine")
    expect(chat.locator("#ps-log .ps-chat-notice")).to_contain_text("logprobs must be")
    chat.fill("#ps-logprobs textarea, #ps-logprobs input", "0")
    chat.click("#ps-send")
    _finished(chat)
    chat.get_by_label("Colour tokens by their wait").check()
    chat.locator(".ps-w").nth(1).hover()
    expect(chat.locator(".ps-wait-tip")).to_contain_text(re.compile(r"probability 50 %$"))


def test_selected_text_does_not_scroll_away(chat: Page) -> None:
    chat.click("#ps-chat-settings button")
    chat.fill("#ps-max-tokens input", "3000")
    _send(chat, "say many words that fill the card from top to bottom in the end ")
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
    _finished(chat)


def test_answers_are_announced_by_sentences(chat: Page) -> None:
    assert chat.locator("#ps-log [role=log]").get_attribute("aria-live") == "off"
    chat.evaluate(
        """() => {
          window.said = [];
          const region = document.querySelector(".ps-said");
          new MutationObserver(() => window.said.push(region.textContent))
            .observe(region, { childList: true });
        }"""
    )
    _send(chat, "once This is one. And another one! Then the rest")
    _finished(chat)
    expect(chat.locator(".ps-said")).to_have_text("Then the rest")
    assert chat.evaluate("window.said") == ["This is one.", "And another one!", "Then the rest"]
    assert chat.locator("#ps-log [data-testid][aria-label]").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_composer_is_in_view_on_every_screen(
    page: Page, server: ChatServer, theme: str
) -> None:
    _open(page, server, f"__theme={theme}")
    _send(page, "once Short.")
    _finished(page)
    parts = ("#ps-composer", "#ps-send", "#ps-clear", "#ps-add-visitors", "#ps-log .ps-foot")
    for width, height in ((1440, 900), (1366, 768), (1200, 900), (390, 844), (320, 640)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator("#ps-composer").scroll_into_view_if_needed()
        card = page.locator("#ps-chat").bounding_box()
        for row in ("#ps-tries", "#ps-visitors"):
            heights = page.evaluate(
                f"[...document.querySelectorAll('{row}, {row} button')].map((e) => e.offsetHeight)"
            )
            assert len(set(heights)) == 1, f"{row} is broken over lines at {width}"
        for part in parts:
            box = page.locator(part).bounding_box()
            assert card is not None
            assert box is not None
            assert card["x"] <= box["x"], (width, part)
            assert box["x"] + box["width"] <= card["x"] + card["width"] + 0.5, (width, part)
            assert box["y"] + box["height"] <= card["y"] + card["height"] + 0.5, (width, part)
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")


def test_while_the_model_loads_the_composer_waits_and_keeps_its_text(page: Page) -> None:
    ready = threading.Event()

    def slowly(build: Build) -> Build:
        def build_later(report: Report) -> EngineParts:
            report(ServiceStatus.LOADING, "Loading stub: 61 of 98 MB", 0.62)
            assert ready.wait(30)
            return build(report)

        return build_later

    with serve_chat(free_port(), wrap=slowly) as server:
        page.goto(server.url)
        page.wait_for_selector(BOX)
        hint = page.locator(".ps-hint")
        expect(hint).to_have_text("Loading stub: 61 of 98 MB. Charts start with the first request.")
        expect(page.locator(BOX)).to_be_disabled()
        expect(page.locator("#ps-send")).to_be_disabled()
        ready.set()
        expect(page.locator("#ps-send")).to_be_enabled(timeout=5000)
        expect(hint).to_be_hidden()
        _send(page, "once Ready.")
        _finished(page)
        wait_until(lambda: server.answers.num_running == 0)
        page.wait_for_timeout(500)
        page.goto("about:blank")  # it must not ask a server that has gone


def test_a_busy_engine_is_said_before_sending(browser: Browser, page: Page) -> None:
    with serve_chat(free_port(), pace=0.05, max_running=1) as server:
        context = browser.new_context()
        others = [_open(context.new_page(), server) for _ in range(2)]
        for other in others:
            _send(other, "say words ")
        _open(page, server)
        hint = page.locator(".ps-hint")
        expect(hint).to_have_text("1 request is running; yours will queue.", timeout=12_000)
        expect(page.locator("#ps-send")).to_be_enabled()
        others[1].click("#ps-stop")
        expect(hint).to_be_hidden()
        context.close()
        wait_until(lambda: not server.service.store.live())
        page.wait_for_timeout(500)
        page.goto("about:blank")


def test_a_full_queue_and_a_stopped_engine_keep_the_text(browser: Browser, page: Page) -> None:
    with serve_chat(free_port(), pace=0.05, max_running=1, max_waiting=1) as server:
        contexts = [browser.new_context() for _ in range(2)]
        for context in contexts:
            _send(_open(context.new_page(), server), "say words ")
        wait_until(lambda: len(server.service.store.live()) == 2)
        page.goto(server.url)
        page.wait_for_function("window.phasescope?.trace.version > 0")
        _send(page, "mine")
        notice = page.locator("#ps-log .ps-chat-notice")
        expect(notice).to_have_text(
            "The queue is full (1 waiting). Your text is kept; try again in a moment."
        )
        expect(page.locator(BOX)).to_have_value("mine")
        server.service.close()
        page.click("#ps-send")
        expect(notice).to_have_text("The engine was shut down. Your text is kept.")
        expect(page.locator(BOX)).to_have_value("mine")
        for context in contexts:
            context.close()
        page.goto("about:blank")
