"""Store messages that come for a turn that runs: the turn takes them in, or they replace it.

A message that steers a turn is itself a queued turn, which names the turn that it steers. Before each model call,
the owner of that turn stores such messages in its session, in one transaction under its lease: from then on they belong
to the record of the turn, and a turn that is run again shows them at the same step. A message that no model call took
stays queued, and becomes the next turn.

A message that replaces a turn is queued behind it, and the owner of that turn is asked to stop it in the same
transaction. When the message's turn starts, one transaction closes what the stopped turn left open, rewinds it, and
stores a note about its tool calls: their effects are not undone, and the model must know of them.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.events import Steered, TurnDone
from lango.history import count_tokens
from lango.messages import Message
from lango.sessions import NOTE, REQUEST_PREFIX, STEERING, SessionId, SessionInfo, StoredEvent
from lango.store.artifacts.session_artifacts import rewind_artifacts
from lango.store.codec.json_text import dumps
from lango.store.codec.records import AppendResult, NewEvent, Turn, call_key
from lango.store.codec.rows import row_to_event
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.open_calls import message_at
from lango.store.sessions.sessions import check_epoch, get_session, lock_session
from lango.store.sessions.state import delta_to_restore, first_seq_of_invocation, read_state_before, split_scopes
from lango.store.sessions.window import read_rows
from lango.store.turns.event_log import close_log_with
from lango.store.turns.queue import decode_input, release_input
from lango.store.turns.turns import TurnResult
from lango.store.waits.recovery import close_open_calls

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
        text = entry.message.content if entry.message else ""
        event = Steered(0, number, turn.turn, appended.seq, text)
        yield from close_log_with(
            key,
            number,
            lambda last, event=event: [replace(event, id=last + 1), TurnDone(last + 2, event.turn, "steered")],
        )
        if (stored := (yield from message_at(key, appended.seq))) is not None:
            taken.append(stored)
    return TakenMessages(taken, revision)


# -- a message that replaces the turn ----------------------------------------------------------------------------------

_INVOCATION = "SELECT invocation_id FROM turns WHERE session_key = $1 AND turn = $2"
# calls inside of tools, and functions of workflows: no message has them
_JOURNAL = """
SELECT j.call_id, j.name, j.status FROM tool_journal j JOIN turns t ON t.session_key = j.session_key
    AND j.epoch IN (t.first_epoch, t.continued_epoch)
WHERE j.session_key = $1 AND t.invocation_id = $2 AND j.effect <> 'none' AND j.status IN ('started', 'finished')
ORDER BY j.started_at, j.intended_at
"""
_TRANSFER = "transfer_to_agent"
_MAX_CALLS, _MAX_CHARACTERS = 50, 300
_NOTE = (
    "[System: The user stopped the turn before this message and replaced it. That turn is no longer part of this "
    "conversation, but what its tools did was not undone:\n{calls}\nDo not assume that the rest of that turn happened.]"
)
_UNKNOWN = "started; its outcome is unknown: it may or may not have taken effect"


def replace_turn(key: int, name: SessionId, replaced: int, entry: NewEvent, now: float) -> Operation[None]:
    """Rewind an ended turn before the message `entry` is stored, with a note about what its tools did."""
    locked = yield from lock_session(key)
    assert locked
    rows = yield _INVOCATION, (key, replaced)
    invocation_id = rows[0][0] if rows else None
    first = (yield from first_seq_of_invocation(key, invocation_id)) if invocation_id else None
    if invocation_id is None or first is None:
        return  # it was stopped before its message was stored
    yield from close_open_calls(key, name, locked.revision, now, close_requests="cancelled")
    session = yield from get_session(name)
    stored = [row_to_event(row) for row in (yield from read_rows(session, first, session.last_seq))]
    made = [*_calls_in_messages(stored)]
    known = {call_key(call.id) for event in stored if event.message for call in event.message.tool_calls}
    journaled = yield _JOURNAL, (key, invocation_id)
    made += [
        _line(name, "ended" if status == "finished" else _UNKNOWN)
        for id_, name, status in journaled
        if id_ not in known
    ]
    revision = (yield from append_rewind(session, invocation_id, first, now)).revision
    if made:
        yield from append(key, name, revision, _note(made, entry, now))


def append_rewind(session: SessionInfo, invocation_id: str, first: int, now: float) -> Operation[AppendResult]:
    """Append the event that removes an invocation, whose first message is `first`, and all that follows it."""
    own, _, _ = split_scopes(session.state)
    target = yield from read_state_before(session.key, invocation_id)
    actions: dict[str, Any] = {"rewind_before_invocation_id": invocation_id}
    if restored := (yield from rewind_artifacts(session, first, now)):
        actions["artifact_delta"] = restored
    entry = NewEvent(
        event_id=str(uuid.uuid4()),
        created_at=now,
        message=Message("event", author="user"),
        invocation_id=f"e-{uuid.uuid4()}",
        state_delta=delta_to_restore(own, target),
        extra={"actions": actions},
        rewind_before=invocation_id,
    )
    return (yield from append(session.key, session.name, session.revision, entry))


def _note(lines: list[str], entry: NewEvent, now: float) -> NewEvent:
    if len(lines) > _MAX_CALLS:
        lines = [*lines[:_MAX_CALLS], f"- and {len(lines) - _MAX_CALLS} more calls"]
    message = Message("user", _NOTE.format(calls="\n".join(lines)), author="user")
    return NewEvent(
        f"replaced-{entry.event_id}",
        now,
        message,
        count_tokens(message),
        invocation_id=entry.invocation_id,
        extra={NOTE: "replaced"},
    )


def _calls_in_messages(stored: Iterable[StoredEvent]) -> Iterator[str]:
    """Describe the calls in messages that ran, or may have run."""
    messages = [event.message for event in stored if event.message]
    results = {call.id: call.output for message in messages for call in message.tool_calls if call.output is not None}
    for message in messages:
        for call in message.tool_calls:
            if call.output is not None or call.name.startswith(REQUEST_PREFIX) or call.name == _TRANSFER:
                continue
            outcome = _outcome(results.get(call.id))
            if outcome:
                yield _line(f"{call.name}({_clipped(call.input or {})})", outcome)


def _outcome(result: Mapping[str, Any] | None) -> str:
    """Say how a call ended; empty if it did not run."""
    match result:
        case {"outcome": "not run"}:
            return ""
        case None | {"outcome": "unknown"}:
            return _UNKNOWN
        case _:
            return f"ended with {_clipped(result)}"


def _line(call: str, outcome: str) -> str:
    return f"- {call}: {outcome}"


def _clipped(value: Mapping[str, Any]) -> str:
    text = dumps(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
