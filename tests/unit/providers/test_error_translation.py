"""Every exception of every SDK is translated; a new exception without a translation fails here."""

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google.genai import errors as gemini_errors

from lango.errors import (
    ProviderAuthError,
    ProviderError,
    ProviderProtocolError,
    ProviderRateLimited,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    UnknownModel,
)
from lango.providers import anthropic as our_anthropic
from lango.providers import gemini as our_gemini
from lango.providers import openai as our_openai
from lango.providers.sdk.error_translation import VendorRequest, parse_retry_after, translate_errors

CANARY = "sk-canary-0123456789"
EXCHANGE = VendorRequest("acme", "big-model", CANARY)


def exceptions_of(*modules: ModuleType) -> Iterator[type[Exception]]:
    seen: set[type[Exception]] = set()
    for module in modules:
        classes = [value for value in vars(module).values() if issubclass(type(value), type)]  # loads no lazy member
        for kind in classes:
            own = kind.__module__.startswith(module.__name__.split(".")[0])
            if own and issubclass(kind, Exception) and not issubclass(kind, Warning) and kind not in seen:
                seen.add(kind)
                yield kind


def made(kind: type[Exception], status: int) -> Exception:
    """Return an instance with the arguments that its class requires."""
    request = httpx2.Request("POST", "http://x")
    values: dict[str, Any] = {
        "message": "no",
        "request": request,
        "response": httpx2.Response(status, request=request),
        "body": {},
        "code": status,
        "response_json": {"error": {"code": status, "message": "no", "status": "X"}},
        "completion": SimpleNamespace(usage=None),
        "unsent_messages": [],
        "cause": ValueError("x"),
    }
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except ValueError:  # a class without an __init__ of its own
        return kind("no")
    if any(one.name in ("args", "kwargs") for one in parameters):
        return kind("no")
    given = {one.name: values[one.name] for one in parameters if one.name in values}
    return kind(**given)


# What each class of the SDKs means to us. Those that carry a status are judged by it.
EXPECTED: dict[str, type[ProviderError]] = {
    "APITimeoutError": ProviderTimeout,
    "APIConnectionError": ProviderUnavailable,
    "APIResponseValidationError": ProviderProtocolError,
    # openai: an error object inside a stream, then helpers and other interfaces, which we do not use
    "openai.APIError": ProviderUnavailable,
    "OpenAIError": ProviderProtocolError,
    "SubjectTokenProviderError": ProviderProtocolError,
    "LengthFinishReasonError": ProviderProtocolError,
    "ContentFilterFinishReasonError": ProviderProtocolError,
    "WebSocketConnectionClosedError": ProviderProtocolError,
    "WebSocketQueueFullError": ProviderProtocolError,
    "_AmbiguousModuleClientUsageError": ProviderProtocolError,
    # anthropic
    "anthropic.APIError": ProviderProtocolError,
    "AnthropicError": ProviderProtocolError,
    "APIWebhookValidationError": ProviderProtocolError,
    "RetryableError": ProviderUnavailable,
    "CredentialsError": ProviderAuthError,
    "IdentityTokenFileError": ProviderAuthError,
    "WorkloadIdentityError": ProviderAuthError,
    # google-genai
    "UnknownApiResponseError": ProviderProtocolError,
    "ContinuationInterruptedError": ProviderProtocolError,
    "UnknownFunctionCallArgumentError": ProviderProtocolError,
    "UnsupportedFunctionError": ProviderProtocolError,
    "FunctionInvocationError": ProviderProtocolError,
}
STATUSES = {401: ProviderAuthError, 422: ProviderRejected, 429: ProviderRateLimited, 500: ProviderUnavailable}
UNUSED = {"InvalidWebhookSignatureError"}  # a ValueError that only a check of webhooks raises

ALL = [
    *((our_openai.OpenAIProvider.translate, openai.APIStatusError, kind) for kind in exceptions_of(openai)),
    *((our_anthropic.AnthropicProvider.translate, anthropic.APIStatusError, kind) for kind in exceptions_of(anthropic)),
    *((our_gemini.GeminiProvider.translate, gemini_errors.APIError, kind) for kind in exceptions_of(gemini_errors)),
]


@pytest.mark.parametrize(("translate", "by_status", "kind"), ALL, ids=lambda value: getattr(value, "__name__", ""))
def test_every_exception_of_an_sdk_is_mapped(translate: Any, by_status: type[Exception], kind: type[Exception]) -> None:
    if kind.__name__ in UNUSED:
        return
    if issubclass(kind, by_status):
        for status, expected in STATUSES.items():
            assert type(translate(made(kind, status), EXCHANGE)) is expected
        return
    name = kind.__name__ if kind.__name__ in EXPECTED else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    assert name in EXPECTED, f"a new exception of the SDK: add a translation of {kind}"
    assert type(translate(made(kind, 422), EXCHANGE)) is EXPECTED[name]


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_every_transport_error_of_the_http_libraries_is_mapped(library: Any) -> None:
    for kind in exceptions_of(library):
        if not issubclass(kind, (library.TransportError, library.StreamError)):
            continue
        for streaming in (False, True):
            error = _raised(kind("no") if "message" in inspect.signature(kind).parameters else kind(), streaming)
            timeout = issubclass(kind, library.TimeoutException)
            lost = ProviderProtocolError if streaming else ProviderUnavailable
            assert type(error) is (ProviderTimeout if timeout else lost), kind


def _raised(exc: Exception, streaming: bool, translate: Callable[..., Any] = lambda *_: None) -> BaseException:
    with pytest.raises(Exception) as caught, translate_errors(translate, VendorRequest("acme", "m", CANARY, streaming)):  # noqa: PT011
        raise exc
    return caught.value


def test_a_chunk_of_the_wrong_shape_is_a_protocol_error_only_while_streaming() -> None:
    assert type(_raised(AttributeError("x"), streaming=True)) is ProviderProtocolError
    assert type(_raised(AttributeError("x"), streaming=False)) is AttributeError


@pytest.mark.parametrize(
    ("status", "message", "kind", "expected"),
    [
        (400, "bad schema", "", ProviderRejected),
        (400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", ProviderAuthError),
        (400, "acme/x is not a valid model ID", "", UnknownModel),
        (
            400,
            "* GenerateContentRequest.model: unexpected model name format\n",
            "INVALID_ARGUMENT",
            UnknownModel,
        ),
        (400, "invalid model ID", "", UnknownModel),
        (400, "invalid model name", "", UnknownModel),
        (400, "Invalid model: x", "", UnknownModel),
        (400, 'Invalid model identifier "x". Please specify a valid downloaded model', "", UnknownModel),
        (400, "Model Not Exist", "invalid_request_error", UnknownModel),
        (400, "model: String should have at most 256 characters", "invalid_request_error", UnknownModel),
        (404, "No endpoints found for acme/x.", "", UnknownModel),
        (404, "The API deployment for this resource does not exist.", "DeploymentNotFound", UnknownModel),
        (404, "Unable to access model x. Please visit the page of models.", "", UnknownModel),
        (404, "No endpoints found that support image input", "", ProviderRejected),
        (400, "This model does not support images", "", ProviderRejected),
        (400, "model: x does not support tools", "invalid_request_error", ProviderRejected),
        (401, "no", "", ProviderAuthError),
        (402, "no", "", ProviderAuthError),
        (403, "no", "", ProviderAuthError),
        (404, "The model `x` does not exist or you do not have access to it.", "model_not_found", UnknownModel),
        (404, 'model "x" not found, try pulling it first', "", UnknownModel),
        (404, "model: claude-9", "not_found_error", UnknownModel),
        (404, "models/x is not found for API version v1beta", "NOT_FOUND", UnknownModel),
        (404, "404 page not found", "", ProviderRejected),
        (408, "slow", "", ProviderUnavailable),
        (413, "too large", "", ProviderRejected),
        (429, "slow down", "", ProviderRateLimited),
        (500, "oops", "", ProviderUnavailable),
        (503, "busy", "", ProviderUnavailable),
        (529, "overloaded", "overloaded_error", ProviderUnavailable),
        (None, "Overloaded", "overloaded_error", ProviderUnavailable),
        (None, "no", "invalid_request_error", ProviderRejected),
        (None, "no", "authentication_error", ProviderAuthError),
    ],
)
def test_errors_by_http_status(status: int | None, message: str, kind: str, expected: type[ProviderError]) -> None:
    error = EXCHANGE.status_error(status, message, kind=kind)
    assert type(error) is expected
    assert (error.provider, error.status) == ("acme", status)


def test_a3_an_unknown_model_is_named() -> None:
    assert "'big-model'" in str(EXCHANGE.status_error(404, "model not found"))


@pytest.mark.parametrize("status", [None, 400, 401, 404, 422, 429, 500])
def test_a3_every_failure_names_the_model(status: int | None) -> None:
    assert "'big-model'" in str(EXCHANGE.status_error(status, "no"))


def test_retry_after_in_every_form() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert parse_retry_after({"retry-after": "7"}) == 7
    assert parse_retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert 25 < (parse_retry_after({"retry-after": soon}) or 0) <= 30
    assert parse_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}) == 0  # a date without a zone
    assert parse_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    for nonsense in ({"retry-after": "soon"}, {"retry-after": "-1"}, {"retry-after": "inf"}, {}, None):
        assert parse_retry_after(nonsense) is None


def test_geminis_retry_delay_is_read_from_its_details() -> None:
    body = {"error": {"code": 429, "message": "quota", "details": [{"@type": "RetryInfo", "retryDelay": "34s"}]}}
    error = our_gemini.GeminiProvider.translate(gemini_errors.ClientError(429, body), EXCHANGE)
    assert isinstance(error, ProviderRateLimited)
    assert error.retry_after_s == 34


def test_a_key_that_the_vendor_echoes_is_redacted() -> None:
    request = httpx2.Request("POST", "http://x")
    echo = openai.AuthenticationError(
        f"Incorrect API key: {CANARY}", response=httpx2.Response(401, request=request), body=None
    )
    with pytest.raises(ProviderAuthError) as caught, translate_errors(our_openai.OpenAIProvider.translate, EXCHANGE):
        raise echo
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None  # a logged traceback would show it
    assert caught.value.__suppress_context__


def test_an_html_error_page_is_shortened() -> None:
    assert len(str(EXCHANGE.status_error(502, "<html>" + "x" * 10_000))) < 600
