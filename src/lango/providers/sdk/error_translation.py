"""Translate errors of vendor SDKs and HTTP libraries to provider errors.

Each vendor's module has one `translate` for the exceptions of its SDK. Shared here: the meaning of an HTTP status,
Retry-After, and the errors of the HTTP library below. No message contains the API key.
"""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict

from msgspec import Struct

from lango.errors import (
    LangoError,
    ProviderAuthError,
    ProviderError,
    ProviderProtocolError,
    ProviderRateLimited,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    UnknownModel,
)

_MAX_MESSAGE_CHARACTERS = 500  # enough of an HTML error page

_AUTH_KINDS = frozenset({"authentication_error", "permission_error", "invalid_api_key", "API_KEY_INVALID"})
_RATE_LIMIT_KINDS = frozenset({"rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"})
_RETRYABLE_KINDS = frozenset(
    {
        "api_error",
        "overloaded_error",
        "server_error",
        "server_overloaded",
        "slow_down",
        "timeout_error",
        "UNAVAILABLE",
        "INTERNAL",
        "DEADLINE_EXCEEDED",
    }
)
_NO_SUCH_MODEL = re.compile(
    r"model\b.{0,160}\b(not found|does(n't| not) exist|not exist)"
    r"|(not a valid|invalid|unknown|no such|unexpected) model\b"
    r"|models/\S+ is not found"
    r"|^model: (string should|input should|field required|[\w.:@/-]+$)"  # Anthropic names the field of the request
    r"|\bno endpoints found for\b"  # OpenRouter
    r"|deployment\b.{0,160}\bdoes not exist|unable to access model",  # Azure; Together
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
_BAD_KEY = re.compile(r"api[ _]key (is )?(not valid|invalid|expired)|API_KEY_INVALID|invalid api key", re.IGNORECASE)


class VendorRequest(Struct):
    """One request to a vendor, as its errors describe it."""

    provider: str
    model: str
    secret: str = ""
    """The API key, to redact it in the vendor's messages."""
    streaming: bool = False
    """The answer has begun: from now on a lost connection is a broken answer, not an unavailable server."""


class _ErrorFields(TypedDict):
    provider: str
    status: int | None


Translate = Callable[[Exception, VendorRequest], ProviderError | None]


@contextmanager
def translate_errors(translate: Translate, exchange: VendorRequest) -> Generator[None, None, None]:
    """Raise the vendor's errors as provider errors, with the original as the cause."""
    try:
        yield
    except LangoError:
        raise
    except Exception as exc:
        error = translate(exc, exchange) or error_from_transport(exc, exchange)
        if error is None:
            raise
        if exchange.secret and exchange.secret in f"{exc}{exc.args}":
            raise error from None  # the vendor echoed the key: a logged traceback must not contain it
        raise error from exc


def error_from_status(
    status: int | None, message: str, exchange: VendorRequest, *, kind: str = "", retry_after_s: float | None = None
) -> ProviderError:
    """Return the error for an HTTP status, or, inside a stream, for the vendor's name of the error (`kind`)."""
    text = _failure_message(status, message, exchange)
    about: _ErrorFields = {"provider": exchange.provider, "status": status}
    if status in (401, 402, 403) or kind in _AUTH_KINDS or (status == 400 and _BAD_KEY.search(message)):
        return ProviderAuthError(text, **about)
    if _is_unknown_model(status, message, kind):
        return unknown_model_error(exchange, text, status)
    if status == 429 or kind in _RATE_LIMIT_KINDS:
        return ProviderRateLimited(text, retry_after_s=retry_after_s, **about)
    if kind in _RETRYABLE_KINDS or status in (408, 409, 425) or (status or 0) >= 500:
        return ProviderUnavailable(text, retry_after_s=retry_after_s, **about)
    return ProviderRejected(text, **about)


def unknown_model_error(exchange: VendorRequest, why: str, status: int | None = None) -> UnknownModel:
    """Return the error for a model that the provider does not have, or whose name it rejects."""
    name = f"{exchange.provider} has no model named {exchange.model!r}. "
    return UnknownModel(name + why, provider=exchange.provider, status=status)


def error_from_transport(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
    """Translate errors from below an SDK: of the HTTP library, of invalid JSON, of objects of the wrong shape."""
    names = {base.__name__ for base in type(exc).__mro__ if base.__module__.split(".")[0] in ("httpx", "httpx2")}
    if "TimeoutException" in names:
        return _timeout_error(exchange)
    if "TransportError" in names or "StreamError" in names or isinstance(exc, OSError):
        return _connection_error(exchange, exc)
    if exchange.streaming and isinstance(exc, ValueError | TypeError | AttributeError | LookupError):
        # SDKs build their objects without checks, so a chunk of the wrong shape fails where it is read
        return protocol_error(exchange, f"a chunk that cannot be read ({type(exc).__name__})")
    return None


def error_from_generated_sdk(sdk: Any, exc: Exception, exchange: VendorRequest) -> ProviderError | None:
    """Translate the errors without a status that the SDKs of OpenAI and Anthropic share: one generator makes both."""
    if isinstance(exc, sdk.APITimeoutError):
        return _timeout_error(exchange)
    if isinstance(exc, sdk.APIConnectionError):
        return _connection_error(exchange, exc.__cause__ or exc)
    if isinstance(exc, sdk.APIResponseValidationError):
        return protocol_error(exchange, "it does not have the form of an answer")
    return None


def _timeout_error(exchange: VendorRequest) -> ProviderTimeout:
    return ProviderTimeout(f"{exchange.provider}: no answer before the timeout", provider=exchange.provider)


def _connection_error(exchange: VendorRequest, exc: BaseException) -> ProviderError:
    """Return the error for a failed connection, or one that broke during an answer."""
    why = _redact_key(f"{type(exc).__name__}: {exc}", exchange.secret)
    if exchange.streaming:
        return protocol_error(exchange, f"the connection was lost ({why})")
    return ProviderUnavailable(f"{exchange.provider}: cannot connect ({why})", provider=exchange.provider)


def protocol_error(exchange: VendorRequest, what: str) -> ProviderProtocolError:
    """Return the error for an answer that violates its format, or stopped before its end."""
    return ProviderProtocolError(
        f"{exchange.provider}: the answer is malformed: {_redact_key(what, exchange.secret)}",
        provider=exchange.provider,
    )


def parse_retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the seconds of `retry-after-ms`, or of `retry-after` in seconds or as a date."""
    if headers is None:
        return None
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _redact_key(text: str, secret: str) -> str:
    return text.replace(secret, "[key]") if secret else text


def _failure_message(status: int | None, message: str, exchange: VendorRequest) -> str:
    reason = _redact_key(" ".join(message.split()), exchange.secret)[:_MAX_MESSAGE_CHARACTERS] or "no reason given"
    subject = f"{exchange.provider} (model {exchange.model!r})"
    return f"{subject} answered {status}: {reason}" if status else f"{subject} failed: {reason}"


def _is_unknown_model(status: int | None, message: str, kind: str) -> bool:
    if kind in ("model_not_found", "not_found_error"):
        return True
    return status in (400, 404) and bool(_NO_SUCH_MODEL.search(message))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
