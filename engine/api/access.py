"""Who may ask, and how much at once: API keys, other pages' scripts, a share for each client.

It looks at headers only. Nothing here knows what is asked for.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

from engine.api.errors import RETRY_SECONDS, ApiError


class Access:
    """Keys, origins and shares of one app.

    keys: any of them opens the API; none: it is open. origins: other pages (`https://host`, or
    `*`) whose scripts may ask. max_requests: what one client, known by its key or else its address,
    may have running and queued at once; 0: as much as the queue holds.
    """

    def __init__(
        self, *, keys: Sequence[str] = (), origins: Sequence[str] = (), max_requests: int = 0
    ) -> None:
        self._keys = [_digest(key) for key in keys]
        self.origins = frozenset(origin.rstrip("/") for origin in origins)
        self._max_requests = max_requests
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def check_origin(self, request: Request) -> None:
        """Refuse another page's script with 403, so that a visited site cannot use the server.

        The server that carries this app may add CORS headers of its own; what is refused here
        stays refused.
        """
        origin = request.headers.get("origin")
        if origin is None or "*" in self.origins or origin.rstrip("/") in self.origins:
            return
        if urlsplit(origin).netloc != request.headers.get("host", ""):
            raise ApiError(
                403,
                "Scripts of other pages may not use this server; name the page in --cors-origins "
                "to allow it.",
                code="origin_not_allowed",
            )

    def check_key(self, request: Request) -> None:
        """Refuse a request without a right key, with 401; the comparison takes constant time."""
        if self._keys and self._client_key(request) is None:
            raise ApiError(
                401,
                "A valid API key is needed; send it as Authorization: Bearer KEY.",
                code="invalid_api_key",
            )

    def take(self, request: Request, count: int) -> Share:
        """Count `count` engine requests as this client's until the share is given back.

        Raises ApiError 429 when it would then have more than it may.
        """
        key = self._client_key(request)
        client = key or f"address {request.client.host if request.client else ''}"
        with self._lock:
            held = self._held[client]
            if self._max_requests and held + count > self._max_requests:
                raise ApiError(
                    429,
                    f"You have {held} requests running or queued and asked for {count} "
                    f"more; the limit is {self._max_requests}. Wait for one to end.",
                    code="client_limit",
                    retry_after=RETRY_SECONDS,
                )
            self._held[client] += count
        return Share(self, client, count)

    def give_back(self, client: str, count: int) -> None:
        """Forget `count` requests of a client; only for `Share`."""
        with self._lock:
            self._held[client] -= count
            if self._held[client] <= 0:
                del self._held[client]

    def _client_key(self, request: Request) -> str | None:
        """The digest of the key that was sent, if it is one of ours."""
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = _digest(sent.strip())
        matches = [hmac.compare_digest(digest, key) for key in self._keys]
        return digest if any(matches) else None


class Share:
    """Engine requests that count as one client's; give it back once."""

    def __init__(self, access: Access, client: str, count: int) -> None:
        self._access = access
        self._client = client
        self._count = count

    def close(self) -> None:
        """Give it back; harmless when that was done."""
        count, self._count = self._count, 0
        if count:
            self._access.give_back(self._client, count)


def _digest(key: str) -> str:
    # Equal lengths, whatever was sent, and no key in memory longer than needed.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
