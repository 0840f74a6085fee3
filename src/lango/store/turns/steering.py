"""Take messages into the turn that runs: the model reads them before its next call.

A message that steers a turn is a queued turn of its own, which names the turn that it steers. Before each model call,
the owner of that turn stores such messages in its session, in one transaction under its lease: from then on they belong
to the record of the turn, and a turn that is run again shows them at the same step. A message that no model call took
stays queued, and becomes the next turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.events import Steered, TurnDone
from lango.sessions import STEERING, SessionId, StoredEvent
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.open_calls import message_at
from lango.store.sessions.sessions import check_epoch, lock_session
from lango.store.turns.event_log import close_log_with
from lango.store.turns.queue import decode_input, release_input
from lango.store.turns.turn_result import TurnResult

_WAITING = "SELECT 1 FROM turns WHERE session_key = $1 AND status = 'queued' AND steers = $2 LIMIT 1"
_MESSAGES = """
SELECT turn, queued_input FROM turns WHERE session_key = $1 AND status = 'queued' AND steers = $2 ORDER BY turn
"""
_END = """
UPDATE turns SET status = 'steered', ended_at = $1, queued_input = NULL, extra = $2 WHERE session_key = $3 AND turn = $4
"""


class TakenMessages(Struct, frozen=True):
    """The messages that a turn took in, and the session's revision after them."""

    messages: Sequence[StoredEvent]
    revision: int


def has_messages(turn: Turn) -> Operation[bool]:
    """Whether messages wait to be taken into a turn."""
    return bool((yield _WAITING, (turn.session_key, turn.turn)))


def take_messages(
    turn: Turn, name: SessionId, revision: int, invocation_id: str, place: Mapping[str, Any], now: float
) -> Operation[TakenMessages]:
    """Store the messages that steer a running turn in its session, in the order in which they were accepted.

    They get the invocation of the turn, and `place`: the branch and the scope of the agent that reads them. `revision`
    is the one of the session that the turn has read.
    """
    key = turn.session_key
    yield from lock_session(key)
    yield from check_epoch(key, turn.epoch)
    taken: list[StoredEvent] = []
    for number, text in (yield _MESSAGES, (key, turn.turn)):
        queued = decode_input(text)
        extra = {**(queued.extra or {}), **place, STEERING: number}
        entry = replace(queued, invocation_id=invocation_id, extra=extra)
        appended = yield from append(key, name, revision, entry, turn.epoch)
        revision = appended.revision
        yield _END, (now, TurnResult(status="steered").encode(), key, number)
        yield from release_input(key, number, queued)
        event = steered_event(0, number, turn.turn, appended.seq, entry.message.content if entry.message else "")
        yield from close_log_with(key, number, lambda last, event=event: _last_events(last, event))
        if (stored := (yield from message_at(key, appended.seq))) is not None:
            taken.append(stored)
    return TakenMessages(taken, revision)


def steered_event(event_id: int, turn: int, into: int, seq: int, text: str) -> Steered:
    """Make the event of a message that was accepted as `turn`, and was taken into another one."""
    return Steered(event_id, turn, into, seq, text)


def _last_events(newest: int, event: Steered) -> list[Steered | TurnDone]:
    return [replace(event, id=newest + 1), TurnDone(newest + 2, event.turn, "steered")]
