"""Store approval requests: each is answered once, in time, or counts as declined.

A request is an open call of its own. It is closed by an answer, by the next message of the user, by a user who stops
the turn, or by the database's clock, which all processes share; a declined call gets an error as its result. Input
requests of workflows (`lango.store.tool_calls.input_requests`) and credential requests
(`lango.store.tool_calls.credential_requests`) are closed in the same way, without an answer.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.grants import NewGrant
from lango.messages import ToolCall
from lango.sessions import SessionId, SessionRecord, StoredEvent
from lango.store.codec.ids import address_safe_id, call_key
from lango.store.codec.records import NewEvent
from lango.store.codec.rows import confirmation_of
from lango.store.engine.database import Operation, Row
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, live_ranges, read_live_ranges
from lango.store.sessions.open_calls import CREDENTIAL_REQUEST, INPUT_REQUEST, closing_event, message_at
from lango.store.sessions.sessions import find_running_turn, lock_session
from lango.store.tool_calls import grants, tool_journal

Reason = Literal["expired", "unanswered", "stopped"]
"""Why requests are closed: in time there was no answer, the user sent another message, or stopped the turn."""

_CALL_RESULTS: Mapping[Reason, str] = {
    "expired": "not run: the approval request expired without an answer, which counts as declined",
    "unanswered": (
        "not run: the conversation continued without an answer to the approval request, which counts as declined"
    ),
    "stopped": "not run: the user stopped the turn before this call was approved",
}
_INPUT_RESULTS: Mapping[Reason, str] = {
    "expired": "no answer: the input request expired",
    "unanswered": "no answer: the conversation continued without one",
    "stopped": "no answer: the user stopped the turn",
}
_CREDENTIAL_RESULTS: Mapping[Reason, str] = {
    "expired": "no credential: the request expired",
    "unanswered": "no credential: the conversation continued without it",
    "stopped": "no credential: the user stopped the turn",
}
REFUSAL_REASON = "reason"
"""The member of a refusal's payload that says why: the model reads it."""
MAX_REASON_CHARACTERS = 4_000
_MAX_SESSIONS = 100

_OPEN_REQUESTS = """
SELECT call_id, seq, approves_call_id, approves_call_seq, input_request FROM open_calls
WHERE session_key = $1 AND (approves_call_id IS NOT NULL OR input_request > 0) ORDER BY seq
"""
_EXPIRED = """
SELECT call_id, seq, approves_call_id, approves_call_seq, input_request FROM open_calls
WHERE session_key = $1 AND answered_at IS NULL AND expires_at <= (SELECT now FROM database_clock) ORDER BY seq
"""
_UNANSWERED = """
SELECT call_id, seq, approves_call_id, approves_call_seq, expires_at FROM open_calls
WHERE session_key = $1 AND seq > $2 AND approves_call_id IS NOT NULL AND answered_at IS NULL
    AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock)) ORDER BY seq
"""
_ANSWER = """
UPDATE open_calls SET answered_at = (SELECT now FROM database_clock)
WHERE session_key = $1 AND call_id = $2 AND approves_call_id = $3 AND answered_at IS NULL
    AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock))
RETURNING seq, approves_call_seq
"""
_REOPEN = "UPDATE open_calls SET answered_at = NULL WHERE session_key = $1 AND call_id = $2"
_SESSIONS_WITH_EXPIRED = """
SELECT DISTINCT session_key FROM open_calls
WHERE expires_at <= (SELECT now FROM database_clock) AND answered_at IS NULL LIMIT $1
"""
_NEXT_EXPIRY = """
SELECT MIN(expires_at) - (SELECT now FROM database_clock) FROM open_calls
WHERE expires_at IS NOT NULL AND answered_at IS NULL
"""
_FORGET_CREDENTIAL_REQUEST = "DELETE FROM credential_requests WHERE session_key = $1 AND call_id = $2"
_DELETE = "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2"


class ApprovalRequest(Struct, frozen=True):
    """A call that may run with exactly these arguments once a user approves it."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    requested_at: float
    expires_at: float | None
    hint: str = ""
    """What the tool itself says about its request."""
    payload: Any = None
    """What the tool shows besides."""
    request_id: str = ""
    """The id of the request's own call."""


class ApprovalAnswer(Struct, frozen=True):
    """A user's answer to an approval request."""

    request_id: str
    """The id of the request's own call."""
    call_id: str
    approved: bool
    answered_by: str
    grant: NewGrant | None = None
    """What is approved besides this call; only with an approval."""


def read_approval_requests(session: SessionRecord) -> Operation[list[ApprovalRequest]]:
    """Read the approval requests that can still be answered."""
    rows = yield _UNANSWERED, (session.key, session.user_seq)
    live = list(live_ranges(session.last_seq, session.rewinds))
    found: list[ApprovalRequest] = []
    for request_id, seq, about, approves_call_seq, expires_at in rows:
        if not is_live(seq, live):
            continue
        for asking, request in (yield from _find_call(session.key, request_id, seq)):
            for _, call in (yield from _find_call(session.key, about, approves_call_seq or 0)):
                shown = call.id, call.name, call.input or {}, asking.created_at, expires_at
                found.append(ApprovalRequest(*shown, *confirmation_of(request), request_id))
    return found


def record_answer(key: int, name: SessionId, answer: ApprovalAnswer, now: float) -> Operation[None]:
    """Record an answer, once and in time; raise `WaitNotOpen` for any other."""
    rows = yield _ANSWER, (key, call_key(answer.request_id), call_key(answer.call_id))
    if not rows:
        raise WaitNotOpen(
            f"the approval request for call {answer.call_id!r} of session {name.id!r} is not open any more"
        )
    yield from tool_journal.record_approval(key, answer.call_id, answer.answered_by, now, approved=answer.approved)
    if answer.grant is not None:
        [[seq, call_seq]] = rows
        for _, call in (yield from _find_call(key, call_key(answer.call_id), call_seq or 0)):
            yield from grants.add_grant(key, answer.request_id, seq, call, answer.grant, answer.answered_by)


def reopen(key: int, entry: NewEvent) -> Operation[None]:
    """Reopen the requests that a withdrawn message would have answered."""
    for call in entry.message.tool_calls if entry.message else ():
        yield _REOPEN, (key, call_key(call.id))
        yield from grants.withdraw_grant(key, call_key(call.id))


def close_requests(key: int, name: SessionId, revision: int, now: float, reason: Reason) -> Operation[int]:
    """Close all open requests of a session without answers; return the new revision."""
    return (yield from _close(key, name, revision, now, (yield _OPEN_REQUESTS, (key,)), reason))


def has_requests(key: int) -> Operation[bool]:
    """Whether a session has open requests of any kind to a person."""
    return bool((yield _OPEN_REQUESTS, (key,)))


def decline_request(key: int, now: float, call_id: str) -> Operation[bool]:
    """Close one request for input or a credential, in a session in which no turn runs; False: it is not open."""
    locked = yield from lock_session(key)
    found = (yield _OPEN_REQUESTS, (key,)) if locked else []
    rows = [row for row in found if row[-1] and call_id in (row[0], address_safe_id(row[0]))]
    if locked is None or not rows or (yield from find_running_turn(key)) is not None:
        return False
    yield from _close(key, locked.name, locked.revision, now, rows, "unanswered")
    return True


def has_expired_approvals(key: int) -> Operation[bool]:
    """Whether a request of a session has expired."""
    return bool((yield _EXPIRED, (key,)))


def expire_approvals(key: int, now: float) -> Operation[bool]:
    """Close the expired requests of a session. False: a turn runs, and only its owner may write."""
    locked = yield from lock_session(key)
    due = (yield _EXPIRED, (key,)) if locked else []
    if locked is None or not due:
        return True
    if (yield from find_running_turn(key)) is not None:
        return False
    yield from _close(key, locked.name, locked.revision, now, due, "expired")
    return True


def find_expired_sessions() -> Operation[list[int]]:
    """Return the keys of some sessions with expired requests."""
    return [key for [key] in (yield _SESSIONS_WITH_EXPIRED, (_MAX_SESSIONS,))]


def read_next_expiry_s() -> Operation[float | None]:
    """Return the seconds until the next request expires; None: none does."""
    [[left_s]] = yield _NEXT_EXPIRY, ()
    return left_s


def _close(key: int, name: SessionId, revision: int, now: float, rows: list[Row], reason: Reason) -> Operation[int]:
    no_answer = {
        INPUT_REQUEST: {"error": _INPUT_RESULTS[reason]},
        CREDENTIAL_REQUEST: {"error": _CREDENTIAL_RESULTS[reason]},
    }
    declined_by = name.user_id if reason == "stopped" else tool_journal.DECIDED_BY_POLICY
    live = (yield from read_live_ranges(key)) if rows else []
    for request_id, seq, about, approves_call_seq, kind in rows:
        if kind == CREDENTIAL_REQUEST:
            yield _FORGET_CREDENTIAL_REQUEST, (key, request_id)
        if not is_live(seq, live):
            yield _DELETE, (key, request_id)  # removed by a rewind
            continue
        for stored, call in (yield from _find_call(key, request_id, seq)):
            declined = ToolCall(call.id, call.name, output=no_answer.get(kind, {"confirmed": False}))
            entry = closing_event("no", stored, (declined,), revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
        for stored, call in (yield from _find_call(key, about or "", approves_call_seq or 0)):
            result = ToolCall(call.id, call.name, output={"error": _CALL_RESULTS[reason], "outcome": "not run"})
            entry = closing_event("no", stored, (result,), revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
            yield from tool_journal.record_approval(key, call.id, declined_by, now, approved=False)
    return revision


def _find_call(key: int, call_id: str, seq: int) -> Operation[list[tuple[StoredEvent, ToolCall]]]:
    """Read a call and the message that made it; an empty list: it is not there."""
    stored = yield from message_at(key, seq)
    calls = stored.message.tool_calls if stored and stored.message else ()
    return [(stored, call) for call in calls if stored and call_key(call.id) == call_id][:1]
