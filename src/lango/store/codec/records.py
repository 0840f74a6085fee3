"""Define the values that go into the store and come out of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from lango.errors import Unstorable
from lango.json_input import is_larger_than
from lango.messages import Message
from lango.store.codec.json_text import printable_text
from lango.store.engine.database import LARGE_VALUE

TEMP_PREFIX = "temp:"
MAX_ID_BYTES = 512
"""PostgreSQL cannot index longer ids; the same limit holds for SQLite."""


class SessionId(Struct, frozen=True):
    """The name of a session: its app, its user and its id, stripped as by ADK."""

    app_name: str
    user_id: str
    id: str

    def __post_init__(self) -> None:
        """Strip the id."""
        if (bare := self.id.strip()) != self.id:
            force_setattr(self, "id", bare)

    @property
    def is_storable(self) -> bool:
        """Whether both databases can store it: if not, no session has this name."""
        return is_id(self.app_name) and is_id(self.user_id) and is_id(self.id)

    def check(self) -> None:
        """Raise `Unstorable` unless both databases can store it."""
        check_id("app_name", self.app_name)
        check_id("user_id", self.user_id)
        check_id("the session id", self.id)

    def check_new(self) -> None:
        """Raise `Unstorable` if no session can have this name."""
        self.check()
        if not self.id:
            raise Unstorable("the session id is empty; name one")
        if self.id in (".", ".."):
            raise Unstorable(f"a session cannot be called {self.id!r}: clients take that for a folder in an address")


def check_id(name: str, value: str) -> None:
    """Raise `Unstorable` for an id that cannot be a key in both databases."""
    if printable_text(value) != value:
        raise Unstorable(f"{name} {value!r} holds NUL or half a character; use plain text")
    if len(value.encode()) > MAX_ID_BYTES:
        raise Unstorable(f"{name} is longer than {MAX_ID_BYTES} bytes; use a shorter one")


def is_id(value: str) -> bool:
    """Whether a value can be the id of anything in both databases."""
    return printable_text(value) == value and len(value.encode()) <= MAX_ID_BYTES


class SharedRange(Struct, frozen=True):
    """Rows of another session that a fork shares."""

    first_seq: int
    last_seq: int
    last_revision: int
    """The revision of the source at the fork: later state events are not shared."""
    last_epoch: int
    source_key: int


class Origin(Struct, frozen=True):
    """The source of a fork: the session, and its last shared message."""

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
    state: Mapping[str, Any] = {}
    """Session, user and app state together, with ADK's prefixes."""
    title: str | None = None
    """As set by a user."""
    first_words: str = ""
    """The beginning of the first message, if it was read."""
    forked_from: Origin | None = None
    lineage: tuple[SharedRange, ...] = ()
    """The ranges of rows that a fork shares, the oldest first."""

    @property
    def display_title(self) -> str:
        """The title, or the first words."""
        return self.title or self.first_words


class ClientResult(Struct, frozen=True):
    """The result of a tool of the client, or of a long-running tool."""

    output: Mapping[str, Any]
    full_text: str | None = None
    """The full text of a result that is clipped in `output`."""
    will_continue: bool | None = False
    """Of a long-running tool: more results follow; None: they may."""


class RequestSecret(Struct, frozen=True):
    """What the store keeps of a credential request apart from its message."""

    state_hash: str | None = None
    """The hash of the OAuth state in the address that the user opens."""
    secret: str | None = None
    """Encrypted: the PKCE verifier."""


class NewEvent(Struct, frozen=True):
    """An event to be stored. Without a message it only changes state."""

    event_id: str
    created_at: float
    message: Message | None = None
    tokens: int = 0
    invocation_id: str = ""
    state_delta: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    long_running: frozenset[str] = frozenset()
    """Ids of calls whose results may come after the turn."""
    rewind_before: str | None = None
    """The first invocation that this event removes from the visible history."""
    approval_timeout_s: float | None = None
    """How long approval requests can be answered; None: without limit."""
    input_timeout_s: float | None = None
    """How long input requests can be answered; None: without limit."""
    credential_timeout_s: float | None = None
    """How long credential requests can be answered; None: without limit."""
    request_secrets: Mapping[str, RequestSecret] = {}
    """What is kept apart from the message, of each credential request that can be answered, by call id."""
    client_results: Mapping[str, ClientResult] = {}
    """Results of client calls that came with it, by call id; a tool message has the same."""
    contents: Mapping[str, bytes] = {}
    """The bytes of its files, by their hashes: `extra` holds `StoredBytes` in their place."""
    preceding: "tuple[NewEvent, ...]" = ()
    """The history that a client resent, stored before it in the same transaction."""

    @property
    def is_large(self) -> bool:
        """Whether encoding it takes so long that the event loop should not do it."""
        if self.preceding or self.contents or (self.state_delta and is_larger_than(self.state_delta, LARGE_VALUE)):
            return True
        if self.message is None:
            return False
        calls = [value for call in self.message.tool_calls for value in (call.input, call.output)]
        return len(self.message.content) > LARGE_VALUE or (bool(calls) and is_larger_than(calls, LARGE_VALUE))


class StoredEvent(Struct, frozen=True):
    """A stored event. Without a message it only changed state."""

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
    """The tokens of its results that were clipped for a window."""


class AppendResult(Struct, frozen=True):
    """The sequence number of an appended event, and the new revision."""

    seq: int
    revision: int
    repeated: bool = False
    """The event was stored before: nothing was written."""


def without_temporary_state(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Remove state that lives only as long as the invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(TEMP_PREFIX)}


CLIENT_CALLS_KEY = "lango_client_calls"
"""The metadata of an event that lists its client calls."""
CLIENT_HISTORY_KEY = "lango_carried"
"""The metadata of an event that a client resent: no turn of this store made it."""

EARLIEST_TIME, LATEST_TIME = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, in seconds: what dates can show, and an import accepts."""


def as_datetime(seconds: float) -> datetime:
    """Convert a time to aware UTC; a time out of range, as of a foreign event, becomes the earliest."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


CONFIRMATION_CALL = "adk_request_confirmation"
"""The name of the calls with which ADK requests approval."""
INPUT_CALL = "adk_request_input"
"""The name of the calls with which a workflow requests a person's input."""
CREDENTIAL_CALL = "adk_request_credential"
"""The name of the calls with which ADK requests a credential of the user."""
REQUEST_CALLS = frozenset({CONFIRMATION_CALL, INPUT_CALL, CREDENTIAL_CALL})


Status = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]


class Turn(Struct, frozen=True):
    """A turn; while it runs, every write carries its `epoch`."""

    session_key: int
    turn: int
    epoch: int | None = None
    status: Status = "running"
    repeated: bool = False
    """An earlier request with the same idempotency key made it."""
    first_epoch: int | None = None
    """The epoch of its first run: the tool journal keeps its entries under this one."""
