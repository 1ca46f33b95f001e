"""What the page says about recordings."""

from __future__ import annotations

from typing import Any, Final

REPLAY: Final[dict[str, Any]] = {
    "menu": "Recording",
    "save": "Save a recording",
    "open": "Open a recording…",
    "region": "Recording",
    "about": "Recording of {date}: {model} on {machine}.",
    "first_look": (
        "Until the model is loaded, the charts show a recording of {date}: {model} on {machine}."
    ),
    "label": "recording, not live",
    "position": "Position in the recording",
    "speed": "Speed",
    "play": "Play",
    "pause": "Pause",
    "back": "Back to live",
    "composer": "This is a recording. Go back to live to chat or to add users.",
    "too_large": "{name} holds more than the {limit} MB that a recording may have.",
    "damaged_gzip": "{name} is a damaged gzip file. Save or copy it again.",
    "not_json": "{name} is not JSON, or ends too early. Save it again.",
    "other_format": (
        "{name} is no PhaseScope recording: its format should be {format}. Make one with Save a "
        "recording, beside the timeline."
    ),
    "other_version": (
        "{name} is a recording of version {version}; this page reads version {known}. Open it "
        "with the release that saved it."
    ),
    "damaged": "{name} is damaged: {part} is not as it must be. Save the recording again.",
    "no_engine": "This server shows a recording; no model is loaded here.",
}
"""The page's words; ``{name}`` is filled in by the browser."""
