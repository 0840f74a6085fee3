"""Fork a session at a message without copying its rows.

Rows of messages never change, and are not deleted while a fork shares them, so a fork stores only its lineage. Sequence
numbers, running totals, revisions and epochs continue from the source. Calls without a result at the fork point are
closed in the same transaction, so that the history of the fork is valid.
"""

import re
from collections import Counter
from collections.abc import Sequence

from lango.errors import MessageNotFound
from lango.sessions import MAX_TITLE, REQUEST_CALLS, SessionId, SessionInfo, SharedRange
from lango.store.artifacts.session_artifacts import copy_to_fork
from lango.store.codec.json_text import dumps
from lango.store.codec.records import call_key, wait_id
from lango.store.codec.rows import BEGINS_TURN, calls_from_json, long_running_call_ids
from lango.store.contents import use_again
from lango.store.engine.database import Operation, Row
from lango.store.memory import observations
from lango.store.sessions import sessions
from lango.store.sessions import state as session_state
from lango.store.sessions.lineage import key_of_message, row_ranges, total_tokens_at
from lango.store.sessions.open_calls import OPEN_CALL, open_stored_waits
from lango.store.sessions.sessions import copy_options
from lango.store.sessions.titles import clean_title, with_first_words
from lango.store.waits.recovery import close_open_calls

_INSERT_LINEAGE = """
INSERT INTO session_lineage (session_key, ordinal, first_seq, last_seq, last_revision, last_epoch, source_key)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_COUNT_FORK = """
INSERT INTO shared_sessions (session_key, forks) VALUES ($1, 1)
ON CONFLICT (session_key) DO UPDATE SET forks = shared_sessions.forks + 1
"""
_SET_SESSION = """
UPDATE sessions SET revision = $1, last_seq = $2, user_seq = $3, total_tokens = $4, epoch = $5, rewinds = $6,
    title = $7, forked_from = $8
WHERE session_key = $9
"""
_OWN_STATES = "SELECT 1 FROM state_events WHERE session_key = $1 AND seq <= $2 LIMIT 1"
_SAME_STATE = """
INSERT INTO session_states (session_key, state)
SELECT CAST($1 AS BIGINT), state FROM session_states WHERE session_key = $2
"""
_USER_SEQ = f"""
SELECT seq FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND {BEGINS_TURN} ORDER BY seq DESC LIMIT 1
"""  # noqa: S608 - constants
_STILL_OPEN = "SELECT call_id, seq, long_running FROM open_calls WHERE session_key = $1 AND seq <= $2"
# the secrets of a credential stay with the source: in the fork, it cannot be answered, and is in no inbox
_COPY_WAITS = """
INSERT INTO waits (session_key, id, kind, invocation_id, seq, about_id, about_seq, opened_at, expires_at, answered_at,
    data, app_name, user_id, event_name)
SELECT s.session_key, w.id, w.kind, w.invocation_id, w.seq, w.about_id, w.about_seq, CAST($1 AS DOUBLE PRECISION),
    w.expires_at, CASE WHEN w.kind = 'long_running_result' THEN w.answered_at END,
    CASE WHEN w.kind <> 'credential' THEN w.data END,
    CASE WHEN w.kind NOT IN ('credential', 'client_result') THEN s.app_name END,
    CASE WHEN w.kind NOT IN ('credential', 'client_result') THEN s.user_id END, w.event_name
FROM waits w, sessions s
WHERE s.session_key = $2 AND w.session_key = $3 AND w.seq <= $4 AND w.closed IS NULL AND w.epoch IS NULL
"""
_HAS_WAITED = "SELECT 1 FROM waits WHERE session_key = $1 AND id = $2 AND seq = $3"
_UNCALL = "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2"
_COPIED_WAITS = "SELECT id, about_id FROM waits WHERE session_key = $1"
# `call_seq` is NULL for a result right after its call
_RESULTS_OF_NEXT = """
SELECT tool_calls FROM messages WHERE session_key = $1 AND seq = $2 AND role IN ('tool', 'function')
    AND call_seq IS NULL AND tool_calls IS NOT NULL
"""
_RESULTS_LATER = """
SELECT call_seq, tool_calls FROM messages
WHERE session_key = $1 AND call_seq IS NOT NULL AND call_seq <= $2 AND seq > $3 AND seq <= $4
"""
_CALLS = """
SELECT seq, tool_calls, extra FROM messages
WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND tool_calls IS NOT NULL
    AND role NOT IN ('tool', 'function')
"""
_MESSAGE = """
seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id, invocation_id, call_seq,
    state_delta, extra"""
_COPY_MESSAGES = f"""
INSERT INTO messages (session_key, {_MESSAGE})
SELECT CAST($1 AS BIGINT), {_MESSAGE} FROM messages WHERE session_key = $2 AND seq >= $3 AND seq <= $4
"""  # noqa: S608 - constants
_CONTENTS = "SELECT seq, hash FROM message_contents WHERE session_key = $1 AND seq >= $2 AND seq <= $3"
_ADD_CONTENT = "INSERT INTO message_contents (session_key, seq, hash) VALUES ($1, $2, $3)"
_COPY_STATES = """
INSERT INTO state_events (session_key, seq, revision, event_id, created_at, state_delta, extra)
SELECT CAST($1 AS BIGINT), seq, revision, event_id, created_at, state_delta, extra FROM state_events
WHERE session_key = $2 AND seq >= $3 AND seq <= $4
"""
_FORK_SUFFIX = re.compile(r" \(fork(?: (\d{1,6}))?\)$")


def fork_session(
    source: SessionId, new: SessionId, at: int | None, title: str | None, now: float
) -> Operation[SessionInfo]:
    """Create a session that shares another's messages up to `at`: if None, all of them; if 0, only the first state."""
    new.check_new()
    session = yield from sessions.lock_named_session(source)
    point = session.last_seq if at is None else at
    if not 0 <= point <= session.last_seq:
        raise MessageNotFound(f"session {source.id!r} has no message {point}: it has {session.last_seq}")
    key = yield from copy_session(session, new, point, point, title, now)
    yield from close_open_calls(key, new, session.revision, now, forked=True)
    return (yield from sessions.get_titled_session(new))


def copy_session(
    session: SessionInfo, new: SessionId, point: int, shared: int, title: str | None, now: float
) -> Operation[int]:
    """Create a session that is as another one was at message `point`, and return its key.

    It shares the messages up to `shared`, and has copies of the others, which the session itself must have.
    """
    key = yield from sessions.insert(new, now)
    yield from _insert_lineage(key, (yield from _shared_ranges(session, shared)))
    if shared < point:
        yield from _copy_messages(key, session, shared + 1, point)
    yield from _copy_state(key, session, point)
    yield from copy_options(key, session.key)
    yield from _set_session(key, session, point, clean_title(title) or (yield from _title(session, point)))
    yield from _reopen_calls(key, session, point, now)
    yield from observations.copy_to_fork(key, session.key, shared)
    yield from copy_to_fork(new, session, point)
    return key


def _shared_ranges(session: SessionInfo, point: int) -> Operation[list[SharedRange]]:
    """Return the ranges that a fork at `point` shares, the oldest ancestor first and the session's own rows last."""
    found = [
        SharedRange(
            shared.first_seq, min(shared.last_seq, point), shared.last_revision, shared.last_epoch, shared.source_key
        )
        for shared in session.lineage
        if shared.first_seq - 1 <= point  # the state before its first message may be shared
    ]
    begin = session.lineage[-1].last_seq + 1 if session.lineage else 1
    if point >= begin or (point == begin - 1 and (yield _OWN_STATES, (session.key, point))):
        found.append(SharedRange(begin, point, session.revision, session.epoch, session.key))
    return found


def _insert_lineage(key: int, shared: Sequence[SharedRange]) -> Operation[None]:
    for ordinal, source in enumerate(shared, 1):
        limits = (source.first_seq, source.last_seq, source.last_revision, source.last_epoch)
        yield _INSERT_LINEAGE, (key, ordinal, *limits, source.source_key)
    for source_key in sorted({source.source_key for source in shared}):  # in one order, so that no two forks deadlock
        yield _COUNT_FORK, (source_key,)


def _copy_state(key: int, session: SessionInfo, point: int) -> Operation[None]:
    """Set the fork's state to that of the session at `point`."""
    if point == session.last_seq:
        yield _SAME_STATE, (key, session.key)
        return
    state = yield from session_state.read_state_at(session.key, point)
    if state:
        yield from session_state.set_session_state(key, state)


def _set_session(key: int, session: SessionInfo, point: int, title: str | None) -> Operation[None]:
    total = yield from total_tokens_at(session, point)
    user_seq = session.user_seq
    if user_seq > point:
        user_seq = yield from _user_seq(session, point)
    rewinds = [rewind for rewind in session.rewinds if rewind[0] <= point]
    texts = dumps(rewinds) if rewinds else None, title, dumps({"id": session.name.id, "seq": point})
    yield _SET_SESSION, (session.revision, point, user_seq, total, session.epoch, *texts, key)


def _user_seq(session: SessionInfo, point: int) -> Operation[int]:
    for place in row_ranges(session, 1, point):
        rows = yield _USER_SEQ, place
        if rows:
            return rows[0][0]
    return 0


def _title(session: SessionInfo, point: int) -> Operation[str | None]:
    """Derive the title from the source's, unless no message is shared."""
    named = (yield from with_first_words(session)).display_title if point else ""
    if not named:
        return None
    again = _FORK_SUFFIX.search(named)
    mark = f" (fork {int(again[1] or 1) + 1})" if again else " (fork)"
    stem = named[: again.start()] if again else named
    return stem[: MAX_TITLE - len(mark)] + mark


def _copy_messages(key: int, session: SessionInfo, first: int, last: int) -> Operation[None]:
    """Copy messages that the session itself has, with what changed the state between them."""
    yield _COPY_MESSAGES, (key, session.key, first, last)
    yield _COPY_STATES, (key, session.key, first, last)
    contents = yield _CONTENTS, (session.key, first, last)
    for seq, hash_ in contents:
        yield _ADD_CONTENT, (key, seq, hash_)
    for hash_, uses in sorted(Counter(str(hash_) for _, hash_ in contents).items()):
        yield from use_again(hash_, uses)


# -- calls that were open at the fork point ------------------------------------------------------------------------


def _reopen_calls(key: int, session: SessionInfo, point: int, now: float) -> Operation[None]:
    """Open the calls that had no result at `point`, with their waits: those still open, and those answered later."""
    opened: dict[str, tuple[int, int]] = {}
    for call_id, seq, long_running in (yield _STILL_OPEN, (session.key, point)):
        opened[call_id] = seq, long_running
    if point < session.last_seq:
        for first, row in (yield from _results_after(session, point)):
            answered = {call_key(call.id) for call in calls_from_json(row)}
            opened.update((yield from _find_calls(session, first, point, answered)))
    yield _COPY_WAITS, (now, key, session.key, point)
    copied = {id_ for id_, _ in (yield _COPIED_WAITS, (key,))}
    again: dict[int, set[str]] = {}
    for call_id, (seq, long_running) in sorted(opened.items()):
        yield OPEN_CALL, (key, call_id, seq, long_running)
        # only what a turn of this store waited for: the calls of an import wait for no answer
        made = key_of_message(session, seq), wait_id(call_id), seq
        if long_running and wait_id(call_id) not in copied and (yield _HAS_WAITED, made):
            again.setdefault(seq, set()).add(call_id)
    yield from open_stored_waits(key, again, now)
    for _, about_id in (yield _COPIED_WAITS, (key,)):  # it was approved after the fork point: here it is asked again
        if about_id in opened:
            yield _UNCALL, (key, about_id)


def _results_after(session: SessionInfo, point: int) -> Operation[list[tuple[int, str]]]:
    """Return the results after `point` of calls before it, each with the message of its call."""
    rows: list[Row] = yield _RESULTS_OF_NEXT, (key_of_message(session, point + 1), point + 1)
    found = [(point, calls) for [calls] in rows]
    for place_key, first, last in row_ranges(session, point + 1, session.last_seq):
        found += [(seq, calls) for seq, calls in (yield _RESULTS_LATER, (place_key, point, first - 1, last))]
    return found


def _find_calls(
    session: SessionInfo, first: int, last: int, call_ids: set[str]
) -> Operation[list[tuple[str, tuple[int, int]]]]:
    """Find calls by their ids: the first message of the range has them, or a later one."""
    found: list[tuple[str, tuple[int, int]]] = []
    wanted = set(call_ids)
    for begin, end in ((first, first), (first + 1, last)):
        for place in row_ranges(session, begin, end) if wanted and begin <= end else ():
            for seq, calls, extra in (yield _CALLS, place):
                waits = long_running_call_ids(extra)
                for call in calls_from_json(calls):
                    made = call_key(call.id)
                    if made in wanted:
                        wanted.discard(made)
                        found.append((made, (seq, int(call.id in waits or call.name in REQUEST_CALLS))))
    return found
