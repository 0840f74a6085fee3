"""Convert events and sessions to rows and back."""

import gc
import itertools
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

from msgspec import Struct

from lango.history.pairing import parse_result_text
from lango.json_values import as_object, storable_text
from lango.messages import Message, Role, ToolCall
from lango.sessions import (
    CONFIRMATION_CALL,
    EARLIEST_TIME,
    LATEST_TIME,
    MAX_ID_BYTES,
    STEERING,
    Origin,
    StoredEvent,
    check_id,
)
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import NewEvent, without_temporary_state
from lango.store.engine.database import Operation, Row

_EMPTY_MESSAGE = Message("event")


MESSAGE_COLUMNS = (
    "seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id, invocation_id, "
    "state_delta, extra, call_seq"
)


RESULT_ROLES = ("tool", "function")
"""The roles of rows with results: ours, and that of older writers."""
BEGINS_TURN = f"role = 'user' AND COALESCE(extra, '') NOT LIKE '%\"{STEERING}\":%'"
"""Whether a row is a message of the user that no turn took in while it ran."""
_ROLES = frozenset(get_args(Role))
STATE_COLUMNS = "seq, event_id, created_at, state_delta, extra"
_ROWS_PER_STATEMENT = 50


def rewinds_from_json(text: str | None) -> tuple[tuple[int, int], ...]:
    """Decode the column `rewinds`."""
    return tuple((at, first) for at, first in loads(text)) if text else ()


def origin_from_json(text: str | None) -> Origin | None:
    """Decode the column `forked_from`."""
    return Origin(**loads(text)) if text else None


class MessageRow(Struct, frozen=True):
    """The columns of a message."""

    role: str
    author: str
    content: str
    tool_calls: str | None
    tokens: int
    created_at: float
    event_id: str
    invocation_id: str
    state_delta: str | None
    extra: str | None


def event_to_row(entry: NewEvent) -> MessageRow:
    """Encode an event. A value that its text column cannot store exactly is in `extra` under the column's name."""
    message = entry.message or _EMPTY_MESSAGE
    extra, created_at = entry.extra or {}, entry.created_at
    event_id, invocation_id, author = entry.event_id, entry.invocation_id, message.author
    if not EARLIEST_TIME <= created_at <= LATEST_TIME:  # NaN too
        extra, created_at = {**extra, "created_at": created_at}, 0.0
    names = event_id + invocation_id + author
    if not names.isascii() or "\0" in names:
        exact = {"event_id": event_id, "invocation_id": invocation_id, "author": author}
        event_id, invocation_id, author = map(storable_text, exact.values())
        shown = {"event_id": event_id, "invocation_id": invocation_id, "author": author}
        extra = {**extra, **{name: text for name, text in exact.items() if text != shown[name]}}
    if len(event_id) > MAX_ID_BYTES // 4:  # a character has four bytes at most
        check_id("the id of an event", event_id)
    delta = without_temporary_state(entry.state_delta) if entry.state_delta else None
    return MessageRow(
        role=message.role,
        author=author,
        content=storable_text(message.content),
        tool_calls=calls_to_json(message.tool_calls) if message.tool_calls else None,
        tokens=entry.tokens,
        created_at=created_at,
        event_id=event_id,
        invocation_id=invocation_id,
        state_delta=dumps(delta) if delta else None,
        extra=dumps(extra) if extra else None,
    )


def row_to_event(row: Row) -> StoredEvent:
    """Decode a row of `MESSAGE_COLUMNS`."""
    seq, role, author, content, calls, tokens, total, created_at, event_id, invocation_id, delta, extra, _ = row
    extra_members: dict[str, Any] = loads(extra) if extra else {}
    message = Message(
        role_of_row(role),
        content,
        calls_from_json(calls) if calls else (),
        extra_members.pop("author", author),
    )
    return StoredEvent(
        seq=seq,
        event_id=extra_members.pop("event_id", None) or event_id,
        created_at=extra_members.pop("created_at", created_at),
        message=message,
        tokens=tokens,
        total_tokens=total,
        invocation_id=extra_members.pop("invocation_id", None) or invocation_id,
        state_delta=loads(delta) if delta else None,
        extra=extra_members,
    )


def role_of_row(stored: str) -> Role:
    """Return the role of a row; older writers used `model` or the agent's name, and `function` for results."""
    if stored in _ROLES:
        return cast("Role", stored)
    return "tool" if stored in RESULT_ROLES else "assistant"


def long_running_call_ids(extra: str | None) -> frozenset[str]:
    """Return the ids of a message's long-running calls, from the column `extra`."""
    members: dict[str, Any] = loads(extra) if extra else {}
    return frozenset(members.get("long_running_tool_ids") or ())


def row_to_state_event(row: Row) -> StoredEvent:
    """Decode a row of `STATE_COLUMNS`."""
    seq, event_id, created_at, delta, extra = row
    extra_members: dict[str, Any] = loads(extra) if extra else {}
    return StoredEvent(
        seq=seq,
        event_id=extra_members.pop("event_id", None) or event_id,
        created_at=extra_members.pop("created_at", created_at),
        message=None,
        invocation_id=extra_members.pop("invocation_id", ""),
        state_delta=loads(delta),
        extra=extra_members,
    )


def insert_rows(table: str, columns: str, rows: Sequence[Row]) -> Operation[None]:
    """Insert rows, many with each statement; `columns` are those after the session's key."""
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        some = rows[start : start + _ROWS_PER_STATEMENT]
        numbers = itertools.count(1)
        values = ", ".join(f"({', '.join(f'${next(numbers)}' for _ in row)})" for row in some)
        sql = f"INSERT INTO {table} (session_key, {columns}) VALUES {values}"  # noqa: S608 - constants
        yield sql, tuple(itertools.chain.from_iterable(some))


def calls_to_json(calls: tuple[ToolCall, ...]) -> str:
    """Encode calls and results as objects, without unset members."""
    found: list[dict[str, Any]] = []
    for call in calls:
        members = {"id": call.id, "name": call.name, "input": call.input, "output": call.output}
        found.append({name: value for name, value in members.items() if value is not None})
    return dumps(found)


def approval_subject(call: ToolCall) -> dict[str, Any]:
    """Return the call that an approval request is about (id, name, args), or {} if it is not such a request."""
    shown = (call.input or {}).get("originalFunctionCall") if call.name == CONFIRMATION_CALL else None
    subject = as_object(shown)
    return subject if isinstance(subject.get("id"), str) else {}


_STANDARD_HINT = re.compile(
    r"May \S+ run with exactly these arguments\?|Please approve or reject the tool call .*", re.DOTALL
)


def confirmation_of(call: ToolCall) -> tuple[str, Any]:
    """Return the hint and the payload of a call that is an approval request.

    The hint is "" if the tool gave none: Lango and ADK then write one that says nothing more than the call.
    """
    given = (call.input or {}).get("toolConfirmation") if call.name == CONFIRMATION_CALL else None
    asked = as_object(given)
    hint = asked.get("hint")
    shown = hint if isinstance(hint, str) and not _STANDARD_HINT.fullmatch(hint) else ""
    return shown, asked.get("payload")


def calls_from_json(text: str) -> tuple[ToolCall, ...]:
    """Decode calls and results, also those that an older writer stored as JSON in a string."""
    return tuple(
        ToolCall(
            members.get("id") or "",
            members.get("name") or "",
            _parse_object(members.get("input")),
            _parse_object(members.get("output")),
        )
        for members in loads(text)
    )


def _parse_object(value: Any) -> Mapping[str, Any] | None:
    return parse_result_text(value) if isinstance(value, str) else value


@contextmanager
def garbage_collection_paused() -> Generator[None]:
    """Pause garbage collection while many objects are made: each run would traverse all of them and free none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
