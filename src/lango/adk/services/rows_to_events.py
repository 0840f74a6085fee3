"""Rows to ADK events: the way back of `lango.adk.services.events_to_rows`."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from google.adk.events import Event, EventActions
from google.genai import types
from msgspec import Struct
from msgspec.structs import replace
from pydantic import TypeAdapter

from lango.adk.services.events_to_rows import EMPTY_ACTIONS, Layout, author_of, content_role, dump
from lango.adk.services.fast_models import blank, like
from lango.history.pairing import with_ids
from lango.messages import Message, ToolCall
from lango.store import Stored
from lango.store.codec.rows import known_role


def stored_to_events(stored: Iterable[Stored], root_agent_name: str | None) -> list[Event]:
    """Rebuild events. `root_agent_name` is the author of messages that name none; empty: `lango-agent`."""
    found = list(stored)
    messages = with_ids([_known(one.message) if one.message else _NO_MESSAGE for one in found])
    return [
        _stored_to_event(one, message if one.message else None, root_agent_name)
        for one, message in zip(found, messages, strict=True)
    ]


_NO_MESSAGE = Message("event")


def _known(message: Message) -> Message:
    role = known_role(message.role)
    return message if role == message.role else replace(message, role=role)


def _stored_to_event(one: Stored, message: Message | None, root_agent_name: str | None) -> Event:
    extra = dict(one.extra or {})
    update: dict[str, Any] = {
        "id": one.event_id,
        "timestamp": one.created_at,
        "invocation_id": one.invocation_id,
        "actions": _actions(extra.pop("actions", None), one.state_delta),
        "node_info": like(_event().node_info, {}),
    }
    if message is None:
        update["author"] = extra.pop("author", "") or author_of("", root_agent_name)
    else:
        update["author"] = message.author or author_of(message.role, root_agent_name)
        update["content"] = _content(message, extra)
    for name, value in extra.items():
        if name in Event.model_fields:  # a newer ADK may have known more
            update[name] = _field(name, value)
    return like(_event(), update)


def _field(name: str, value: Any) -> Any:
    if name == "usage_metadata" and all(type(count) is int for count in value.values()):
        # every answer of a model has one, and counts need no validation
        return like(blank(types.GenerateContentResponseUsageMetadata), value)
    return _adapter(name).validate_python(value)


# a copy of a template with what differs is many times faster than validating what was validated before
@cache
def _event() -> Event:
    return Event(id="template", timestamp=0.0)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(Event.model_fields[name].rebuild_annotation())


def _actions(stored: Mapping[str, Any] | None, delta: Mapping[str, Any] | None) -> EventActions:
    state_delta = dict(delta or {})
    if stored:
        return EventActions.model_validate({**stored, "state_delta": state_delta})
    fresh: dict[str, Any] = {name: {} for name in EMPTY_ACTIONS}
    return like(blank(EventActions), fresh | {"state_delta": state_delta})


def _content(message: Message, extra: dict[str, Any]) -> types.Content | None:
    role = extra.pop("role", content_role(message.role))
    layout = extra.pop("parts", _PLAIN)
    if message.role == "event":
        return None
    if layout is None:
        parts = None
    elif layout is not _PLAIN:
        parts = _Reading(message).parts(layout)
    elif message.role == "tool":
        parts = [like(blank(types.Part), {"function_response": _result(call)}) for call in message.tool_calls]
        parts = parts or [_text(message.content)]  # an older writer's result that answers no call
    else:
        parts = [_text(message.content)] if message.content else []
        parts += [like(blank(types.Part), {"function_call": _call(call)}) for call in message.tool_calls]
    return like(blank(types.Content), {"role": role, "parts": parts})


_PLAIN: Layout = []


class _Reading(Struct):
    """A content on its way back from columns, by its layout."""

    message: Message
    read: int = 0
    taken: int = 0

    def parts(self, layout: Layout) -> list[types.Part]:
        return [self._part(item) for item in layout]

    def _part(self, item: Any) -> types.Part:
        match item:
            case int():
                return _text(self._slice(item))
            case "call":
                return like(blank(types.Part), {"function_call": self._next_call({})})
            case "result":
                return like(blank(types.Part), {"function_response": self._next_result({})})
            case _:
                return self._told(dict(item))

    def _told(self, told: dict[str, Any]) -> types.Part:
        update: dict[str, Any] = {}
        if isinstance(told.get("text"), int):
            told["text"] = self._slice(told["text"])
        elif told.get("text") is not None and told.get("thought") is not True:
            self.read += len(told["text"])
        if "call" in told:
            update["function_call"] = self._next_call(told.pop("call"))
        if "result" in told:
            update["function_response"] = self._next_result(told.pop("result"))
        return (types.Part.model_validate(told) if told else blank(types.Part)).model_copy(update=update)

    def _slice(self, length: int) -> str:
        start, self.read = self.read, self.read + length
        return self.message.content[start : self.read]

    def _next(self) -> ToolCall:
        self.taken += 1
        return self.message.tool_calls[self.taken - 1]

    def _next_call(self, beyond: Mapping[str, Any]) -> types.FunctionCall:
        call = _call(self._next())
        return types.FunctionCall.model_validate({**dump(call), **beyond}) if beyond else call

    def _next_result(self, beyond: Mapping[str, Any]) -> types.FunctionResponse:
        result = _result(self._next())
        return types.FunctionResponse.model_validate({**dump(result), **beyond}) if beyond else result


def _text(text: str) -> types.Part:
    return like(blank(types.Part), {"text": text})


def _call(call: ToolCall) -> types.FunctionCall:
    return like(blank(types.FunctionCall), {"id": call.id, "name": call.name, "args": call.input})


def _result(call: ToolCall) -> types.FunctionResponse:
    return like(blank(types.FunctionResponse), {"id": call.id, "name": call.name, "response": call.output})
