"""What a client sees of a conversation: of a stored one and of a carried one, so that both can be compared.

A client sees the user's messages with their files, the texts of the assistant, the calls of the client's own tools and
what it returned to them. It does not see the agent's own tools, thoughts and state. White space around a text, the
names of files and how an answer was cut into pieces make no difference.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.adk.services.message_parts import stored_attachments, stored_thoughts
from lango.messages import Message, ToolCall
from lango.server.compat.inline_files import files_of, mark_of
from lango.store import Stored
from lango.store.codec.json_text import readable
from lango.store.codec.rows import client_calls
from lango.store.turns.client_calls import NO_RESULT

ASKING = "\n\n[This needs approval: "
"""Where what is added to an answer for the client's eyes begins."""

ShowResults = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]
"""Returns results as they are stored: long ones clipped."""


class Seen(Struct, frozen=True):
    """A message as a client sees it."""

    role: str
    text: str = ""
    files: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    results: frozenset[str] = frozenset()

    def __add__(self, other: "Seen") -> "Seen":
        """Join two pieces of one answer, or of the results of one answer's calls."""
        return Seen(self.role, self.text + other.text, (), self.calls + other.calls, self.results | other.results)


def user_view(message: Message, files: Iterable[str]) -> Seen:
    """Return what is seen of a user's message; `files` are their marks."""
    return Seen("user", readable(message.content).strip(), tuple(files))


def carried_view(history: Iterable[Message], show_results: ShowResults) -> list[Seen]:
    """Return what is seen of messages that a client carries."""
    return _joined(_seen_carried(message, show_results) for message in history)


def _seen_carried(message: Message, show_results: ShowResults) -> Seen:
    match message.role:
        case "user":
            return user_view(message, map(mark_of, files_of(message)))
        case "assistant":
            text = readable(message.content).partition(ASKING)[0]
            return Seen("assistant", text, calls=tuple(map(_call, message.tool_calls)))
        case _:
            shown = show_results({one.id: one.output or {} for one in message.tool_calls})
            return Seen("tool", results=frozenset(_result(*one) for one in shown.items()))


class StoredView(Struct, frozen=True):
    """A stored message before it is known which calls are the client's: pages are read from the newest one back."""

    seen: Seen
    makes: frozenset[str] = frozenset()
    """The client's calls that it makes."""
    results: tuple[ToolCall, ...] = ()
    hides: bool = False
    """The agent reads more of it than a client sees."""


def stored_view(stored: Stored) -> StoredView:
    """Return what is seen of a stored message."""
    message = stored.message or Message("event")
    hides = bool(stored.state_delta or stored_thoughts(stored))
    match message.role:
        case "user":
            return StoredView(user_view(message, map(mark_of, stored_attachments(stored))), hides=hides)
        case "assistant":
            makes = client_calls(stored)
            calls = [call for call in message.tool_calls if call.id in makes]
            seen = Seen("assistant", message.content, calls=tuple(map(_call, calls)))
            return StoredView(seen, makes, hides=hides or len(calls) < len(message.tool_calls))
        case "tool":
            return StoredView(Seen("tool"), results=message.tool_calls, hides=hides)
        case _:
            return StoredView(Seen("system"), hides=True)


def whole_view(stored: Sequence[StoredView]) -> tuple[list[Seen], bool]:
    """Return what is seen of a whole session, and whether the agent reads more of it than that."""
    clients = frozenset(call_id for one in stored for call_id in one.makes)
    hides = any(one.hides or any(result.id not in clients for result in one.results) for one in stored)
    return _joined(_with_results(one, clients) for one in stored), hides


def _with_results(one: StoredView, clients: frozenset[str]) -> Seen:
    # a call that was closed for want of a result has none in the client's eyes
    shown = [each for each in one.results if each.id in clients and each.output != NO_RESULT]
    results = frozenset(_result(each.id, each.output or {}) for each in shown)
    return Seen("tool", results=results) if one.results else one.seen


def _joined(seen: Iterable[Seen]) -> list[Seen]:
    """Join what belongs together, and leave out what says nothing."""
    joined: list[Seen] = []
    for one in seen:
        if one == Seen(one.role):
            continue
        if joined and joined[-1].role == one.role != "user":
            joined[-1] += one
        else:
            joined.append(one)
    return list(_stripped(joined))


def _stripped(joined: Iterable[Seen]) -> Iterator[Seen]:
    for one in joined:
        stripped = Seen(one.role, one.text.strip(), one.files, one.calls, one.results)
        if stripped != Seen(one.role):
            yield stripped


def _call(call: ToolCall) -> str:
    return _spelt([call.id, call.name, call.input or {}])


def _result(call_id: str, output: Mapping[str, Any]) -> str:
    return _spelt([call_id, output])


def _spelt(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)
