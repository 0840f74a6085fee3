"""Translate errors of vendor SDKs and HTTP libraries to provider errors.

Each vendor's module has one `translate` for the exceptions of its SDK. Shared here: the meaning of an HTTP status,
Retry-After, and the errors of the HTTP library below. No message contains the API key.
"""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

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
from lango.messages import Signature

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
_UNKNOWN_MODEL_KINDS = frozenset({"model_not_found", "not_found_error"})
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
    """One request to a vendor: what its answer is marked with, and the errors that it may end with."""

    provider: str
    model: str
    secret: str = ""
    """The API key, to redact it in the vendor's messages."""
    streaming: bool = False
    """The answer has begun: from now on a lost connection is a broken answer, not an unavailable server."""

    def signature(self, value: bytes) -> Signature:
        """Return a signature that this model made."""
        return Signature(self.provider, self.model, value)

    def status_error(
        self,
        status: int | None,
        message: str,
        *,
        kind: str = "",
        headers: Any = None,
        retry_after_s: float | None = None,
    ) -> ProviderError:
        """Return the error for an HTTP status, or, inside a stream, for the vendor's name of the error (`kind`)."""
        name, wait_s = self.provider, retry_after_s or parse_retry_after(headers)
        reason = self._redact(" ".join(message.split()))[:_MAX_MESSAGE_CHARACTERS] or "no reason given"
        text = f"{name} (model {self.model!r}) {f'answered {status}' if status else 'failed'}: {reason}"
        if status in (401, 402, 403) or kind in _AUTH_KINDS or (status == 400 and _BAD_KEY.search(message)):
            return ProviderAuthError(text, provider=name, status=status)
        if kind in _UNKNOWN_MODEL_KINDS or (status in (400, 404) and _NO_SUCH_MODEL.search(message)):
            return self.unknown_model(text, status)
        if status == 429 or kind in _RATE_LIMIT_KINDS:
            return ProviderRateLimited(text, provider=name, status=status, retry_after_s=wait_s)
        if kind in _RETRYABLE_KINDS or status in (408, 409, 425) or (status or 0) >= 500:
            return ProviderUnavailable(text, provider=name, status=status, retry_after_s=wait_s)
        return ProviderRejected(text, provider=name, status=status)

    def unknown_model(self, why: str, status: int | None = None) -> UnknownModel:
        """Return the error for a model that the provider does not have, or whose name it rejects."""
        text = f"{self.provider} has no model named {self.model!r}. {why}"
        return UnknownModel(text, provider=self.provider, status=status)

    def protocol_error(self, what: str) -> ProviderProtocolError:
        """Return the error for an answer that violates its format, or stopped before its end."""
        text = f"{self.provider}: the response is malformed: {self._redact(what)}"
        return ProviderProtocolError(text, provider=self.provider)

    def transport_error(self, exc: Exception) -> ProviderError | None:
        """Translate errors from below an SDK: of the HTTP library, of invalid JSON, of objects of the wrong shape."""
        names = {base.__name__ for base in type(exc).__mro__ if base.__module__.split(".")[0] in ("httpx", "httpx2")}
        if "TimeoutException" in names:
            return self._timeout()
        if "TransportError" in names or "StreamError" in names or isinstance(exc, OSError):
            return self._connection_error(exc)
        if self.streaming and isinstance(exc, ValueError | TypeError | AttributeError | LookupError):
            # SDKs build their objects without checks, so a chunk of the wrong shape fails where it is read
            return self.protocol_error(f"a chunk could not be read ({type(exc).__name__})")
        return None

    def generated_sdk_error(self, sdk: Any, exc: Exception) -> ProviderError | None:
        """Translate the errors without a status that the SDKs of OpenAI and Anthropic share."""
        if isinstance(exc, sdk.APITimeoutError):
            return self._timeout()
        if isinstance(exc, sdk.APIConnectionError):
            return self._connection_error(exc.__cause__ or exc)
        if isinstance(exc, sdk.APIResponseValidationError):
            return self.protocol_error("it is not a valid response")
        return None

    def _timeout(self) -> ProviderTimeout:
        return ProviderTimeout(f"{self.provider}: no answer before the timeout", provider=self.provider)

    def _connection_error(self, exc: BaseException) -> ProviderError:
        why = self._redact(f"{type(exc).__name__}: {exc}")
        if self.streaming:
            return self.protocol_error(f"the connection was lost ({why})")
        return ProviderUnavailable(f"{self.provider}: cannot connect ({why})", provider=self.provider)

    def _redact(self, text: str) -> str:
        return text.replace(self.secret, "[key]") if self.secret else text


Translate = Callable[[Exception, VendorRequest], ProviderError | None]


@contextmanager
def translate_errors(translate: Translate, exchange: VendorRequest) -> Generator[None, None, None]:
    """Raise the vendor's errors as provider errors, with the original as the cause."""
    try:
        yield
    except LangoError:
        raise
    except Exception as exc:
        error = translate(exc, exchange) or exchange.transport_error(exc)
        if error is None:
            raise
        if exchange.secret and exchange.secret in f"{exc}{exc.args}":
            raise error from None  # the vendor echoed the key: a logged traceback must not contain it
        raise error from exc


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


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
