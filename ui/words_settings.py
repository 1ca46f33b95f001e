"""What the settings panel says."""

from __future__ import annotations

from typing import Final

SETTINGS: Final[dict[str, str]] = {
    "title": "Settings",
    "open": "Settings",
    "close": "Close settings",
    "engine": "Engine",
    "for_everybody": ("These are the engine's limits, for everybody who uses this server."),
    "apply": "Apply",
    "confirm": "Restart and apply",
    "keep": "Keep as it is",
    "key": "Admin key",
    "key_hint": "This server is locked; only who has its key can change the engine.",
    "wrong_key": "That is not this server's admin key. Nothing was changed.",
    "unchanged": "Nothing to change: the engine already runs with these settings.",
    "not_serving": "The engine does not serve now, so nothing can be changed.",
    "applied": "Applied for everybody, from the next step on.",
    "restarted": "The engine was restarted with these settings, with an empty KV cache.",
    "restart_idle": (
        "This restarts the engine and empties the KV cache; the model stays loaded. "
        "No request is running."
    ),
    "restart_busy": (
        "This restarts the engine and empties the KV cache: {requests} will end and {be} told so."
    ),
    "running": "{n} running {request}",
    "waiting": "{n} waiting {request}",
    "ask_again": "The settings were changed since the question. ",
    "whole": "{label} must be a whole number; got {value}.",
    "range": "{label} must be from {low} to {high}; got {value}.",
    "at_least": "{label} must be at least {low}; got {value}.",
    "too_many_blocks": "KV blocks must be at most {most}: {why}. Got {value}.",
    "blocks_by_context": "that is {slots} slots at the full context of {context} tokens",
    "blocks_by_memory": "that is what half of this machine's free memory holds",
    "sampling": "Sampling of new chats",
    "sampling_hint": (
        "What the fields below a chat start with, for everybody who opens this page from now on. "
        "What a visitor changes there comes first."
    ),
    "sampling_apply": "Apply to new chats",
    "sampling_applied": "Applied: chats opened from now on start with these values.",
    "display": "Display, in this browser only",
    "dark": "Dark colours",
    "talk": "Talk mode: everything larger, for a projector",
}
