"""Operations on questions for approval: each is about one call, and is answered once, in time, or is a no.

A question is an open call of its own. It is closed by an answer, by a conversation that goes on without one, or by the
database's clock, which all processes share; the call that it is about then gets a result that says so.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import ApprovalExpired
from lango.messages import ToolCall
from lango.store.codec.ids import call_key
from lango.store.codec.records import Entry, SessionId, SessionRecord, Stored
from lango.store.codec.rows import MESSAGE_COLUMNS, from_message_row
from lango.store.engine.database import Operation, Row
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, live_of, live_ranges
from lango.store.sessions.open_calls import closing
from lango.store.turns import tool_journal

EXPIRED = "not run: nobody answered the question for approval in time, and that is a no"
OVERTAKEN = "not run: the conversation went on without an answer to the question for approval, and that is a no"
_MOST_DUE = 100

_ALL = """
SELECT call_id, seq, asks_about, about_seq FROM open_calls
WHERE session_key = $1 AND asks_about IS NOT NULL ORDER BY seq
"""
_DUE = """
SELECT call_id, seq, asks_about, about_seq FROM open_calls
WHERE session_key = $1 AND answered_at IS NULL AND expires_at <= (SELECT now FROM database_clock) ORDER BY seq
"""
_WAITING = """
SELECT call_id, seq, asks_about, about_seq, expires_at FROM open_calls
WHERE session_key = $1 AND seq > $2 AND asks_about IS NOT NULL AND answered_at IS NULL
    AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock)) ORDER BY seq
"""
_ANSWER = """
UPDATE open_calls SET answered_at = (SELECT now FROM database_clock)
WHERE session_key = $1 AND call_id = $2 AND asks_about = $3 AND answered_at IS NULL
    AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock))
RETURNING call_id
"""
_TAKE_BACK = "UPDATE open_calls SET answered_at = NULL WHERE session_key = $1 AND call_id = $2"
_SESSIONS_DUE = """
SELECT DISTINCT session_key FROM open_calls
WHERE expires_at <= (SELECT now FROM database_clock) AND answered_at IS NULL LIMIT $1
"""
_NEXT_DUE = """
SELECT MIN(expires_at) - (SELECT now FROM database_clock) FROM open_calls
WHERE expires_at IS NOT NULL AND answered_at IS NULL
"""
# takes the session's row, as every turn does that begins
_LOCK = "UPDATE sessions SET epoch = epoch WHERE session_key = $1 RETURNING revision, app_name, user_id, id"
_RUNNING = "SELECT turn FROM turns WHERE session_key = $1 AND status = 'running'"
_DROP = "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2"
_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM history WHERE session_key = $1 AND seq = $2"  # noqa: S608 - constants


class Question(Struct, frozen=True):
    """A call that waits for somebody to say yes or no to exactly these arguments."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: float
    expires_at: float | None


class Answer(Struct, frozen=True):
    """What somebody said to a question."""

    question: str
    """The question's own id."""
    call_id: str
    approved: bool
    by: str


def waiting(session: SessionRecord) -> Operation[list[Question]]:
    """Read the questions that an answer is still taken for."""
    rows = yield _WAITING, (session.key, session.user_seq)
    live = list(live_ranges(session.last_seq, session.rewinds))
    found: list[Question] = []
    for _, seq, about, about_seq, expires_at in rows:
        if not is_live(seq, live):
            continue
        made = yield from _call(session.key, about, about_seq)
        if made:
            stored, call = made
            found.append(Question(call.id, call.name, call.input or {}, stored.created_at, expires_at))
    return found


def answer(key: int, name: SessionId, said: Answer, now: float) -> Operation[None]:
    """Take an answer that came in time, once; raise `ApprovalExpired` for any other."""
    if not (yield _ANSWER, (key, call_key(said.question), call_key(said.call_id))):
        raise ApprovalExpired(f"the question about call {said.call_id!r} of session {name.id!r} is not open any more")
    yield from tool_journal.note_answer(key, said.call_id, said.by, now, approved=said.approved)


def take_back(key: int, entry: Entry) -> Operation[None]:
    """Let the questions expire again that a queued message would have answered: it is taken back."""
    for call in entry.message.tool_calls if entry.message else ():
        yield _TAKE_BACK, (key, call_key(call.id))


def overtake(key: int, name: SessionId, revision: int, now: float) -> Operation[int]:
    """Close every question of a session that goes on without an answer; return the new revision."""
    return (yield from _close(key, name, revision, now, (yield _ALL, (key,)), OVERTAKEN))


def is_due(key: int) -> Operation[bool]:
    """Whether a question of a session has expired."""
    return bool((yield _DUE, (key,)))


def expire(key: int, now: float) -> Operation[bool]:
    """Close what has expired in a session. False: a turn runs there, and nobody writes beside it."""
    for revision, *name in (yield _LOCK, (key,)):
        due = yield _DUE, (key,)
        if due and (yield _RUNNING, (key,)):
            return False
        yield from _close(key, SessionId(*name), revision, now, due, EXPIRED)
    return True


def sessions_due() -> Operation[list[int]]:
    """Return the keys of some sessions in which a question has expired."""
    return [key for [key] in (yield _SESSIONS_DUE, (_MOST_DUE,))]


def next_due_s() -> Operation[float | None]:
    """Return in how many seconds the next question expires; None: none does."""
    [[left_s]] = yield _NEXT_DUE, ()
    return left_s


def _close(key: int, name: SessionId, revision: int, now: float, rows: list[Row], why: str) -> Operation[int]:
    live = (yield from live_of(key)) if rows else []
    for question, seq, about, about_seq in rows:
        if not is_live(seq, live):
            yield _DROP, (key, question)  # taken back: nobody reads it any more
            continue
        for row in (yield _MESSAGE, (key, seq)):
            stored = from_message_row(row)
            asked = (
                [call for call in stored.message.tool_calls if call_key(call.id) == question] if stored.message else []
            )
            for call in asked:
                no = ToolCall(call.id, call.name, output={"confirmed": False})
                entry = closing(f"no-{stored.seq}-{revision}", stored, (no,), now)
                revision = (yield from append(key, name, revision, entry)).revision
        made = yield from _call(key, about, about_seq)
        if made:
            stored, call = made
            told = ToolCall(call.id, call.name, output={"error": why, "outcome": "not run"})
            entry = closing(f"no-{stored.seq}-{revision}", stored, (told,), now)
            revision = (yield from append(key, name, revision, entry)).revision
            yield from tool_journal.note_answer(key, call.id, tool_journal.POLICY, now, approved=False)
    return revision


def _call(key: int, about: str, about_seq: int | None) -> Operation[tuple[Stored, ToolCall] | None]:
    """Read the call that a question is about, and the message that made it."""
    for row in (yield _MESSAGE, (key, about_seq or 0)):
        stored = from_message_row(row)
        for call in stored.message.tool_calls if stored.message else ():
            if call_key(call.id) == about:
                return stored, call
    return None
