"""Store what clients submit: a turn with its input, which starts when no other turn is ahead, or messages alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.errors import EventConflict, IdempotencyKeyReused, SessionNotFound, StaleSession, TurnRunning, WaitNotOpen
from lango.json_values import storable_text
from lango.sessions import SessionId, WhenBusy
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import ClientResult, NewEvent, Turn, call_key
from lango.store.codec.rows import event_to_row
from lango.store.contents import add_to_messages, delete_of_messages, release
from lango.store.engine.database import Operation, RollBack
from lango.store.search.index import LOCK_PROGRESS
from lango.store.sessions.append import append
from lango.store.sessions.client_history import append_client_history, input_hash
from lango.store.sessions.sessions import check_epoch, create_session, lock_named_session, lock_session
from lango.store.turns.event_log import begin_log
from lango.store.turns.queue import hold_input, input_digest, is_same_input, read_open_turns, withdraw
from lango.store.turns.turns import BY_IDEMPOTENCY_KEY, OpenTurn, StoredRequest, request_cancel, request_to_text
from lango.store.waits import waits
from lango.store.waits.due import EndedWait, end_timed_wait
from lango.store.waits.recovery import close_open_calls
from lango.store.waits.waits import WaitAnswer
from lango.waits import ClosedWait

_BY_EVENT = """
SELECT t.turn, t.status, t.epoch, t.first_epoch, t.owner
FROM messages m JOIN turns t ON t.session_key = m.session_key AND t.first_seq = m.seq
WHERE m.session_key = $1 AND m.event_id = $2
"""
_NEXT_NUMBER = "SELECT COALESCE(MAX(turn), 0) + 1 FROM turns WHERE session_key = $1"
_INSERT = """
INSERT INTO turns (session_key, turn, status, idempotency_key, owner, created_at, invocation_id, queued_input, digest,
    request, quota_id, credential_wait, steers, replaces)
VALUES ($1, $2, 'queued', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""
_NEW_INPUT = "UPDATE sessions SET epoch = epoch + 1, input_hash = $1 WHERE session_key = $2 RETURNING epoch, revision"
NEW_EPOCH = "UPDATE sessions SET epoch = epoch + 1 WHERE session_key = $1 RETURNING epoch, revision"
_SET_RUNNING = """
UPDATE turns SET status = 'running', epoch = $1, first_epoch = $1, started_at = $2, first_seq = $3, queued_input = NULL,
    begun_version = $4, version = $4
WHERE session_key = $5 AND turn = $6 AND status = 'queued' RETURNING turn
"""

_STORE_FULL_RESULT = """
INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at, finished_at, whole)
VALUES ($1, $2, $3, '', 'once', 'finished', '', $4, $4, $5)
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""


class SubmitOptions(Struct, frozen=True):
    """What came with the input of a new turn, and on which conditions the turn is stored."""

    idempotency_key: str | None = None
    """The same key again returns the earlier turn; with another input, it raises `IdempotencyKeyReused`."""
    digest: str | None = None
    """What a repeated key must come with. None: the same message."""
    sent: NewEvent | None = None
    """The message that the user sent, where the input was made from it: a repeated request is recognised by it."""
    answer: WaitAnswer | None = None
    """The answer to a request that the input is made from: the request must be open."""
    ended: EndedWait | None = None
    """The wait for a time or an event that the input ends: it must be open."""
    at_revision: int | None = None
    """Raise `StaleSession` unless the session has this revision and no open turn."""
    when_busy: WhenBusy = "wait"
    """Queue the turn behind the open ones; `refuse`: raise `TurnRunning`, and store nothing.

    `steer`: the message is taken into the turn that runs now, if that calls a model again; see `lango.store.turns.
    steering`. `rollback`: the turn that runs now is stopped, and rewound when this one starts; earlier queued ones are
    withdrawn.
    """
    request: StoredRequest = StoredRequest()
    """What is needed to run the turn in another process, in addition to its input."""
    version: str = ""
    """The version of the app that runs the turn, if it starts now."""
    is_left: bool = False
    """Queue the turn even if none is ahead: another process takes it."""


def submit(
    key: int, name: SessionId, entry: NewEvent, owner: str, now: float, options: SubmitOptions
) -> Operation[Turn]:
    """Store a turn with its input, and start it if no open turn is ahead of it; otherwise it is queued."""
    locked = yield from lock_session(key)
    if locked is None:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} does not exist, or was deleted")
    if options.ended is not None:
        yield from end_timed_wait(key, name, options.ended)
    if options.at_revision is not None and (
        locked.revision != options.at_revision or (yield from read_open_turns(key))
    ):
        return (yield from _turn_of_lost_reply(key, name, entry, owner))
    if repeated := (yield from _turn_of_repeated_request(key, name, entry, options)):
        return repeated
    [[turn]] = yield _NEXT_NUMBER, (key,)
    queued_before = yield from read_open_turns(key, turn)
    if queued_before and options.when_busy == "refuse":
        raise TurnRunning(f"session {name.id!r} is busy with another message: try again when it is answered")
    answer = options.answer
    if answer is not None:
        yield from waits.record_answer(key, name, answer, now)
    if not (yield from accepts_results(key, entry)):
        raise WaitNotOpen(f"a call of session {name.id!r} is no longer waiting for a result")
    is_queued = bool(queued_before) or options.is_left
    queued_input = (yield from hold_input(key, turn, entry)) if is_queued else None
    idempotency_key, digest = options.idempotency_key, options.digest
    if idempotency_key is not None and digest is None:
        digest = input_digest(options.sent or entry)
    steers, replaces = yield from _affected_turns(key, queued_before, entry, options, now)
    credential = answer.wait_id if answer is not None and answer.kind == "credential" else None
    settled = options.request.quota, credential, steers, replaces
    row = key, turn, idempotency_key, None if options.is_left else owner, now, entry.invocation_id, queued_input, digest
    yield _INSERT, (*row, request_to_text(options.request), *settled)
    if is_queued:
        stored = Turn(key, turn, None, "queued")
    else:
        stored = yield from start_turn(key, name, turn, entry, now, options.version)
    yield from begin_log(stored, entry.invocation_id)
    return stored


def _affected_turns(
    key: int, open_turns: Sequence[OpenTurn], entry: NewEvent, options: SubmitOptions, now: float
) -> Operation[tuple[int | None, int | None]]:
    """Return the turn that a message steers, and the one that it replaces, which is asked to stop."""
    if not open_turns or options.answer is not None or entry.message is None or entry.message.role != "user":
        return None, None
    if options.when_busy == "steer" and not (entry.preceding or entry.client_results):
        return open_turns[0].turn, None
    if options.when_busy == "rollback":
        return None, (yield from _stop_turns(key, open_turns, now))
    return None, None


def _stop_turns(key: int, open_turns: Sequence[OpenTurn], now: float) -> Operation[int | None]:
    """Withdraw queued turns, and ask the owner of a running one to stop it; return the running turn."""
    running: int | None = None
    for one in open_turns:
        if one.status == "queued":
            yield from withdraw(key, one.turn, now)
        elif (yield from request_cancel(key, only=one.turn)):
            running = one.turn
    return running


def _turn_of_repeated_request(
    key: int, name: SessionId, entry: NewEvent, options: SubmitOptions
) -> Operation[Turn | None]:
    """Return the turn that an earlier request with this idempotency key made, or None."""
    if options.idempotency_key is None:
        return None
    for turn, status, epoch, known in (yield BY_IDEMPOTENCY_KEY, (key, options.idempotency_key)):
        if options.digest is not None:
            is_repeated = known in (None, options.digest)
        else:
            is_repeated = is_same_input(options.sent or entry, known)
        if not is_repeated:
            raise IdempotencyKeyReused(
                f"the idempotency key {options.idempotency_key!r} was already used in session {name.id!r} with another "
                "request: use another key"
            )
        return Turn(key, turn, epoch, status, repeated=True)
    return None


def _turn_of_lost_reply(key: int, name: SessionId, entry: NewEvent, owner: str) -> Operation[Turn]:
    """Return the turn of this input if an earlier attempt stored it, but its reply was lost; else `StaleSession`."""
    for turn, status, epoch, first_epoch, held_by in (yield _BY_EVENT, (key, entry.event_id)):
        return Turn(key, turn, epoch if held_by == owner else None, status, first_epoch=first_epoch)
    raise StaleSession(f"session {name.id!r} has changed since it was read: another turn started, or a message arrived")


def accepts_results(key: int, entry: NewEvent) -> Operation[bool]:
    """Whether the calls whose results an input brings are still open."""
    if entry.message is None or entry.message.role != "tool" or not entry.client_results:
        return True
    made = {call.id for event in entry.preceding if event.message for call in event.message.tool_calls}
    return (yield from waits.accept_results(key, entry.client_results.keys() - made))


def start_turn(key: int, name: SessionId, turn: int, entry: NewEvent, now: float, version: str) -> Operation[Turn]:
    """Store the input of a turn in its session and mark the turn as running, by this version of the app."""
    begun = yield from append_input(key, name, entry, now)
    if not (yield _SET_RUNNING, (begun.epoch, now, begun.seq, version, key, turn)):
        raise RollBack(Turn(key, turn, None, "cancelled"))
    return Turn(key, turn, begun.epoch, first_epoch=begun.epoch, closed=begun.closed)


class AppendedInput(Struct, frozen=True):
    """The session after the input of a turn was appended."""

    epoch: int
    revision: int
    seq: int
    closed: tuple[ClosedWait, ...]
    """The waits that the input closed."""


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
    before = yield from waits.list_unclosed(key, name)
    reason = "superseded" if is_new_message and before else None
    revision = yield from close_open_calls(key, name, revision, now, close_requests=reason)
    if reason is not None:
        revision = yield from waits.close_client_calls(key, name, revision, now, entry.client_results)
    revision = yield from append_client_history(key, revision, entry.preceding)
    try:
        appended = yield from append(key, name, revision, entry, epoch)
    except RollBack:  # its result says that the event is stored, and is not a turn
        raise EventConflict(
            f"session {name.id!r} already has the event {entry.event_id!r}: use a different id"
        ) from None
    entries = (*entry.preceding, entry)
    for event in entries:
        yield from store_full_results(key, epoch, event.client_results, now)
        yield from waits.finish_results(key, event.client_results)
    closed = waits.closed_by_input(before, name, entries, is_new_message=is_new_message) if before else ()
    return AppendedInput(epoch, appended.revision, appended.seq, closed)


def store_full_results(key: int, epoch: int, results: Mapping[str, ClientResult], now: float) -> Operation[None]:
    """Store the full texts of results that the model sees clipped."""
    for call_id, result in results.items():
        if result.full_text is not None:
            yield _STORE_FULL_RESULT, (key, call_key(call_id), epoch, now, storable_text(result.full_text))


# -- the message of a turn, as the app changes it ----------------------------------------------------------------------

_CHANGED = "changed_input"
_TURN = "SELECT first_seq, request FROM turns WHERE session_key = $1 AND turn = $2"
_SET_REQUEST = "UPDATE turns SET request = $1 WHERE session_key = $2 AND turn = $3"
# the newest message, and no fork shares it: else totals of later messages and of forks would be wrong
_REPLACEABLE = """
SELECT m.tokens FROM messages m JOIN sessions s ON s.session_key = m.session_key AND s.last_seq = m.seq
WHERE m.session_key = $1 AND m.seq = $2
    AND NOT EXISTS (SELECT 1 FROM session_lineage l WHERE l.source_key = m.session_key AND l.last_seq >= m.seq)
"""
_REPLACE = """
UPDATE messages SET content = $1, tokens = $2, total_tokens = total_tokens + $3, extra = $4
WHERE session_key = $5 AND seq = $6
"""
_ADD_TOKENS = "UPDATE sessions SET total_tokens = total_tokens + $1 WHERE session_key = $2"
_DELETE_INDEXED = "DELETE FROM search_messages WHERE session_key = $1 AND seq = $2"
_INDEX_AGAIN = "UPDATE search_progress SET indexed_seq = $1 WHERE session_key = $2 AND indexed_seq > $3"


def replace_input(turn: Turn, entry: NewEvent, state: Mapping[str, Any]) -> Operation[bool]:
    """Replace the message of a turn that has stored nothing else; return False if it has, or a fork shares the message.

    `state` is what the code left for later callbacks of the turn: a second run of the turn gets it from here. Raise
    `FencedWrite` if the turn lost its lease.
    """
    key = turn.session_key
    yield from lock_session(key)
    yield from check_epoch(key, turn.epoch)
    [[seq, request]] = yield _TURN, (key, turn.turn)
    for [tokens] in (yield _REPLACEABLE, (key, seq)):
        row = event_to_row(entry)
        yield _REPLACE, (row.content, row.tokens, row.tokens - tokens, row.extra, key, seq)
        yield _ADD_TOKENS, (row.tokens - tokens, key)
        yield _SET_REQUEST, (dumps((loads(request) if request else {}) | {_CHANGED: dict(state)}), key, turn.turn)
        yield LOCK_PROGRESS, (key,)
        yield _DELETE_INDEXED, (key, seq)
        yield _INDEX_AGAIN, (seq - 1, key, seq - 1)
        unused = yield from delete_of_messages(key, seq, seq)
        yield from add_to_messages(key, {seq: entry.contents})
        yield from release(unused)
        return True
    return False


def read_changed_input(turn: Turn) -> Operation[Mapping[str, Any] | None]:
    """Return what the code that replaced a turn's message left for later callbacks, or None if it was not replaced."""
    [[_, request]] = yield _TURN, (turn.session_key, turn.turn)
    return loads(request).get(_CHANGED) if request else None


# -- messages without a turn -------------------------------------------------------------------------------------------


def add_history(
    name: SessionId,
    entries: Sequence[NewEvent],
    now: float,
    at_revision: int | None = None,
    first_state: Mapping[str, Any] | None = None,
) -> Operation[int]:
    """Append messages that the client sent along, and changes of the state after them, in one transaction.

    With `first_state`, it creates the session. Return the number of the last message before them. Raise
    `SessionNotFound` or `SessionExists`, `TurnRunning` while the session has an open turn, or waits for an answer, or
    `StaleSession` if it has changed since `at_revision`.
    """
    if first_state is not None:
        yield from create_session(name, first_state, now)
    session = yield from lock_named_session(name)
    if (yield from read_open_turns(session.key)):
        raise TurnRunning(f"session {name.id!r} is busy: wait for the answer, or cancel the turn, then add messages")
    if (yield from waits.list_unclosed(session.key, name)):
        raise TurnRunning(f"session {name.id!r} waits for an answer: give it, or send a message, then add messages")
    if at_revision not in (None, session.revision):
        raise StaleSession(f"session {name.id!r} changed before this was stored: nothing was added, send it again")
    messages = [entry for entry in entries if entry.message is not None]
    revision = yield from append_client_history(session.key, session.revision, messages)
    for entry in entries:
        yield from store_full_results(session.key, session.epoch, entry.client_results, now)
        if entry.message is None:
            revision = (yield from append(session.key, name, revision, entry)).revision
    return session.last_seq
