"""Acquire and renew the lease of a turn, and interrupt turns whose owner is gone.

Leases are stored by `lango.store.turns.lease`; whether an owner is gone is decided by `lango.turns.liveness`.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from lango.errors import CallNotWaiting, FencedWrite, LangoError, TurnCancelled
from lango.store import QueuedTurn, SessionRecord, Store, Turn
from lango.store.turns import lease
from lango.turns.liveness import OwnerIsGone
from lango.turns.running_turn import RunningTurn

HEARTBEAT_S = 2.0
POLL_S = 0.5
_log = logging.getLogger("lango.runtime")
T = TypeVar("T")


async def acquire_lease(running: RunningTurn, store: Store, is_gone: OwnerIsGone) -> None:
    """Wait until a turn is first in its session's queue, and lease it. Interrupt earlier turns whose owner is gone."""
    if running.turn.epoch is not None:
        return
    session = running.session
    async with store.watch_queue(running.turn) as wait_for_queue:
        while True:
            leased, left = await finish_despite_cancel(
                store.write(lease.lease_turn, running.turn.session_key, session.name, running.turn.turn, time.time())
            )
            if isinstance(leased, Turn) and leased.epoch is not None:
                running.turn = leased
            if left:
                raise asyncio.CancelledError
            if isinstance(leased, Turn):
                break
            if not await interrupt_dead_turns(store, session, leased, is_gone):
                await wait_for_queue(POLL_S)
    match leased.status:
        case "running":
            return
        case "failed":
            raise CallNotWaiting("the conversation continued before the turn of the client's result")
        case "cancelled":
            raise TurnCancelled("the message was taken back before its turn came")
        case _:
            raise FencedWrite("another process took this turn over")


async def interrupt_dead_turns(
    store: Store, session: SessionRecord, turns: Sequence[QueuedTurn], is_gone: OwnerIsGone
) -> int:
    """Interrupt the turns at the head of a session's queue whose owner is gone; return how many.

    `turns` is the head of the queue, in order. A turn behind a live one stays, even if its owner is gone.
    """
    # of every turn, even behind a live one: each call records the turn's heartbeat
    gone = [is_gone(session.key, queued.turn, queued.owner, queued.heartbeat) for queued in turns]
    count = 0
    for queued, is_dead in zip(turns, gone, strict=True):
        if not is_dead or not await store.interrupt_turn(session, queued):
            break
        _log.warning("interrupted turn %s of session %s: its process is gone", queued.turn, session.name.id)
        count += 1
    return count


async def renew_lease(running: RunningTurn, store: Store) -> None:
    """Send heartbeats for a turn, and stop it if it was cancelled or taken over by another process."""
    while running.stop_reason is None:
        await asyncio.sleep(HEARTBEAT_S)
        try:
            lease_state = await store.write(lease.renew_lease, running.turn)
        except LangoError as error:
            _log.warning("the heartbeat of turn %s failed: %s", running.turn.turn, error)
            continue
        if lease_state == "cancelled":
            running.stop(TurnCancelled("the turn was stopped"))
        elif lease_state == "lost":
            running.stop(FencedWrite("another process took this turn over"))


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Await work to its end even if this task is cancelled; return its result, and whether it was cancelled.

    A write that is abandoned half-way may have been stored, and this process would not know.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
