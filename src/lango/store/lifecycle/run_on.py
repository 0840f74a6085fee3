"""Fork a session inside a turn, so that the turn runs on from one of its steps, with other results and another state.

The fork shares the messages before the turn, and has copies of the turn's own: its message, and what its steps stored
before the one that is run again. That is what a turn whose process died leaves, so it is resumed like one.
"""

from collections.abc import Mapping
from typing import Any

from lango.errors import Conflict, TraceNotFound
from lango.sessions import SessionId
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import NewEvent, Turn, call_key
from lango.store.engine.database import Operation
from lango.store.lifecycle.fork import copy_session
from lango.store.sessions.append import append
from lango.store.sessions.open_calls import is_closing_event
from lango.store.sessions.sessions import get_session, lock_named_session
from lango.store.tool_calls.tool_journal import forget_failed_nodes
from lango.store.turns.event_log import begin_log
from lango.store.turns.submit import NEW_EPOCH
from lango.store.turns.turns import read_turn_messages

_TURN = """
SELECT t.first_seq, t.invocation_id, t.request, t.first_epoch, t.begun_version, t.version, t.continued_seq,
    t.continued_epoch, m.role,
    (SELECT MIN(n.first_seq) FROM turns n WHERE n.session_key = t.session_key AND n.turn > t.turn)
FROM turns t LEFT JOIN messages m ON m.session_key = t.session_key AND m.seq = t.first_seq
WHERE t.session_key = $1 AND t.turn = $2
"""
_CREATED_AT = "SELECT created_at FROM messages WHERE session_key = $1 AND seq = $2"
_COPY_ENTRIES = """
INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at, started_at,
    finished_at, result, whole, approved, approved_by, approved_at, actions)
SELECT CAST($1 AS BIGINT), call_id, CAST($2 AS BIGINT), name, effect, status, arguments, intended_at, started_at,
    finished_at, result, whole, approved, approved_by, approved_at, actions FROM tool_journal
WHERE session_key = $3"""
_COPY_JOURNAL = f"""
{_COPY_ENTRIES} AND epoch = $4 AND status = 'finished' AND finished_at <= $5
"""
# what was done before an update of the app is not done again
_COPY_JOURNAL_BEFORE_UPDATE = f"""
{_COPY_ENTRIES} AND epoch >= $4 AND epoch < $5 AND status IN ('started', 'finished')
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""
# the epoch of the steps after the note of an update; a turn keeps only that of its last one
_EPOCH_AFTER_UPDATE = """
SELECT MIN(epoch) FROM tool_journal WHERE session_key = $1 AND epoch > $2 AND epoch < $3 AND intended_at >= $4
"""
# the wait that the turn's input answered, as that left it; a credential stays with the source
_COPY_ANSWERED_WAIT = """
INSERT INTO waits (session_key, id, kind, invocation_id, seq, about_id, about_seq, opened_at, expires_at, answered_at,
    answered_by, answer, data, closed, closed_at)
SELECT CAST($1 AS BIGINT), id, kind, invocation_id, seq, about_id, about_seq, opened_at, expires_at, answered_at,
    answered_by, CASE WHEN kind <> 'credential' THEN answer END, data, closed, closed_at FROM waits
WHERE session_key = $2 AND id = $3
ON CONFLICT (session_key, id) DO NOTHING
"""
_SET_RESULT = """
UPDATE tool_journal SET result = $1, whole = NULL WHERE session_key = $2 AND call_id = $3 AND epoch = $4
RETURNING call_id
"""
# what the turn's steps did to the state is done again when they are replayed
_DELTAS = (
    (
        "SELECT seq, state_delta FROM messages WHERE session_key = $1 AND state_delta IS NOT NULL",
        "UPDATE messages SET state_delta = $1 WHERE session_key = $2 AND seq = $3",
    ),
    (
        "SELECT event_id, state_delta FROM state_events WHERE session_key = $1",
        "UPDATE state_events SET state_delta = $1 WHERE session_key = $2 AND event_id = $3",
    ),
)
_ACTIONS = "SELECT call_id, actions FROM tool_journal WHERE session_key = $1 AND actions IS NOT NULL"
_SET_ACTIONS = "UPDATE tool_journal SET actions = $1 WHERE session_key = $2 AND call_id = $3"
_INSERT_TURN = """
INSERT INTO turns (session_key, turn, status, owner, created_at, invocation_id, first_seq, epoch, first_epoch,
    continued_seq, continued_epoch, started_at, begun_version, version, request, quota_id)
VALUES ($1, 1, 'running', $2, $3, $4, $5, $6, $7, $8, $9, $3, $10, $11, $12, $13)
"""


def run_on(
    source: SessionId,
    new: SessionId,
    turn: int,
    before: int | None,
    results: Mapping[str, Mapping[str, Any]],
    state: NewEvent | None,
    request: Mapping[str, Any],
    owner: str,
    title: str | None,
    now: float,
) -> Operation[Turn]:
    """Create a fork that runs a turn on from message `before`, or from its start; return the turn of the fork.

    `results` replaces those of tool calls that message `before` has, `state` changes the state, and `request` is what
    came with the turn, whose options are added to those that it had. A turn that an answer or a result started begins
    with the same one again, but without a credential. A turn that continued after updates of the app has continued in
    the fork after those that message `before` follows; this version takes over the rest. Raise `TraceNotFound` if there
    is no such turn, or `Conflict` if it cannot be run on that way.
    """
    new.check_new()
    session = yield from lock_named_session(source)
    rows = yield _TURN, (session.key, turn)
    if not rows or rows[0][0] is None:
        raise TraceNotFound(f"session {source.id!r} has no turn {turn}")
    first_seq, invocation_id, stored, first_epoch, begun_version, version, continued_seq, continued_epoch, _, end = (
        rows[0]
    )
    at = first_seq if before is None else before - 1
    if before is not None and not first_seq < before <= (end or session.last_seq + 1):
        raise Conflict(f"message {before} is not a step of turn {turn}: choose one from {first_seq + 1} on")
    if continued_seq is not None and at < continued_seq:
        epochs = first_epoch, continued_epoch
        at, continued_seq, continued_epoch = yield from _find_update(session.key, turn, at, *epochs)
        version = begun_version if continued_seq is None else None
    key = yield from copy_session(session, new, at, first_seq - 1, title, now)
    earlier: dict[str, Any] = loads(stored) if stored else {}
    if answer := earlier.get("answer"):
        yield _COPY_ANSWERED_WAIT, (key, session.key, answer["wait_id"])
    [[epoch, revision]] = yield NEW_EPOCH, (key,)
    began_at_epoch = epoch
    if continued_epoch is not None:
        yield _COPY_JOURNAL_BEFORE_UPDATE, (key, epoch, session.key, first_epoch, continued_epoch)
        [[epoch, revision]] = yield NEW_EPOCH, (key,)
    if before is not None:
        rows = yield _CREATED_AT, (session.key, before)
        ended_at = rows[0][0] if rows else now
        yield _COPY_JOURNAL, (key, epoch, session.key, continued_epoch or first_epoch, ended_at)
        yield from forget_failed_nodes(key, epoch)  # their code may be another one now
    yield from _set_results(key, epoch, results, before)
    if state is not None:
        yield from _change_deltas(key, state.state_delta or {})
        yield from append(key, new, revision, state)
    about = {**earlier, **request, "options": {**earlier.get("options", {}), **request["options"]}, "trace": None}
    kept = dumps({name: value for name, value in about.items() if value})
    epochs = epoch, began_at_epoch, continued_seq, None if continued_seq is None else epoch
    versions = begun_version, version
    yield _INSERT_TURN, (key, owner, now, invocation_id, first_seq, *epochs, *versions, kept, request["quota"])
    started = Turn(key, 1, epoch, first_epoch=epoch)
    yield from begin_log(started, invocation_id)
    return started


def _find_update(
    key: int, turn: int, at: int, first_epoch: int, last_epoch: int
) -> Operation[tuple[int, int | None, int | None]]:
    """Return where a fork of a turn at message `at` ends, and the note and epoch from which it continues, or None.

    An update closes the calls that are open and stores its note at once, so a fork has all of it or nothing.
    """
    stored = yield from read_turn_messages(key, turn)
    notes = {event.seq: event.created_at for event in stored if event.message and event.message.role == "system"}
    if any(event.seq == at and is_closing_event(event) for event in stored):
        following = next(event.seq for event in stored if event.seq > at and not is_closing_event(event))
        at = following if following in notes else at
    for seq in [seq for seq in notes if seq <= at][-1:]:
        [[epoch]] = yield _EPOCH_AFTER_UPDATE, (key, first_epoch, last_epoch, notes[seq])
        return at, seq, epoch or last_epoch
    return at, None, None


def _set_results(key: int, epoch: int, results: Mapping[str, Mapping[str, Any]], before: int | None) -> Operation[None]:
    for call_id, result in results.items():
        if not (yield _SET_RESULT, (dumps(result), key, call_key(call_id), epoch)):
            raise Conflict(f"call {call_id} had no result before message {before}: change the result of another one")


def read_message_of_turn(name: SessionId, turn: int) -> Operation[int]:
    """Return the message of the user that started a turn.

    Raise `TraceNotFound` if there is no such turn, or `Conflict` if an answer or a result started it.
    """
    session = yield from get_session(name)
    for row in (yield _TURN, (session.key, turn)):
        if row[0] is not None:
            if row[8] != "user":
                raise Conflict(
                    f"turn {turn} began with an answer: to give another one, fork the session before message {row[0]}, "
                    "where it waits again"
                )
            return row[0]
    raise TraceNotFound(f"session {name.id!r} has no turn {turn}")


def _change_deltas(key: int, delta: Mapping[str, Any]) -> Operation[None]:
    """Let the steps that are replayed set the changed values instead of their own."""

    def changed(text: str) -> str | None:
        members: dict[str, Any] = loads(text)
        own = {name: value for name, value in delta.items() if name in members}
        return dumps(members | own) if own else None

    for read, write in _DELTAS:
        for place, text in (yield read, (key,)):
            if (again := changed(text)) is not None:
                yield write, (again, key, place)
    for call_id, text in (yield _ACTIONS, (key,)):
        actions: dict[str, Any] = loads(text)
        if again := changed(dumps(actions.get("state_delta") or {})):
            yield _SET_ACTIONS, (dumps(actions | {"state_delta": loads(again)}), key, call_id)
