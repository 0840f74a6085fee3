"""Hold the leases of a runtime: send its heartbeat, and notice leases that were cancelled or lost.

Leases are stored by `lango.store.turns.lease`; whether another owner is gone is decided by `lango.turns.liveness`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lango.errors import LangoError, StoreError, TurnCancelled, TurnReleased, WaitNotOpen
from lango.store import Store, Turn
from lango.store.turns import lease
from lango.turns.liveness import Owner
from lango.turns.running_turn import RunningTurn

HEARTBEAT_S = 1.0
POLL_S = 0.5
_log = logging.getLogger("lango.runtime")
T = TypeVar("T")


class LeaseHolder:
    """Sends the heartbeat of an owner while it holds anything, and stops turns whose lease is cancelled or lost."""

    def __init__(self, store: Store, owner: Owner, running: Callable[[], Sequence[RunningTurn]]) -> None:
        """`running` returns the turns of this owner."""
        self.owner = owner
        self._store = store
        self._running = running
        self._held = 0
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Send heartbeats during the body: it holds a lease, or waits for one."""
        self._held += 1
        if self._task is None:
            self._task = asyncio.create_task(self._send_heartbeats())
        try:
            yield
        finally:
            self._held -= 1

    async def close(self) -> None:
        """Stop the heartbeat, and delete it from the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.owner.release()
        try:
            await self._store.write(lease.forget_owner, self.owner.name)
        except LangoError as error:
            _log.warning("the heartbeat of this process could not be deleted: %s", error)

    async def _send_heartbeats(self) -> None:
        try:
            while self._held:
                known = {running for running in self._running() if running.turn.epoch is not None}
                try:
                    leases = await self._store.write(lease.beat, self.owner.name)
                except LangoError as error:
                    self._store.outages.warn(f"the heartbeat of this process failed: {error}")
                else:
                    self._stop_cancelled({(held.session_key, held.turn): held for held in leases}, known)
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            self._task = None

    def _stop_cancelled(self, leases: dict[tuple[int, int], lease.HeldLease], known: set[RunningTurn]) -> None:
        for running in known:
            turn = running.turn
            held = leases.get((turn.session_key, turn.turn))
            if running.finished or running.is_ending or turn.repeated:
                continue
            if held is None or held.epoch != turn.epoch:
                running.stop(TurnReleased("another process took over this turn and continues it"))
            elif held.cancel_requested:
                running.stop(TurnCancelled("the turn was stopped"))


async def acquire_lease(
    running: RunningTurn, store: Store, owner: str, version: str, check_owners: Callable[[], None]
) -> bool:
    """Wait until a turn is first in its session's queue, and lease it for an owner with this version of the app.

    `check_owners` is called while open turns are ahead: their owners may be gone. Return False if the turn ended
    because the one that it steers took its message in.
    """
    if running.turn.epoch is not None:
        return True
    session = running.session
    async with store.watch_queue(running.turn) as wait_for_queue:
        while True:
            queued = running.turn.session_key, session.name, running.turn.turn
            leased, left = await finish_despite_cancel(
                store.write(lease.lease_turn, *queued, owner, time.time(), version)
            )
            if isinstance(leased, Turn) and leased.epoch is not None:
                running.turn = leased
            if left:
                raise asyncio.CancelledError
            if isinstance(leased, Turn):
                break
            check_owners()
            await wait_for_queue(POLL_S)
    match leased.status:
        case "running" if leased.epoch is not None:
            return True
        case "steered":
            return False
        case "failed":
            raise WaitNotOpen("the conversation continued before the turn of the client's result")
        case "cancelled":
            raise TurnCancelled("the message was withdrawn before its turn started")
        case _:
            raise TurnReleased("another process took over this turn and continues it")


async def retry_until_stored(store: Store, write: Callable[[], Coroutine[Any, Any, object]], turn: str) -> None:
    """Repeat a write until the store accepts it: otherwise the turn's session would stay busy."""
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await write()
        except StoreError as error:
            store.outages.warn(f"{turn} could not be ended yet: {error}")
        else:
            return


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
