"""Convert the events of Anthropic's stream to deltas."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lango.messages import Signature
from lango.providers.protocol import CallDelta, Delta, Finish, FinishReason, TextDelta, ThoughtDelta, UsageDelta
from lango.providers.sdk.error_translation import VendorRequest, protocol_error
from lango.providers.sdk.request_encoding import Json

if TYPE_CHECKING:
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


class MessagesReader:
    """Converts the events of one answer to deltas; it must end with `message_stop` and a stop reason."""

    def __init__(self, exchange: VendorRequest) -> None:
        self._finished = False
        self._exchange = exchange
        self._model = self._stop = self._detail = ""
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
            raise protocol_error(self._exchange, "it ended without a stop reason")
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
        return [ThoughtDelta(signature=self._signature(value))]

    def _text(self, text: str) -> list[Delta]:
        self._has_text = self._has_text or bool(text)
        return [TextDelta(text)] if text else []

    def _take_thinking_before_call(self) -> Signature | None:
        late, self._thinking_before_call = self._thinking_before_call, []
        return self._signature(json.dumps(late, ensure_ascii=False).encode("utf-8", "replace")) if late else None

    def _signature(self, value: bytes) -> Signature:
        return Signature(self._exchange.provider, self._exchange.model, value)

    def _finish(self) -> list[Delta]:
        if not self._stop:
            return []
        self._finished = True
        reason = _FINISH.get(self._stop, "stop")
        detail = f"{self._stop}: {self._detail}" if self._detail else self._stop
        return [Finish(reason, detail, model=self._model)]


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
