"""Reduce stored and resent conversations to what a client can see of them, so that they can be compared.

An answer that pauses ends with a note about what its turn waits for, for clients whose protocol has no other way to
show it. The note is not stored.

A client sees the user's messages with their files, the assistant's texts, and the calls of the client's own tools with
their results. It does not see the agent's own tools, thoughts and state. White space around a text, file names and how
an answer was split into messages make no difference.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.json_values import storable_text
from lango.messages import Message, ToolCall
from lango.server.compat.inline_files import attachments_of_message, file_fingerprint
from lango.server.context import AgentUser
from lango.server.json_body import tool_value_text
from lango.sessions import NO_RESULT, StoredEvent
from lango.waits import (
    ApprovalWait,
    ClientResultWait,
    CredentialWait,
    EventWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    TimerWait,
    Wait,
)

_APPROVAL_NOTE = "\n\n[This needs approval: "
_INPUT_NOTE = "\n\n[This needs input: "
_CREDENTIAL_NOTE = "\n\n[This needs access: "
_WAIT_NOTE = "\n\n[This waits: "
_NOTES = re.compile("|".join(map(re.escape, (_APPROVAL_NOTE, _INPUT_NOTE, _CREDENTIAL_NOTE, _WAIT_NOTE))))

ClipResults = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]
"""Clips long results, as the store does."""


def pause_note(wait: Wait) -> str:
    """Return the note about a wait for a person, and how to answer it; empty for a result, which is no person's."""
    where = f"POST /v1/sessions/{wait.session_id}/waits/{wait.id}"
    match wait:
        case QuestionWait():  # the next message would wait for the tool
            return f"{_INPUT_NOTE}{wait.message}; answer with {where}]"
        case InputWait():  # the next message is the answer
            return f"{_INPUT_NOTE}{wait.message}]"
        case CredentialWait():
            return f"{_CREDENTIAL_NOTE}{wait.message}; allow it at {wait.auth_url or where}]"
        case ApprovalWait():
            return f"{_APPROVAL_NOTE}{wait.tool}({tool_value_text(wait.arguments)}); answer with {where}]"
        case TimerWait():
            until = "" if wait.expires_at is None else f" at {wait.expires_at.isoformat(timespec='seconds')}"
            return f"{_WAIT_NOTE}{wait.reason or wait.tool}; it continues by itself{until}, or now with {where}]"
        case EventWait():
            return f"{_WAIT_NOTE}{wait.reason or f'the event {wait.event}'}; it continues by itself]"
        case ClientResultWait() | LongRunningWait():
            return ""


async def wait_id_of_approval(user: AgentUser, session_id: str, call_id: str) -> str:
    """Return the id of the wait for the approval of a call, or the call's own id if none is open."""
    waits = await user.waits(session_id)
    found = [wait.id for wait in waits if isinstance(wait, ApprovalWait) and wait.call_id == call_id]
    return found[0] if found else call_id


class VisibleMessage(Struct, frozen=True):
    """A message as a client sees it."""

    role: str
    text: str = ""
    files: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    results: frozenset[str] = frozenset()

    def __add__(self, other: "VisibleMessage") -> "VisibleMessage":
        """Join two parts of one answer, or of the results of one answer's calls."""
        return VisibleMessage(
            self.role, self.text + other.text, (), self.calls + other.calls, self.results | other.results
        )


def visible_user_message(message: Message, files: Iterable[str]) -> VisibleMessage:
    """Return the visible part of a user's message; `files` are fingerprints."""
    return VisibleMessage("user", storable_text(message.content).strip(), tuple(files))


def visible_carried(history: Iterable[Message], clip_results: ClipResults) -> list[VisibleMessage]:
    """Return the visible part of a history that a client resends."""
    return _join_pieces(_visible_carried_message(message, clip_results) for message in history)


def _visible_carried_message(message: Message, clip_results: ClipResults) -> VisibleMessage:
    match message.role:
        case "user":
            return visible_user_message(message, map(file_fingerprint, attachments_of_message(message)))
        case "assistant":
            text = _NOTES.split(storable_text(message.content), maxsplit=1)[0]
            return VisibleMessage("assistant", text, calls=tuple(map(_call_text, message.tool_calls)))
        case _:
            shown = clip_results({call.id: call.output or {} for call in message.tool_calls})
            return VisibleMessage("tool", results=frozenset(_result_text(*call) for call in shown.items()))


class VisibleStored(Struct, frozen=True):
    """A stored message whose results are not filtered yet: pages are read backwards, so results precede their calls."""

    message: VisibleMessage
    client_call_ids: frozenset[str] = frozenset()
    """Calls of the client's tools in this message."""
    results: tuple[ToolCall, ...] = ()
    has_hidden_parts: bool = False
    """Whether the agent reads more of it than a client sees."""


def visible_stored(stored: StoredEvent) -> VisibleStored:
    """Return the visible part of a stored message."""
    message = stored.message or Message("event")
    hides = bool(stored.state_delta or stored.thoughts)
    match message.role:
        case "user":
            return VisibleStored(
                visible_user_message(message, map(file_fingerprint, stored.attachments)), has_hidden_parts=hides
            )
        case "assistant":
            makes = stored.client_call_ids
            calls = [call for call in message.tool_calls if call.id in makes]
            seen = VisibleMessage("assistant", message.content, calls=tuple(map(_call_text, calls)))
            return VisibleStored(seen, makes, has_hidden_parts=hides or len(calls) < len(message.tool_calls))
        case "tool":
            return VisibleStored(VisibleMessage("tool"), results=message.tool_calls, has_hidden_parts=hides)
        case _:
            return VisibleStored(VisibleMessage("system"), has_hidden_parts=True)


def visible_session(stored: Sequence[VisibleStored]) -> tuple[list[VisibleMessage], bool]:
    """Return the visible part of a whole session, and whether the agent reads more than that."""
    clients = frozenset(call_id for view in stored for call_id in view.client_call_ids)
    hides = any(view.has_hidden_parts or any(result.id not in clients for result in view.results) for view in stored)
    return _join_pieces(_with_client_results(view, clients) for view in stored), hides


def _with_client_results(view: VisibleStored, clients: frozenset[str]) -> VisibleMessage:
    # a call that was closed without a result has none for the client
    shown = [result for result in view.results if result.id in clients and result.output != NO_RESULT]
    results = frozenset(_result_text(result.id, result.output or {}) for result in shown)
    return VisibleMessage("tool", results=results) if view.results else view.message


def _join_pieces(seen: Iterable[VisibleMessage]) -> list[VisibleMessage]:
    """Join parts of one answer, and omit empty messages."""
    joined: list[VisibleMessage] = []
    for message in seen:
        if message == VisibleMessage(message.role):
            continue
        if joined and joined[-1].role == message.role != "user":
            joined[-1] += message
        else:
            joined.append(message)
    stripped = [replace(message, text=message.text.strip()) for message in joined]
    return [message for message in stripped if message != VisibleMessage(message.role)]


def _call_text(call: ToolCall) -> str:
    return _canonical_json([call.id, call.name, call.input or {}])


def _result_text(call_id: str, output: Mapping[str, Any]) -> str:
    return _canonical_json([call_id, output])


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)
