"""Two replicas share a session: one holds the lease, a dead owner is replaced, and its late writes are refused."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import TurnFailed
from lango.events import ToolStart
from lango.messages import Message, ToolCall
from lango.runtime.runtime import Runtime
from lango.store import NewEvent, OpenTurn, SessionId, SessionRecord
from lango.store.sessions.sessions import create_session, find_session
from lango.store.turns.lease import lease_turn, renew_lease
from lango.store.turns.turns import read_turn
from lango.testing import ScriptedProvider
from lango.turns import lease_holder, liveness
from lango.turns.liveness import LivenessMonitor
from tests.agents.parts import PATIENCE_S, Gate, broken_for, collect, last_error, messages, settings_for, statuses

ELSEWHERE = "elsewhere/boot/pid:[1]|7|123|token"
DEAD = f"{liveness._machine_id()}|999999999|1|token"  # pyright: ignore[reportPrivateUsage]


async def session_of(runtime: Runtime) -> SessionRecord:
    name = SessionId(runtime.app_name, "user", "s")
    return await runtime.store.read(find_session, name) or await runtime.store.write(
        create_session, name, None, time.time()
    )


def entry(text: str) -> NewEvent:
    return NewEvent(f"event of {text}", time.time(), Message("user", text, author="user"), 5, f"invocation of {text}")


async def test_a_queued_message_of_a_process_that_died_is_not_lost(store_url: str) -> None:
    provider = ScriptedProvider(["I see"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime, asyncio.timeout(PATIENCE_S):
        session = await session_of(runtime)
        for text in ("ran there", "waited there"):
            await runtime.store.submit_turn(session, entry(text), DEAD)
        assert await statuses(runtime) == ["running", "queued"]
        assert await runtime.run("s", "here") == "I see"
        assert await statuses(runtime) == ["interrupted", "interrupted", "done"]
        assert [message.content for message in await messages(runtime)] == [
            "ran there",
            "waited there",
            "here",
            "I see",
        ]
    assert broken_for(provider.requests[0]) == []
    assert "waited there" in str(provider.requests[0].messages)


async def test_another_machine_is_replaced_only_when_its_heartbeat_stops(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(lease_holder, "POLL_S", 0.05)
    provider = ScriptedProvider(["I see"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime, asyncio.timeout(PATIENCE_S):
        monitor = LivenessMonitor(gone_after_s=15)
        checked: list[int] = []

        def is_gone(key: int, turn: int, owner: str, heartbeat: int) -> bool:
            checked.append(turn)
            return monitor.is_gone(key, turn, owner, heartbeat)

        vars(runtime)["_liveness"] = SimpleNamespace(is_gone=is_gone)

        async def checked_again() -> None:
            """Wait until the queued turn has checked both turns before it again."""
            checked.clear()
            while len(checked) < 4:  # each twice, so that one of the checks started after this
                await asyncio.sleep(0.01)

        session = await session_of(runtime)
        first = await runtime.store.submit_turn(session, entry("first"), ELSEWHERE)
        second = await runtime.store.submit_turn(session, entry("second"), ELSEWHERE)
        here = await runtime.submit("s", "here")
        for _ in range(4):  # longer than the limit: both the running and the queued turn send heartbeats
            assert await runtime.store.write(renew_lease, first) == "alive"
            assert isinstance(
                await runtime.store.write(lease_turn, second.session_key, session.name, second.turn, time.time()), list
            )
            await checked_again()
            now += 10
        assert await statuses(runtime) == ["running", "queued", "queued"]
        assert not here.finished
        await checked_again()
        now += 16  # now both have sent no heartbeat for long enough
        events = await collect(here.follow())
        assert events[-1].type == "done"
        assert await statuses(runtime) == ["interrupted", "interrupted", "done"]


async def test_a_repeated_request_does_not_wait_for_a_process_that_is_gone(store_url: str) -> None:
    async with (
        open_runtime(settings_for(store_url), provider=ScriptedProvider(["fine"])) as runtime,
        asyncio.timeout(PATIENCE_S),
    ):
        session = await session_of(runtime)
        await runtime.store.submit_turn(session, entry("go"), DEAD, idempotency_key="k")
        with pytest.raises(TurnFailed, match="send it again"):
            await runtime.run("s", "go", idempotency_key="k")
        assert await statuses(runtime) == ["interrupted"]
        assert await runtime.run("s", "go on", idempotency_key="k2") == "fine"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == ["go", "go on"]


async def test_writes_of_a_process_that_lost_its_lease_are_refused(store_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "from the grave"])
    fresh = ScriptedProvider(["I see", "bye"])
    async with (
        open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as zombie,
        open_runtime(settings_for(store_url), provider=fresh, tools=[gate.tool]) as other,
        asyncio.timeout(PATIENCE_S),
    ):
        turn = await zombie.submit("s", "go")
        await gate.wait()
        # the other runtime takes its owner for dead, as after a pause of the whole machine
        session = await session_of(other)
        heartbeat = await other.store.read(read_turn, session.key, 1)
        assert heartbeat is not None
        assert await other.store.interrupt_turn(session, OpenTurn(1, "running", heartbeat.owner, heartbeat.heartbeat))
        assert await other.run("s", "what happened?") == "I see"
        gate.may_end.set()
        events = await collect(turn.follow())
        assert any(isinstance(event, ToolStart) for event in events)
        assert last_error(events).error == "FencedWrite"
        texts = [
            message.content
            for message in await messages(other)
            if message.role in ("user", "assistant") and message.content
        ]
        assert texts == ["go", "what happened?", "I see"]
        assert await statuses(other) == ["interrupted", "done"]
        assert await other.run("s", "bye") == "bye"
    assert [broken_for(request) for request in fresh.requests] == [[], []]
    assert "outcome is unknown" in str(fresh.requests[0].messages)


async def test_a_store_outage_at_the_end_of_a_turn_does_not_keep_the_session_busy(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lango.errors import StoreUnavailable

    provider = ScriptedProvider(["first", "second"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime, asyncio.timeout(PATIENCE_S):
        end_turn = runtime.store.end_turn
        failures = 3

        async def away(*args: Any, **fields: Any) -> bool:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise StoreUnavailable("away for a moment")
            return await end_turn(*args, **fields)

        monkeypatch.setattr(runtime.store, "end_turn", away)
        with pytest.raises(StoreUnavailable):
            await runtime.run("s", "one")
        assert await runtime.run("s", "two") == "second"
        assert await statuses(runtime) == ["done", "done"]
