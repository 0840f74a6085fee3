"""Emit the events of a turn again to a request that repeats an earlier one."""

import asyncio
from collections.abc import AsyncGenerator

from lango.errors import LangoError, SessionNotFound, TurnFailed, error_type
from lango.events import TurnDone, TurnError, TurnEvent
from lango.store import Store, Turn
from lango.store.turns.event_log import append_final_events, read_event_log
from lango.store.turns.turns import read_turn, read_turn_texts
from lango.turns import lease_holder
from lango.turns.liveness import OwnerIsGone
from lango.turns.running_turn import RunningTurn, answer_text

_LATE_EVENTS_S = 2.0
"""How long after the end of a turn its own process may still store its last events."""
_OPEN = ("queued", "running")


async def replay_turn(running: RunningTurn, store: Store, is_gone: OwnerIsGone) -> None:
    """Emit the events of a turn that ran before, or runs in another process, to a repeated request."""
    turn = running.turn
    async with store.watch_queue(turn) as wait_for_queue:
        while (record := await store.read(read_turn, turn.session_key, turn.turn)) and record.status in _OPEN:
            await wait_for_queue(lease_holder.POLL_S)
    if record is None:
        raise SessionNotFound("the session was deleted")
    answers = await store.read(read_turn_texts, turn.session_key, turn.turn)
    running.answer = "".join(stored.message.content for stored in answers if stored.message)
    late = record.status != "interrupted" and not is_gone(record.owner, record.heartbeat)
    async for event in follow_event_log(store, turn, running.events[-1].id, _LATE_EVENTS_S if late else 0):
        if isinstance(event, TurnError) and event.fatal:
            running.error = error_by_name(event.error, event.message)
        if isinstance(event, TurnDone):
            running.answer = answer_text(running.answer, event.output)
        running.emit(event)


async def read_logged_events(store: Store, turn: Turn) -> list[TurnEvent]:
    """Read the events of an open turn that are in the event log."""
    events: list[TurnEvent] = []
    while page := (
        await store.read(read_event_log, turn.session_key, turn.turn, events[-1].id if events else 0)
    ).events:
        events += [logged.event for logged in page]
    return events


async def follow_event_log(
    store: Store, turn: Turn, after_id: int = 0, late_s: float = _LATE_EVENTS_S
) -> AsyncGenerator[TurnEvent, None]:
    """Yield the events of a turn of any process from the event log, to its end.

    The last ones may be stored up to `late_s` after the end of the turn.
    """
    clock = asyncio.get_running_loop().time
    deadline: float | None = None
    while True:
        page = await store.read(read_event_log, turn.session_key, turn.turn, after_id)
        for logged in page.events:
            yield logged.event
            after_id = logged.id
        if page.closed:
            return
        if page.turn is None:
            raise SessionNotFound("the session was deleted")
        if page.events:
            continue
        if deadline is None and page.turn.status not in _OPEN:
            deadline = clock() + late_s
        if deadline is not None and clock() >= deadline:
            await store.write(append_final_events, turn.session_key, turn.turn)
        else:
            await asyncio.sleep(lease_holder.POLL_S / 10)


def error_by_name(name: str, message: str) -> LangoError:
    """Return the error that a turn ended with, from what its last event says of it."""
    return (error_type(name) or TurnFailed)(message)
