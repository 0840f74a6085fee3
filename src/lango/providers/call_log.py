"""Collect what one model call sends: the attempts that failed and, where they are kept, the requests themselves.

The caller sets `current_call_log` before it calls a model. Without it, nothing is collected.
"""

import time
from contextvars import ContextVar

from msgspec import Struct, field

from lango.redaction import redact_secrets

_MAX_ERROR_CHARACTERS = 2_000
_MAX_RESPONSE_BYTES = 4_000_000
"""How much of a response is held in memory."""


class FailedAttempt(Struct, frozen=True):
    """An attempt that failed. Another one may have followed, with the same model or the fallback."""

    provider: str
    model: str
    started_at: float
    duration_s: float
    error: str


class Exchange(Struct, eq=False):
    """One request and its response, as they went over the wire."""

    provider: str
    model: str
    started_at: float = field(default_factory=time.time)
    duration_s: float | None = None
    url: str = ""
    """Empty: the model runs in this process."""
    status: int | None = None
    """The HTTP status of the response."""
    error: str = ""
    """Why the attempt failed."""
    request: bytes = b""
    response: bytearray = field(default_factory=bytearray)
    response_type: str = ""
    """The content type of the response."""

    def add_response(self, chunk: bytes) -> None:
        """Add a piece of the response, unless there is too much of it."""
        if len(self.response) + len(chunk) <= _MAX_RESPONSE_BYTES:
            self.response += chunk


class CallLog(Struct, eq=False):
    """What one model call sent."""

    failures: list[FailedAttempt] = []
    exchanges: list[Exchange] | None = None
    """None: requests are not kept."""


current_call_log: ContextVar[CallLog | None] = ContextVar("lango_call_log", default=None)
current_exchange: ContextVar[Exchange | None] = ContextVar("lango_exchange", default=None)
"""The exchange that the HTTP client of this code's provider fills."""


def note_failure(provider: str, model: str, started_at: float, error: Exception) -> None:
    """Note that an attempt of the current model call failed."""
    if (log := current_call_log.get()) is not None:
        duration_s = max(0.0, time.time() - started_at)
        log.failures.append(FailedAttempt(provider, model, started_at, duration_s, describe_error(error)))


def describe_error(error: Exception) -> str:
    """Return the kind and the message of an error, without secrets and not too long."""
    return redact_secrets(f"{type(error).__name__}: {error}")[:_MAX_ERROR_CHARACTERS]
