"""A conversation that a client carries, as events for the store.

Who says what the assistant said is the client here, so every event is marked (`CARRIED`), and nothing of it can act:
calls in the name of ADK's own are refused, every call has its result, and none of them waits, asks or approves.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.adk.events import Event
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.client_tools import RESERVED_NAMES, answering, kept
from lango.adk.model.call_checks import is_reserved
from lango.adk.services.events_to_rows import complete_event, event_to_entry
from lango.adk.services.message_parts import attachments_to_parts
from lango.errors import ClientToolRefused
from lango.messages import Attachment, Media, Message, ToolCall
from lango.store import Entry
from lango.store.codec.records import CARRIED, CLIENT_CALLS, ClientResult
from lango.store.turns.client_calls import NO_RESULT


def carried_entries(
    history: Sequence[Message], root_agent_name: str, agents: Collection[Any], *, answered: bool = False
) -> tuple[Entry, ...]:
    """Return the messages of a history as the store keeps them. A user's message begins an invocation.

    A call without a result gets one that says so; with `answered`, those of the last message are left to be answered.
    Raise `ClientToolRefused` for calls in a name of ADK's own.
    """
    _check_names(history)
    entries: list[Entry] = []
    invocation_id = ""
    for place, message in enumerate(history):
        if message.role == "user" or not invocation_id:
            invocation_id = f"e-{uuid.uuid4()}"
        results: Mapping[str, ClientResult] = {}
        match message.role:
            case "user":
                entries.append(_entry("user", invocation_id, _user_content(message), root_agent_name))
            case "assistant":
                entries.append(_entry(root_agent_name, invocation_id, _answer(message), root_agent_name))
            case _:
                results = kept({one.id: one.output or {} for one in message.tool_calls}, agents)
                entries.append(_results(message.tool_calls, results, invocation_id, root_agent_name))
        left = _unanswered(history, place)
        if left and not (answered and place == len(history) - 1):
            closed = {one.id: ClientResult(NO_RESULT) for one in left}
            entries.append(_results(left, closed, invocation_id, root_agent_name))
    return tuple(entries)


def _check_names(history: Sequence[Message]) -> None:
    names = {call.name for message in history for call in message.tool_calls}
    refused = sorted(name for name in names if name in RESERVED_NAMES or is_reserved(name))
    if refused:
        raise ClientToolRefused(f"no client makes calls of {', '.join(refused)}: that is the runtime's own")


def _unanswered(history: Sequence[Message], place: int) -> list[ToolCall]:
    """Return the calls without a result of the assistant's message that is followed by no more results after `place`.

    Results stand right after the message that made their calls.
    """
    if place + 1 < len(history) and history[place + 1].role == "tool":
        return []
    answered = {one.id for one in history[place].tool_calls} if history[place].role == "tool" else set[str]()
    made_by = history[place - 1] if answered else history[place]
    return [one for one in made_by.tool_calls if one.id not in answered] if made_by.role == "assistant" else []


def _user_content(message: Message) -> types.Content:
    words = [types.Part(text=message.content)] if message.content or not message.media else []
    return types.Content(role="user", parts=words + attachments_to_parts([_file(one) for one in message.media]))


def _file(media: Media) -> Attachment:
    return Attachment(media.name or "", media.mime_type, media.data or b"")


def _answer(message: Message) -> types.Content:
    parts = [types.Part(text=message.content)] if message.content else []
    calls = [types.FunctionCall(id=one.id, name=one.name, args=dict(one.input or {})) for one in message.tool_calls]
    return types.Content(role="model", parts=parts + [types.Part(function_call=one) for one in calls])


def _results(
    calls: Sequence[ToolCall], results: Mapping[str, ClientResult], invocation_id: str, root_agent_name: str
) -> Entry:
    return _entry("user", invocation_id, answering(calls, results), root_agent_name, results)


def _entry(
    author: str,
    invocation_id: str,
    content: types.Content,
    root_agent_name: str,
    results: Mapping[str, ClientResult] | None = None,
) -> Entry:
    calls = [part.function_call.id or "" for part in content.parts or () if part.function_call]
    metadata: dict[str, Any] = {CARRIED: True} | ({CLIENT_CALLS: calls} if calls else {})
    event = Event(author=author, invocation_id=invocation_id, content=content, custom_metadata=metadata)
    event.long_running_tool_ids = set(calls) or None
    complete_event(event, root_agent_name)
    entry = event_to_entry(event)
    return replace(entry, results=results) if results else entry
