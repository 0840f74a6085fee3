"""ADK events to rows and back, with nothing lost.

A row's readable columns (role, author, content, tool_calls) say what most events are. What they cannot express goes
into `extra`, once and without defaults: the fields of the event by their names, and under `parts` the layout of the
content where it is not the plain one. The plain layout is one text and then calls, or results only. In a layout, a
number is a text of that many characters of `content`, `"call"` and `"result"` are the next of `tool_calls`, and an
object is a part that has more to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from google.adk.events import Event, EventActions
from google.genai import types
from msgspec import Struct
from pydantic import BaseModel, TypeAdapter

from lango.adk.templates import like
from lango.history import count_tokens
from lango.messages import Media, Message, Role, Thought, ToolCall, fresh_call_id
from lango.store import Entry, Stored
from lango.store.jsontext import dumps, readable
from lango.store.records import object_or_result, without_temp

DEFAULT_AGENT_NAME = "lango-agent"

# what every event has: who, when, where. An event with only these and a state delta is no message.
_ENVELOPE = {"branch", "isolation_scope", "node_info", "partial", "turn_complete", "custom_metadata"}
_IN_COLUMNS = {"id", "author", "timestamp", "invocation_id", "content", "actions", "node_info"}

_NO_ACTIONS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True, validated_data={})
    for name, field in EventActions.model_fields.items()
}
_EMPTY_ACTIONS = {name for name, value in _NO_ACTIONS.items() if value == {}}

_PLAIN_TYPES = {str, bool, int, float}

Layout = list[Any]


# -- an event becomes an entry ------------------------------------------------------------------------------------


def complete_event(event: Event, root_agent_name: str) -> None:
    """Give an event what it lacks and what a reload would give it: ids of calls and results, an author."""
    if event.content is not None and type(event.content) is not types.Content:
        # genai's UserContent and ModelContent are other types of the same content, and compare unequal to it
        event.content = types.Content(role=event.content.role, parts=event.content.parts)
    if not event.author:
        event.author = "user" if event.content and event.content.role == "user" else root_agent_name
    parts = (event.content and event.content.parts) or []
    _give_ids([part.function_call for part in parts if part.function_call])
    _give_ids([part.function_response for part in parts if part.function_response])


def _give_ids(calls: Sequence[types.FunctionCall | types.FunctionResponse]) -> None:
    taken = {call.id for call in calls if call.id}
    for call in calls:
        if not call.id:
            call.id = fresh_call_id(call.name or "", taken)
            taken.add(call.id)


def event_to_entry(event: Event, approval_expires_s: float | None = None) -> Entry:
    """Turn an event into what the store keeps. The event is complete (see `complete_event`)."""
    extra = _rest_of_event(event)
    delta = without_temp(event.actions.state_delta) if event.actions.state_delta else None
    if event.content is None:
        state_only = bool(event.actions.state_delta) and extra.keys() <= _ENVELOPE
        message = None if state_only else Message("event", author=event.author)
        if state_only:
            extra["author"] = event.author
        tokens = 0
    else:
        message = _content_to_message(event.content, event.author, extra)
        tokens = count_tokens(message) + (_tokens_beside(event.content) if "parts" in extra else 0)
    return Entry(
        event_id=event.id,
        created_at=event.timestamp,
        message=message,
        tokens=tokens,
        invocation_id=event.invocation_id,
        state_delta=delta,
        extra=extra,
        long_running=frozenset(event.long_running_tool_ids or ()),
        rewind_before=event.actions.rewind_before_invocation_id,
        expires_s=approval_expires_s,
    )


def _rest_of_event(event: Event) -> dict[str, Any]:
    """Dump the fields that have no column. Unset is None for all of them, so that is all there is to leave out."""
    rest = {
        name: _plain(value) for name, value in event.__dict__.items() if value is not None and name not in _IN_COLUMNS
    }
    if _has_more_than_state(event.actions):
        actions = _dump(event.actions, {"state_delta"})
        rest["actions"] = {name: value for name, value in actions.items() if not _is_unset(name, value)}
    node_info = event.node_info
    if node_info.path or node_info.output_for is not None or node_info.message_as_output is not None:
        rest["node_info"] = _dump(node_info)
    return rest


def _plain(value: Any) -> Any:
    kind = cast(
        "type[object]", type(value)
    )  # to ask pydantic's classes whose instance something is takes many times longer
    if kind in _PLAIN_TYPES:
        return value
    if kind is types.GenerateContentResponseUsageMetadata:  # every answer of a model has one
        counts = {name: count for name, count in value.__dict__.items() if count is not None}
        if all(type(count) is int for count in counts.values()) and not value.model_extra:
            return counts
    if isinstance(value, BaseModel):
        return _dump(value)
    return sorted(cast("set[str]", value)) if isinstance(value, set) else value


def _has_more_than_state(actions: EventActions) -> bool:
    return vars(actions) != _NO_ACTIONS and {**vars(actions), "state_delta": {}} != _NO_ACTIONS


def _is_unset(name: str, value: Any) -> bool:
    return value is None or (value == {} and name in _EMPTY_ACTIONS)


def _dump(model: BaseModel, exclude: set[str] | None = None) -> dict[str, Any]:
    # python mode keeps bytes as bytes, floats as they are: JSON text is the store's matter
    return model.model_dump(exclude_defaults=True, exclude=exclude)


class _Written:
    """A content on its way into columns."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.layout: Layout = []
        self.has_results = False

    def add(self, part: types.Part) -> None:
        told: dict[str, Any] = {}
        plain: Any = None
        for name, value in part.__dict__.items():
            if value is None:
                continue
            match name:
                case "text":
                    told["text"] = self._add_text(value, part.thought is True)
                    plain = told["text"] if isinstance(told["text"], int) else None
                case "function_call":
                    told["call"] = self._add_call(value)
                    plain = "call" if not told["call"] else None
                case "function_response":
                    told["result"] = self._add_result(value)
                    plain = "result" if not told["result"] else None
                case _:
                    told[name] = _plain(value)
        self.layout.append(plain if len(told) == 1 and plain is not None else told)

    def _add_text(self, text: str, thought: bool) -> int | str:
        if thought:
            return text
        self.texts.append(text)
        return len(text) if readable(text) == text else text

    def _add_call(self, call: types.FunctionCall) -> dict[str, Any]:
        self.calls.append(ToolCall(call.id or "", call.name or "", call.args))
        return _beyond(call, {"id", "name", "args"})

    def _add_result(self, result: types.FunctionResponse) -> dict[str, Any]:
        self.has_results = True
        self.calls.append(ToolCall(result.id or "", result.name or "", output=result.response))
        return _beyond(result, {"id", "name", "response"})

    @property
    def is_plain(self) -> bool:
        """The layout is the one that a reader takes for granted."""
        layout = self.layout
        if not layout:
            return False
        if layout[0] == "result":
            return all(item == "result" for item in layout)
        calls = layout[1:] if type(layout[0]) is int and layout[0] > 0 else layout
        return all(item == "call" for item in calls)


def _beyond(call: types.FunctionCall | types.FunctionResponse, known: set[str]) -> dict[str, Any]:
    """What a call or result has besides what `ToolCall` says."""
    beyond = _dump(call, known) if any(v is not None for n, v in call.__dict__.items() if n not in known) else {}
    if call.name is None:
        beyond["name"] = None
    return beyond


def _content_to_message(content: types.Content, author: str, extra: dict[str, Any]) -> Message:
    written = _Written()
    for part in content.parts or ():
        written.add(part)
    if not written.is_plain:
        extra["parts"] = written.layout if content.parts is not None else None
    role = _role(content, written)
    if role != "tool" and _content_role(role) != content.role:
        extra["role"] = content.role
    results = [dumps(call.output or {}) for call in written.calls] if role == "tool" else []
    return Message(role, "".join(written.texts) + "\n".join(results), tuple(written.calls), author)


def _role(content: types.Content, written: _Written) -> Role:
    if written.has_results:
        return "tool"
    if content.role == "user":
        return "user"
    return "assistant"


def _tokens_beside(content: types.Content) -> int:
    """Tokens of what no column shows: thoughts, pictures, files."""
    thoughts: list[Thought] = []
    media: list[Media] = []
    for part in content.parts or ():
        if part.thought and part.text:
            thoughts.append(Thought(part.text))
        if part.inline_data:
            media.append(Media(part.inline_data.mime_type or "", part.inline_data.data))
        elif part.file_data:
            media.append(Media(part.file_data.mime_type or "", uri=part.file_data.file_uri))
    if not thoughts and not media:
        return 0
    beside = Message("assistant", thoughts=tuple(thoughts), media=tuple(media))
    return count_tokens(beside) - count_tokens(Message("assistant"))


# -- a stored event becomes an event again ------------------------------------------------------------------------


def stored_to_events(stored: Iterable[Stored], root_agent_name: str) -> list[Event]:
    """Rebuild events. `root_agent_name` is the author of messages that name none."""
    events: list[Event] = []
    waiting: list[ToolCall] = []  # calls of the newest assistant message that no older writer's result has used yet
    for one in stored:
        message = one.message
        if message is not None and message.role not in ("tool", "function", "event"):
            waiting = list(_with_ids(message.tool_calls))
        events.append(_stored_to_event(one, root_agent_name, waiting))
    return events


def _stored_to_event(one: Stored, root_agent_name: str, waiting: list[ToolCall]) -> Event:
    extra = dict(one.extra or {})
    message = one.message
    update: dict[str, Any] = {
        "id": one.event_id,
        "timestamp": one.created_at,
        "invocation_id": one.invocation_id,
        "actions": _actions(extra.pop("actions", None), one.state_delta),
        "node_info": like(_NODE_INFO, {}),
    }
    if message is None:
        update["author"] = extra.pop("author", root_agent_name)
    else:
        update["author"] = message.author or _author(message.role, root_agent_name)
        update["content"] = _content(message, extra, waiting)
    for name, value in extra.items():
        if name in Event.model_fields:  # a newer ADK may have known more
            update[name] = _field(name, value)
    return like(_EVENT, update)


def _field(name: str, value: Any) -> Any:
    if name == "usage_metadata" and all(type(count) is int for count in value.values()):
        return like(_USAGE, value)  # every answer of a model has one, and counts need no validation
    return _adapter(name).validate_python(value)


_EVENT = Event(id="template", timestamp=0.0)
_NODE_INFO = _EVENT.node_info
_ACTIONS = EventActions()
_PART = types.Part()
_CONTENT = types.Content()
_CALL = types.FunctionCall()
_RESULT = types.FunctionResponse()
_USAGE = types.GenerateContentResponseUsageMetadata()
# a copy of a template with what differs is many times faster than validating what was validated before


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(Event.model_fields[name].rebuild_annotation())


def _actions(stored: Mapping[str, Any] | None, delta: Mapping[str, Any] | None) -> EventActions:
    state_delta = dict(delta or {})
    if stored:
        return EventActions.model_validate({**stored, "state_delta": state_delta})
    fresh: dict[str, Any] = {name: {} for name in _EMPTY_ACTIONS}
    return like(_ACTIONS, fresh | {"state_delta": state_delta})


def _author(role: str, root_agent_name: str) -> str:
    return "user" if role == "user" else root_agent_name


def _content_role(role: str) -> str:
    match role:
        case "user":
            return "user"
        case "tool" | "function":
            return "function"
        case _:
            return "model"


def _content(message: Message, extra: dict[str, Any], waiting: list[ToolCall]) -> types.Content | None:
    role = extra.pop("role", _content_role(message.role))
    layout = extra.pop("parts", _PLAIN)
    if message.role == "event":
        return None
    if layout is None:
        parts = None
    elif layout is not _PLAIN:
        parts = _Reading(message).parts(layout)
    elif message.role in ("tool", "function"):
        parts = _results(message, waiting)
    else:
        parts = [_text(message.content)] if message.content else []
        parts += [like(_PART, {"function_call": _call(call)}) for call in _with_ids(message.tool_calls)]
    return like(_CONTENT, {"role": role, "parts": parts})


_PLAIN: Layout = []


def _results(message: Message, waiting: list[ToolCall]) -> list[types.Part]:
    if message.tool_calls:
        return [like(_PART, {"function_response": _result(call)}) for call in _with_ids(message.tool_calls)]
    # an older writer kept only the content: it answers the next call that was made, by position
    if not waiting:
        return [_text(message.content)]
    call = waiting.pop(0)
    answer = ToolCall(call.id, call.name, output=object_or_result(message.content))
    return [like(_PART, {"function_response": _result(answer)})]


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
                return like(_PART, {"function_call": self._next_call({})})
            case "result":
                return like(_PART, {"function_response": self._next_result({})})
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
        return (types.Part.model_validate(told) if told else _PART).model_copy(update=update)

    def _slice(self, length: int) -> str:
        start, self.read = self.read, self.read + length
        return self.message.content[start : self.read]

    def _next(self) -> ToolCall:
        self.taken += 1
        return self.message.tool_calls[self.taken - 1]

    def _next_call(self, beyond: Mapping[str, Any]) -> types.FunctionCall:
        call = _call(self._next())
        return types.FunctionCall.model_validate({**_dump(call), **beyond}) if beyond else call

    def _next_result(self, beyond: Mapping[str, Any]) -> types.FunctionResponse:
        result = _result(self._next())
        return types.FunctionResponse.model_validate({**_dump(result), **beyond}) if beyond else result


def _text(text: str) -> types.Part:
    return like(_PART, {"text": text})


def _call(call: ToolCall) -> types.FunctionCall:
    return like(_CALL, {"id": call.id, "name": call.name, "args": call.input})


def _result(call: ToolCall) -> types.FunctionResponse:
    return like(_RESULT, {"id": call.id, "name": call.name, "response": call.output})


def _with_ids(calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
    """Older writers stored calls without ids: name them as a new one would be named."""
    if all(call.id for call in calls):
        return calls
    taken = {call.id for call in calls}
    named: list[ToolCall] = []
    for call in calls:
        id_ = call.id or fresh_call_id(call.name, taken)
        taken.add(id_)
        named.append(ToolCall(id_, call.name, call.input, call.output))
    return named
