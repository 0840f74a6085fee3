"""Open, list, answer, expire and close what turns wait for.

A wait is answered once, in time, by the clock of the database, which all processes share. Calls and ADK's requests open
waits when their messages are stored (`lango.store.sessions.open_calls`). A request to a person is closed by its answer,
by the next message of the user, by a user who stops the turn, by a rewind, or by its time; then it gets a result that
says so, and a call to approve counts as declined. Results of long-running tools may come at any time, also after the
conversation has continued.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.messages import ToolCall
from lango.sessions import NO_RESULT, SessionId, StoredEvent
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import ClientResult, NewEvent, Turn, call_key, wait_id
from lango.store.codec.wait_rows import REQUEST_KINDS, RESULT_KINDS, TIMED_KINDS, WAIT_COLUMNS, StoredWait, row_to_wait
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.open_calls import OPEN_WAIT, closing_event, message_at, read_open_calls
from lango.store.sessions.sessions import check_epoch, find_running_turn, lock_session
from lango.store.tool_calls import grants, tool_journal
from lango.waits import ClosedWait, NewGrant, Refuse, Wait

Reason = Literal["expired", "superseded", "cancelled", "updated"]
"""Why requests are closed: in time there was no answer, the user sent another message, or stopped the turn, or the turn
continues with another version of the app."""

_NOT_RUN: Mapping[Reason, str] = {
    "expired": "not run: the approval request expired without an answer, which counts as declined",
    "superseded": (
        "not run: the conversation continued without an answer to the approval request, which counts as declined"
    ),
    "cancelled": "not run: the user stopped the turn before this call was approved",
    "updated": "not run: the application was updated before this call was approved; call it again if it is needed",
}
_NO_ANSWER: Mapping[str, Mapping[Reason, str]] = {
    "input": {
        "expired": "no answer: the input request expired",
        "superseded": "no answer: the conversation continued without one",
        "cancelled": "no answer: the user stopped the turn",
        "updated": "no answer: the application was updated first; ask again if it is needed",
    },
    "credential": {
        "expired": "no credential: the request expired",
        "superseded": "no credential: the conversation continued without it",
        "cancelled": "no credential: the user stopped the turn",
        "updated": "no credential: the application was updated first; ask again if it is needed",
    },
}
_CANCELLED = "cancelled: a person ended this wait before its time"
_NOT_OPEN = {
    "answered": "was answered before",
    "expired": "has expired",
    "superseded": "was closed when the conversation continued without an answer",
    "cancelled": "was closed when the turn was stopped",
    "rewound": "was removed by a rewind",
}
_MAX_SESSIONS = 100

_REQUESTS = ", ".join(f"'{kind}'" for kind in REQUEST_KINDS)
_IN_TIME = "(w.expires_at IS NULL OR w.expires_at > (SELECT now FROM database_clock))"
IS_OPEN = f"""
w.closed IS NULL AND w.answered_at IS NULL AND w.data IS NOT NULL AND {_IN_TIME}
    AND (w.seq > s.user_seq OR w.kind NOT IN ({_REQUESTS})) AND (w.epoch IS NULL OR w.epoch = s.epoch)
"""
"""Whether a wait of `waits w` in `sessions s` can be answered."""
_UNCLOSED = f"SELECT {WAIT_COLUMNS} FROM waits w WHERE w.session_key = $1 AND w.closed IS NULL ORDER BY w.seq, w.id"  # noqa: S608 - constants
_PENDING = f"""
SELECT {WAIT_COLUMNS} FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.session_key = $1 AND w.closed IS NULL AND w.data IS NOT NULL
    AND (w.seq > s.user_seq AND (w.kind = 'approval' OR w.answered_at IS NULL) OR w.kind NOT IN ({_REQUESTS}))
ORDER BY w.seq, w.id
"""  # noqa: S608 - constants
_LIST = f"""
SELECT {WAIT_COLUMNS} FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.session_key = $1 AND {IS_OPEN} ORDER BY w.seq, w.opened_at, w.id
"""  # noqa: S608 - constants
_FIND = f"""
SELECT {WAIT_COLUMNS}, CASE WHEN {IS_OPEN} THEN 1 ELSE 0 END, CASE WHEN {_IN_TIME} THEN 1 ELSE 0 END
FROM waits w JOIN sessions s ON s.session_key = w.session_key WHERE w.session_key = $1 AND w.id = $2
"""  # noqa: S608 - constants
_TIMED = "('timer', 'event')"
_BY_STATE = f"""
SELECT s.app_name, s.user_id, s.id, w.id FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.state_hash = $1 AND s.app_name = $2 AND {IS_OPEN}
"""  # noqa: S608 - constants
_ANSWER = f"""
UPDATE waits AS w SET answered_at = (SELECT now FROM database_clock), answered_by = $1, answer = $2, state_hash = NULL
WHERE w.session_key = $3 AND w.id = $4 AND w.seq = $5 AND w.closed IS NULL AND w.answered_at IS NULL AND {_IN_TIME}
RETURNING about_seq
"""  # noqa: S608 - constants
# the answer to a wait for an event is that of the event: it stays
_REOPEN = f"""
UPDATE waits SET answered_at = NULL, answered_by = NULL, answer = CASE WHEN kind IN {_TIMED} THEN answer END
WHERE session_key = $1 AND id = $2 AND closed IS NULL AND (kind IN ({_REQUESTS}) OR kind IN {_TIMED})
"""  # noqa: S608 - constants
_SETTLE = f"""
UPDATE waits SET answered_at = (SELECT now FROM database_clock),
    answered_by = (SELECT user_id FROM sessions s WHERE s.session_key = $1)
WHERE session_key = $1 AND id = $2 AND closed IS NULL AND kind NOT IN ({_REQUESTS}) AND kind NOT IN {_TIMED}
"""  # noqa: S608 - constants
_CLOSE = """
UPDATE waits SET closed = $1, closed_at = (SELECT now FROM database_clock), state_hash = NULL, secret = NULL,
    answer = CASE WHEN kind = 'credential' THEN NULL ELSE answer END
WHERE session_key = $2 AND id = $3
"""
_DUE = f"""
SELECT {WAIT_COLUMNS} FROM waits w
WHERE w.session_key = $1 AND w.closed IS NULL AND w.answered_at IS NULL AND w.epoch IS NULL AND w.kind NOT IN {_TIMED}
    AND w.expires_at <= (SELECT now FROM database_clock) ORDER BY w.seq, w.id
"""  # noqa: S608 - constants
_SESSIONS_WITH_DUE = f"""
SELECT DISTINCT session_key FROM waits
WHERE closed IS NULL AND answered_at IS NULL AND epoch IS NULL AND expires_at <= (SELECT now FROM database_clock)
    AND kind NOT IN {_TIMED}
LIMIT {_MAX_SESSIONS}
"""  # noqa: S608 - constants
_ANSWER_OF = "SELECT answer FROM waits WHERE session_key = $1 AND id = $2"
_CLOSE_EARLIER_QUESTIONS = """
UPDATE waits SET closed = 'cancelled', closed_at = (SELECT now FROM database_clock)
WHERE session_key = $1 AND closed IS NULL AND epoch < $2
"""


class WaitAnswer(Struct, frozen=True, omit_defaults=True):
    """An answer to a request to a person, which the input of a turn brings."""

    wait_id: str
    call_id: str
    """The id of the call that asks, as it is in the message."""
    kind: str
    seq: int
    """The message that asks: the same call may ask again."""
    answered_by: str
    content: str = ""
    """The answer as JSON; a credential is encrypted."""
    about: str = ""
    """The call to approve."""
    approved: bool | None = None
    grant: NewGrant | None = None
    """What is approved in addition to this call; only with an approval."""


# -- list --------------------------------------------------------------------------------------------------------------


def list_waits(key: int, name: SessionId) -> Operation[list[StoredWait]]:
    """Read the waits of a session that can be answered now, in the order in which they were opened."""
    return [row_to_wait(name.id, row) for row in (yield _LIST, (key,))]


def read_waits(key: int, name: SessionId) -> Operation[list[Wait]]:
    """Read what a session waits for, as clients see it."""
    return [stored.wait for stored in (yield from list_waits(key, name))]


def list_unclosed(key: int, name: SessionId | None = None) -> Operation[list[StoredWait]]:
    """Read the waits of a session that are not closed, also those whose answers are queued or came too late."""
    return [row_to_wait(name.id if name else "", row) for row in (yield _UNCLOSED, (key,))]


def list_pending(key: int, name: SessionId) -> Operation[list[StoredWait]]:
    """Read the waits that hold up a turn which brings one of several answers.

    Long-running tools are not among them once they have reported.
    """
    open_calls = yield from read_open_calls(key)
    found = [row_to_wait(name.id, row) for row in (yield _PENDING, (key,))]
    return [
        stored
        for stored in found
        if stored.wait.kind not in RESULT_KINDS or open_calls.get(call_key(stored.call_id)) == stored.seq
    ]


def get_wait(key: int, name: SessionId, id_: str) -> Operation[StoredWait]:
    """Return a wait that can be answered now. Raise `WaitNotOpen`, which says why it cannot."""
    for *row, is_open, is_in_time in (yield _FIND, (key, wait_id(id_))):
        found = row_to_wait(name.id, row)
        if is_open:
            return found
        if found.closed is None and found.is_shared:
            raise WaitNotOpen(f"only the session that {name.id!r} was forked from can answer {id_!r}")
        why = found.closed or ("answered" if found.is_answered else "superseded" if is_in_time else "expired")
        raise WaitNotOpen(f"the wait {id_!r} of session {name.id!r} {_NOT_OPEN.get(why, 'was closed')}", why)
    raise WaitNotOpen(f"session {name.id!r} has no wait {id_!r}")


def find_wait_of_state(app_name: str, state: str) -> Operation[tuple[SessionId, str] | None]:
    """Return the session and the id of the wait for a credential whose address carries this OAuth state, if any."""
    for app, user_id, session_id, found in (yield _BY_STATE, (state_hash(state), app_name)):
        return SessionId(app, user_id, session_id), found
    return None


def state_hash(state: str) -> str:
    """Hash the OAuth state of an address: it is random, so a plain hash cannot be guessed."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def is_closed_by_answer(key: int, id_: str) -> Operation[bool]:
    """Whether the answer to a wait closed it, and nothing before the answer's turn."""
    rows = yield "SELECT closed FROM waits WHERE session_key = $1 AND id = $2", (key, id_)
    return bool(rows) and rows[0][0] == "answered"


# -- answer ------------------------------------------------------------------------------------------------------------


def record_answer(key: int, name: SessionId, answer: WaitAnswer, now: float) -> Operation[None]:
    """Record an answer to a request, once and in time; raise `WaitNotOpen` for any other."""
    rows = yield _ANSWER, (answer.answered_by, answer.content, key, answer.wait_id, answer.seq)
    if not rows:
        raise WaitNotOpen(f"the wait {answer.wait_id!r} of session {name.id!r} is no longer open", "answered")
    if answer.approved is None:
        return
    yield from tool_journal.record_approval(key, answer.about, answer.answered_by, now, approved=answer.approved)
    if answer.grant is not None:
        for _, call in (yield from _find_call(key, call_key(answer.about), rows[0][0])):
            yield from grants.add_grant(key, answer.wait_id, answer.seq, call, answer.grant, answer.answered_by)


def reopen(key: int, entry: NewEvent) -> Operation[None]:
    """Reopen the requests that a withdrawn message would have answered."""
    for call in entry.message.tool_calls if entry.message else ():
        yield _REOPEN, (key, wait_id(call.id))
        yield from grants.withdraw_grant(key, wait_id(call.id))


def read_answer(key: int, id_: str) -> Operation[str | None]:
    """Return the answer to a wait as it is stored, or None if there is none, or it is no longer kept."""
    rows = yield _ANSWER_OF, (key, id_)
    return rows[0][0] if rows else None


def accept_results(key: int, call_ids: Collection[str]) -> Operation[bool]:
    """Whether all of these calls wait for a result: those of the client, and of long-running tools."""
    waiting = {stored.wait.id for stored in (yield from list_unclosed(key))} if call_ids else set[str]()
    return {wait_id(call_id) for call_id in call_ids} <= waiting


def finish_results(key: int, results: Mapping[str, ClientResult]) -> Operation[None]:
    """Close the long-running calls whose final results came; no longer list those whose results may be the last."""
    for call_id, result in results.items():
        if not result.will_continue:
            yield _SETTLE, (key, wait_id(call_id))
        if result.will_continue is False:
            yield _CLOSE, ("answered", key, wait_id(call_id))


# -- close -------------------------------------------------------------------------------------------------------------


def list_requests(key: int, name: SessionId) -> Operation[list[StoredWait]]:
    """Read the requests of a session to a person that are not closed."""
    return [stored for stored in (yield from list_unclosed(key, name)) if stored.wait.kind in REQUEST_KINDS]


def close_requests(key: int, name: SessionId, revision: int, now: float, reason: Reason) -> Operation[int]:
    """Close all open requests of a session to a person without answers; return the new revision."""
    return (yield from _close(key, name, revision, now, (yield from list_requests(key, name)), reason))


def decline(key: int, now: float, id_: str) -> Operation[bool]:
    """Close one request for input or a credential, or end a timer or a wait for an event, without an answer.

    Return False if it is not open, or a turn runs in the session.
    """
    locked = yield from lock_session(key)
    found = (yield from list_unclosed(key)) if locked else []
    kinds = (*_NO_ANSWER, *TIMED_KINDS)
    found = [stored for stored in found if stored.wait.id == id_ and stored.wait.kind in kinds]
    if locked is None or not found or found[0].is_answered or (yield from find_running_turn(key)) is not None:
        return False
    reason = "cancelled" if found[0].wait.kind in TIMED_KINDS else "superseded"
    yield from _close(key, locked.name, locked.revision, now, found, reason)
    return True


def close_client_calls(
    key: int, name: SessionId, revision: int, now: float, results: Mapping[str, ClientResult]
) -> Operation[int]:
    """Close the calls that wait for the client, with its results or without; return the new revision."""
    by_message: dict[int, list[StoredWait]] = {}
    for stored in (yield from list_unclosed(key, name)):
        if stored.wait.kind == "client_result":
            by_message.setdefault(stored.seq, []).append(stored)
    none = ClientResult(NO_RESULT)
    for seq, found in by_message.items():
        made_by = yield from message_at(key, seq)
        open_ids = {stored.call_id for stored in found}
        calls = made_by.message.tool_calls if made_by is not None and made_by.message is not None else ()
        outputs = tuple(
            ToolCall(call.id, call.name, output=results.get(call.id, none).output)
            for call in calls
            if call.id in open_ids
        )
        if made_by is not None and outputs:
            entry = closing_event("client", made_by, outputs, revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
        for call_id in open_ids - results.keys():
            yield _CLOSE, ("superseded", key, wait_id(call_id))
    return revision


def closed_by_input(
    before: Iterable[StoredWait], name: SessionId, entries: Sequence[NewEvent], *, is_new_message: bool
) -> tuple[ClosedWait, ...]:
    """Return which of the waits before a turn its input closed, for the readers of the turn."""
    results = {wait_id(call_id): result for entry in entries for call_id, result in entry.client_results.items()}
    answered = {wait_id(call.id) for entry in entries if entry.message for call in entry.message.tool_calls}
    closed: list[ClosedWait] = []
    for stored in before:
        id_, kind = stored.wait.id, stored.wait.kind
        if id_ in results and results[id_].will_continue is False:
            by = stored.answered_by if kind in TIMED_KINDS else name.user_id
            closed.append(ClosedWait(stored.wait, "answered", by))
        elif kind in REQUEST_KINDS and id_ in answered:
            refused = kind == "approval" and bool(stored.answer) and loads(stored.answer or "")["type"] == _REFUSE
            outcome = "refused" if refused else "answered"
            closed.append(ClosedWait(stored.wait, outcome, stored.answered_by or name.user_id))
        elif is_new_message and kind in (*REQUEST_KINDS, "client_result"):
            closed.append(ClosedWait(stored.wait, "superseded"))
    return tuple(closed)


_REFUSE = str(Refuse.__struct_config__.tag)


def _close(
    key: int, name: SessionId, revision: int, now: float, waits: Sequence[StoredWait], reason: Reason
) -> Operation[int]:
    """Give requests a result that says why they are closed, and the calls that they are about."""
    declined_by = name.user_id if reason == "cancelled" else tool_journal.DECIDED_BY_POLICY
    for stored in waits:
        no_answer = _NO_ANSWER.get(stored.wait.kind)
        for asking, call in (yield from _find_call(key, call_key(stored.call_id), stored.seq)):
            output = {"error": no_answer[reason]} if no_answer else {"confirmed": False}
            if stored.wait.kind in TIMED_KINDS:
                output = {"error": _CANCELLED}
            entry = closing_event("no", asking, (ToolCall(call.id, call.name, output=output),), revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
        for made_by, call in (yield from _find_call(key, stored.about_id, stored.about_seq)):
            result = ToolCall(call.id, call.name, output={"error": _NOT_RUN[reason], "outcome": "not run"})
            entry = closing_event("no", made_by, (result,), revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
            yield from tool_journal.record_approval(key, call.id, declined_by, now, approved=False)
        yield _CLOSE, ("superseded" if reason == "updated" else reason, key, stored.wait.id)
    return revision


def _find_call(key: int, id_: str | None, seq: int | None) -> Operation[list[tuple[StoredEvent, ToolCall]]]:
    """Read a call by its `call_key`, and the message that made it; an empty list: it is not there."""
    stored = (yield from message_at(key, seq)) if seq is not None else None
    calls = stored.message.tool_calls if stored and stored.message else ()
    return [(stored, call) for call in calls if stored and call_key(call.id) == id_][:1]


# -- expire ------------------------------------------------------------------------------------------------------------


def has_expired(key: int) -> Operation[bool]:
    """Whether a request of a session has expired and is not closed yet."""
    return bool((yield _DUE, (key,)))


def expire(key: int, now: float) -> Operation[bool]:
    """Close the expired requests of a session. False: a turn runs, and only its owner may write."""
    locked = yield from lock_session(key)
    due = (yield _DUE, (key,)) if locked else []
    if locked is None or not due:
        return True
    if (yield from find_running_turn(key)) is not None:
        return False
    waits = [row_to_wait(locked.name.id, row) for row in due]
    yield from _close(key, locked.name, locked.revision, now, waits, "expired")
    return True


def find_expired_sessions() -> Operation[list[int]]:
    """Return the keys of some sessions with expired requests."""
    return [key for [key] in (yield _SESSIONS_WITH_DUE, ())]


# -- questions of running tools ----------------------------------------------------------------------------------------


def ask(turn: Turn, id_: str, value: Mapping[str, Any], now: float, timeout_s: float) -> Operation[None]:
    """Open the wait of a running tool for an answer. Raise `FencedWrite` if the turn lost its lease.

    The tool waits in its process: the wait counts only while its turn has the same lease.
    """
    yield from check_epoch(turn.session_key, turn.epoch)
    yield _CLOSE_EARLIER_QUESTIONS, (turn.session_key, turn.epoch)
    data = dumps({"call_id": id_, "value": value})
    about = None, None, now, None, timeout_s
    yield OPEN_WAIT, (turn.session_key, id_, "tool_question", 0, "", *about, data, turn.epoch, None, None, None)


def answer_question(key: int, id_: str, content: str, answered_by: str) -> Operation[bool]:
    """Store the answer to a question; return False if it is no longer open."""
    return bool((yield _ANSWER, (answered_by, content, key, id_, 0)))


def close_question(key: int, id_: str, closed: Literal["answered", "expired", "cancelled"]) -> Operation[None]:
    """Close a question: the tool continues."""
    yield _CLOSE, (closed, key, id_)
