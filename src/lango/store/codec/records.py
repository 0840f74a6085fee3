"""What goes into the store and what comes out: plain values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from lango.errors import Unstorable
from lango.messages import Message
from lango.store.codec.json_text import printable_text

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

    @property
    def is_storable(self) -> bool:
        """Whether both databases can store it: if not, no session has this name."""
        return is_id(self.app_name) and is_id(self.user_id) and is_id(self.id)

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
    lineage: tuple[SharedRange, ...] = ()
    """Where the messages stand that a fork shares, the oldest first."""

    @property
    def display_title(self) -> str:
        """The title, or how the user began."""
        return self.title or self.first_words


class ClientResult(Struct, frozen=True):
    """What a client says that a tool of its own returned."""

    output: Mapping[str, Any]
    full_text: str | None = None
    """The text that was clipped in `output`; None where nothing was."""


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
    """Ids of calls whose result may come much later."""
    rewind_before: str | None = None
    """The invocation from which on this event takes the conversation back."""
    approval_timeout_s: float | None = None
    """How long questions for approval wait for an answer; None: as long as it takes."""
    client_results: Mapping[str, ClientResult] = field(default_factory=dict[str, ClientResult])
    """What came with it for calls that wait for the client, by their ids; a tool message holds the same."""
    preceding: "tuple[NewEvent, ...]" = ()
    """Messages that a client carries and that are stored right before it, in the same transaction."""


class StoredEvent(Struct, frozen=True):
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


class AppendResult(Struct, frozen=True):
    """Where an event came to stand, and what the session is at since."""

    seq: int
    revision: int
    repeated: bool = False
    """The event was there already: nothing was written."""


def without_temporary_state(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what lives only as long as the invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(TEMP_PREFIX)}


CLIENT_CALLS_KEY = "lango_client_calls"
"""Where the metadata of an event name those of its calls that the client makes."""
CLIENT_HISTORY_KEY = "lango_carried"
"""Where the metadata of an event say that a client carried it here: the agent neither heard nor said it in a turn."""


def as_datetime(seconds: float) -> datetime:
    """Return a time as aware UTC. One that no calendar has, as a foreign event may bring, is the first of them all."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


CONFIRMATION_CALL = "adk_request_confirmation"
"""ADK asks for approval by a call of this name."""
