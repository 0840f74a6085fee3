"""Encode requests for Anthropic's Messages API, and convert its stream to deltas.

A thinking block is sent back exactly as it came, or is left out: its signature covers everything before it. A block
before the text is stored as a thought with its signature. A later block, between text and a tool call, is stored whole
as the signature of that call, so that it returns to its place.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from lango.errors import ProviderError
from lango.json_values import as_object
from lango.messages import Media, Message, Signature, Thought, ToolCall
from lango.providers.protocol import (
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    Request,
    TextDelta,
    ThoughtDelta,
    UsageDelta,
)
from lango.providers.sdk.error_translation import VendorRequest
from lango.providers.sdk.request_encoding import (
    HISTORY_OPENING,
    IMAGE_TYPES,
    Json,
    base64_of,
    forbid_extra_properties,
    is_plain_schema,
    media_text,
    output_text,
    prepare_messages,
    valid_tool_name,
    without_signatures,
)
from lango.providers.sdk.sdk_client import SdkProvider

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import RawContentBlockDelta, RawMessageStreamEvent

REDACTED = b"redacted:"
"""Prefix of the signature of a redacted thinking block; its data follows. Real signatures are base64."""

_FINISH: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "safety",
}
_NO_KEY = {"CredentialsError", "WorkloadIdentityError"}  # by name: earlier releases of the SDK lack some of them
_TOOL_CHOICES: Mapping[str, Json] = {"required": {"type": "any"}, "none": {"type": "none"}}
_NO_SCHEMAS = re.compile(r"claude-(3|instant|2|(opus|sonnet)-4(-0)?(-\d{8})?$)")
_TAKES_SAMPLING = re.compile(r"claude-(3|instant|2|(opus|sonnet|haiku)-4(-[0-6])?(-\d{8})?$)")


def default_max_tokens(model: str) -> int:
    """Return the `max_tokens` of a request that sets none: the API requires one, within the model's limit."""
    if re.match(r"claude-3-(opus|sonnet|haiku)", model):
        return 4096
    return 8192 if model.startswith("claude-3-5") else 32_000


# --- encoder


def encode(request: Request, *, provider: str = "anthropic", options: Mapping[str, Any] | None = None) -> Json:
    """Return the body of a Messages request; `provider` is the provider name in our signatures."""
    # a signature covers everything before it
    system, history = prepare_messages(without_signatures(request) if request.cut else request, provider)
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_tokens or default_max_tokens(request.model),
        "messages": _messages(history),
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
    if _TAKES_SAMPLING.match(request.model):  # models after Claude 4.6 reject both, these reject both at once
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


def _messages(history: list[Message]) -> list[Json]:
    merged: list[Json] = []
    for message in history:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    for turn in merged:
        content: list[Json] = turn["content"]
        content.sort(key=lambda block: block["type"] != "tool_result")  # the rest stays in its order
    if not merged or merged[0]["role"] != "user":
        merged.insert(0, {"role": "user", "content": [_text(HISTORY_OPENING)]})
    return merged


def _blocks(message: Message) -> list[Json]:
    texts = [_text(message.content)] if message.content.strip() else []
    match message.role:
        case "assistant":
            return _assistant(message, texts)
        case "tool":
            return [_result(result) for result in message.tool_calls] + [_media(media) for media in message.media]
        case _:
            return texts + [_media(media) for media in message.media]


def _assistant(message: Message, texts: list[Json]) -> list[Json]:
    thoughts = [block for thought in message.thoughts if (block := _thinking(thought))]
    calls: list[Json] = []
    for call in message.tool_calls:
        calls += _thinking_before(call)
        calls.append(
            {"type": "tool_use", "id": call.id, "name": valid_tool_name(call.name), "input": dict(call.input or {})}
        )
    return thoughts + texts + [_text(media_text(media)) for media in message.media] + calls


def _thinking(thought: Thought) -> Json | None:
    value = thought.signature.value if thought.signature else b""
    if not value or not value.isascii():  # Anthropic's signatures are base64
        return None
    if value.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": value[len(REDACTED) :].decode()}
    return {"type": "thinking", "thinking": thought.text, "signature": value.decode()}


def _thinking_before(call: ToolCall) -> list[Json]:
    try:
        blocks: Any = json.loads(call.signature.value) if call.signature else []
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


# --- stream reader


class MessagesReader:
    """Converts the events of one answer to deltas; it must end with `message_stop` and a stop reason."""

    def __init__(self, exchange: VendorRequest) -> None:
        self._finished = False
        self._exchange = exchange
        self._model = self._stop = self._detail = self._stop_sequence = ""
        self._calls = 0
        self._has_text = False
        self._block: Json = {}
        self._thinking_before_call: list[Json] = []  # thinking blocks after the text, until their call follows

    def deltas(self, event: "RawMessageStreamEvent") -> list[Delta]:
        """Return the deltas of an event."""
        match event.type:
            case "message_start":
                self._model = event.message.model or ""
                return [_usage(event.message.usage)]
            case "content_block_start":
                return self._start(cast("Any", event.content_block))
            case "content_block_delta":
                return self._piece(event.delta)
            case "content_block_stop":
                return self._end_of_block()
            case "message_delta":
                self._stop = event.delta.stop_reason or self._stop
                self._stop_sequence = event.delta.stop_sequence or ""
                # earlier releases of the SDK lack this field
                self._detail = _refusal(getattr(event.delta, "stop_details", None))
                return [_usage(event.usage)]
            case "message_stop":
                return self._finish()
            case _:
                return []

    def end(self) -> list[Delta]:
        """Raise if the stream ended before the message did."""
        if not self._finished:
            raise self._exchange.protocol_error("it ended without a stop reason")
        return []

    def _start(self, block: Any) -> list[Delta]:
        self._block = {"type": block.type, "text": "", "signature": "", "arguments": ""}
        match block.type:
            case "text":
                return self._text(block.text or "")
            case "thinking":
                self._block |= {"text": block.thinking or "", "signature": block.signature or ""}
                return [ThoughtDelta(block.thinking)] if block.thinking else []
            case "redacted_thinking":
                self._block["data"] = block.data
                return []
            case "tool_use":
                self._calls += 1
                self._block["input"] = block.input
                return [
                    CallDelta(
                        self._calls - 1, block.id or "", block.name or "", signature=self._take_thinking_before_call()
                    )
                ]
            case _:
                return []

    def _piece(self, delta: "RawContentBlockDelta") -> list[Delta]:
        match delta.type:
            case "text_delta":
                return self._text(delta.text)
            case "thinking_delta":
                self._block["text"] += delta.thinking
                return [ThoughtDelta(delta.thinking)] if delta.thinking else []
            case "signature_delta":
                self._block["signature"] += delta.signature
                return []
            case "input_json_delta":
                self._block["arguments"] += delta.partial_json
                return [CallDelta(self._calls - 1, arguments=delta.partial_json)] if delta.partial_json else []
            case _:
                return []

    def _end_of_block(self) -> list[Delta]:
        block, self._block = self._block, {}
        match block.get("type"):
            case "tool_use" if not block["arguments"]:
                return [CallDelta(self._calls - 1, arguments=json.dumps(block["input"] or {}))]
            case "thinking" if block["signature"]:
                wire = {"type": "thinking", "thinking": block["text"], "signature": block["signature"]}
                return self._signed(block["signature"].encode(), wire)
            case "redacted_thinking":
                wire = {"type": "redacted_thinking", "data": block["data"]}
                return self._signed(REDACTED + block["data"].encode(), wire)
            case _:
                return []

    def _signed(self, value: bytes, wire: Json) -> list[Delta]:
        if self._has_text or self._calls:
            self._thinking_before_call.append(wire)
            return []
        return [ThoughtDelta(signature=self._exchange.signature(value))]

    def _text(self, text: str) -> list[Delta]:
        self._has_text = self._has_text or bool(text)
        return [TextDelta(text)] if text else []

    def _take_thinking_before_call(self) -> Signature | None:
        late, self._thinking_before_call = self._thinking_before_call, []
        return (
            self._exchange.signature(json.dumps(late, ensure_ascii=False).encode("utf-8", "replace")) if late else None
        )

    def _finish(self) -> list[Delta]:
        if not self._stop:
            return []
        self._finished = True
        reason = _FINISH.get(self._stop, "stop")
        detail = f"{self._stop}: {self._detail}" if self._detail else self._stop
        return [Finish(reason, detail, model=self._model, stop_sequence=self._stop_sequence)]


def _refusal(details: Any) -> str:
    fields = cast("Json", details if isinstance(details, dict) else vars(details) if details else {})
    return str(fields.get("explanation") or fields.get("category") or "")


def _usage(usage: Any) -> UsageDelta:
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    # the API counts tokens read from and written to its cache apart from the rest of the input
    total = None if usage.input_tokens is None else usage.input_tokens + (read or 0) + (written or 0)
    details = getattr(usage, "output_tokens_details", None)
    return UsageDelta(
        input_tokens=total,
        output_tokens=usage.output_tokens,
        cached_tokens=read,
        cache_write_tokens=written,
        thought_tokens=getattr(details, "thinking_tokens", None),
    )


# --- provider


class AnthropicProvider(SdkProvider["AsyncAnthropic"]):
    """Anthropic's models. An option is, for example, `{"thinking": {"type": "adaptive"}}`."""

    vendor = "anthropic"

    @staticmethod
    @override
    def constrains_answer(request: Request) -> bool:
        """Whether the API constrains the answer, if it must be JSON: from Claude 4.1 on, and to plain schemas."""
        if request.response_schema is None:
            return not request.json_object
        return _NO_SCHEMAS.match(request.model) is None and is_plain_schema(request.response_schema)

    @staticmethod
    @override
    def translate(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
        import anthropic

        if error := exchange.generated_sdk_error(anthropic, exc):
            return error
        match exc:
            case anthropic.APIStatusError():
                # an error inside a stream comes with the status of the stream, 200
                status = exc.status_code if exc.status_code >= 400 else None
                kind, message = _error_details(exc)
                return exchange.status_error(status, message, kind=kind, headers=exc.response.headers)
            case anthropic.AnthropicError() if _NO_KEY & {base.__name__ for base in type(exc).__mro__}:
                return exchange.status_error(401, str(exc))
            case anthropic.AnthropicError() if type(exc).__name__ == "RetryableError":
                return exchange.status_error(503, str(exc))
            case anthropic.AnthropicError():
                return exchange.protocol_error(f"{type(exc).__name__}: {exc}")
            case _:
                return None

    @override
    def _reader(self, request: Request, exchange: VendorRequest) -> MessagesReader:
        return MessagesReader(exchange)

    @override
    async def _send(self, request: Request, exchange: VendorRequest) -> Any:
        client = await self._clients.get()
        body = encode(request, provider=self.name, options=self._options)
        # extra_body may hold fields that this release of the SDK does not know
        required: Json = {"model": body["model"], "max_tokens": body["max_tokens"], "messages": [], "stream": True}
        events = await cast("Any", client.messages.create)(**required, extra_body=body)
        exchange.streaming = True
        return events

    @override
    def _make_client(self) -> "AsyncAnthropic":
        return self._generated_client("anthropic", "AsyncAnthropic")


def _error_details(exc: "Any") -> tuple[str, str]:
    details = as_object(as_object(exc.body).get("error"))
    return str(details.get("type") or ""), str(details.get("message") or exc.message)
