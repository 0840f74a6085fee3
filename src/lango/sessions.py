"""Define sessions, their messages as they are stored, and which parts of their state belong to clients."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from lango.errors import StateRefused, Unstorable
from lango.json_values import as_object, storable_text
from lango.messages import Attachment, Message

TEMP_PREFIX = "temp:"
USER_PREFIX = "user:"
APP_PREFIX = "app:"
"""ADK's prefixes of state that ends with the invocation, is the user's, or is the app's."""
MAX_TITLE = 200
CONFIRMATION_CALL = "adk_request_confirmation"
"""The name of the calls with which ADK requests approval."""
INPUT_CALL = "adk_request_input"
"""The name of the calls with which a workflow requests a person's input."""
CREDENTIAL_CALL = "adk_request_credential"
"""The name of the calls with which ADK requests a credential of the user."""
REQUEST_PREFIX = "adk_request_"
"""How the names of all calls begin by which ADK asks a person."""
REQUEST_CALLS = frozenset({CONFIRMATION_CALL, INPUT_CALL, CREDENTIAL_CALL})
NO_RESULT_TEXT = (
    "no result: the conversation continued before the client sent one. Whether the client ran the tool is unknown"
)
NO_RESULT = {"error": NO_RESULT_TEXT, "outcome": "unknown"}
"""The result of a call that the client left without one."""
CLIENT_CALLS_KEY = "lango_client_calls"
"""The metadata of an event that lists its client calls."""
EARLIEST_TIME, LATEST_TIME = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, in seconds: what dates can show, and an import accepts."""
MAX_ID_BYTES = 512
"""PostgreSQL cannot index longer ids; the same limit holds for SQLite."""
CORRECTION = '[System: Agent "'
"""How the message begins that asks the model to correct a transfer to an agent that does not exist."""
UPDATE = "[System: The application was updated"
"""How the message begins that tells the model that a turn continues after an update of the app."""
CORRECTION_RUN = "-2"
"""What the invocation id of a turn's run after such a message ends with."""
KEPT_IN_STATE = {"lango_credential": "kept"}
"""What a stored state shows of a credential that a tool keeps in it; see `lango.adk.services.credential_service`."""

_RESERVED = re.compile(
    r"_*adk_.*"  # the default names of credentials, OAuth flows, recordings that replace the model, skills
    r"|_code_execut.*|_vmaas_.*|_antigravity_.*|sandbox_name"  # the sandbox that code runs in, and its files
    r"|mcp:.*|.*_existing_exchanged_credential|.*_token_cache",  # of MCP servers, OpenAPI documents and Google's tools
    re.DOTALL,
)
_SCOPE = re.compile(r"(temp|user|app):")
_SECRET_PARTS = {"oauth2", "http", "apiKey", "api_key", "serviceAccount", "service_account"}


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
            raise Unstorable("the session id is empty")
        if self.id in (".", ".."):
            raise Unstorable(f"a session cannot be called {self.id!r}: clients treat that as a folder in a URL")


def check_id(name: str, value: str) -> None:
    """Raise `Unstorable` for an id that cannot be a key in both databases."""
    if storable_text(value) != value:
        raise Unstorable(f"{name} {value!r} contains NUL or a lone surrogate; use plain text")
    if len(value.encode()) > MAX_ID_BYTES:
        raise Unstorable(f"{name} is longer than {MAX_ID_BYTES} bytes; use a shorter one")


def is_id(value: str) -> bool:
    """Whether a value can be the id of anything in both databases."""
    return storable_text(value) == value and len(value.encode()) <= MAX_ID_BYTES


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


class SessionInfo(Struct, frozen=True):
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

    @property
    def attachments(self) -> list[Attachment]:
        """The files of the message; the bytes of most are `StoredBytes`, and not loaded."""
        blobs: list[dict[str, Any]] = [part["inline_data"] for part in self._full_parts if part.get("inline_data")]
        return [
            Attachment(blob.get("display_name") or "", blob.get("mime_type") or "", blob.get("data", b""))
            for blob in blobs
        ]

    @property
    def is_note(self) -> bool:
        """Whether Lango made the message, to tell the model of an update or to ask it to correct a transfer."""
        if self.extra and NOTE in self.extra:
            return True
        match self.message:
            case Message(role="system"):
                return True
            case Message(role="user", content=text) if self.invocation_id.endswith(CORRECTION_RUN):
                return text.startswith(CORRECTION)
            case _:
                return False

    @property
    def thoughts(self) -> str:
        """The thoughts of the message as text; empty if its provider shows none."""
        thoughts = [part.get("text") for part in self._full_parts if part.get("thought") is True]
        return "".join(text for text in thoughts if isinstance(text, str))

    @property
    def text_place(self) -> list[int] | None:
        """Where its text began, if other agents spoke until it ended: after which message, and the number of its block.

        Messages are numbered as their texts ended.
        """
        match (self.extra or {}).get(TEXT_PLACE):
            case [int(block), int(passed)] if 0 < block <= MAX_BLOCKS and 0 <= passed < self.seq:
                return [self.seq - 1 - passed, block]
            case _:
                return None

    @property
    def client_call_ids(self) -> frozenset[str]:
        """The ids of the calls of client tools in the message."""
        metadata: Mapping[str, Any] = (self.extra or {}).get("custom_metadata") or {}
        return frozenset(metadata.get(CLIENT_CALLS_KEY) or ())

    @property
    def _full_parts(self) -> list[dict[str, Any]]:
        """The parts of a message whose layout is stored in full; see `lango.adk.events.events_to_rows`."""
        layout: Any = (self.extra or {}).get("parts") or ()
        return [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]


Status = Literal["queued", "running", "done", "failed", "cancelled", "interrupted", "steered"]
"""How a turn stands. `steered`: its message was taken into the turn that ran when it came."""

WhenBusy = Literal["wait", "refuse", "interrupt", "steer", "rollback"]
"""How a message to a busy session is handled; see `docs/howto/busy-sessions.md`."""

STEERING = "lango_steering"
"""In the `extra` of a message that was taken into a running turn: the number of the turn that it was accepted as."""


NOTE = "lango_note"
"""In the `extra` of a message that Lango wrote to the model in the user's place."""

TEXT_PLACE = "lango_text_place"
"""In the `extra` of a message that was streamed while another agent spoke: see `StoredEvent.text_place`."""
MAX_BLOCKS = 1_000_000
"""As many events as a turn can have."""


def is_steering(extra: Mapping[str, Any] | None) -> bool:
    """Whether a message was taken into a running turn, by its `extra`."""
    return extra is not None and STEERING in extra


def as_datetime(seconds: float) -> datetime:
    """Convert a time to aware UTC; a time out of range, as of a foreign event, becomes the earliest."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def check_client_state(delta: Mapping[str, Any], credential_names: Collection[str] = ()) -> None:
    """Raise `StateRefused` if a client may not write a name or a value of this change.

    ADK keeps values of its own in the state of a session, and trusts what it finds there. With a credential in the
    state, a tool acts under the identity that it names, even the server's own. So clients, and imports, cannot write
    such a name or value, whichever protocol they use.

    `credential_names` are those under which the agent's own tools look for credentials.
    """
    if refused := sorted(name for name, value in delta.items() if _is_reserved(name, value, credential_names)):
        names = ", ".join(name[:100] for name in refused[:5])
        raise StateRefused(f"clients cannot write credentials, or names that ADK reserves, into the state: {names}")


def without_reserved_state(delta: Mapping[str, Any], credential_names: Collection[str] = ()) -> dict[str, Any]:
    """Return a change of the state without the names and values that clients may not write."""
    return {name: value for name, value in delta.items() if not _is_reserved(name, value, credential_names)}


def without_app_state(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state, or a change of it, without what all users share: only operators read that."""
    return {name: value for name, value in delta.items() if not name.startswith(APP_PREFIX)}


def is_reserved_name(name: str) -> bool:
    """Whether ADK itself uses this name, in any scope."""
    return _RESERVED.fullmatch(_SCOPE.sub("", name, count=1)) is not None


def is_credential(value: Any) -> bool:
    """Whether a value is a credential of ADK as JSON."""
    members = as_object(value)
    return ("auth_type" in members or "authType" in members) and bool(members.keys() & _SECRET_PARTS)


def _is_reserved(name: str, value: Any, credential_names: Collection[str]) -> bool:
    is_known = name in credential_names or _SCOPE.sub("", name, count=1) in credential_names
    return is_known or is_reserved_name(name) or is_credential(value) or value == KEPT_IN_STATE
