"""The key that locks what changes the engine for everybody, on a server that strangers can reach.

It knows neither the panel nor the routes that ask for it.
"""

from __future__ import annotations

import hashlib
import hmac

WRONG_KEY_SECONDS = 1.0
"""What a wrong key costs before it is answered, so that guessing takes long."""

HEADER = "X-Admin-Key"


class AdminKey:
    """Compares keys in constant time. Without a key of its own it lets everybody pass."""

    def __init__(self, key: str | None = None) -> None:
        # Digests have one length, whatever is sent, and the key itself need not be held.
        self._digest = _digest(key) if key else None

    @property
    def required(self) -> bool:
        """Whether a key has to be given at all."""
        return self._digest is not None

    def opens(self, given: str | None) -> bool:
        """Whether `given` is the key, or none is needed."""
        return self._digest is None or hmac.compare_digest(self._digest, _digest(given or ""))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
