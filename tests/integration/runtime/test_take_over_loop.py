"""The loop that takes turns over looks once more for what is released while it is at work, and replicas share turns."""

import asyncio
import time
from typing import Any

from lango.config import AgentSettings
from lango.messages import Message
from lango.runtime.execution.replicas import Replicas
from lango.runtime.execution.take_over import TakeOverLoop, order_of_owner
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.sessions.sessions import create_session
from lango.store.turns.lease import ResumeReason, TakenOver
from lango.turns.liveness import LivenessMonitor
from tests.agents.parts import TIMEOUT_S


async def release_turn(store: Store, session_id: str) -> None:
    """Store a turn, and release it."""
    name = SessionId("app", "user", session_id)
    session = await store.write(create_session, name, None, time.time())
    entry = NewEvent(f"event of {session_id}", time.time(), Message("user", "go", author="user"), 5, session_id)
    await store.release_turn(await store.submit_turn(session, entry, "stopping"), "stopping")


async def test_a_turn_that_is_released_while_others_are_taken_over_is_looked_for_at_once(
    store: Store, monkeypatch: Any
) -> None:
    monkeypatch.setattr("lango.runtime.execution.take_over.POLL_S", 1e9)  # only a notification leads to a check
    begun: asyncio.Queue[str] = asyncio.Queue()
    may_go_on = asyncio.Event()

    async def resume(name: SessionId, taken: TakenOver, reason: ResumeReason, detected_at: float) -> None:
        del taken, reason, detected_at
        begun.put_nowait(name.id)
        await may_go_on.wait()

    replicas = Replicas(store, "app", "here", "1")
    loop = TakeOverLoop(store, "app", "here", LivenessMonitor(), replicas, AgentSettings(), resume, lambda _: True)
    await release_turn(store, "first")
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(TIMEOUT_S):
        assert await begun.get() == "first"
        await release_turn(store, "second")
        loop.check_soon()
        may_go_on.set()
        assert await begun.get() == "second"
    loop.stopping = True
    loop.check_soon()
    await running


def test_replicas_take_turns_over_in_different_orders() -> None:
    orders = [order_of_owner(owner, range(100)) for owner in ("one", "another", "a third")]
    assert all(sorted(order) == list(range(100)) for order in orders)
    firsts = [order[:8] for order in orders]
    assert len({key for first in firsts for key in first}) > 16, "most that they begin with are not the same"
