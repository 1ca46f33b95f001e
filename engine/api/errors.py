"""Errors as OpenAI's clients expect them: a status, and one JSON object that says what was wrong.

Everything a person did wrong, or has to wait for, is a sentence; of a fault of ours only its kind
is told, and the rest is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from engine.core.errors import (
    EngineStopped,
    InvalidRequest,
    PhaseScopeError,
    PromptTooLong,
    QueueFull,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 1
"""What `Retry-After` says when the queue or a client's share is full: places free up quickly."""

RETRY_SECONDS_STOPPED = 5
"""The same while no engine serves: loading and recovering take seconds."""

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


MAX_REQUEST_ID_LENGTH = 128


class ApiError(PhaseScopeError):
    """A refusal with its HTTP status; `code` is the word that programs look for."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The reply's JSON value."""
        return {
            "error": {
                "message": _whole_characters(str(self)),
                "type": _KINDS.get(self.status, "server_error"),
                "param": None if self.param is None else _whole_characters(self.param),
                "code": self.code,
            }
        }

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The HTTP reply."""
        extra = {"Retry-After": str(self.retry_after)} if self.retry_after is not None else {}
        return Response(
            orjson.dumps(self.body()),
            self.status,
            {**(headers or {}), **extra, "Cache-Control": "no-store"},
            media_type="application/json",
        )


def as_api_error(error: Exception) -> ApiError:
    """The refusal that an error of the engine amounts to; what is nobody's fault is a 500."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, PromptTooLong):
        return ApiError(400, message, param=error.field, code="context_length_exceeded")
    if isinstance(error, InvalidRequest):
        return ApiError(400, message, param=error.field, code="invalid_value")
    if isinstance(error, QueueFull):
        return ApiError(429, message, code="queue_full", retry_after=RETRY_SECONDS)
    if isinstance(error, EngineStopped):
        return ApiError(503, message, code="engine_unavailable", retry_after=RETRY_SECONDS_STOPPED)
    if isinstance(error, PhaseScopeError):
        return ApiError(500, message, code="request_failed")
    log.error("A request to the API failed", exc_info=error)
    return ApiError(500, "The server failed; its log says why.", code="internal_error")


def add_error_handlers(app: FastAPI) -> None:
    """Make every refusal of the app, the framework's own included, one of ours."""

    async def refused(request: Request, error: Exception) -> Response:
        return as_api_error(error).response(echo_request_id(request))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return from_validation(error.errors()).response(echo_request_id(request))

    async def by_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = {**(error.headers or {}), **echo_request_id(request)}
        place = f"{request.method} {request.url.path[:200]}"
        known = "the routes and their methods are in /v1/openapi.json"
        sentences = {
            404: f"There is nothing at {place}; {known}.",
            405: f"{place} is not offered; {known}.",
        }
        sentence = sentences.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, sentence).response(headers)

    app.add_exception_handler(PhaseScopeError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_status)
    app.add_exception_handler(Exception, refused)


def request_id(request: Request) -> str | None:
    """The client's `X-Request-ID`: its printable ASCII, bounded; None if nothing is left of it."""
    sent = request.headers.get("x-request-id", "")
    return "".join(c for c in sent if "!" <= c <= "~")[:MAX_REQUEST_ID_LENGTH] or None


def echo_request_id(request: Request) -> dict[str, str]:
    """The header that gives the client its `X-Request-ID` back."""
    own = request_id(request)
    return {"X-Request-ID": own} if own else {}


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first thing that a body's model found wrong, as a sentence that names the field."""
    first = errors[0]
    # The branches of a union put their own names into the path; a field's name has no brackets.
    parts = [
        part
        for part in first["loc"]
        if isinstance(part, int) or (part.isidentifier() and part not in _NOT_FIELDS)
    ]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    field = field.removeprefix(".")
    return ApiError(
        400, f"{field or 'The body'}: {first['msg']}.", param=field or None, code="invalid_value"
    )


_NOT_FIELDS = frozenset({"body", "str", "int"})


def _whole_characters(text: str) -> str:
    """The text as UTF-8 can hold it: what a client sent may hold half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()
