"""Convert a history that the client sent along to stored events.

Only the client vouches for such messages, so every event is marked with `CLIENT_HISTORY_KEY` and none can have an
effect: calls with names that ADK reserves are refused, every call has a result, and no event waits or approves.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.adk.events import Event
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.tools.adk_tool import attachments_to_parts
from lango.adk.agents.tools.client_tools import ADK_TOOL_NAMES, results_content, results_to_store
from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.model.call_checks import is_reserved_name
from lango.errors import ClientToolRefused
from lango.messages import Attachment, Message, ToolCall
from lango.sessions import CLIENT_CALLS_KEY, NO_RESULT
from lango.store import NewEvent
from lango.store.codec.records import CLIENT_HISTORY_KEY, ClientResult


def history_to_entries(
    history: Sequence[Message], root_agent_name: str, agents: Collection[Any], *, leave_last_open: bool = False
) -> tuple[NewEvent, ...]:
    """Convert the messages of a history to store entries. Each user message starts an invocation.

    A call without a result gets a result that says so; with `leave_last_open`, the calls of the last message do not.
    Raise `ClientToolRefused` for calls with a name that ADK reserves.
    """
    _refuse_reserved_names(history)
    entries: list[NewEvent] = []
    # Random bytes for each message would starve the event loop: every read of them releases the interpreter lock and
    # takes it again before a waiting thread wakes up.
    history_id = uuid.uuid4()
    invocation_id = ""

    def add(author: str, content: types.Content, results: Mapping[str, ClientResult] | None = None) -> None:
        event_id = f"{history_id}-{len(entries)}"
        entries.append(_client_entry(event_id, author, invocation_id, content, root_agent_name, results))

    for index, message in enumerate(history):
        if message.role == "user" or not invocation_id:
            invocation_id = f"e-{history_id}-{index}"
        match message.role:
            case "user":
                add("user", _user_content(message))
            case "assistant":
                add(root_agent_name, _assistant_content(message))
            case _:
                results = results_to_store({call.id: call.output or {} for call in message.tool_calls}, agents)
                add("user", results_content(message.tool_calls, results), results)
        unanswered = _unanswered_calls(history, index)
        if unanswered and not (leave_last_open and index == len(history) - 1):
            closed = {call.id: ClientResult(NO_RESULT) for call in unanswered}
            add("user", results_content(unanswered, closed), closed)
    return tuple(entries)


def _refuse_reserved_names(history: Sequence[Message]) -> None:
    names = {call.name for message in history for call in message.tool_calls}
    refused = sorted(name for name in names if name in ADK_TOOL_NAMES or is_reserved_name(name))
    if refused:
        raise ClientToolRefused(f"a client's history cannot contain calls with reserved names: {', '.join(refused)}")


def _unanswered_calls(history: Sequence[Message], index: int) -> list[ToolCall]:
    """Return the unanswered calls of an assistant message whose results, if it has any, end at `index`.

    Results stand right after the message that made their calls.
    """
    if index + 1 < len(history) and history[index + 1].role == "tool":
        return []
    message = history[index]
    answered = {call.id for call in message.tool_calls} if message.role == "tool" else set[str]()
    caller = history[index - 1] if answered else message
    return [call for call in caller.tool_calls if call.id not in answered] if caller.role == "assistant" else []


def _user_content(message: Message) -> types.Content:
    text_parts = [types.Part(text=message.content)] if message.content or not message.media else []
    files = [Attachment(media.name or "", media.mime_type, media.data or b"") for media in message.media]
    return types.Content(role="user", parts=text_parts + attachments_to_parts(files))


def _assistant_content(message: Message) -> types.Content:
    parts = [types.Part(text=message.content)] if message.content else []
    calls = [types.FunctionCall(id=call.id, name=call.name, args=dict(call.input or {})) for call in message.tool_calls]
    return types.Content(role="model", parts=parts + [types.Part(function_call=call) for call in calls])


def _client_entry(
    event_id: str,
    author: str,
    invocation_id: str,
    content: types.Content,
    root_agent_name: str,
    results: Mapping[str, ClientResult] | None,
) -> NewEvent:
    calls = [part.function_call.id or "" for part in content.parts or () if part.function_call]
    metadata: dict[str, Any] = {CLIENT_HISTORY_KEY: True} | ({CLIENT_CALLS_KEY: calls} if calls else {})
    event = Event(id=event_id, author=author, invocation_id=invocation_id, content=content, custom_metadata=metadata)
    event.long_running_tool_ids = set(calls) or None
    complete_event(event, root_agent_name)
    entry = event_to_entry(event)
    return replace(entry, client_results=results) if results else entry
