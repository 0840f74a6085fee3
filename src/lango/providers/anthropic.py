"""Encode requests for Anthropic's Messages API, and send them.

A thinking block is sent back exactly as it came, or not at all: its signature covers everything before it. A block
before the text is stored as a thought with its signature. A later block, between text and a tool call, is stored whole
as the signature of that call, so that it returns to its place.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from lango.errors import ProviderError
from lango.messages import Media, Message, Thought, ToolCall
from lango.providers.anthropic_stream import REDACTED, MessagesReader
from lango.providers.protocol import Delta, Request
from lango.providers.sdk.error_translation import (
    VendorRequest,
    error_from_generated_sdk,
    error_from_status,
    parse_retry_after,
    protocol_error,
)
from lango.providers.sdk.json_answers import stream_json
from lango.providers.sdk.request_encoding import (
    HISTORY_OPENING,
    IMAGE_TYPES,
    Json,
    base64_of,
    forbid_extra_properties,
    is_plain_schema,
    media_text,
    output_text,
    own_signature,
    prepare_messages,
    valid_tool_name,
)
from lango.providers.sdk.sdk_client import SdkProvider, load_sdk, stream_answer
from lango.providers.sdk.wire import http_hooks

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_NO_KEY = {"CredentialsError", "WorkloadIdentityError"}  # by name: earlier releases of the SDK lack some of them
_TOOL_CHOICES: Mapping[str, Json] = {"required": {"type": "any"}, "none": {"type": "none"}}
_NO_SCHEMAS = re.compile(r"claude-(3|instant|2|(opus|sonnet)-4(-0)?(-\d{8})?$)")
_TAKES_SAMPLING = re.compile(r"claude-(3|instant|2|(opus|sonnet|haiku)-4(-[0-6])?(-\d{8})?$)")


def takes_sampling(model: str) -> bool:
    """Whether a model accepts `temperature` and `top_p`: models up to Claude 4.6 do, later ones reject them."""
    return _TAKES_SAMPLING.match(model) is not None


def constrains_answer(request: Request) -> bool:
    """Whether the API constrains the answer, if it must be JSON: from Claude 4.1 on, and to plain schemas."""
    if request.response_schema is None:
        return not request.json_object
    return _NO_SCHEMAS.match(request.model) is None and is_plain_schema(request.response_schema)


def default_max_tokens(model: str) -> int:
    """Return the `max_tokens` of a request that sets none: the API requires one, within the model's limit."""
    if re.match(r"claude-3-(opus|sonnet|haiku)", model):
        return 4096
    return 8192 if model.startswith("claude-3-5") else 32_000


# --- encoder


def encode(request: Request, *, provider: str = "anthropic", options: Mapping[str, Any] | None = None) -> Json:
    """Return the body of a Messages request; `provider` is the provider name in our signatures."""
    system, history = prepare_messages(request)
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_tokens or default_max_tokens(request.model),
        "messages": _messages(history, request, provider),
        "stream": True,
    }
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {"type": "object", "properties": {}, **tool.parameters},
            }
            for tool in request.tools
        ]
        if request.tool_choice != "auto":
            body["tool_choice"] = _TOOL_CHOICES.get(request.tool_choice) or {
                "type": "tool",
                "name": request.tool_choice,
            }
    if request.stop:
        body["stop_sequences"] = [stop for stop in request.stop if stop.strip()]
    if takes_sampling(request.model):
        # current models reject both at once
        sampling = {"temperature": request.temperature} if request.temperature is not None else {"top_p": request.top_p}
        body |= {name: value for name, value in sampling.items() if value is not None}
    if request.response_schema is not None:
        schema = forbid_extra_properties(request.response_schema)
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return _with_thinking(body | dict(options or {}))


def _with_thinking(body: Json) -> Json:
    thinking: Any = body.get("thinking") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return body
    body = {name: value for name, value in body.items() if name not in ("temperature", "top_p")}
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        del body["thinking"]  # the API rejects a forced call together with thinking
        return body
    if thinking["type"] == "enabled" and _step_without_thinking(body["messages"]):
        del body["thinking"]  # a tool loop that another model began without thinking must end without
    return body


def _step_without_thinking(messages: list[Json]) -> bool:
    if messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _messages(history: list[Message], request: Request, provider: str) -> list[Json]:
    merged: list[Json] = []
    for message in history:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, request, provider)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    for turn in merged:
        turn["content"].sort(key=_not_a_result)  # results first, the rest in its order
    if not merged or merged[0]["role"] != "user":
        merged.insert(0, {"role": "user", "content": [_text(HISTORY_OPENING)]})
    return merged


def _not_a_result(block: Json) -> bool:
    return block["type"] != "tool_result"


def _blocks(message: Message, request: Request, provider: str) -> list[Json]:
    texts = [_text(message.content)] if message.content.strip() else []
    match message.role:
        case "assistant":
            return _assistant(message, texts, request, provider)
        case "tool":
            return [_result(result) for result in message.tool_calls] + [_media(media) for media in message.media]
        case _:
            return texts + [_media(media) for media in message.media]


def _assistant(message: Message, texts: list[Json], request: Request, provider: str) -> list[Json]:
    blocks = [] if request.cut else [_thinking(thought, request, provider) for thought in message.thoughts]
    texts = texts + [_text(media_text(media)) for media in message.media]
    calls: list[Json] = []
    for call in message.tool_calls:
        calls += [] if request.cut else _thinking_before(call, request, provider)
        calls.append(
            {"type": "tool_use", "id": call.id, "name": valid_tool_name(call.name), "input": dict(call.input or {})}
        )
    return [block for block in blocks if block] + texts + calls


def _thinking(thought: Thought, request: Request, provider: str) -> Json | None:
    value = own_signature(thought.signature, provider, request)
    if value is None or not value.isascii():  # Anthropic's signatures are base64
        return None
    if value.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": value[len(REDACTED) :].decode()}
    return {"type": "thinking", "thinking": thought.text, "signature": value.decode()}


def _thinking_before(call: ToolCall, request: Request, provider: str) -> list[Json]:
    value = own_signature(call.signature, provider, request)
    if value is None:
        return []
    try:
        blocks: Any = json.loads(value)
    except ValueError:
        return []
    return cast("list[Json]", blocks) if isinstance(blocks, list) else []


def _result(result: ToolCall) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": result.id, "content": output_text(result)}
    if result.output is not None and set(result.output) == {"error"}:
        block["is_error"] = True
    return block


def _media(media: Media) -> Json:
    if media.mime_type in IMAGE_TYPES and (media.data or media.uri):
        return {"type": "image", "source": _source(media)}
    if media.mime_type == "application/pdf" and (media.data or media.uri):
        return {"type": "document", "source": _source(media)}
    return _text(media_text(media))


def _source(media: Media) -> Json:
    if media.data:
        return {"type": "base64", "media_type": media.mime_type, "data": base64_of(media)}
    return {"type": "url", "url": media.uri}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


# --- errors


def translate(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
    """Translate an error of the anthropic SDK; return None for other exceptions."""
    import anthropic

    if error := error_from_generated_sdk(anthropic, exc, exchange):
        return error
    match exc:
        case anthropic.APIStatusError():
            # an error inside a stream comes with the status of the stream, 200
            status = exc.status_code if exc.status_code >= 400 else None
            kind, message = _error_details(exc)
            wait = parse_retry_after(exc.response.headers)
            return error_from_status(status, message, exchange, kind=kind, retry_after_s=wait)
        case anthropic.AnthropicError() if _NO_KEY & {base.__name__ for base in type(exc).__mro__}:
            return error_from_status(401, str(exc), exchange)
        case anthropic.AnthropicError() if type(exc).__name__ == "RetryableError":
            return error_from_status(503, str(exc), exchange)
        case anthropic.AnthropicError():
            return protocol_error(exchange, f"{type(exc).__name__}: {exc}")
        case _:
            return None


def _error_details(exc: "Any") -> tuple[str, str]:
    body: Any = exc.body
    error: Any = cast("Json", body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", str(exc.message)
    details = cast("Json", error)
    return str(details.get("type") or ""), str(details.get("message") or exc.message)


# --- provider


class AnthropicProvider(SdkProvider["AsyncAnthropic"]):
    """Anthropic's models. An option is, for example, `{"thinking": {"type": "adaptive"}}`."""

    vendor = "anthropic"

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        return self._stream(request) if constrains_answer(request) else stream_json(request, self._stream)

    def _stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        exchange = VendorRequest(self._name, request.model, self._api_key)
        return stream_answer(partial(self._send, request, exchange), MessagesReader(exchange), translate, exchange)

    async def _send(self, request: Request, exchange: VendorRequest) -> Any:
        client = await self._clients.get()
        body = encode(request, provider=self._name, options=self._options)
        # extra_body may hold fields that this release of the SDK does not know
        required: Json = {"model": body["model"], "max_tokens": body["max_tokens"], "messages": [], "stream": True}
        events = await cast("Any", client.messages.create)(**required, extra_body=body)
        exchange.streaming = True
        return events

    @override
    def _make_client(self) -> "AsyncAnthropic":
        sdk = load_sdk("anthropic", "lango-adk[anthropic]")
        timeout = sdk.Timeout(self._timeouts.idle_s, connect=self._timeouts.connect_s)
        http = sdk.DefaultAsyncHttpxClient(event_hooks=http_hooks())
        return sdk.AsyncAnthropic(
            api_key=self._api_key, base_url=self._base_url, timeout=timeout, max_retries=0, http_client=http
        )

    @override
    async def _close_client(self, client: "AsyncAnthropic") -> None:
        await client.close()
