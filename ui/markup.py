"""Text of people and models as HTML that shows it and can do nothing else.

Every character of the text stays in the HTML, in order: `render` only adds tags around it, and
`plain` takes them away again, so that the page's own value is the one copy of a conversation. No
link, image, formula or tag can come of any text. This module knows no message and no page.
"""

from __future__ import annotations

import re
from html import escape, unescape

# A fence that is still open is code up to the end, so that streamed code does not flicker. Line
# ends around it are part of its marks: the block has margins of its own.
_FENCE = re.compile(
    r"((?:\A|\n{1,3})```[^\n`]*(?:\n|\Z))(.*?)(^```[ \t]*(?:\n+|\Z)|\Z)",
    re.MULTILINE | re.DOTALL,
)
_INLINE = re.compile(
    r"(?P<tick>`)(?P<code>[^`\n]+)`"
    r"|(?<![\w*])(?P<stars>\*\*)(?P<bold>(?=\S)[^*\n]+(?<=\S))\*\*(?![\w*])"
    r"|^(?P<hashes>\#{1,6}[ ])(?P<heading>[^\n]+)$",
    re.MULTILINE,
)
_TAG = re.compile(r"<[^>]*>")


def verbatim(text: str) -> str:
    """The text exactly as it is."""
    return escape(text, quote=False)


def render(text: str) -> str:
    """The text with code, bold and headings as Markdown means them; their marks are hidden.

    Everything else is verbatim: angle brackets, formulas, links and images are characters.
    """
    parts = []
    position = 0
    for fence in _FENCE.finditer(text):
        parts.append(_prose(text[position : fence.start()]))
        opening, code, closing = fence.groups()
        parts.append(
            f"{_mark(opening)}<code class='ps-code'>{verbatim(code)}</code>{_mark(closing)}"
        )
        position = fence.end()
    parts.append(_prose(text[position:]))
    return "".join(parts)


def plain(html: str) -> str:
    """The text that `render` or `verbatim` was given."""
    return unescape(_TAG.sub("", html))


def _prose(text: str) -> str:
    parts = []
    position = 0
    for match in _INLINE.finditer(text):
        parts.append(verbatim(text[position : match.start()]))
        parts.append(_styled(match))
        position = match.end()
    parts.append(verbatim(text[position:]))
    return "".join(parts)


def _styled(match: re.Match[str]) -> str:
    if match["tick"]:
        return f"{_mark('`')}<code>{verbatim(match['code'])}</code>{_mark('`')}"
    if match["stars"]:
        return f"{_mark('**')}<b>{verbatim(match['bold'])}</b>{_mark('**')}"
    return f"{_mark(match['hashes'])}<b>{verbatim(match['heading'])}</b>"


def _mark(characters: str) -> str:
    return f"<span class='ps-mark'>{verbatim(characters)}</span>" if characters else ""
