"""Store a turn with its input, and start it when no other turn is ahead."""

from msgspec import Struct

from lango.errors import CallNotWaiting, IdempotencyKeyReused, SessionNotFound, StaleSession, TurnRunning
from lango.store.codec.ids import shorten
from lango.store.codec.records import Entry, SessionId
from lango.store.engine.database import Operation, Undo
from lango.store.sessions.append import append
from lango.store.sessions.client_history import append_carried, input_hash
from lango.store.sessions.sessions import LOCK
from lango.store.turns import approvals, client_calls
from lango.store.turns.queue import OPEN_TURNS, digest_of, dump_entry, says_the_same
from lango.store.turns.recovery import close_calls
from lango.store.turns.turns import BY_IDEMPOTENCY_KEY, Turn

_OF_EVENT = """
SELECT t.turn, t.status, t.epoch FROM messages m JOIN turns t ON t.session_key = m.session_key AND t.first_seq = m.seq
WHERE m.session_key = $1 AND m.event_id = $2
"""
_NEXT = "SELECT COALESCE(MAX(turn), 0) + 1 FROM turns WHERE session_key = $1"
_INSERT = """
INSERT INTO turns (session_key, turn, status, idempotency_key, owner, created_at, invocation_id, message, digest)
VALUES ($1, $2, 'waiting', $3, $4, $5, $6, $7, $8)
"""
_NEW_INPUT = "UPDATE sessions SET epoch = epoch + 1, input_hash = $1 WHERE session_key = $2 RETURNING epoch, revision"
NEW_EPOCH = "UPDATE sessions SET epoch = epoch + 1 WHERE session_key = $1 RETURNING epoch, revision"
_RUN = """
UPDATE turns SET status = 'running', epoch = $1, started_at = $2, first_seq = $3, message = NULL
WHERE session_key = $4 AND turn = $5 AND status = 'waiting' RETURNING turn
"""


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
    locked = yield LOCK, (key,)
    if not locked:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} is not there (any more)")
    if at_revision is not None and (locked[0][0] != at_revision or (yield OPEN_TURNS, (key, 2**62))):
        return (yield from _stored_before(key, name, entry))
    if idempotency_key is not None:
        for turn, status, epoch, digest in (yield BY_IDEMPOTENCY_KEY, (key, idempotency_key)):
            if answer is None and not says_the_same(entry, digest):
                raise IdempotencyKeyReused(
                    f"the idempotency key {idempotency_key!r} came before in session {name.id!r}, with another "
                    "message: use another key for this one"
                )
            return Turn(key, turn, epoch, status, repeated=True)
    [[turn]] = yield _NEXT, (key,)
    ahead = yield OPEN_TURNS, (key, turn)
    if ahead and not wait:
        raise TurnRunning(f"session {name.id!r} is busy with another message: try again when it is answered")
    if answer is not None:
        yield from approvals.answer(key, name, answer, now)
    if not (yield from accepts_results(key, entry)):
        raise CallNotWaiting(f"a call of session {name.id!r} does not wait for its result any more")
    waiting = dump_entry(entry) if ahead else None
    digest = digest_of(entry) if idempotency_key is not None else None
    yield _INSERT, (key, turn, idempotency_key, owner, now, entry.invocation_id, waiting, digest)
    if ahead:
        return Turn(key, turn, None, "waiting")
    return (yield from start_turn(key, name, turn, entry, now))


def _stored_before(key: int, name: SessionId, entry: Entry) -> Operation[Turn]:
    """Return the turn of this very message: the answer to an earlier try of the write was lost; else `StaleSession`."""
    for turn, status, epoch in (yield _OF_EVENT, (key, shorten(entry.event_id))):
        return Turn(key, turn, epoch, status)
    raise StaleSession(f"session {name.id!r} went on since it was read: another turn began, or a message came")


def accepts_results(key: int, entry: Entry) -> Operation[bool]:
    """Whether the calls that a message brings the results of still wait for them."""
    if entry.message is None or entry.message.role != "tool" or not entry.results:
        return True
    made = {call.id for one in entry.before if one.message for call in one.message.tool_calls}
    return (yield from client_calls.are_open(key, entry.results.keys() - made))


def start_turn(key: int, name: SessionId, turn: int, entry: Entry, now: float) -> Operation[Turn]:
    """Store the input of a turn in its session and mark the turn as running."""
    begun = yield from append_input(key, name, entry, now)
    if not (yield _RUN, (begun.epoch, now, begun.seq, key, turn)):
        raise Undo(Turn(key, turn, None, "cancelled"))
    return Turn(key, turn, begun.epoch)


class _Begun(Struct, frozen=True):
    epoch: int
    revision: int
    seq: int


def append_input(key: int, name: SessionId, entry: Entry, now: float) -> Operation[_Begun]:
    """Append the message of a turn whose place has come, under a new epoch, behind what the turn before left open."""
    said = [one.message.content for one in (*entry.before, entry) if one.message and one.message.role == "user"]
    if said:
        [[epoch, revision]] = yield _NEW_INPUT, (input_hash(said[-1]), key)
    else:
        [[epoch, revision]] = yield NEW_EPOCH, (key,)
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
