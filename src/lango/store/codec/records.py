"""What goes into the store and what comes out: plain values."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast, get_args

from msgspec import Struct, field
from msgspec.structs import force_setattr

from lango.errors import Unstorable
from lango.messages import Message, Role, ToolCall
from lango.store.codec.ids import lengthen, shorten, shorten_shared
from lango.store.codec.json_text import dumps, loads, readable
from lango.store.engine.database import Row

TEMP_PREFIX = "temp:"
MAX_ID_BYTES = 512
"""PostgreSQL cannot index longer ones; the same limit holds on SQLite."""


class SessionId(Struct, frozen=True):
    """What a session is called: by its app, its user and its own id. ADK strips ids, so all do."""

    app_name: str
    user_id: str
    id: str

    def __post_init__(self) -> None:
        """Take the id without surrounding spaces."""
        if (bare := self.id.strip()) != self.id:
            force_setattr(self, "id", bare)

    def check(self) -> None:
        """Raise `Unstorable` where one of the databases could not keep it."""
        check_id("app_name", self.app_name)
        check_id("user_id", self.user_id)
        check_id("the session id", self.id)

    def check_new(self) -> None:
        """Raise `Unstorable` where no session can be called this."""
        self.check()
        if not self.id:
            raise Unstorable("the session id is empty; name one")
        if self.id in (".", ".."):
            raise Unstorable(f"a session cannot be called {self.id!r}: clients take that for a folder in an address")


def check_id(name: str, value: str) -> None:
    """Raise `Unstorable` for an id that cannot be a key in both databases."""
    if readable(value) != value:
        raise Unstorable(f"{name} {value!r} holds NUL or half a character; use plain text")
    if len(value.encode()) > MAX_ID_BYTES:
        raise Unstorable(f"{name} is longer than {MAX_ID_BYTES} bytes; use a shorter one")


def is_id(value: str) -> bool:
    """Whether a value can be the id of anything in both databases."""
    return readable(value) == value and len(value) <= MAX_ID_BYTES


class Past(Struct, frozen=True):
    """Rows of another session that a fork shares."""

    first_seq: int
    last_seq: int
    last_revision: int
    """What the source had come to when it was forked: what it did later is its own."""
    last_epoch: int
    source_key: int


class Origin(Struct, frozen=True):
    """Where a fork comes from: the session, and the last message that was kept."""

    id: str
    seq: int


class SessionRecord(Struct, frozen=True):
    """A session without its messages."""

    key: int
    name: SessionId
    revision: int
    last_seq: int
    user_seq: int
    total_tokens: int
    epoch: int
    created_at: float
    updated_at: float
    rewinds: tuple[tuple[int, int], ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Session, user and app state in one, with ADK's prefixes."""
    title: str | None = None
    """As somebody named it."""
    first_words: str = ""
    """How the user began, where it was asked for."""
    forked_from: Origin | None = None
    pasts: tuple[Past, ...] = ()
    """Where the messages stand that a fork shares, the oldest first."""

    @property
    def shown_title(self) -> str:
        """The title, or how the user began."""
        return self.title or self.first_words


def rewinds_from_json(text: str | None) -> tuple[tuple[int, int], ...]:
    """Decode the column `rewinds`."""
    return tuple((at, first) for at, first in loads(text)) if text else ()


def origin_from_json(text: str | None) -> Origin | None:
    """Decode the column `forked_from`."""
    return Origin(**loads(text)) if text else None


class ClientResult(Struct, frozen=True):
    """What a client says that a tool of its own returned."""

    output: Mapping[str, Any]
    whole: str | None = None
    """The text that was clipped in `output`; None where nothing was."""


class Entry(Struct, frozen=True):
    """An event to be stored. Without a message it only changes state."""

    event_id: str
    created_at: float
    message: Message | None = None
    tokens: int = 0
    invocation_id: str = ""
    state_delta: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    long_running: frozenset[str] = frozenset()
    """Ids of calls whose result may come much later."""
    rewind_before: str | None = None
    """The invocation from which on this event takes the conversation back."""
    expires_s: float | None = None
    """How long questions for approval wait for an answer; None: as long as it takes."""
    results: Mapping[str, ClientResult] = field(default_factory=dict[str, ClientResult])
    """What came with it for calls that wait for the client, by their ids; a tool message holds the same."""
    before: "tuple[Entry, ...]" = ()
    """Messages that a client carries and that are stored right before it, in the same transaction."""


class Stored(Struct, frozen=True):
    """An event as it stands in the store. Without a message it only changed state."""

    seq: int
    event_id: str
    created_at: float
    message: Message | None
    tokens: int = 0
    total_tokens: int = 0
    invocation_id: str = ""
    state_delta: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    clipped_tokens: int = 0
    """How much of its results was left out when it was read for a window."""


class Appended(Struct, frozen=True):
    """Where an event came to stand, and what the session is at since."""

    seq: int
    revision: int
    repeated: bool = False
    """The event was there already: nothing was written."""


def without_temp(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what lives only as long as the invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(TEMP_PREFIX)}


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


_NO_MESSAGE = Message("event")


MESSAGE_COLUMNS = (
    "seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id, invocation_id, "
    "state_delta, extra, call_seq"
)


RESULT_ROLES = ("tool", "function")
"""The roles of rows that hold results: ours, and the one that older writers gave them."""


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


_ROLES = frozenset(get_args(Role))


def long_running(extra: str | None) -> frozenset[str]:
    """Return the ids of a message's calls whose results may come much later, from the column `extra`."""
    told: dict[str, Any] = loads(extra) if extra else {}
    return frozenset(told.get("long_running_tool_ids") or ())


CLIENT_CALLS = "lango_client_calls"
"""Where the metadata of an event name those of its calls that the client makes."""


def client_calls(stored: Stored) -> frozenset[str]:
    """Return the ids of a message's calls that the client makes."""
    metadata: Mapping[str, Any] = (stored.extra or {}).get("custom_metadata") or {}
    return frozenset(metadata.get(CLIENT_CALLS) or ())


CARRIED = "lango_carried"
"""Where the metadata of an event say that a client carried it here: the agent neither heard nor said it in a turn."""


STATE_COLUMNS = "seq, event_id, created_at, state_delta, extra"


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


def as_datetime(seconds: float) -> datetime:
    """Return a time as aware UTC. One that no calendar has, as a foreign event may bring, is the first of them all."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def calls_to_json(calls: tuple[ToolCall, ...]) -> str:
    """Encode calls and results: one object each, without what is not set."""
    return dumps([_call_to_object(call) for call in calls])


CONFIRMATION = "adk_request_confirmation"
"""ADK asks for approval by a call of this name."""


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


_MAX_READ_CHARACTERS = 200_000


def object_or_result(text: str) -> dict[str, Any]:
    """Read a JSON object; any other text is the result itself."""
    if len(text) > _MAX_READ_CHARACTERS:  # it is shown clipped, as a text; to parse it would take long
        return {"result": text}
    try:
        value = json.loads(text)
    except ValueError:
        return {"result": text}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": text}
