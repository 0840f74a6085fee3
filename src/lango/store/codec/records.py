"""Define the values that go into the store and come out of it, and keys and addresses from the ids of calls."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.json_values import is_larger_than, storable_text
from lango.messages import Message
from lango.sessions import TEMP_PREFIX, Status
from lango.store.engine.database import LARGE_VALUE
from lango.waits import ClosedWait


class ClientResult(Struct, frozen=True):
    """The result of a tool of the client, or of a long-running tool."""

    output: Mapping[str, Any]
    full_text: str | None = None
    """The full text of a result that is clipped in `output`."""
    will_continue: bool | None = False
    """Of a long-running tool: more results follow, or may follow if it is None."""


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
    expires_s: Mapping[str, float | None] = {}
    """In how many seconds the waits that it opens expire, by their kinds; without limit where none is given."""
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


class AppendResult(Struct, frozen=True):
    """The sequence number of an appended event, and the new revision."""

    seq: int
    revision: int
    repeated: bool = False
    """The event was stored before: nothing was written."""


def without_temporary_state(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Remove state that lives only as long as the invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(TEMP_PREFIX)}


CLIENT_HISTORY_KEY = "lango_carried"
"""The metadata of an event that a client resent: no turn of this store made it."""


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
    closed: tuple[ClosedWait, ...] = ()
    """The waits that its start closed, if it was started just now."""


_MAX_CALL_ID_LENGTH = 128
_UNSAFE_IN_ADDRESS = re.compile(r"[^A-Za-z0-9._~-]+")
_MAX_READABLE_LENGTH = 64


def call_key(call_id: str) -> str:
    """Return a key that both databases can index for any id of a call, even one of a model or a foreign event."""
    shown = storable_text(call_id)
    if shown == call_id and len(call_id) <= _MAX_CALL_ID_LENGTH:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def is_address_safe(call_id: str) -> bool:
    """Whether an id can be a segment of an address as it is: clients need not escape it."""
    in_range = 0 < len(call_id) <= _MAX_CALL_ID_LENGTH
    return in_range and bool(call_id.strip(".")) and _UNSAFE_IN_ADDRESS.search(call_id) is None


def wait_id(call_id: str) -> str:
    """Return the id of the wait that a call opens: the call's own, or one derived from an unsafe one.

    The `call_key` of the call has the same. ADK's workflows use paths of nodes as ids, and their authors any text.
    """
    key = call_key(call_id)
    if is_address_safe(key):
        return key
    readable = _UNSAFE_IN_ADDRESS.sub("-", key[:_MAX_READABLE_LENGTH])
    return f"{readable}~{hashlib.sha256(key.encode()).hexdigest()[:16]}"
