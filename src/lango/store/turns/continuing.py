"""Continue a turn from its stored history after an update of the app, and run a turn again that could not continue.

A turn whose record does not fit the new code is not replayed: its open calls are closed by the tool journal, and a note
is stored, from which the turn continues as from a message. What it does from then on is its record.
"""

from msgspec import Struct

from lango.errors import Conflict
from lango.events import TurnError, id_range
from lango.sessions import SessionId, StoredEvent
from lango.store.codec.json_text import loads
from lango.store.codec.records import NewEvent, Turn
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.open_calls import message_at
from lango.store.sessions.sessions import check_epoch, lock_session
from lango.store.tool_calls.tool_journal import forget_failed_nodes
from lango.store.turns.event_log import LoggedEvent
from lango.store.turns.submit import NEW_EPOCH
from lango.store.waits.recovery import close_open_calls
from lango.store.waits.waits import close_client_calls

_SET_CONTINUED = """
UPDATE turns SET continued_seq = $1, continued_epoch = $2, version = $3 WHERE session_key = $4 AND turn = $5
"""
_SET_VERSION = "UPDATE turns SET version = $1 WHERE session_key = $2 AND turn = $3"
_ENDED = """
SELECT status, first_seq, COALESCE(continued_epoch, first_epoch),
    (SELECT MAX(turn) FROM turns WHERE session_key = $1 AND status <> 'steered') FROM turns
WHERE session_key = $1 AND turn = $2
"""
_REOPEN = """
UPDATE turns SET status = 'running', owner = NULL, epoch = $1, ended_at = NULL, extra = NULL, attempts = 0,
    cancel_requested = 0, input_tokens = 0, output_tokens = 0, cached_tokens = 0, model_calls = 0, cost_usd = NULL
WHERE session_key = $2 AND turn = $3
"""
# a call that has got an update waits, and is no longer open
_WAITING = """
SELECT seq FROM open_calls WHERE session_key = $1 AND long_running = 1
UNION SELECT seq FROM waits WHERE session_key = $1 AND closed IS NULL AND answered_at IS NULL AND epoch IS NULL
ORDER BY seq
"""
_LAST_EVENT = """
SELECT id, data FROM event_log WHERE session_key = $1 AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT 1
"""
_OF_INVOCATION = "SELECT MAX(turn) FROM turns WHERE session_key = $1 AND invocation_id = $2"
_REOPEN_LOG = "UPDATE event_log SET data = $1, final = 0 WHERE session_key = $2 AND id = $3"


class EarlierCall(Struct, frozen=True):
    """A call that a turn made before it continued from its history."""

    call_id: str
    author: str
    """The agent that made it; empty: an agent inside a tool."""
    result: object
    """The result in the journal, or None if the call had started and its outcome is unknown."""


_EARLIER_CALLS = """
SELECT j.call_id, j.arguments, j.result FROM tool_journal j
JOIN turns t ON t.session_key = j.session_key
WHERE j.session_key = $1 AND t.turn = $2 AND j.epoch >= t.first_epoch AND j.epoch < t.continued_epoch
    AND j.effect = 'once' AND j.status IN ('started', 'finished') AND j.arguments <> ''
ORDER BY j.started_at
"""
_MADE_BY = """
SELECT m.author, m.tool_calls FROM messages m JOIN turns t ON t.session_key = m.session_key
WHERE m.session_key = $1 AND t.turn = $2 AND m.seq > t.first_seq AND m.seq < t.continued_seq AND m.role = 'assistant'
    AND m.tool_calls IS NOT NULL
"""


def continue_from_history(turn: Turn, name: SessionId, note: NewEvent, version: str, now: float) -> Operation[None]:
    """Close what a running turn left open, and let it continue from its history after a note, by this version."""
    key = turn.session_key
    locked = yield from lock_session(key)
    yield from check_epoch(key, turn.epoch)
    assert locked
    revision = yield from close_open_calls(key, name, locked.revision, now, close_requests="updated")
    revision = yield from close_client_calls(key, name, revision, now, {})
    appended = yield from append(key, name, revision, note, turn.epoch)
    yield _SET_CONTINUED, (appended.seq, turn.epoch, version, key, turn.turn)


def set_version(turn: Turn, version: str) -> Operation[None]:
    """Note that a version of the app replays a turn that another one began."""
    yield from check_epoch(turn.session_key, turn.epoch)
    yield _SET_VERSION, (version, turn.session_key, turn.turn)


def read_earlier_calls(turn: Turn) -> Operation[dict[str, list[EarlierCall]]]:
    """Read the calls with effects that a turn made before it continued, by the fingerprint of their arguments."""
    key = turn.session_key
    authors = {call["id"]: author for author, calls in (yield _MADE_BY, (key, turn.turn)) for call in loads(calls)}
    found: dict[str, list[EarlierCall]] = {}
    for call_id, fingerprint, result in (yield _EARLIER_CALLS, (key, turn.turn)):
        call = EarlierCall(call_id, authors.get(call_id, ""), loads(result) if result else None)
        found.setdefault(fingerprint, []).append(call)
    return found


def read_waiting_messages(key: int) -> Operation[list[StoredEvent]]:
    """Read the messages of a session whose calls wait for an answer or a result."""
    found: list[StoredEvent] = []
    for [seq] in (yield _WAITING, (key,)):
        if (stored := (yield from message_at(key, seq))) is not None:
            found.append(stored)
    return found


def is_run_of_store(key: int, invocation_id: str) -> Operation[bool]:
    """Whether a turn of this store ran an invocation: one that an import brought cannot be continued."""
    [[turn]] = yield _OF_INVOCATION, (key, invocation_id)
    return turn is not None and bool((yield _LAST_EVENT, (key, *id_range(turn))))


def retry_turn(key: int, turn: int) -> Operation[None]:
    """Let a turn that failed for good run again from its record, in any process: what is stored is not done again.

    A node that failed runs again. Raise `Conflict` if it did not fail, was imported, or if the conversation has
    continued.
    """
    yield from lock_session(key)
    rows = yield _ENDED, (key, turn)
    for status, first_seq, record_epoch, newest in rows:
        if status not in ("failed", "interrupted") or first_seq is None:
            raise Conflict(f"turn {turn} did not fail: send the message again")
        if newest != turn:
            raise Conflict(f"the conversation has continued after turn {turn}: send the message again")
        last_events = yield _LAST_EVENT, (key, *id_range(turn))
        if not last_events:
            raise Conflict(f"turn {turn} was imported: send the message again")
        [[epoch, _]] = yield NEW_EPOCH, (key,)
        yield _REOPEN, (epoch, key, turn)
        yield from forget_failed_nodes(key, record_epoch)
        for event_id, data in last_events:
            event = LoggedEvent.decode(data).event
            if isinstance(event, TurnError) and event.fatal:
                again = LoggedEvent.of(TurnError(event.id, event.error, event.message, fatal=False))
                yield _REOPEN_LOG, (again.data, key, event_id)
        return
    raise Conflict(f"the session has no turn {turn}")
