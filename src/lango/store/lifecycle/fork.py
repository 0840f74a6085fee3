"""Forking a session: a new one with the same past, as it was at a message, and a future of its own.

Rows of messages never change and are never deleted while somebody shows them, so a fork copies none: it notes where its
past stands. Sequence numbers, running totals, revisions and epochs go on from there. What the fork point leaves without
a result is closed in the same transaction, so that the fork is as valid a history as any.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import MessageNotFound, SessionNotFound
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import dumps
from lango.store.codec.records import Past, SessionId, SessionRecord
from lango.store.codec.rows import asked_about, calls_from_json, long_running
from lango.store.engine.database import Operation, Row
from lango.store.memory import observations
from lango.store.sessions import sessions
from lango.store.sessions import state as session_state
from lango.store.sessions.lineage import key_of, places
from lango.store.sessions.open_calls import place_of_call
from lango.store.sessions.titles import MAX_TITLE, cleaned, with_first_words
from lango.store.turns.recovery import close_calls

# takes the source's row, so that nobody deletes it or writes to it meanwhile
_LOCK = "UPDATE sessions SET epoch = epoch WHERE app_name = $1 AND user_id = $2 AND id = $3 RETURNING session_key"
_PAST = """
INSERT INTO session_pasts (session_key, piece, first_seq, last_seq, last_revision, last_epoch, source_key)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_SHARE = """
INSERT INTO shared_sessions (session_key, forks) VALUES ($1, 1)
ON CONFLICT (session_key) DO UPDATE SET forks = shared_sessions.forks + 1
"""
_SET = """
UPDATE sessions SET revision = $1, last_seq = $2, user_seq = $3, total_tokens = $4, epoch = $5, rewinds = $6,
    title = $7, forked_from = $8
WHERE session_key = $9
"""
_OWN_STATES = "SELECT 1 FROM state_events WHERE session_key = $1 AND seq <= $2 LIMIT 1"
_SAME_STATE = """
INSERT INTO session_states (session_key, state)
SELECT CAST($1 AS BIGINT), state FROM session_states WHERE session_key = $2
"""
_STATE = "INSERT INTO session_states (session_key, state) VALUES ($1, $2)"
_TOTAL = "SELECT total_tokens FROM messages WHERE session_key = $1 AND seq = $2"
_USER_SEQ = """
SELECT seq FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND role = 'user' ORDER BY seq DESC LIMIT 1
"""
_STILL_OPEN = """
SELECT call_id, seq, long_running, asks_about, about_seq, expires_at FROM open_calls
WHERE session_key = $1 AND seq <= $2
"""
_OPEN = """
INSERT INTO open_calls (session_key, call_id, seq, long_running, asks_about, about_seq, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, long_running = excluded.long_running
"""
# a result right after its call does not say where the call stands
_ANSWERED_NEXT = """
SELECT tool_calls FROM messages WHERE session_key = $1 AND seq = $2 AND role IN ('tool', 'function')
    AND call_seq IS NULL AND tool_calls IS NOT NULL
"""
_ANSWERED_LATER = """
SELECT call_seq, tool_calls FROM messages
WHERE session_key = $1 AND call_seq IS NOT NULL AND call_seq <= $2 AND seq > $3 AND seq <= $4
"""
_CALLS = """
SELECT seq, tool_calls, extra FROM messages
WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND tool_calls IS NOT NULL
    AND role NOT IN ('tool', 'function')
"""
_AGAIN = re.compile(r" \(fork(?: (\d{1,6}))?\)$")


def fork(source: SessionId, new: SessionId, at: int | None, title: str | None, now: float) -> Operation[SessionRecord]:
    """Make a session whose past is that of another, up to message `at`: None is all of it, 0 only the first state."""
    new.check_new()
    if not (yield _LOCK, (source.app_name, source.user_id, source.id)):
        raise SessionNotFound(f"there is no session {source.id!r}")
    session = yield from sessions.get(source)
    assert session
    point = session.last_seq if at is None else at
    if not 0 <= point <= session.last_seq:
        raise MessageNotFound(f"session {source.id!r} has no message {point}: it has {session.last_seq}")
    key = yield from sessions.insert(new, now)
    yield from _share(key, (yield from _past_of(session, point)))
    yield from _take_state(key, session, point)
    yield from _set(key, session, point, cleaned(title) or (yield from _title(session, point)))
    yield from _open_calls(key, session, point)
    yield from observations.fork(key, session.key, point)
    yield from close_calls(key, new, session.revision, now, 0, forked=True)
    made = yield from sessions.get(new)
    assert made
    return (yield from with_first_words(made))


def _past_of(session: SessionRecord, point: int) -> Operation[list[Past]]:
    """Return the pieces of a session up to a message, in order; its own rows are the last of them."""
    found = [
        Past(past.first_seq, min(past.last_seq, point), past.last_revision, past.last_epoch, past.source_key)
        for past in session.pasts
        if past.first_seq - 1 <= point  # the state before its first message, at least
    ]
    begin = session.pasts[-1].last_seq + 1 if session.pasts else 1
    if point >= begin or (point == begin - 1 and (yield _OWN_STATES, (session.key, point))):
        found.append(Past(begin, point, session.revision, session.epoch, session.key))
    return found


def _share(key: int, shared: Sequence[Past]) -> Operation[None]:
    for piece, past in enumerate(shared, 1):
        yield (
            _PAST,
            (key, piece, past.first_seq, past.last_seq, past.last_revision, past.last_epoch, past.source_key),
        )
    for source_key in sorted({past.source_key for past in shared}):  # in one order, so that nobody waits in a circle
        yield _SHARE, (source_key,)


def _take_state(key: int, session: SessionRecord, point: int) -> Operation[None]:
    """Give the fork the state of the session as it was."""
    if point == session.last_seq:
        yield _SAME_STATE, (key, session.key)
        return
    state = yield from session_state.state_at(session.key, point)
    if state:
        yield _STATE, (key, dumps(state))


def _set(key: int, session: SessionRecord, point: int, title: str | None) -> Operation[None]:
    total, user_seq = session.total_tokens, session.user_seq
    if point < session.last_seq:
        rows = yield _TOTAL, (key_of(session, point), point)
        total = rows[0][0] if rows else 0
    if user_seq > point:
        user_seq = yield from _user_seq(session, point)
    rewinds = [rewind for rewind in session.rewinds if rewind[0] <= point]
    yield (
        _SET,
        (
            session.revision,
            point,
            user_seq,
            total,
            session.epoch,
            dumps(rewinds) if rewinds else None,
            title,
            dumps({"id": session.name.id, "seq": point}),
            key,
        ),
    )


def _user_seq(session: SessionRecord, point: int) -> Operation[int]:
    for place in places(session, 1, point):
        rows = yield _USER_SEQ, place
        if rows:
            return rows[0][0]
    return 0


def _title(session: SessionRecord, point: int) -> Operation[str | None]:
    """Call it after its source, unless nothing of it is kept."""
    named = (yield from with_first_words(session)).shown_title if point else ""
    if not named:
        return None
    again = _AGAIN.search(named)
    mark = f" (fork {int(again[1] or 1) + 1})" if again else " (fork)"
    stem = named[: again.start()] if again else named
    return stem[: MAX_TITLE - len(mark)] + mark


# -- calls that were open at the point -----------------------------------------------------------------------------


def _open_calls(key: int, session: SessionRecord, point: int) -> Operation[None]:
    """Open again what had no result yet: what has none to this day, and what got one later."""
    opened: dict[str, _Open] = {}
    for call_id, *told in (yield _STILL_OPEN, (session.key, point)):
        opened[call_id] = _Open(*told)
    if point < session.last_seq:
        for first, row in (yield from _answers_after(session, point)):
            answered = {call_key(call.id) for call in calls_from_json(row)}
            opened.update((yield from _made(session, first, point, answered)))
    for call_id, one in _asked_again(opened):
        about_seq = one.about_seq
        if one.asks_about and about_seq is None:
            about_seq = yield from place_of_call(session.key, one.asks_about, one.seq)
        yield _OPEN, (key, call_id, one.seq, one.waits, one.asks_about, about_seq, one.expires_at)


class _Open(Struct, frozen=True):
    """A call without a result."""

    seq: int
    waits: int
    asks_about: str | None = None
    about_seq: int | None = None
    expires_at: float | None = None


def _asked_again(opened: Mapping[str, _Open]) -> list[tuple[str, _Open]]:
    """A call that was approved later waits for its approval again: its question is what is open."""
    asked = {one.asks_about for one in opened.values() if one.asks_about}
    still = [(call_id, one) for call_id, one in sorted(opened.items()) if call_id not in asked]
    return [(call_id, replace(one, about_seq=_about_seq(one, opened))) for call_id, one in still]


def _about_seq(one: _Open, opened: Mapping[str, _Open]) -> int | None:
    about = opened.get(one.asks_about) if one.asks_about else None
    return about.seq if about else one.about_seq


def _answers_after(session: SessionRecord, point: int) -> Operation[list[tuple[int, str]]]:
    """Return the results after a message of calls that stand before it: where the call stands, and the results."""
    rows: list[Row] = yield _ANSWERED_NEXT, (key_of(session, point + 1), point + 1)
    found = [(point, calls) for [calls] in rows]
    for place_key, first, last in places(session, point + 1, session.last_seq):
        found += [(seq, calls) for seq, calls in (yield _ANSWERED_LATER, (place_key, point, first - 1, last))]
    return found


def _made(session: SessionRecord, first: int, last: int, call_ids: set[str]) -> Operation[list[tuple[str, _Open]]]:
    """Find the calls with some ids: the first message of the range has them, or one of the next."""
    found: list[tuple[str, _Open]] = []
    wanted = set(call_ids)
    for begin, end in ((first, first), (first + 1, last)):
        for place in places(session, begin, end) if wanted and begin <= end else ():
            for seq, calls, extra in (yield _CALLS, place):
                waits = long_running(extra)
                for call in calls_from_json(calls):
                    made = call_key(call.id)
                    if made in wanted:
                        wanted.discard(made)
                        about = asked_about(call)
                        asks = call_key(about["id"]) if about else None
                        found.append((made, _Open(seq, int(call.id in waits), asks)))
    return found
