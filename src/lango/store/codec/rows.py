"""Convert events and sessions to rows and back."""

import gc
import json
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast, get_args

from msgspec import Struct

from lango.messages import Message, Role, ToolCall
from lango.store.codec.ids import lengthen, shorten, shorten_shared
from lango.store.codec.json_text import dumps, loads, readable
from lango.store.codec.records import (
    CLIENT_CALLS,
    CONFIRMATION,
    MAX_ID_BYTES,
    Entry,
    Origin,
    Stored,
    check_id,
    without_temp,
)
from lango.store.engine.database import Row

_NO_MESSAGE = Message("event")


MESSAGE_COLUMNS = (
    "seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id, invocation_id, "
    "state_delta, extra, call_seq"
)


RESULT_ROLES = ("tool", "function")
"""The roles of rows that hold results: ours, and the one that older writers gave them."""
_ROLES = frozenset(get_args(Role))
STATE_COLUMNS = "seq, event_id, created_at, state_delta, extra"
_MAX_READ_CHARACTERS = 200_000


def rewinds_from_json(text: str | None) -> tuple[tuple[int, int], ...]:
    """Decode the column `rewinds`."""
    return tuple((at, first) for at, first in loads(text)) if text else ()


def origin_from_json(text: str | None) -> Origin | None:
    """Decode the column `forked_from`."""
    return Origin(**loads(text)) if text else None


class Columns(Struct, frozen=True):
    """A message as its row holds it."""

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


def to_columns(entry: Entry) -> Columns:
    """Encode an event. What a readable column cannot show exactly is kept in `extra` under the column's name."""
    message = entry.message or _NO_MESSAGE
    extra, created_at = entry.extra or {}, entry.created_at
    event_id, invocation_id, author = entry.event_id, entry.invocation_id, message.author
    if not math.isfinite(created_at):
        extra, created_at = {**extra, "created_at": created_at}, 0.0
    names = event_id + invocation_id + author
    if not names.isascii() or "\0" in names:
        exact = {"event_id": event_id, "invocation_id": invocation_id, "author": author}
        event_id, invocation_id, author = map(readable, exact.values())
        shown = {"event_id": event_id, "invocation_id": invocation_id, "author": author}
        extra = {**extra, **{name: text for name, text in exact.items() if text != shown[name]}}
    event_id = shorten(event_id)
    if len(event_id) > MAX_ID_BYTES // 4:  # a character has four bytes at most
        check_id("the id of an event", event_id)
    delta = without_temp(entry.state_delta) if entry.state_delta else None
    return Columns(
        role=message.role,
        author=author,
        content=readable(message.content),
        tool_calls=calls_to_json(message.tool_calls) if message.tool_calls else None,
        tokens=entry.tokens,
        created_at=created_at,
        event_id=event_id,
        invocation_id=shorten_shared(invocation_id),
        state_delta=dumps(delta) if delta else None,
        extra=dumps(extra) if extra else None,
    )


def from_message_row(row: Row) -> Stored:
    """Decode a row of `MESSAGE_COLUMNS`."""
    seq, role, author, content, calls, tokens, total, created_at, event_id, invocation_id, delta, extra, _ = row
    beside: dict[str, Any] = loads(extra) if extra else {}
    message = Message(
        known_role(role),
        content,
        calls_from_json(calls) if calls else (),
        beside.pop("author", author),
    )
    return Stored(
        seq=seq,
        event_id=beside.pop("event_id", None) or lengthen(event_id),
        created_at=beside.pop("created_at", created_at),
        message=message,
        tokens=tokens,
        total_tokens=total,
        invocation_id=beside.pop("invocation_id", None) or lengthen(invocation_id),
        state_delta=loads(delta) if delta else None,
        extra=beside,
    )


def known_role(stored: str) -> Role:
    """Return the role of a row; older writers called an agent `model`, or by other names, and results `function`."""
    if stored in _ROLES:
        return cast("Role", stored)
    return "tool" if stored in RESULT_ROLES else "assistant"


def long_running(extra: str | None) -> frozenset[str]:
    """Return the ids of a message's calls whose results may come much later, from the column `extra`."""
    told: dict[str, Any] = loads(extra) if extra else {}
    return frozenset(told.get("long_running_tool_ids") or ())


def client_calls(stored: Stored) -> frozenset[str]:
    """Return the ids of a message's calls that the client makes."""
    metadata: Mapping[str, Any] = (stored.extra or {}).get("custom_metadata") or {}
    return frozenset(metadata.get(CLIENT_CALLS) or ())


def from_state_row(row: Row) -> Stored:
    """Decode a row of `STATE_COLUMNS`."""
    seq, event_id, created_at, delta, extra = row
    beside: dict[str, Any] = loads(extra) if extra else {}
    return Stored(
        seq=seq,
        event_id=beside.pop("event_id", None) or lengthen(event_id),
        created_at=beside.pop("created_at", created_at),
        message=None,
        invocation_id=lengthen(beside.pop("invocation_id", "")),
        state_delta=loads(delta),
        extra=beside,
    )


def calls_to_json(calls: tuple[ToolCall, ...]) -> str:
    """Encode calls and results: one object each, without what is not set."""
    return dumps([_call_to_object(call) for call in calls])


def asked_about(call: ToolCall) -> dict[str, Any]:
    """Return the call that a question for approval shows: its id, its name, its args; empty: it is no such question."""
    shown = (call.input or {}).get("originalFunctionCall") if call.name == CONFIRMATION else None
    about = cast("dict[str, Any]", shown) if isinstance(shown, dict) else {}
    return about if isinstance(about.get("id"), str) else {}


def _call_to_object(call: ToolCall) -> dict[str, Any]:
    told: dict[str, Any] = {"id": call.id, "name": call.name}
    if call.input is not None:
        told["input"] = call.input
    if call.output is not None:
        told["output"] = call.output
    return told


def calls_from_json(text: str) -> tuple[ToolCall, ...]:
    """Decode calls and results; arguments and results that an older writer stored as JSON in a string are read too."""
    return tuple(
        ToolCall(told.get("id") or "", told.get("name") or "", _object(told.get("input")), _object(told.get("output")))
        for told in loads(text)
    )


def _object(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str):
        return object_or_result(value)
    return value


def object_or_result(text: str) -> dict[str, Any]:
    """Read a JSON object; any other text is the result itself."""
    if len(text) > _MAX_READ_CHARACTERS:  # it is shown clipped, as a text; to parse it would take long
        return {"result": text}
    try:
        value = json.loads(text)
    except ValueError:
        return {"result": text}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": text}


@contextmanager
def no_collection() -> Generator[None]:
    """Make many objects without collecting garbage meanwhile: none of them is, and each collection sees all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
