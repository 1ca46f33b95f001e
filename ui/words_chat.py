"""The chat card's words, in one place; `{name}` is filled in by the browser or by the server."""

from __future__ import annotations

from typing import Final

CHAT: Final[dict[str, str]] = {
    "conversation": "Conversation",
    "empty": "Ask the model something and watch it read, then write.",
    "message": "Your message",
    "ask": "Ask something, or paste a long text and watch it being read",
    "send": "Send",
    "stop": "Stop",
    "clear": "Clear",
    "edit": "Take the message back and edit it",
    "settings": "Sampling and system prompt",
    "colour": "Colour tokens by their wait",
    "coloured": "Answer token by token: arrow keys go from one to the next.",
    "wait_token": "token {n}",
    "wait_tokens": "tokens {n}",
    "wait_gap": "{gap} after the one before",
    "wait_gaps": "longest gap {gap}",
    "wait_at": "read {at} after sending",
    "wait_share": "probability {share}",
    "try": "Try",
    "long_prompt": "2,000-token prompt",
    "visitors_kind": "What added users do",
    "visitors_count": "How many users to add, 1 to 20",
    "stop_visitors": "Stop users",
    "add_visitors": "Add {n} users",
    "add_visitor": "Add 1 user",
    "tokens": "≈ {n} tokens",
    "token": "≈ 1 token",
    "no_tokens": "0 tokens",
    "limit": "max {n} out",
    "loading": "{text}. Charts start with the first request.",
    "loading_model": "Loading the model",
    "measuring": "Measuring what this machine can do. The chat opens in a moment.",
    "busy": "{running} requests are running; yours will queue.",
    "busy_one": "1 request is running; yours will queue.",
    "queue_full": "The queue is full. What you send may be turned away; your text is kept.",
}

KINDS: Final[dict[str, str]] = {
    "short_chat": "Short chat",
    "long_prompt": "Long prompt",
    "long_answer": "Long answer",
    "shared_document": "Shared document",
}
"""What added users do, as the list shows it."""
