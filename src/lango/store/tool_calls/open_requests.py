"""Read and answer the requests to a person that are calls of their own: for a value, and for a credential.

Each is answered once and in time. `lango.store.tool_calls.approvals` closes those that get no answer.
"""

from typing import Literal

from msgspec import Struct

from lango.messages import ToolCall
from lango.sessions import SessionRecord, StoredEvent
from lango.store.codec.ids import call_key
from lango.store.engine.database import Operation
from lango.store.sessions.lineage import is_live, live_ranges
from lango.store.sessions.open_calls import message_at

_UNANSWERED = """
SELECT o.call_id, o.seq, o.expires_at, r.secret FROM open_calls o
LEFT JOIN credential_requests r ON r.session_key = o.session_key AND r.call_id = o.call_id AND r.seq = o.seq
WHERE o.session_key = $1 AND o.seq > $2 AND o.input_request = $3 AND o.answered_at IS NULL
    AND (o.input_request = 1 OR r.call_id IS NOT NULL)  -- a fork has no secret of the credential requests before it
    AND (o.expires_at IS NULL OR o.expires_at > (SELECT now FROM database_clock)) ORDER BY o.seq, o.call_id
"""
_ANSWER = """
UPDATE open_calls SET answered_at = (SELECT now FROM database_clock)
WHERE session_key = $1 AND call_id = $2 AND seq = $3 AND input_request = $4 AND answered_at IS NULL
    AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock))
RETURNING call_id
"""


class OpenRequest(Struct, frozen=True):
    """A request that can still be answered."""

    stored: StoredEvent
    """The message that makes the request."""
    call: ToolCall
    expires_at: float | None
    secret: str | None
    """Encrypted: what a credential's address was made with."""


def read_open_requests(session: SessionRecord, kind: Literal[1, 2]) -> Operation[list[OpenRequest]]:
    """Read the requests of a kind (`INPUT_REQUEST`, `CREDENTIAL_REQUEST`) that can still be answered, in order."""
    rows = yield _UNANSWERED, (session.key, session.user_seq, kind)
    live = list(live_ranges(session.last_seq, session.rewinds))
    found: list[OpenRequest] = []
    for call_id, seq, expires_at, secret in rows:
        stored = (yield from message_at(session.key, seq)) if is_live(seq, live) else None
        if stored is not None and stored.message is not None:
            calls = (call for call in stored.message.tool_calls if call_key(call.id) == call_id)
            found += [OpenRequest(stored, call, expires_at, secret) for call in calls]
    return found


def answer_request(key: int, kind: Literal[1, 2], call_id: str, seq: int) -> Operation[bool]:
    """Record that a request is answered; return whether it was open until now."""
    return bool((yield _ANSWER, (key, call_key(call_id), seq, kind)))
