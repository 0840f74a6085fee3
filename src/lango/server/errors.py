"""Map every error to an HTTP status and a response body, for all protocols."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from lango import errors
from lango.events import TurnError
from lango.server.json_body import JsonResponse

_log = logging.getLogger("lango.server")

STATUS_BY_ERROR: tuple[tuple[type[errors.LangoError], int], ...] = (  # the first class that matches
    (errors.SessionNotFound, 404),
    (errors.TraceNotFound, 404),
    (errors.MessageNotFound, 404),
    (errors.ArtifactNotFound, 404),
    (errors.GrantNotFound, 404),
    (errors.ScheduleNotFound, 404),
    (errors.EventsGone, 410),
    (errors.SessionExists, 409),
    (errors.Conflict, 409),
    (errors.WaitNotOpen, 409),
    (errors.GrantRefused, 422),
    (errors.ScheduleRefused, 422),
    (errors.TurnCancelled, 409),
    (errors.TurnReleased, 503),
    (errors.Unstorable, 400),
    (errors.AttachmentRefused, 413),
    (errors.ArtifactRefused, 413),
    (errors.ReferenceRefused, 403),
    (errors.ClientToolRefused, 400),
    (errors.ModelOptionsRefused, 400),
    (errors.StateRefused, 400),
    (errors.SessionOptionsRefused, 422),
    (errors.InvalidAnswer, 422),
    (errors.TriggerRefused, 401),
    (errors.PayloadTooLarge, 413),
    (errors.WebhookRefused, 422),
    (errors.InvalidPayload, 422),
    (errors.TooManyEvents, 429),
    (errors.ToolNotFound, 404),
    (errors.ToolRefused, 403),
    (errors.ApprovalRequired, 409),
    (errors.InvalidArguments, 422),
    (errors.IdempotencyKeyReused, 422),  # not 409: some clients repeat such a request by themselves
    (errors.InvalidExport, 400),
    (errors.BudgetTooSmall, 400),  # the message is too long: a retry does not help
    (errors.Stopping, 503),
    (errors.StoreUnavailable, 503),
    (errors.ProviderRateLimited, 429),
    (errors.ProviderUnavailable, 503),
    (errors.ProviderAuthError, 500),  # the operator of the server has to fix these two
    (errors.UnknownModel, 500),
    (errors.ProviderRejected, 400),  # a schema or an option of the request, or its length: a retry does not help
    (errors.IssuerUnavailable, 503),
    (errors.TokensUsedUp, 429),
    (errors.TurnTimeout, 504),
    (errors.CredentialTimeout, 504),
    (errors.LangoError, 500),
)
_TYPE_BY_STATUS = {400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}
_RETRY_AFTER_S = 1.0
REQUEST_ID = "X-Request-Id"
"""The header of every response that names its request, as the server's log does."""
current_request_id: ContextVar[str] = ContextVar("lango_request_id", default="")
"""The id of the request that is handled."""
_MAX_PROBLEMS = 10
_SECRET_IN_PATH = re.compile(r"^(/v1/triggers/[^/]*/).+", re.DOTALL)


class ApiError(Exception):
    """The error response to a request: status, type, message and headers."""

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


MakeBody = Callable[[str, ApiError], Mapping[str, Any]]
"""Makes the body of an error response to a request for a path: each protocol has its own."""


def bad_request(message: str) -> ApiError:
    """Return the error for a request that cannot be followed; its message begins with the name of the parameter."""
    return ApiError(400, "BadRequest", message)


def not_found(message: str) -> ApiError:
    """Return the error for something that does not exist, or that the caller may not know of."""
    return ApiError(404, "NotFound", message)


def status_of(kind: type[errors.LangoError]) -> int:
    """Return the HTTP status of an error class."""
    return next(status for base, status in STATUS_BY_ERROR if issubclass(kind, base))


def to_api_error(error: Exception) -> ApiError:
    """Return the error response to an exception."""
    match error:
        case ApiError():
            return error
        case errors.LangoError():
            return _lango_api_error(type(error), type(error).__name__, str(error), error.retry_after_s)
        case RequestValidationError():
            return bad_request(describe_problems(error.errors()))
        case HTTPException():
            name = _TYPE_BY_STATUS.get(error.status_code, "Refused")
            return ApiError(error.status_code, name, str(error.detail), headers=error.headers)
        case _:
            return ApiError(500, "InternalError", "internal error: see the server log")


def turn_api_error(event: TurnError) -> ApiError:
    """Return the error response to a turn that failed after it was accepted."""
    kind = errors.error_type(event.error) or errors.TurnFailed
    return _lango_api_error(kind, event.error, event.message, event.retry_after_s)


def _lango_api_error(
    kind: type[errors.LangoError], name: str, message: str, retry_after_s: float | None = None
) -> ApiError:
    status = status_of(kind)
    wait_s = (retry_after_s or _RETRY_AFTER_S) if status in (429, 503) else None
    return ApiError(status, name, message, retry_after_s=wait_s)


def describe_problems(problems: Sequence[Mapping[str, object]]) -> str:
    """Describe the first problems of an invalid request."""
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(describe_problem(problem) for problem in problems[:_MAX_PROBLEMS]) + more


def describe_problem(problem: Mapping[str, object]) -> str:
    """Describe a problem of an invalid request, without repeating its values."""
    location = cast("tuple[object, ...]", problem.get("loc") or ())
    path = [str(part) for part in location[1:]]
    if problem.get("type") == "json_invalid":
        return "the body is not valid JSON"
    message = "is not allowed here" if problem.get("type") == "extra_forbidden" else str(problem.get("msg"))
    return f"{'.'.join(path) or 'the body'}: {message.removeprefix('Value error, ')}"


def error_body(error: ApiError) -> dict[str, Any]:
    """Return the body of an error response."""
    return {"error": {"type": error.type, "message": str(error)}}


def to_response(error: Exception, path: str, make_body: MakeBody) -> Response:
    """Return the response to an exception in a request for a path."""
    api_error = to_api_error(error)
    return JsonResponse(make_body(path, api_error), api_error.status, api_error.headers)


def path_without_secret(path: str) -> str:
    """Return a path for logs and traces, without the secret in the address of a trigger."""
    return _SECRET_IN_PATH.sub(r"\1...", path)


def log_server_fault(request: Request, error: Exception) -> None:
    """Log an exception whose status is 500, with the id of the request. A turn that failed is logged at its end."""
    if not isinstance(error, ApiError) and to_api_error(error).status == 500:
        request_id = current_request_id.get()
        fields = {"request_id": request_id}
        path = path_without_secret(request.url.path)
        _log.error("%s %s failed (%s)", request.method, path, request_id, exc_info=error, extra=fields)


def _allowed_methods(request: Request) -> Iterator[str]:
    """Yield the methods that a request's path has, in any router."""
    for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in cast("FastAPI", request.app).routes):
            yield method


def install_error_handlers(app: FastAPI, make_body: MakeBody) -> None:
    """Respond to the exceptions that an app expects with their status and body; `RequestGuard` does to others."""

    async def handle(request: Request, error: Exception) -> Response:
        log_server_fault(request, error)
        response = to_response(error, request.scope["path"], make_body)
        if response.status_code == 405:  # Starlette names the methods of one route only
            response.headers["Allow"] = ", ".join(_allowed_methods(request))
        return response

    for kind in (ApiError, errors.LangoError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)
