"""Operations on turns: one runs per session at a time, the others wait in order, and an epoch fences what each writes.

A turn is stored with the user's message before anything runs. Whether the process that runs it still lives is told by
its `beat`, which grows: no clock is compared with another.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lango.errors import CallNotWaiting, IdempotencyKeyReused, SessionNotFound, StaleSession, TurnRunning
from lango.store.codec.ids import shorten
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import (
    MESSAGE_COLUMNS,
    Entry,
    SessionId,
    Stored,
    from_message_row,
)
from lango.store.engine.database import Operation, Undo
from lango.store.sessions.append import append
from lango.store.sessions.client_history import append_carried, input_hash
from lango.store.turn_messages import digest_of, dump_entry, entry_of, says_the_same
from lango.store.turns import approvals, client_calls
from lango.store.turns.recovery import close_calls

Status = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]
Outcome = Literal["done", "failed", "cancelled", "interrupted"]

# takes the session's row, so that turns of one session are handled one after the other
_LOCK = "UPDATE sessions SET epoch = epoch WHERE session_key = $1 RETURNING revision"
_SAME = "SELECT turn, status, epoch, digest FROM turns WHERE session_key = $1 AND idempotency_key = $2"
_OF_EVENT = """
SELECT t.turn, t.status, t.epoch FROM messages m JOIN turns t ON t.session_key = m.session_key AND t.first_seq = m.seq
WHERE m.session_key = $1 AND m.event_id = $2
"""
_NEXT = "SELECT COALESCE(MAX(turn), 0) + 1 FROM turns WHERE session_key = $1"
_INSERT = """
INSERT INTO turns (session_key, turn, status, idempotency_key, owner, created_at, invocation_id, message, digest)
VALUES ($1, $2, 'waiting', $3, $4, $5, $6, $7, $8)
"""
# from the first open one on: the rows of a long session are not all looked at
_BEFORE = """
SELECT turn, status, owner, beat FROM turns
WHERE session_key = $1 AND turn < $2 AND status IN ('waiting', 'running')
    AND turn >= (SELECT MIN(turn) FROM turns WHERE session_key = $1 AND status IN ('waiting', 'running'))
ORDER BY turn
"""
_OWN = "SELECT status, epoch, message FROM turns WHERE session_key = $1 AND turn = $2"
_AHEAD = "SELECT 1 FROM turns WHERE session_key = $1 AND turn < $2 AND status IN ('waiting', 'running') LIMIT 1"
_NEW_INPUT = "UPDATE sessions SET epoch = epoch + 1, input_hash = $1 WHERE session_key = $2 RETURNING epoch, revision"
_NEW_EPOCH = "UPDATE sessions SET epoch = epoch + 1 WHERE session_key = $1 RETURNING epoch, revision"
_RUN = """
UPDATE turns SET status = 'running', epoch = $1, started_at = $2, first_seq = $3, message = NULL
WHERE session_key = $4 AND turn = $5 AND status = 'waiting' RETURNING turn
"""
_BEAT = """
UPDATE turns SET beat = beat + 1 WHERE session_key = $1 AND epoch = $2 AND status = 'running' RETURNING cancelled
"""
_END = """
UPDATE turns SET status = $1, ended_at = $2, extra = $3, input_tokens = $4, output_tokens = $5, cached_tokens = $6,
    model_calls = $7, cost_usd = $8
WHERE session_key = $9 AND epoch = $10 AND status = 'running' RETURNING
    (SELECT COUNT(*) FROM turns w WHERE w.session_key = turns.session_key AND w.turn > turns.turn
        AND w.status = 'waiting' AND w.owner <> turns.owner)
"""
_WITHDRAW = """
UPDATE turns SET status = 'cancelled', ended_at = $1, message = NULL
WHERE session_key = $2 AND turn = $3 AND status = 'waiting' RETURNING turn
"""
_INTERRUPT = """
UPDATE turns SET status = CASE WHEN answered = 1 THEN 'done' ELSE 'interrupted' END, ended_at = $1, message = NULL
WHERE session_key = $2 AND turn = $3 AND beat = $4 AND status IN ('waiting', 'running') RETURNING turn
"""
_OF_OWNER = """
SELECT turn, status, beat FROM turns
WHERE session_key = $1 AND owner = $2 AND invocation_id = $3 AND status IN ('waiting', 'running')
"""
_READ = """
SELECT status, invocation_id, extra, owner, beat, epoch, created_at, started_at
FROM turns WHERE session_key = $1 AND turn = $2
"""
_PLACED = "UPDATE turns SET epoch = $1, first_seq = $2 WHERE session_key = $3 AND turn = $4"
# where the messages of a turn lie: a turn from before `first_seq` was kept lies somewhere between its neighbours
_PLACE = """
SELECT t.invocation_id, t.extra, t.first_seq,
    (SELECT p.first_seq FROM turns p WHERE p.session_key = $1 AND p.turn < $2 AND p.first_seq IS NOT NULL
        ORDER BY p.turn DESC LIMIT 1),
    (SELECT n.first_seq FROM turns n WHERE n.session_key = $1 AND n.turn > $2 AND n.first_seq IS NOT NULL
        ORDER BY n.turn LIMIT 1)
FROM turns t WHERE t.session_key = $1 AND t.turn = $2
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq > $2 AND seq < $3 ORDER BY seq
"""  # noqa: S608 - constants
_BEAT_WAITING = "UPDATE turns SET beat = beat + 1 WHERE session_key = $1 AND turn = $2 AND status = 'waiting'"
_CANCEL = "UPDATE turns SET cancelled = 1 WHERE session_key = $1 AND status = 'running' AND turn < $2 RETURNING turn"

_HELD = "SELECT COALESCE(owner, ''), COUNT(*) FROM turns WHERE status = 'running' GROUP BY owner"
# one that waits does so behind one that runs: looked for there, and not among all turns that ever were
_QUEUED = """
SELECT COUNT(*) FROM turns r JOIN turns w ON w.session_key = r.session_key AND w.turn > r.turn AND w.status = 'waiting'
WHERE r.status = 'running'
"""


class Leases(Struct, frozen=True):
    """The turns of the whole store that are not over."""

    held: Mapping[str, int]
    """How many run, by their owners."""
    queued: int
    """How many wait for one that runs."""


class Turn(Struct, frozen=True):
    """A turn: while it runs, `epoch` goes with everything it writes."""

    session_key: int
    turn: int
    epoch: int | None = None
    status: Status = "running"
    repeated: bool = False
    """The same request came before: this is that turn."""


class TurnRecord(Struct, frozen=True):
    """What became of a turn."""

    status: Status
    invocation_id: str
    extra: Mapping[str, Any]
    owner: str = ""
    beat: int = 0
    epoch: int | None = None
    """None: it never began."""
    waited: bool = False
    """It did not begin at once: another turn was ahead of it."""


class Ended(Struct, frozen=True):
    """What came of ending a turn."""

    ended: bool
    """False: it was lost before."""
    queued_elsewhere: bool = False
    """A turn of another owner is queued behind it."""


class Ahead(Struct, frozen=True):
    """A turn that comes before another one of its session."""

    turn: int
    status: Status
    owner: str
    beat: int


def submit(
    key: int,
    name: SessionId,
    entry: Entry,
    owner: str,
    now: float,
    idempotency_key: str | None,
    *,
    wait: bool,
    answer: approvals.Answer | None = None,
    at_revision: int | None = None,
) -> Operation[Turn]:
    """Store a turn with the user's message, and run it at once where nothing is ahead of it.

    Where something is, it waits, or, without `wait`, raises `TurnRunning` and nothing is stored. An `answer` to a
    question for approval must have come in time. An idempotency key that came before is that turn, or, with another
    message, `IdempotencyKeyReused`. With `at_revision`, raise `StaleSession` unless the session is at just that
    revision and no turn of it runs or waits.
    """
    locked = yield _LOCK, (key,)
    if not locked:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} is not there (any more)")
    if at_revision is not None and (locked[0][0] != at_revision or (yield _BEFORE, (key, 2**62))):
        return (yield from _stored_before(key, name, entry))
    if idempotency_key is not None:
        for turn, status, epoch, digest in (yield _SAME, (key, idempotency_key)):
            if answer is None and not says_the_same(entry, digest):
                raise IdempotencyKeyReused(
                    f"the idempotency key {idempotency_key!r} came before in session {name.id!r}, with another "
                    "message: use another key for this one"
                )
            return Turn(key, turn, epoch, status, repeated=True)
    [[turn]] = yield _NEXT, (key,)
    ahead = yield _BEFORE, (key, turn)
    if ahead and not wait:
        raise TurnRunning(f"session {name.id!r} is busy with another message: try again when it is answered")
    if answer is not None:
        yield from approvals.answer(key, name, answer, now)
    if not (yield from _may_answer(key, entry)):
        raise CallNotWaiting(f"a call of session {name.id!r} does not wait for its result any more")
    waiting = dump_entry(entry) if ahead else None
    digest = digest_of(entry) if idempotency_key is not None else None
    yield _INSERT, (key, turn, idempotency_key, owner, now, entry.invocation_id, waiting, digest)
    if ahead:
        return Turn(key, turn, None, "waiting")
    return (yield from _run(key, name, turn, entry, now))


def _stored_before(key: int, name: SessionId, entry: Entry) -> Operation[Turn]:
    """Return the turn of this very message: the answer to an earlier try of the write was lost; else `StaleSession`."""
    for turn, status, epoch in (yield _OF_EVENT, (key, shorten(entry.event_id))):
        return Turn(key, turn, epoch, status)
    raise StaleSession(f"session {name.id!r} went on since it was read: another turn began, or a message came")


def claim(key: int, name: SessionId, turn: int, now: float) -> Operation[Turn | list[Ahead]]:
    """Run a queued turn, if nothing is ahead of it any more; else return what is. Return any other turn as it is."""
    if not (yield _LOCK, (key,)):
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} is not there (any more)")
    [[status, epoch, message]] = yield _OWN, (key, turn)
    if status != "waiting":
        return Turn(key, turn, epoch if status == "running" else None, status)
    ahead = yield from open_turns(key, turn)
    if ahead:
        yield _BEAT_WAITING, (key, turn)  # the process of a queued turn lives, too
        return ahead
    entry = entry_of(message)
    if not (yield from _may_answer(key, entry)):
        yield _WITHDRAW, (now, key, turn)
        return Turn(key, turn, None, "failed")
    return (yield from _run(key, name, turn, entry, now))


def _may_answer(key: int, entry: Entry) -> Operation[bool]:
    """Whether the calls that a message brings the results of still wait for them."""
    if entry.message is None or entry.message.role != "tool" or not entry.results:
        return True
    made = {call.id for one in entry.before if one.message for call in one.message.tool_calls}
    return (yield from client_calls.are_open(key, entry.results.keys() - made))


def _run(key: int, name: SessionId, turn: int, entry: Entry, now: float) -> Operation[Turn]:
    begun = yield from _begin(key, name, entry, now)
    if not (yield _RUN, (begun.epoch, now, begun.seq, key, turn)):
        raise Undo(Turn(key, turn, None, "cancelled"))
    return Turn(key, turn, begun.epoch)


class _Begun(Struct, frozen=True):
    epoch: int
    revision: int
    seq: int


def _begin(key: int, name: SessionId, entry: Entry, now: float) -> Operation[_Begun]:
    """Append the message of a turn whose place has come, under a new epoch, behind what the turn before left open."""
    said = [one.message.content for one in (*entry.before, entry) if one.message and one.message.role == "user"]
    if said:
        [[epoch, revision]] = yield _NEW_INPUT, (input_hash(said[-1]), key)
    else:
        [[epoch, revision]] = yield _NEW_EPOCH, (key,)
    # what is open was left open by the turn before: each closes its own, or the next one does
    goes_on = entry.message is not None and entry.message.role == "user"  # and is no answer to a question
    revision = yield from close_calls(key, name, revision, now, epoch - 1, questions_too=goes_on)
    if goes_on:
        revision = yield from client_calls.overtake(key, name, revision, now, entry.results)
    revision = yield from append_carried(key, revision, entry.before)
    appended = yield from append(key, name, revision, entry, epoch)
    for one in (*entry.before, entry):
        yield from client_calls.keep_wholes(key, epoch, one.results, now)
    return _Begun(epoch, appended.revision, appended.seq)


def open_turns(key: int, before: int) -> Operation[list[Ahead]]:
    """Read the turns before one that run or are queued, in order."""
    rows = yield _BEFORE, (key, before)
    return [Ahead(turn, status, owner or "", beat) for turn, status, owner, beat in rows]


def is_next(key: int, turn: int) -> Operation[bool]:
    """Whether nothing is ahead of a turn."""
    return not (yield _AHEAD, (key, turn))


def interrupt(key: int, name: SessionId, gone: Ahead, now: float) -> Operation[bool]:
    """End the first open turn of a session, whose process is gone: it was interrupted, unless its last event is stored.

    Its calls are closed, and a new epoch refuses what its process writes, should it only have stood still. The message
    of a queued turn becomes part of the conversation now that its place has come. False: it is not the first, and
    keeps its place; or its process gave a sign of life.
    """
    if not (yield _LOCK, (key,)) or (yield _AHEAD, (key, gone.turn)):
        return False
    rows = yield _OWN, (key, gone.turn)
    if not (yield _INTERRUPT, (now, key, gone.turn, gone.beat)):
        return False
    [[_, _, message]] = rows
    entry = entry_of(message) if message else None
    if entry and (yield from _may_answer(key, entry)):
        begun = yield from _begin(key, name, entry, now)
        yield _PLACED, (begun.epoch, begun.seq, key, gone.turn)
        epoch, revision = begun.epoch, begun.revision
    else:
        [[epoch, revision]] = yield _NEW_EPOCH, (key,)
    yield from close_calls(key, name, revision, now, epoch - 1)
    return True


def abandon(key: int, name: SessionId, owner: str, invocation_id: str, now: float) -> Operation[None]:
    """End a turn that its owner could not begin to run, whether it waits or runs by now; its message stays.

    Raise `TurnRunning` while another turn is ahead of it: nothing is written beside one that runs.
    """
    yield _LOCK, (key,)
    for turn, status, beat in (yield _OF_OWNER, (key, owner, invocation_id)):
        if (yield _BEFORE, (key, turn)):
            raise TurnRunning(f"session {name.id!r} is busy with a turn before this one")
        yield from interrupt(key, name, Ahead(turn, status, owner, beat), now)


def beat(turn: Turn) -> Operation[Literal["alive", "cancelled", "lost"]]:
    """Say that the turn's process lives; hear whether the turn was cancelled, or lost to another process."""
    rows = yield _BEAT, (turn.session_key, turn.epoch)
    if not rows:
        return "lost"
    return "cancelled" if rows[0][0] else "alive"


def end(
    turn: Turn, name: SessionId, outcome: Outcome, now: float, extra: Mapping[str, Any] | None = None
) -> Operation[Ended]:
    """End a running turn, closing what it left open."""
    key = turn.session_key
    locked = yield _LOCK, (key,)
    used: Mapping[str, Any] = (extra or {}).get("usage") or {}
    spent = (*(used.get(name, 0) for name in ("input", "output", "cached", "model_calls")), used.get("cost_usd"))
    rows = yield _END, (outcome, now, dumps(extra) if extra else None, *spent, key, turn.epoch)
    if not rows or not locked:
        return Ended(bool(rows))
    yield from close_calls(key, name, locked[0][0], now, turn.epoch or 0)
    return Ended(True, queued_elsewhere=rows[0][0] > 0)


def same(key: int, idempotency_key: str) -> Operation[int | None]:
    """Return the turn of a request that came before."""
    rows = yield _SAME, (key, idempotency_key)
    return rows[0][0] if rows else None


def withdraw(turn: Turn, now: float) -> Operation[bool]:
    """Take back a turn that is still queued; False: it is not, or not any more."""
    key = turn.session_key
    yield _LOCK, (key,)
    rows = yield _OWN, (key, turn.turn)
    if not (yield _WITHDRAW, (now, key, turn.turn)):
        return False
    [[_, _, message]] = rows
    yield from approvals.take_back(key, entry_of(message))
    return True


def read(key: int, turn: int) -> Operation[TurnRecord | None]:
    """Read what became of a turn."""
    rows = yield _READ, (key, turn)
    for status, invocation_id, extra, owner, beat, epoch, created_at, started_at in rows:
        about: dict[str, Any] = loads(extra) if extra else {}
        return TurnRecord(status, invocation_id or "", about, owner or "", beat, epoch, started_at != created_at)
    return None


def said(key: int, turn: int) -> Operation[list[Stored]]:
    """Read what the agents said in a turn."""
    found = yield from messages(key, turn)
    return [one for one in found if one.message and one.message.role == "assistant" and one.message.content]


def messages(key: int, turn: int) -> Operation[list[Stored]]:
    """Read the messages of a turn after the one that began it, however long the session is."""
    places = yield _PLACE, (key, turn)
    for invocation_id, extra, first, before, after in places:
        rows = yield _MESSAGES, (key, first or before or 0, after or 2**62)
        found = [from_message_row(row) for row in rows]
        told: dict[str, Any] = loads(extra) if extra else {}
        own = {invocation_id, *told.get("invocations", ())}
        return found if first else [one for one in found if one.invocation_id in own]
    return []


def cancel(key: int, before: int | None = None) -> Operation[bool]:
    """Ask the running turn of a session to stop, wherever it runs; False: none runs, or none before that turn."""
    return bool((yield _CANCEL, (key, 2**62 if before is None else before)))


def leases() -> Operation[Leases]:
    """Count the turns that run, by whose they are, and those that wait for them."""
    held = yield _HELD, ()
    [[queued]] = yield _QUEUED, ()
    return Leases({str(row[0]): int(row[1]) for row in held}, queued)
