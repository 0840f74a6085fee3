"""Store a turn with its input, and start it when no other turn is ahead."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import (
    EventConflict,
    IdempotencyKeyReused,
    SessionNotFound,
    StaleSession,
    TurnRunning,
    WaitNotOpen,
)
from lango.sessions import SessionId
from lango.store.codec.ids import shorten
from lango.store.codec.json_text import dumps
from lango.store.codec.records import NewEvent
from lango.store.engine.database import Operation, RollBack
from lango.store.sessions.append import append
from lango.store.sessions.client_history import append_client_history, input_hash
from lango.store.sessions.sessions import lock_session
from lango.store.tool_calls import approvals, client_calls, credential_requests, input_requests, long_running
from lango.store.tool_calls.approvals import ApprovalAnswer
from lango.store.tool_calls.credential_requests import CredentialAnswer
from lango.store.tool_calls.input_requests import InputAnswer
from lango.store.turns.event_log import begin_log
from lango.store.turns.queue import hold_input, input_digest, is_same_input, read_open_turns
from lango.store.turns.recovery import close_open_calls
from lango.store.turns.turns import BY_IDEMPOTENCY_KEY, Turn

Answer = ApprovalAnswer | InputAnswer | CredentialAnswer
"""An answer to a request, which must be open and in time."""

_BY_EVENT = """
SELECT t.turn, t.status, t.epoch, t.first_epoch, t.owner
FROM messages m JOIN turns t ON t.session_key = m.session_key AND t.first_seq = m.seq
WHERE m.session_key = $1 AND m.event_id = $2
"""
_NEXT_NUMBER = "SELECT COALESCE(MAX(turn), 0) + 1 FROM turns WHERE session_key = $1"
_INSERT = """
INSERT INTO turns (session_key, turn, status, idempotency_key, owner, created_at, invocation_id, queued_input, digest,
    request, quota_id, credential_call)
VALUES ($1, $2, 'queued', $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
_NEW_INPUT = "UPDATE sessions SET epoch = epoch + 1, input_hash = $1 WHERE session_key = $2 RETURNING epoch, revision"
NEW_EPOCH = "UPDATE sessions SET epoch = epoch + 1 WHERE session_key = $1 RETURNING epoch, revision"
_SET_RUNNING = """
UPDATE turns SET status = 'running', epoch = $1, first_epoch = $1, started_at = $2, first_seq = $3, queued_input = NULL
WHERE session_key = $4 AND turn = $5 AND status = 'queued' RETURNING turn
"""


class SubmitOptions(Struct, frozen=True):
    """What came with the input of a new turn, and on which conditions the turn is stored."""

    idempotency_key: str | None = None
    """The same key again returns the earlier turn; with another input, it raises `IdempotencyKeyReused`."""
    digest: str | None = None
    """What a repeated key must come with. None: the same message."""
    sent: NewEvent | None = None
    """The message that the user sent, where the input was made from it: a repeated request is recognised by it."""
    answer: Answer | None = None
    """The answer to a request that the input is made from."""
    at_revision: int | None = None
    """Raise `StaleSession` unless the session has this revision and no open turn."""
    wait: bool = True
    """Queue the turn behind the open ones. Otherwise raise `TurnRunning`, and store nothing."""
    request: Mapping[str, Any] | None = None
    """What is needed to run the turn in another process, besides its input."""


def submit(
    key: int, name: SessionId, entry: NewEvent, owner: str, now: float, options: SubmitOptions
) -> Operation[Turn]:
    """Store a turn with its input, and start it if no open turn is ahead of it; otherwise it is queued."""
    locked = yield from lock_session(key)
    if locked is None:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} does not exist, or was deleted")
    if options.at_revision is not None and (
        locked.revision != options.at_revision or (yield from read_open_turns(key))
    ):
        return (yield from _turn_of_lost_reply(key, name, entry, owner))
    if repeated := (yield from _turn_of_repeated_request(key, name, entry, options)):
        return repeated
    [[turn]] = yield _NEXT_NUMBER, (key,)
    queued_before = yield from read_open_turns(key, turn)
    if queued_before and not options.wait:
        raise TurnRunning(f"session {name.id!r} is busy with another message: try again when it is answered")
    yield from _record_answer(key, name, options.answer, now)
    if not (yield from accepts_results(key, entry)):
        raise WaitNotOpen(f"a call of session {name.id!r} is no longer waiting for a result")
    queued_input = (yield from hold_input(key, turn, entry)) if queued_before else None
    idempotency_key, digest = options.idempotency_key, options.digest
    if idempotency_key is not None and digest is None:
        digest = input_digest(options.sent or entry)
    request = options.request or {}
    settled = request.get("quota"), request.get("credential_answer", {}).get("call_id")  # at the end of the turn
    row = key, turn, idempotency_key, owner, now, entry.invocation_id, queued_input, digest
    yield _INSERT, (*row, dumps(request) if request else None, *settled)
    if queued_before:
        stored = Turn(key, turn, None, "queued")
    else:
        stored = yield from start_turn(key, name, turn, entry, now)
    yield from begin_log(stored, entry.invocation_id)
    return stored


def _turn_of_repeated_request(
    key: int, name: SessionId, entry: NewEvent, options: SubmitOptions
) -> Operation[Turn | None]:
    """Return the turn that an earlier request with this idempotency key made, or None."""
    if options.idempotency_key is None:
        return None
    for turn, status, epoch, known in (yield BY_IDEMPOTENCY_KEY, (key, options.idempotency_key)):
        if options.digest is not None:
            is_repeated = known in (None, options.digest)
        else:  # an answer to an approval request has no key of the client
            is_repeated = options.answer is not None or is_same_input(options.sent or entry, known)
        if not is_repeated:
            raise IdempotencyKeyReused(
                f"the idempotency key {options.idempotency_key!r} was already used in session {name.id!r} with another "
                "request: use another key"
            )
        return Turn(key, turn, epoch, status, repeated=True)
    return None


def _record_answer(key: int, name: SessionId, answer: Answer | None, now: float) -> Operation[None]:
    match answer:
        case ApprovalAnswer():
            yield from approvals.record_answer(key, name, answer, now)
        case InputAnswer():
            yield from input_requests.record_answer(key, name, answer)
        case CredentialAnswer():
            yield from credential_requests.record_answer(key, name, answer)
        case None:
            pass


def _turn_of_lost_reply(key: int, name: SessionId, entry: NewEvent, owner: str) -> Operation[Turn]:
    """Return the turn of this input if an earlier attempt stored it, but its reply was lost; else `StaleSession`."""
    for turn, status, epoch, first_epoch, held_by in (yield _BY_EVENT, (key, shorten(entry.event_id))):
        return Turn(key, turn, epoch if held_by == owner else None, status, first_epoch=first_epoch)
    raise StaleSession(f"session {name.id!r} has changed since it was read: another turn started, or a message arrived")


def accepts_results(key: int, entry: NewEvent) -> Operation[bool]:
    """Whether the calls whose results an input brings are still open."""
    if entry.message is None or entry.message.role != "tool" or not entry.client_results:
        return True
    made = {call.id for event in entry.preceding if event.message for call in event.message.tool_calls}
    return (yield from client_calls.are_open(key, entry.client_results.keys() - made))


def start_turn(key: int, name: SessionId, turn: int, entry: NewEvent, now: float) -> Operation[Turn]:
    """Store the input of a turn in its session and mark the turn as running."""
    begun = yield from append_input(key, name, entry, now)
    if not (yield _SET_RUNNING, (begun.epoch, now, begun.seq, key, turn)):
        raise RollBack(Turn(key, turn, None, "cancelled"))
    return Turn(key, turn, begun.epoch, first_epoch=begun.epoch)


class AppendedInput(Struct, frozen=True):
    """The session after the input of a turn was appended."""

    epoch: int
    revision: int
    seq: int


def append_input(key: int, name: SessionId, entry: NewEvent, now: float) -> Operation[AppendedInput]:
    """Append the input of a turn under a new epoch, after closing the calls that the turn before left open.

    Raise `EventConflict` if an event with its id is stored, even the same one: an input starts one turn.
    """
    user_texts = [
        event.message.content for event in (*entry.preceding, entry) if event.message and event.message.role == "user"
    ]
    if user_texts:
        [[epoch, revision]] = yield _NEW_INPUT, (input_hash(user_texts[-1]), key)
    else:
        [[epoch, revision]] = yield NEW_EPOCH, (key,)
    # not so if it answers a request for approval or input
    is_new_message = entry.message is not None and entry.message.role == "user"
    closed = "unanswered" if is_new_message else None
    revision = yield from close_open_calls(key, name, revision, now, close_requests=closed)
    if is_new_message:
        revision = yield from client_calls.close_unanswered(key, name, revision, now, entry.client_results)
    revision = yield from append_client_history(key, revision, entry.preceding)
    try:
        appended = yield from append(key, name, revision, entry, epoch)
    except RollBack:  # its result says that the event is stored, and is no turn
        raise EventConflict(
            f"session {name.id!r} already has the event {entry.event_id!r}: use a different id"
        ) from None
    for event in (*entry.preceding, entry):
        yield from client_calls.store_full_results(key, epoch, event.client_results, now)
        yield from long_running.close_finished(key, event)
    return AppendedInput(epoch, appended.revision, appended.seq)
