"""Who may ask, and as whom: API keys, other pages' scripts, a share for each client.

It looks at headers only. Nothing here knows what is asked for; how much a client may hold is
counted in `engine.api.shares`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

from engine.api.errors import ApiError
from engine.api.shares import Limits, Share, Shares


class Access:
    """Keys, origins and shares of one app.

    keys: any of them opens the API; none: it is open. origins: other pages (`https://host`, or
    `*`) whose scripts may ask. limits: what one client, known by its key or else its address, may
    hold at once.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str] = (),
        origins: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        self._keys = [_digest(key) for key in keys]
        self.origins = frozenset(origin.rstrip("/") for origin in origins)
        self._shares = Shares(limits or Limits())

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

    def take(self, request: Request, count: int, *, slots: int, free_slots: int) -> Share:
        """Count `count` engine requests as this client's; see `Shares.take`."""
        key = self._client_key(request)
        client = key or f"address {request.client.host if request.client else ''}"
        return self._shares.take(client, count, slots=slots, free_slots=free_slots)

    def _client_key(self, request: Request) -> str | None:
        """The digest of the key that was sent, if it is one of ours."""
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = _digest(sent.strip())
        matches = [hmac.compare_digest(digest, key) for key in self._keys]
        return digest if any(matches) else None


def _digest(key: str) -> str:
    # Equal lengths, whatever was sent, and no key in memory longer than needed.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
