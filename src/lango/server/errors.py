"""Errors become answers in one place: a status, and `{"error": {"type", "message"}}`."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lango.errors import (
    ApprovalExpired,
    AttachmentRefused,
    CallNotWaiting,
    ClientToolRefused,
    Conflict,
    EventsGone,
    IdempotencyKeyReused,
    InvalidExport,
    IssuerUnavailable,
    LangoError,
    MessageNotFound,
    ProviderUnavailable,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    TurnCancelled,
    TurnTimeout,
    Unstorable,
)
from lango.server.json_body import JsonResponse

_log = logging.getLogger("lango.server")

# the first that fits
STATUS_BY_ERROR: tuple[tuple[type[LangoError], int], ...] = (
    (SessionNotFound, 404),
    (MessageNotFound, 404),
    (EventsGone, 410),
    (SessionExists, 409),
    (Conflict, 409),
    (ApprovalExpired, 409),
    (CallNotWaiting, 409),
    (TurnCancelled, 409),
    (Unstorable, 400),
    (AttachmentRefused, 413),
    (ClientToolRefused, 400),
    (IdempotencyKeyReused, 422),  # not 409: some clients send again by themselves what was that
    (InvalidExport, 400),
    (StoreUnavailable, 503),
    (ProviderUnavailable, 503),
    (IssuerUnavailable, 503),
    (TurnTimeout, 504),
    (LangoError, 500),
)
_TYPE_BY_STATUS = {400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}
_RETRY_AFTER_S = 1.0
_MAX_PROBLEMS = 10


class ApiError(Exception):
    """The server will not do what it was asked."""

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = error
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_after_s))


def session_not_found(session_id: str) -> SessionNotFound:
    """Make the one answer for a session that is not there, and for one that is somebody else's."""
    return SessionNotFound(f"there is no session {session_id!r}")


def to_api_error(error: Exception) -> ApiError:
    """Say what an error means to a client."""
    match error:
        case ApiError():
            return error
        case LangoError():
            status = next(status for kind, status in STATUS_BY_ERROR if isinstance(error, kind))
            wait_s = (getattr(error, "retry_after_s", None) or _RETRY_AFTER_S) if status == 503 else None
            return ApiError(status, type(error).__name__, str(error), retry_after_s=wait_s)
        case RequestValidationError():
            return ApiError(400, "BadRequest", describe_problems(error.errors()))
        case HTTPException():
            name = _TYPE_BY_STATUS.get(error.status_code, "Refused")
            return ApiError(error.status_code, name, str(error.detail), headers=error.headers)
        case _:
            return ApiError(500, "InternalError", "something went wrong here; the server's log says what")


def describe_problems(problems: Sequence[Mapping[str, object]]) -> str:
    """Say what is wrong with a request, of many things the first."""
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(describe_problem(problem) for problem in problems[:_MAX_PROBLEMS]) + more


def describe_problem(problem: Mapping[str, object]) -> str:
    """Say what is wrong with a request, without repeating what was sent."""
    location = cast("tuple[object, ...]", problem.get("loc") or ())
    path = [str(part) for part in location[1:]]
    if problem.get("type") == "json_invalid":
        return "the body is not valid JSON"
    message = "is not allowed here" if problem.get("type") == "extra_forbidden" else str(problem.get("msg"))
    return f"{'.'.join(path) or 'the body'}: {message.removeprefix('Value error, ')}"


def error_body(refused: ApiError) -> dict[str, Any]:
    """Say an error as this server does."""
    return {"error": {"type": refused.type, "message": str(refused)}}


def to_response(error: Exception) -> Response:
    """Return the answer to an error."""
    refused = to_api_error(error)
    return JsonResponse(error_body(refused), refused.status, refused.headers)


def log_server_fault(request: Request, error: Exception) -> None:
    """Log an error that is the server's own."""
    if to_api_error(error).status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)


async def _handle(request: Request, error: Exception) -> Response:
    log_server_fault(request, error)
    return to_response(error)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of an app this way."""
    for kind in (ApiError, LangoError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _handle)
