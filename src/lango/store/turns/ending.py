"""End turns: by their owner, by a user who withdraws them, or because their owner is gone.

Each end closes the event log of the turn in the same transaction, so that no reader waits for a final event.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from lango.errors import TurnRunning
from lango.sessions import SessionId
from lango.store.api_keys import spend_tokens
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import lock_session
from lango.store.turns.event_log import LoggedEvent, close_log
from lango.store.turns.lease import OPEN_TURNS_OF_OWNER
from lango.store.turns.queue import ANY_AHEAD, TURN, decode_input, read_open_turns, release_input, withdraw
from lango.store.turns.submit import NEW_EPOCH, accepts_results, append_input
from lango.store.turns.turns import OpenTurn, TurnResult
from lango.store.waits.recovery import close_open_calls
from lango.store.waits.waits import list_requests
from lango.store.webhooks.deliveries import HAS_WEBHOOKS, report_end
from lango.waits import Wait

Outcome = Literal["done", "failed", "cancelled", "interrupted"]
_EVENTS: Mapping[Outcome, str] = {
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "failed",
}
"""The outcomes as webhooks report them."""
# a node that asks again in the turn of the answer opens the same wait again: its secrets are new
_FORGET_CREDENTIAL = """
UPDATE waits SET state_hash = NULL, secret = NULL, answer = NULL
WHERE session_key = $1 AND id = $2 AND closed IS NOT NULL
"""
_END = f"""
UPDATE turns SET status = $1, ended_at = $2, extra = $3, input_tokens = $4, output_tokens = $5, cached_tokens = $6,
    model_calls = $7, cost_usd = $8
WHERE session_key = $9 AND epoch = $10 AND status = 'running' RETURNING
    (SELECT COUNT(*) FROM turns w WHERE w.session_key = turns.session_key AND w.turn > turns.turn
        AND w.status = 'queued' AND w.owner <> turns.owner), quota_id, credential_wait, cancel_requested,
    {HAS_WEBHOOKS}
"""  # noqa: S608 - constants
_INTERRUPT = f"""
UPDATE turns SET status = CASE WHEN answer_stored = 1 THEN 'done' ELSE 'interrupted' END, ended_at = $1,
    queued_input = NULL
WHERE session_key = $2 AND turn = $3 AND COALESCE(owner, '') = $4 AND status IN ('queued', 'running')
RETURNING status, {HAS_WEBHOOKS}
"""  # noqa: S608 - constants
_IS_STOPPED = "SELECT cancel_requested FROM turns WHERE session_key = $1 AND turn = $2"
_SET_FIRST_SEQ = "UPDATE turns SET epoch = $1, first_epoch = $1, first_seq = $2 WHERE session_key = $3 AND turn = $4"


class EndResult(Struct, frozen=True):
    """The outcome of ending a turn."""

    ended: bool
    """False: its lease was lost."""
    others_are_queued: bool = False
    """A turn of another owner is queued behind it."""
    is_reported: bool = False
    """Webhooks report it."""


def end_turn(
    turn: Turn,
    name: SessionId,
    outcome: Outcome,
    now: float,
    result: TurnResult,
    events: Sequence[LoggedEvent] = (),
) -> Operation[EndResult]:
    """End a running turn, close its open calls, and count its tokens against the quota of its request.

    `events` are the last of its events; without a final one, that is made from the result. A turn that a user asked to
    stop no longer waits for answers: its requests are closed, too.
    """
    key, used = turn.session_key, result.usage
    locked = yield from lock_session(key)
    spent = used.input_tokens, used.output_tokens, used.cached_tokens, used.model_calls, used.cost_usd
    rows = yield _END, (outcome, now, result.encode(), *spent, key, turn.epoch)
    if not rows or not locked:
        return EndResult(bool(rows))
    [[queued_elsewhere, quota_id, credential_wait, is_stopped, has_webhooks]] = rows
    if quota_id is not None:
        yield from spend_tokens(quota_id, used.input_tokens + used.output_tokens, now)
    if credential_wait is not None:  # the turn no longer needs the credential
        yield _FORGET_CREDENTIAL, (key, credential_wait)
    yield from close_open_calls(key, name, locked.revision, now, close_requests="cancelled" if is_stopped else None)
    yield from close_log(key, turn.turn, events)
    event = "waiting" if outcome == "done" and result.status == "waiting" else _EVENTS[outcome]
    is_reported = bool(has_webhooks) and (yield from report_end(key, turn.turn, event))
    return EndResult(True, others_are_queued=queued_elsewhere > 0, is_reported=is_reported)


def list_requests_of_stopped_turn(key: int, turn: int, name: SessionId) -> Operation[list[Wait]]:
    """Read the requests that the end of a running turn closes because a user stops it; none if no user does."""
    if not any(is_stopped for [is_stopped] in (yield _IS_STOPPED, (key, turn))):
        return []
    return [stored.wait for stored in (yield from list_requests(key, name))]


def withdraw_turn(turn: Turn, now: float) -> Operation[bool]:
    """Withdraw a queued turn; return False if it is no longer queued."""
    yield from lock_session(turn.session_key)
    return (yield from withdraw(turn.session_key, turn.turn, now))


def interrupt_turn(key: int, name: SessionId, abandoned: OpenTurn, now: float) -> Operation[bool]:
    """End the first open turn of a session, whose owner is gone: as interrupted, or as done if its answer is stored.

    Its calls are closed, and a new epoch fences writes of its owner, in case it was only suspended. The message of a
    queued turn is appended to the conversation. Return False if the turn is not the first, or has another owner.
    """
    if (yield from lock_session(key)) is None or (yield ANY_AHEAD, (key, abandoned.turn)):
        return False
    rows = yield TURN, (key, abandoned.turn)
    interrupted = yield _INTERRUPT, (now, key, abandoned.turn, abandoned.owner)
    if not interrupted:
        return False
    [[_, _, _, message, _]] = rows
    entry = decode_input(message) if message else None
    if entry and (yield from accepts_results(key, entry)):
        begun = yield from append_input(key, name, entry, now)
        yield _SET_FIRST_SEQ, (begun.epoch, begun.seq, key, abandoned.turn)
        revision = begun.revision
    else:
        [[_, revision]] = yield NEW_EPOCH, (key,)
    if entry is not None:
        yield from release_input(key, abandoned.turn, entry)
    yield from close_open_calls(key, name, revision, now)
    yield from close_log(key, abandoned.turn)
    for status, has_webhooks in interrupted:
        if has_webhooks:
            yield from report_end(key, abandoned.turn, _EVENTS[status])
    return True


def abandon_turn(key: int, name: SessionId, owner: str, invocation_id: str, now: float) -> Operation[None]:
    """End a queued or running turn that its owner could not run; its message stays.

    Raise `TurnRunning` while another turn is ahead of it.
    """
    yield from lock_session(key)
    for turn, status in (yield OPEN_TURNS_OF_OWNER, (key, owner, invocation_id)):
        if (yield from read_open_turns(key, turn)):
            raise TurnRunning(f"session {name.id!r} is busy with a turn before this one")
        yield from interrupt_turn(key, name, OpenTurn(turn, status, owner), now)
