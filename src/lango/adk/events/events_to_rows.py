"""Convert ADK events to rows without losing anything; `lango.adk.events.rows_to_events` converts them back.

The readable columns of a row (role, author, content, tool_calls) hold most events completely. What they cannot express
goes into `extra`, without defaults: the fields of the event by their names, and under `parts` the layout of the content
unless it is the default layout, which is one text and then calls, or only results. In a layout, a number is a text of
that many characters of `content`, `"call"` and `"result"` are the next of `tool_calls`, and an object is a part with
further fields. The bytes of files are not in the row but in `NewEvent.contents`, unless they are few.

The output of a workflow is stored as an answer, so that every reader of the conversation has it: `content` is its text,
and `output_text` in `extra` says that the event itself has no content.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from google.adk.events import Event, EventActions
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import BaseModel

from lango.events import output_to_text
from lango.history import count_tokens
from lango.history.pairing import pair
from lango.json_values import storable_text
from lango.messages import Media, Message, Role, StoredBytes, Thought, ToolCall, byte_size, content_hash, fresh_call_id
from lango.store import NewEvent
from lango.store.codec.json_text import dumps
from lango.store.codec.records import without_temporary_state
from lango.store.contents import SMALLEST_CONTENT

DEFAULT_AGENT_NAME = "lango-agent"
AGENT_ERROR = "AGENT_ERROR"
"""The code of an error that an agent reports with a message only."""
OUTPUT_TEXT = "output_text"
"""In the `extra` of an event without content: the row's `content` is the text of its output."""

# every event has these fields. An event with only these and a state delta is not a message.
_COMMON_FIELDS = {"branch", "isolation_scope", "node_info", "partial", "turn_complete", "custom_metadata"}
_COLUMN_FIELDS = {"id", "author", "timestamp", "invocation_id", "content", "actions", "node_info"}

_DEFAULT_ACTIONS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True, validated_data={})
    for name, field in EventActions.model_fields.items()
}
EMPTY_ACTION_FIELDS = {name for name, value in _DEFAULT_ACTIONS.items() if value == {}}


def _sets_only(kind: type[BaseModel], *known: str) -> Callable[[BaseModel], bool]:
    """Return a function that checks whether a model sets only these fields, ten times as fast as one by one."""
    others = sorted(kind.model_fields.keys() - {*known})
    get, unset = itemgetter(*others), (None,) * len(others)
    return lambda model: get(model.__dict__) == unset


_is_usual_event = _sets_only(Event, *_COLUMN_FIELDS, "usage_metadata")
_is_only_text = _sets_only(types.Part, "text")
_is_only_call = _sets_only(types.Part, "function_call")
_is_only_result = _sets_only(types.Part, "function_response")
_CALL_FIELDS, _RESULT_FIELDS = ("id", "name", "args"), ("id", "name", "response")
_is_usual_call = _sets_only(types.FunctionCall, *_CALL_FIELDS)
_is_usual_result = _sets_only(types.FunctionResponse, *_RESULT_FIELDS)

_BUILTIN_TYPES = {str, bool, int, float}
_COUNT_FIELDS = [name for name in types.GenerateContentResponseUsageMetadata.model_fields if name.endswith("_count")]
_has_only_counts = _sets_only(types.GenerateContentResponseUsageMetadata, *_COUNT_FIELDS)

Layout = list[Any]


def complete_error(response: LlmResponse) -> None:
    """Give a response or an event that has only the message of an error a code: failures are recognized by it."""
    if response.error_message and not response.error_code:
        response.error_code = AGENT_ERROR


def complete_event(event: Event, root_agent_name: str | None, earlier: Sequence[Event] = ()) -> None:
    """Fill in what an event lacks and a reload would add: its author, and the ids of calls and results.

    A result without an id gets the id of the call that it answers, among the `earlier` events of its session.
    """
    content = event.content
    if content is not None and type(content) is not types.Content:
        # a UserContent or ModelContent of genai compares unequal to the same Content
        event.content = content = types.Content(role=content.role, parts=content.parts)
    if not event.author:
        event.author = default_author("user" if content and content.role == "user" else "", root_agent_name)
    if content is None:
        return
    calls: list[types.FunctionCall] = []
    results: list[types.FunctionResponse] = []
    for part in content.parts or ():
        if part.function_call:
            calls.append(part.function_call)
        if part.function_response:
            results.append(part.function_response)
    if calls:
        _fill_call_ids(calls)
    if results:
        _pair_results(event, results, earlier)
        _fill_call_ids(results)


def default_author(role: str, root_agent_name: str | None) -> str:
    """Return the author of a message of this role that has none."""
    return "user" if role == "user" else (root_agent_name or "").strip() or DEFAULT_AGENT_NAME


def _fill_call_ids(calls: Sequence[types.FunctionCall | types.FunctionResponse]) -> None:
    if all(call.id for call in calls):
        return
    used_ids = {call.id for call in calls if call.id}
    for call in calls:
        if not call.id:
            call.id = fresh_call_id(call.name or "", used_ids)
            used_ids.add(call.id)


def _pair_results(event: Event, results: Sequence[types.FunctionResponse], earlier: Sequence[Event]) -> None:
    """Give results the ids of the calls that they answer, where an id is missing on either side."""
    if all(result.id and _has_call(result.id, earlier) for result in results):
        return
    messages = [message for candidate in (*earlier, event) for message in _calls_and_results(candidate)]
    for slot in pair(messages).slots:
        if slot.result is not None and slot.result.at == len(messages) - 1:
            results[slot.result.number].id = slot.call.id


def _has_call(call_id: str, events: Sequence[Event]) -> bool:
    """Whether a call of this id was made; the newest events are searched first."""
    for event in reversed(events):
        for part in (event.content and event.content.parts) or ():
            if part.function_call and part.function_call.id == call_id:
                return True
    return False


def _calls_and_results(event: Event) -> Iterator[Message]:
    if calls := event.get_function_calls():
        yield Message("assistant", tool_calls=tuple(ToolCall(call.id or "", call.name or "", {}) for call in calls))
    if results := event.get_function_responses():
        yield Message(
            "tool", tool_calls=tuple(ToolCall(result.id or "", result.name or "", output={}) for result in results)
        )


def event_to_entry(event: Event, expires_s: Mapping[str, float | None] | None = None) -> NewEvent:
    """Convert an event to a store entry. The event is complete (see `complete_event`)."""
    extra = _extra_of_event(event)
    contents: dict[str, bytes] = {}
    delta = without_temporary_state(event.actions.state_delta) if event.actions.state_delta else None
    if event.content is None and (text := output_text(event)):
        extra[OUTPUT_TEXT] = True
        message, tokens = Message("assistant", text, author=event.author), 0  # no model reads it
    elif event.content is None:
        state_only = bool(event.actions.state_delta) and extra.keys() <= _COMMON_FIELDS
        message = None if state_only else Message("event", author=event.author)
        if state_only:
            extra["author"] = event.author
        tokens = 0
    else:
        message = _content_to_message(event.content, event.author, extra, contents)
        tokens = count_tokens(message) + (_tokens_outside_columns(event.content) if "parts" in extra else 0)
    return NewEvent(
        event_id=event.id,
        created_at=event.timestamp,
        message=message,
        tokens=tokens,
        invocation_id=event.invocation_id,
        state_delta=delta,
        extra=extra,
        long_running=frozenset(event.long_running_tool_ids or ()),
        rewind_before=event.actions.rewind_before_invocation_id,
        expires_s=expires_s or {},
        contents=contents,
    )


def output_text(event: Event) -> str:
    """Return the text of the output that ends a run, such as that of a workflow's last node, or ""."""
    paths = event.node_info.output_for or ()
    if event.output is None or all("/" in path for path in paths):  # the root's path has one step
        return ""
    return output_to_text(event.output)


def _extra_of_event(event: Event) -> dict[str, Any]:
    """Dump the fields that have no column. Unset fields are None."""
    fields = event.__dict__
    rest: dict[str, Any] = {}
    if type(event) is not Event or not _is_usual_event(event):
        rest = {
            name: _to_builtin(value)
            for name, value in fields.items()
            if value is not None and name not in _COLUMN_FIELDS
        }
    elif event.usage_metadata is not None:
        rest["usage_metadata"] = _to_builtin(event.usage_metadata)
    set_actions = vars(event.actions)
    if set_actions != _DEFAULT_ACTIONS and {**set_actions, "state_delta": {}} != _DEFAULT_ACTIONS:
        actions = dump_non_defaults(event.actions, {"state_delta"})
        unset = {
            name for name, value in actions.items() if value is None or (not value and name in EMPTY_ACTION_FIELDS)
        }
        rest["actions"] = {name: value for name, value in actions.items() if name not in unset}
    node_info = event.node_info
    if node_info.path or node_info.output_for is not None or node_info.message_as_output is not None:
        rest["node_info"] = dump_non_defaults(node_info)
    return rest


def _to_builtin(value: Any) -> Any:
    kind = cast("type[object]", type(value))  # isinstance with pydantic's classes takes many times longer
    if kind in _BUILTIN_TYPES:
        return value
    if kind is types.GenerateContentResponseUsageMetadata:  # every model response has it
        fields = value.__dict__
        if _has_only_counts(value) and not value.__pydantic_extra__:
            return {name: fields[name] for name in _COUNT_FIELDS if fields[name] is not None}
    if isinstance(value, BaseModel):
        return dump_non_defaults(value)
    return sorted(cast("set[str]", value)) if isinstance(value, set) else value


def dump_non_defaults(model: BaseModel, exclude: set[str] | None = None) -> dict[str, Any]:
    """Return the fields of a model that differ from their defaults."""
    # not in JSON mode: the store writes the JSON, and bytes and floats must arrive there unchanged
    return model.model_dump(exclude_defaults=True, exclude=exclude)


class _RowBuilder:
    """Collects the parts of a content for the columns of a row."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        """`contents` gets the bytes that are stored apart from the row."""
        self.contents = contents
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.layout: Layout = []
        self.has_results = False

    def add(self, part: types.Part) -> None:
        fields: dict[str, Any] = {}
        shorthand: Any = None
        for name, value in part.__dict__.items():
            if value is None:
                continue
            match name:
                case "text":
                    fields["text"] = self._add_text(value, part.thought is True)
                    shorthand = fields["text"] if isinstance(fields["text"], int) else None
                case "function_call":
                    fields["call"] = self._add_call(value)
                    shorthand = "call" if not fields["call"] else None
                case "function_response":
                    fields["result"] = self._add_result(value)
                    shorthand = "result" if not fields["result"] else None
                case "inline_data":
                    fields[name] = self._move_bytes(_to_builtin(value))
                case _:
                    fields[name] = _to_builtin(value)
        self.layout.append(shorthand if len(fields) == 1 and shorthand is not None else fields)

    def _add_text(self, text: str, thought: bool) -> int | str:
        if thought:
            return text
        self.texts.append(text)
        return len(text) if storable_text(text) == text else text

    def _add_call(self, call: types.FunctionCall) -> dict[str, Any]:
        self.calls.append(ToolCall(call.id or "", call.name or "", call.args))
        return _extra_fields(call, _CALL_FIELDS, usual=_is_usual_call(call))

    def _add_result(self, result: types.FunctionResponse) -> dict[str, Any]:
        self.has_results = True
        self.calls.append(ToolCall(result.id or "", result.name or "", output=result.response))
        extra = _extra_fields(result, _RESULT_FIELDS, usual=_is_usual_result(result))
        for part in extra.get("parts") or ():
            if part.get("inline_data"):
                self._move_bytes(part["inline_data"])
        return extra

    def _move_bytes(self, blob: dict[str, Any]) -> dict[str, Any]:
        """Replace the bytes of a file by their hash, unless they are few."""
        data = blob.get("data")
        if isinstance(data, bytes) and byte_size(data) >= SMALLEST_CONTENT:
            stored = StoredBytes(content_hash(data), byte_size(data))
            self.contents[stored.hash] = data
            blob["data"] = stored
        return blob

    @property
    def has_default_layout(self) -> bool:
        """Whether the layout need not be stored."""
        layout = self.layout
        if not layout:
            return False
        if layout[0] == "result":
            return all(item == "result" for item in layout)
        calls = layout[1:] if type(layout[0]) is int and layout[0] > 0 else layout
        return all(item == "call" for item in calls)


def _extra_fields(
    call: types.FunctionCall | types.FunctionResponse, known: tuple[str, ...], *, usual: bool
) -> dict[str, Any]:
    """Return the fields of a call or result that `ToolCall` does not have."""
    extra = {} if usual else dump_non_defaults(call, {*known})
    if call.name is None:
        extra["name"] = None
    return extra


def _content_to_message(
    content: types.Content, author: str, extra: dict[str, Any], contents: dict[str, bytes]
) -> Message:
    parts = content.parts or ()
    if len(parts) == 1 and (message := _single_part_message(content, parts[0], author)):
        return message
    row = _RowBuilder(contents)
    for part in parts:
        row.add(part)
    if not row.has_default_layout:
        extra["parts"] = row.layout if content.parts is not None else None
    # ADK gives the messages of a workflow's nodes the user's role
    by_user = content.role == "user" and author == "user"
    role: Role = "tool" if row.has_results else "user" if by_user else "assistant"
    if role != "tool" and content_role(role) != content.role:
        extra["role"] = content.role
    results = [dumps(call.output or {}) for call in row.calls] if role == "tool" else []
    return Message(role, "".join(row.texts) + "\n".join(results), tuple(row.calls), author)


_CONTENT_ROLES: dict[str | None, Role] = {"user": "user", "model": "assistant"}


def _single_part_message(content: types.Content, part: types.Part, author: str) -> Message | None:
    """Convert a content of one plain text, call or result, as most are, faster than `_RowBuilder`; else None."""
    if type(part) is not types.Part:
        return None
    if (result := part.function_response) and _is_only_result(part) and _is_usual_result(result) and result.name:
        call = ToolCall(result.id or "", result.name, output=result.response)
        return Message("tool", dumps(result.response or {}), (call,), author)
    role = _CONTENT_ROLES.get(content.role)
    if role is None or (role == "user" and author != "user"):
        return None
    if (text := part.text) and _is_only_text(part) and storable_text(text) == text:
        return Message(role, text, author=author)
    if (made := part.function_call) and _is_only_call(part) and _is_usual_call(made) and made.name:
        return Message(role, "", (ToolCall(made.id or "", made.name, made.args),), author)
    return None


def content_role(role: str) -> str:
    """Return the role of the content in a message of this role, unless the row stores another one."""
    match role:
        case "user":
            return "user"
        case "tool" | "function":
            return "function"
        case _:
            return "model"


def _tokens_outside_columns(content: types.Content) -> int:
    """Count the tokens of thoughts, pictures and files, which have no column."""
    parts = content.parts or ()
    thoughts = tuple(Thought(part.text) for part in parts if part.thought and part.text)
    of_results = [piece for part in parts for piece in (part.function_response and part.function_response.parts) or ()]
    media: list[Media] = []
    for part in (*parts, *of_results):
        if part.inline_data:
            media.append(Media(part.inline_data.mime_type or "", part.inline_data.data))
        elif part.file_data:
            media.append(Media(part.file_data.mime_type or "", uri=part.file_data.file_uri))
    with_them = Message("assistant", thoughts=thoughts, media=tuple(media))
    return count_tokens(with_them) - count_tokens(Message("assistant"))
