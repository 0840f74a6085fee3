"""Encode requests for OpenAI's Responses API, and convert its stream to deltas.

OpenAI stores nothing (`store=False`): reasoning comes back encrypted, is stored as a signature, and is sent again with
the item that it was made for. A reasoning item precedes its message or its function call. The first kind is stored as
the signature of a thought; the second, if text or another call came in between, as the signature of the call.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lango.errors import ProviderError
from lango.messages import Media, Message, Signature
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
from lango.providers.sdk.json_answers import JSON_INSTRUCTION
from lango.providers.sdk.request_encoding import (
    IMAGE_TYPES,
    Json,
    arguments_text,
    data_url,
    is_strict,
    media_text,
    output_text,
    prepare_messages,
    valid_tool_name,
)

if TYPE_CHECKING:
    from openai.types.responses import Response, ResponseOutputItem, ResponseReasoningItem, ResponseStreamEvent

_INCOMPLETE: Mapping[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "safety"}

# --- encoder


def encode(request: Request, *, provider: str = "openai") -> Json:
    """Return the body of a Responses request; `provider` is the provider name in our signatures.

    The API has no stop sequences (`OpenAIProvider` applies them), and its reasoning models accept no temperature.
    """
    system, history = prepare_messages(request, provider)
    body: Json = {
        "model": request.model,
        "input": _input(history),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if system:
        body["instructions"] = system
    if request.tools:
        body["tools"] = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        if request.tool_choice in ("required", "none"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "name": request.tool_choice}
    if request.max_tokens is not None:
        body["max_output_tokens"] = max(16, request.max_tokens)  # the API rejects less
    if request.thinking and request.thinking.level:
        body["reasoning"] = {"effort": request.thinking.level}
    if request.response_schema is not None:
        schema = dict(request.response_schema)
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
        body["text"] = {"format": form}
    elif request.json_object:
        body["text"] = {"format": {"type": "json_object"}}
        # the API rejects a JSON object that no message of the input speaks of; instructions are not enough
        said = [{"type": "input_text", "text": JSON_INSTRUCTION}]
        body["input"].insert(0, {"type": "message", "role": "developer", "content": said})
    return body


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> Json:
    schema: Json = {"type": "object", "properties": {}, **parameters}
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _input(history: list[Message]) -> list[Json]:
    items: list[Json] = []
    for message in history:
        match message.role:
            case "assistant":
                items += _assistant(message)
            case "tool":
                items += [
                    {"type": "function_call_output", "call_id": result.id, "output": output_text(result)}
                    for result in message.tool_calls
                ]
                items += _user(Message("user", media=message.media))
            case _:
                items += _user(message)
    return items


def _user(message: Message) -> list[Json]:
    parts: list[Json] = [{"type": "input_text", "text": message.content}] if message.content else []
    parts += [_media(media) for media in message.media]
    return [{"type": "message", "role": "user", "content": parts}] if parts else []


def _assistant(message: Message) -> list[Json]:
    text = "\n".join(text for text in (message.content, *(media_text(media) for media in message.media)) if text)
    calls: list[Json] = []
    for call in message.tool_calls:
        calls += _reasoning(call.signature)
        name, arguments = valid_tool_name(call.name), arguments_text(call)
        calls.append({"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments})
    text_items: list[Json] = [{"type": "message", "role": "assistant", "content": text}] if text else []
    follower = (text_items + calls)[:1]
    if not follower or follower[0]["type"] == "reasoning":
        return text_items + calls  # the item that these thoughts preceded is gone
    return [item for thought in message.thoughts for item in _reasoning(thought.signature)] + text_items + calls


def _reasoning(signature: Signature | None) -> list[Json]:
    try:
        item: Any = json.loads(signature.value) if signature else None
    except ValueError:
        return []
    if not isinstance(item, dict) or not {"id", "encrypted_content"} <= set(cast("Json", item)):
        return []
    return [{"type": "reasoning", "summary": [], **cast("Json", item)}]


def _media(media: Media) -> Json:
    if media.mime_type in IMAGE_TYPES and (media.data or media.uri):
        return {"type": "input_image", "detail": "auto", "image_url": data_url(media)}
    if media.mime_type == "application/pdf" and media.data:
        return {"type": "input_file", "filename": media.name or "file.pdf", "file_data": data_url(media)}
    if media.mime_type == "application/pdf" and media.uri:
        return {"type": "input_file", "file_url": media.uri}
    return {"type": "input_text", "text": media_text(media)}


# --- stream reader


class ResponsesReader:
    """Converts the events of one answer to deltas; it must end with a completed or incomplete response."""

    def __init__(self, exchange: VendorRequest) -> None:
        self._finished = False
        self._exchange = exchange
        self._calls: dict[int, int] = {}  # index among all items -> index among the calls
        self._with_arguments: set[int] = set()
        self._has_text = False
        self._refused = False
        self._pending: Signature | None = None
        self._last_summary = ("", 0)

    def deltas(self, event: "ResponseStreamEvent") -> list[Delta]:
        """Return the deltas of an event."""
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._has_text = True
                self._refused = self._refused or event.type == "response.refusal.delta"
                return [TextDelta(event.delta)]
            case "response.reasoning_summary_text.delta":
                return [ThoughtDelta(self._gap(event.item_id, event.summary_index) + event.delta)]
            case "response.reasoning_text.delta":
                return [ThoughtDelta(event.delta)]
            case "response.function_call_arguments.delta":
                return self._arguments(event.output_index, event.delta)
            case "response.output_item.added":
                return self._added(event.output_index, event.item)
            case "response.output_item.done":
                return self._done(event.output_index, event.item)
            case "response.completed" | "response.incomplete":
                return self._end(event.response)
            case "response.failed":
                error = event.response.error
                raise self._failure(error.code, error.message) if error else self._failure("", "")
            case "error":
                raise self._failure(event.code or "", event.message)
            case _:
                return []  # progress, and events of OpenAI's own tools

    def end(self) -> list[Delta]:
        """Raise if the stream ended before the response did."""
        if not self._finished:
            raise self._exchange.protocol_error("it ended before the response was completed")
        return []

    def _gap(self, item_id: str, summary_index: int) -> str:
        last_id, last_index = self._last_summary
        self._last_summary = (item_id, summary_index)
        return "\n\n" if last_id == item_id and last_index != summary_index else ""

    def _added(self, item_index: int, item: "ResponseOutputItem") -> list[Delta]:
        signature = self._pending
        if item.type == "function_call":
            self._pending = None
            index = self._calls[item_index] = len(self._calls)
            call = CallDelta(index, item.call_id or "", item.name or "")
            if signature is None:
                return [call]
            if index or self._has_text:
                return [call, CallDelta(index, signature=signature)]
            return [ThoughtDelta(signature=signature), call]
        if signature is not None:
            self._pending = None
            # after text, only a call can carry it; a second message cannot
            return [] if self._has_text or self._calls else [ThoughtDelta(signature=signature)]
        return []

    def _arguments(self, item_index: int, arguments: str) -> list[Delta]:
        self._with_arguments.add(item_index)
        return [CallDelta(self._calls[item_index], arguments=arguments)]

    def _done(self, item_index: int, item: "ResponseOutputItem") -> list[Delta]:
        if item.type == "reasoning":
            self._pending = self._signature(item)
        elif item.type == "function_call" and item_index not in self._with_arguments:
            start = [] if item_index in self._calls else self._added(item_index, item)
            return [*start, *self._arguments(item_index, item.arguments)]
        return []

    def _signature(self, item: "ResponseReasoningItem") -> Signature | None:
        if not item.encrypted_content:
            return None
        kept = {
            "id": item.id,
            "summary": [{"type": "summary_text", "text": part.text} for part in item.summary or ()],
            "encrypted_content": item.encrypted_content,
        }
        value = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return self._exchange.signature(value)

    def _end(self, response: "Response") -> list[Delta]:
        self._finished = True
        details = response.incomplete_details
        why = (details.reason if details else None) or ""
        reason: FinishReason = "stop"
        if response.status == "incomplete":
            reason = _INCOMPLETE.get(why, "error")
        elif self._refused:
            reason, why = "safety", "refusal"
        elif self._calls:
            reason = "tool_calls"
        return [*_usage(response), Finish(reason, why or response.status or "", model=response.model or "")]

    def _failure(self, code: str, message: str) -> ProviderError:
        return self._exchange.status_error(None, message, kind=code or "server_error")


def _usage(response: "Response") -> list[Delta]:
    usage = response.usage
    if usage is None:
        return []
    cached, thought = usage.input_tokens_details, usage.output_tokens_details
    return [
        UsageDelta(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=cached.cached_tokens if cached else None,  # pyright: ignore[reportUnnecessaryComparison]
            cache_write_tokens=getattr(cached, "cache_write_tokens", None),
            thought_tokens=thought.reasoning_tokens if thought else None,  # pyright: ignore[reportUnnecessaryComparison]
        )
    ]
