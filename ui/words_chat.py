"""The chat card's words, in one place; `{name}` is filled in by the browser."""

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
    "try": "Try",
    "long_prompt": "2,000-token prompt",
    "add_visitors": "Add 5 users",
    "stop_visitors": "Stop users",
    "tokens": "≈ {n} tokens",
    "token": "≈ 1 token",
    "no_tokens": "0 tokens",
    "limit": "max {n} out",
    "loading": "{text}. Charts start with the first request.",
    "loading_model": "Loading the model",
    "measuring": "Measuring what this machine can do. The chat opens in a moment.",
    "busy": "{running} requests are running; yours will queue.",
    "queue_full": "The queue is full. What you send may be turned away; your text is kept.",
}
