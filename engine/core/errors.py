"""The errors that reach a person. Each says what was wrong, the limit, and what to do."""

from __future__ import annotations


class PhaseScopeError(Exception):
    """Base of every error this project raises on purpose."""


class InvalidRequest(PhaseScopeError, ValueError):
    """The request cannot be served as it was asked; `field` names the part at fault, if one is."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PromptTooLong(InvalidRequest):
    """The prompt leaves no room for one output token, in the context or in the KV pool."""


class QueueFull(PhaseScopeError):
    """As many requests wait as may wait; trying again later can succeed."""


class EngineStopped(PhaseScopeError):
    """The engine does not serve: it is loading, has failed, or was shut down."""


class OutOfMemory(PhaseScopeError):
    """One forward pass did not fit in the device's memory."""


class ModelNotServable(PhaseScopeError):
    """The model was found but cannot be served by this engine; the message says why."""


class ModelNotFound(PhaseScopeError):
    """No model at the name, folder or file that was asked for."""
