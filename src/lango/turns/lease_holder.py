"""Acquire and renew the lease of a turn, and interrupt turns whose owner is gone."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from lango.errors import CallNotWaiting, FencedWrite, LangoError, TurnCancelled
from lango.store import Ahead, SessionRecord, Store, Turn
from lango.turns.liveness import IsGone
from lango.turns.running_turn import RunningTurn

BEAT_S = 2.0
POLL_S = 0.5
_log = logging.getLogger("lango.runtime")
T = TypeVar("T")


async def claim(running: RunningTurn, store: Store, is_gone: IsGone) -> None:
    """Wait until nothing is ahead of a turn, and begin it. Turns ahead whose process is gone are interrupted."""
    if running.turn.epoch is not None:
        return
    session = running.session
    async with store.queue(running.turn) as comes_up:
        while True:
            claimed, left = await uninterrupted(store.claim_turn(session.name, running.turn))
            if isinstance(claimed, Turn) and claimed.epoch is not None:
                running.turn = claimed
            if left:
                raise asyncio.CancelledError
            if isinstance(claimed, Turn):
                break
            if not await interrupt_gone(store, session, claimed, is_gone):
                await comes_up(POLL_S)
    match claimed.status:
        case "running":
            return
        case "failed":
            raise CallNotWaiting("the conversation went on before the client's result came to its turn")
        case "cancelled":
            raise TurnCancelled("the message was taken back before its turn came")
        case _:
            raise FencedWrite("another process took this turn over")


async def interrupt_gone(store: Store, session: SessionRecord, turns: Sequence[Ahead], is_gone: IsGone) -> int:
    """Interrupt turns at the head of a session's queue whose process is gone; return how many.

    `turns` are all of the queue up to one, in order. A turn behind one that lives keeps its place, dead or not.
    """
    gone = [is_gone(session.key, one.turn, one.owner, one.beat) for one in turns]  # of all: each has its own clock
    count = 0
    for one, is_dead in zip(turns, gone, strict=True):
        if not is_dead or not await store.interrupt_turn(session, one):
            break
        _log.warning("turn %s of session %s was left by a process that is gone", one.turn, session.name.id)
        count += 1
    return count


async def keep_alive(running: RunningTurn, store: Store) -> None:
    """Say that this process lives, and hear whether the turn was cancelled or taken over elsewhere."""
    while running.stopped is None:
        await asyncio.sleep(BEAT_S)
        try:
            heard = await store.beat_turn(running.turn)
        except LangoError as error:
            _log.warning("turn %s could not say that it lives: %s", running.turn.turn, error)
            continue
        if heard == "cancelled":
            running.stop(TurnCancelled("the turn was stopped"))
        elif heard == "lost":
            running.stop(FencedWrite("another process took this turn over"))


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Await work to its end, whoever cancels meanwhile; return its result, and whether somebody did.

    A write to the store that is given up half-way may have been made: then nobody would know of it.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
