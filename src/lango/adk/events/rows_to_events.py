"""Rebuild ADK events from stored rows, whose layout is in `lango.adk.events.events_to_rows`, and check imported ones.

What an import brings is a conversation, and nothing that ADK would act upon.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

from google.adk.events import Event, EventActions
from google.genai import types
from msgspec import Struct
from msgspec.structs import replace
from pydantic import TypeAdapter

from lango.adk.events.events_to_rows import (
    DEFAULT_AGENT_NAME,
    EMPTY_ACTION_FIELDS,
    OUTPUT_TEXT,
    Layout,
    content_role,
    default_author,
    dump_non_defaults,
    event_to_entry,
)
from lango.adk.events.fast_models import blank_model, copy_with
from lango.errors import InvalidExport
from lango.history.pairing import with_ids
from lango.messages import MAX_PARTS, RESERVED_PREFIX, Message, ToolCall
from lango.sessions import REQUEST_CALLS, StoredEvent
from lango.store.artifacts.artifacts import SCHEME
from lango.store.codec.rows import role_of_row


def stored_to_events(stored: Iterable[StoredEvent], root_agent_name: str | None) -> list[Event]:
    """Rebuild events. `root_agent_name` is the author of messages that have none, by default `lango-agent`."""
    found = list(stored)
    messages = with_ids([_with_known_role(row.message) if row.message else _NO_MESSAGE for row in found])
    return [
        _stored_to_event(row, message if row.message else None, root_agent_name)
        for row, message in zip(found, messages, strict=True)
    ]


_NO_MESSAGE = Message("event")


def _with_known_role(message: Message) -> Message:
    role = role_of_row(message.role)
    return message if role == message.role else replace(message, role=role)


def _stored_to_event(row: StoredEvent, message: Message | None, root_agent_name: str | None) -> Event:
    extra = dict(row.extra or {})
    update: dict[str, Any] = {
        "id": row.event_id,
        "timestamp": row.created_at,
        "invocation_id": row.invocation_id,
        "actions": _actions(extra.pop("actions", None), row.state_delta),
        "node_info": copy_with(_event_template().node_info, {}),
    }
    if message is None:
        update["author"] = extra.pop("author", "") or default_author("", root_agent_name)
    else:
        update["author"] = message.author or default_author(message.role, root_agent_name)
        update["content"] = _content(message, extra)
    for name, value in extra.items():
        if name in Event.model_fields:  # a newer ADK may have stored further fields
            update[name] = _field_value(name, value)
    return copy_with(_event_template(), update)


def _field_value(name: str, value: Any) -> Any:
    if name == "usage_metadata" and all(type(count) is int for count in value.values()):
        # every model response has it, and counts need no validation
        return copy_with(blank_model(types.GenerateContentResponseUsageMetadata), value)
    return _field_adapter(name).validate_python(value)


@cache
def _event_template() -> Event:
    return Event(id="template", timestamp=0.0)


@cache
def _field_adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(Event.model_fields[name].rebuild_annotation())


def _actions(stored: Mapping[str, Any] | None, delta: Mapping[str, Any] | None) -> EventActions:
    state_delta = dict(delta or {})
    if stored:
        return EventActions.model_validate({**stored, "state_delta": state_delta})
    fresh: dict[str, Any] = {name: {} for name in EMPTY_ACTION_FIELDS}
    return copy_with(blank_model(EventActions), fresh | {"state_delta": state_delta})


def _content(message: Message, extra: dict[str, Any]) -> types.Content | None:
    role = extra.pop("role", content_role(message.role))
    layout = extra.pop("parts", _DEFAULT_LAYOUT)
    if message.role == "event" or extra.pop(OUTPUT_TEXT, False):
        return None
    if layout is None:
        parts = None
    elif layout is not _DEFAULT_LAYOUT:
        parts = _ContentReader(message).parts(layout)
    elif message.role == "tool":
        parts = [_part(function_response=_result(call)) for call in message.tool_calls]
        parts = parts or [_part(text=message.content)]  # a result without a call, from an import
    else:
        parts = [_part(text=message.content)] if message.content else []
        parts += [_part(function_call=_call(call)) for call in message.tool_calls]
    return copy_with(blank_model(types.Content), {"role": role, "parts": parts})


_DEFAULT_LAYOUT: Layout = []


class _ContentReader(Struct):
    """Rebuilds the parts of a content from the columns of a row, by their layout."""

    message: Message
    text_position: int = 0
    calls_read: int = 0

    def parts(self, layout: Layout) -> list[types.Part]:
        return [self._part(item) for item in layout]

    def _part(self, item: Any) -> types.Part:
        match item:
            case int():
                return _part(text=self._slice(item))
            case "call":
                return _part(function_call=self._next_call({}))
            case "result":
                return _part(function_response=self._next_result({}))
            case _:
                return self._full_part(dict(item))

    def _full_part(self, fields: dict[str, Any]) -> types.Part:
        update: dict[str, Any] = {}
        if isinstance(fields.get("text"), int):
            fields["text"] = self._slice(fields["text"])
        elif fields.get("text") is not None and fields.get("thought") is not True:
            self.text_position += len(fields["text"])
        if "call" in fields:
            update["function_call"] = self._next_call(fields.pop("call"))
        if "result" in fields:
            update["function_response"] = self._next_result(fields.pop("result"))
        return (types.Part.model_validate(fields) if fields else blank_model(types.Part)).model_copy(update=update)

    def _slice(self, length: int) -> str:
        start, self.text_position = self.text_position, self.text_position + length
        return self.message.content[start : self.text_position]

    def _next(self) -> ToolCall:
        self.calls_read += 1
        return self.message.tool_calls[self.calls_read - 1]

    def _next_call(self, fields: Mapping[str, Any]) -> types.FunctionCall:
        call = _call(self._next())
        return types.FunctionCall.model_validate({**dump_non_defaults(call), **fields}) if fields else call

    def _next_result(self, fields: Mapping[str, Any]) -> types.FunctionResponse:
        result = _result(self._next())
        return types.FunctionResponse.model_validate({**dump_non_defaults(result), **fields}) if fields else result


def _part(**fields: Any) -> types.Part:
    return copy_with(blank_model(types.Part), fields)


def _call(call: ToolCall) -> types.FunctionCall:
    return copy_with(blank_model(types.FunctionCall), {"id": call.id, "name": call.name, "args": call.input})


def _result(call: ToolCall) -> types.FunctionResponse:
    return copy_with(blank_model(types.FunctionResponse), {"id": call.id, "name": call.name, "response": call.output})


# -- imports -----------------------------------------------------------------------------------------------------------


def check_imported(stored: StoredEvent) -> int:
    """Check that an event can be converted to one of ADK, and return its tokens. Raise `InvalidExport`.

    The requests of ADK that a conversation holds are kept, and no client can answer them; calls have the names and
    arguments that the row shows, and files have no addresses but those of artifacts.
    """
    _check_part_count(stored)
    [event] = stored_to_events([stored], DEFAULT_AGENT_NAME)
    if stored.message is not None:
        _check_calls(stored, stored.message, event)
    _check_addresses(event)
    return event_to_entry(event).tokens


def _check_part_count(stored: StoredEvent) -> None:
    layout: list[Any] = (stored.extra or {}).get("parts") or []
    results: list[Any] = [cast("dict[str, Any]", item).get("result") for item in layout if isinstance(item, dict)]
    inner = [cast("dict[str, Any]", result).get("parts") for result in results if isinstance(result, dict)]
    calls = len(stored.message.tool_calls) if stored.message else 0
    if max(calls, len(layout) + sum(len(parts or ()) for parts in inner)) > MAX_PARTS:
        raise InvalidExport(f"a message has more than {MAX_PARTS} parts")


def _check_calls(stored: StoredEvent, message: Message, event: Event) -> None:
    """Check the names of calls and results, and that the parts of the event do not show others than the row."""
    of_client = stored.client_call_ids
    for call in message.tool_calls:
        if call.name.startswith(RESERVED_PREFIX) and (call.name not in REQUEST_CALLS or call.id in of_client):
            raise InvalidExport(f"tool_calls: the name {call.name!r} is reserved by ADK")
    shown = [made for part in _parts(event) for made in (part.function_call, part.function_response) if made]
    if len(shown) > len(message.tool_calls):
        raise InvalidExport("extra.parts: a call or result is missing from tool_calls")
    for made, call in zip(shown, message.tool_calls, strict=False):
        value = (made.args, call.input) if isinstance(made, types.FunctionCall) else (made.response, call.output)
        if (made.name or "") != call.name or (call.id and made.id != call.id) or value[0] != value[1]:
            raise InvalidExport("extra.parts: a call or result differs from the one in tool_calls")


def _check_addresses(event: Event) -> None:
    """Refuse addresses of files that `lango.store.transfer.import_claims` did not find, as in another spelling."""
    files = [part.file_data for part in _parts(event)]
    results = [part.function_response for part in _parts(event)]
    files += [cast("Any", piece).file_data for result in results if result for piece in result.parts or ()]
    if any(file and file.file_uri and not file.file_uri.startswith(SCHEME) for file in files):
        raise InvalidExport("extra.parts: files that are only a URL cannot be imported")


def _parts(event: Event) -> list[types.Part]:
    return (event.content and event.content.parts) or []
