"""The chat card as a person uses it: its parts, and what the tests do with them again and again."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.chat_server import ChatServer

BOX = "#ps-message textarea"
ANSWER = "#ps-log .bot-row .md"
FOOTER = "#ps-log .ps-foot"


def opened(page: Page, server: ChatServer) -> Page:
    """The page, ready for a message."""
    page.goto(f"{server.url}?__theme=light")
    page.wait_for_selector(BOX)
    page.wait_for_function("window.phasescope?.trace.version > 0")
    expect(page.locator("#ps-send")).to_be_enabled()
    return page


def send(page: Page, text: str) -> None:
    """Type a message and send it."""
    page.fill(BOX, text)
    page.click("#ps-send")


def wait_for_end(page: Page) -> None:
    """Wait until an answer is there and none is being written."""
    page.wait_for_function(
        "document.querySelector('.ps-foot') && !document.querySelector('.ps-running')"
    )


def newest(server: ChatServer) -> int:
    """Number of the newest request; 0 before the first."""
    records = [*server.service.store.records(), *server.service.store.live()]
    return max((record.number for record in records), default=0)
