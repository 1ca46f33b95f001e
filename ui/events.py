"""How the page's events are connected to their handlers, for every tab alike.

It knows no component and no handler.
"""

from __future__ import annotations

from typing import Any, Final

QUIET: Final[dict[str, Any]] = {
    "show_progress": "hidden",
    "concurrency_limit": None,
    "api_visibility": "private",
}
"""For what streams or is quick: no click waits for another, and nothing fades while it runs."""
