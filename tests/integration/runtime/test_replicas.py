"""Replicas share a session: one holds the lease, turns of a dead owner go on, and its late writes are refused."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import TurnReleased
from lango.messages import Message, ToolCall
from lango.runtime.execution import take_over
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent
from lango.store.api_keys import spend_tokens
from lango.store.sessions.sessions import create_session, find_session
from lango.store.turns.lease import beat
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import StoredRequest
from lango.testing import ScriptedProvider
from lango.turns import lease_holder, liveness
from lango.turns.liveness import LivenessMonitor
from tests.agents.parts import TIMEOUT_S, Gate, broken_for, collect, messages, rows, settings_for, statuses
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of, supervisor_of

ELSEWHERE = "elsewhere/boot/pid:[1]|7|123|token"
DEAD = f"{liveness._machine_id()}|999999999|1|token"  # pyright: ignore[reportPrivateUsage]


async def session_of(runtime: Runtime) -> SessionInfo:
    name = SessionId(runtime.app_name, "user", "s")
    return await store_of(runtime).read(find_session, name) or await store_of(runtime).write(
        create_session, name, None, time.time()
    )


def entry(text: str) -> NewEvent:
    return NewEvent(f"event of {text}", time.time(), Message("user", text, author="user"), 5, f"invocation of {text}")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The owners that every runtime takes for dead from now on, as after a pause of the whole machine."""
    gone: set[str] = set()

    class Judge(LivenessMonitor):
        def is_gone(self, owner: str, heartbeat: int) -> bool:
            return owner in gone or super().is_gone(owner, heartbeat)

    monkeypatch.setattr("lango.runtime.execution.turn_supervisor.LivenessMonitor", Judge)
    return gone


async def test_turns_of_a_process_that_died_are_answered_in_order(store_url: str) -> None:
    provider = ScriptedProvider(["the first", "the second", "I see"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime, asyncio.timeout(TIMEOUT_S):
        session = await session_of(runtime)
        for text in ("ran there", "waited there"):
            await store_of(runtime).submit_turn(session, entry(text), DEAD)
        assert await runtime.run("s", "here") == "I see"
        assert await statuses(runtime) == ["done", "done", "done"]
        assert [message.content for message in await messages(runtime)] == [
            "ran there",
            "the first",
            "waited there",
            "the second",
            "here",
            "I see",
        ]
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


async def test_a_turn_that_another_process_accepted_starts_within_the_tokens_of_the_day(store_url: str) -> None:
    """What had begun there is finished."""
    provider = ScriptedProvider(["finished", "I see"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime, asyncio.timeout(TIMEOUT_S):
        session = await session_of(runtime)
        await store_of(runtime).write(spend_tokens, "small", 20, time.time())
        limited = SubmitOptions(request=StoredRequest(quota="small", tokens_per_day=20))
        await store_of(runtime).submit_turn(session, entry("began there"), DEAD, limited)
        await store_of(runtime).submit_turn(session, entry("waited there"), DEAD, limited)
        assert await runtime.run("s", "here") == "I see"
        assert await statuses(runtime) == ["done", "failed", "done"]


async def test_another_machine_is_replaced_only_when_its_heartbeat_stops(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(take_over, "POLL_S", 0.05)
    checked: list[str] = []

    class Monitor(LivenessMonitor):
        def is_gone(self, owner: str, heartbeat: int) -> bool:
            checked.append(owner)
            return super().is_gone(owner, heartbeat)

    monkeypatch.setattr("lango.runtime.execution.turn_supervisor.LivenessMonitor", Monitor)
    provider = ScriptedProvider(["the first", "the second", "I see"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime, asyncio.timeout(TIMEOUT_S):

        async def checked_again() -> None:
            """Wait until the owner of both turns was checked again."""
            checked.clear()
            while len(checked) < 4:  # for each turn twice, so that one of the checks started after this
                await asyncio.sleep(0.01)

        session = await session_of(runtime)
        await store_of(runtime).submit_turn(session, entry("first"), ELSEWHERE)
        await store_of(runtime).submit_turn(session, entry("second"), ELSEWHERE)
        here = await runtime.submit("s", "here")
        for _ in range(4):  # longer than the limit
            assert [held.turn for held in await store_of(runtime).write(beat, ELSEWHERE)] == [1]
            await checked_again()
            now += liveness.GONE_AFTER_S - 1
        assert await statuses(runtime) == ["running", "queued", "queued"]
        assert not here.finished
        await checked_again()
        now += liveness.GONE_AFTER_S + 1  # now it has sent no heartbeat for long enough
        events = await collect(here.follow())
        assert events[-1].type == "done"
        assert await statuses(runtime) == ["done", "done", "done"]
        assert await rows(store_of(runtime), "SELECT attempts FROM turns ORDER BY turn") == [(1,), (0,), (0,)]


async def test_a_repeated_request_gets_the_answer_of_a_process_that_took_over(store_url: str) -> None:
    async with (
        open_runtime(settings_for(store_url), provider=ScriptedProvider(["fine", "still fine"])) as runtime,
        asyncio.timeout(TIMEOUT_S),
    ):
        session = await session_of(runtime)
        await store_of(runtime).submit_turn(session, entry("go"), DEAD, SubmitOptions(idempotency_key="k"))
        assert await runtime.run("s", "go", idempotency_key="k") == "fine"
        assert await statuses(runtime) == ["done"]
        assert await runtime.run("s", "go", idempotency_key="k") == "fine", "also when it has ended"
        assert await runtime.run("s", "go on", idempotency_key="k2") == "still fine"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == ["go", "go on"]


async def test_writes_of_a_process_that_lost_its_lease_are_refused(store_url: str, judged: set[str]) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "from the grave"])
    fresh = ScriptedProvider(["I see", "bye"])
    async with (
        open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as zombie,
        open_runtime(settings_for(store_url), provider=fresh, tools=[gate.tool]) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        turn = await zombie.submit("s", "go")
        await gate.wait()
        judged.add(supervisor_of(zombie).owner.name)
        await until_idle(other)
        gate.may_end.set()
        with pytest.raises(TurnReleased, match="another process"):
            await collect(turn.follow())
        texts = [message.content for message in await messages(other) if message.content and message.role != "tool"]
        assert texts == ["go", "I see"]
        assert await statuses(other) == ["done"]
        assert await other.run("s", "bye") == "bye"
    assert (gate.runs, len(provider.requests)) == (1, 1), "neither process runs the tool again"
    assert [broken_for(request) for request in fresh.requests] == [[], []]
    assert "outcome is unknown" in str(fresh.requests[0].messages)


@pytest.mark.parametrize("how", ["taken over", "interrupted"])
async def test_a_fenced_write_ends_a_turn_without_an_end_for_its_readers(
    store_url: str, monkeypatch: pytest.MonkeyPatch, judged: set[str], how: str
) -> None:
    """The write of the tool's result comes before the heartbeat that would show that the lease is lost."""
    monkeypatch.setattr(lease_holder, "HEARTBEAT_S", 2 * TIMEOUT_S)
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "from the grave"])
    fresh = ScriptedProvider(["I see"])
    on_crash = "resume" if how == "taken over" else "stop"
    async with (
        open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as zombie,
        open_runtime(settings_for(store_url, on_crash=on_crash), provider=fresh, tools=[gate.tool]) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        turn = await zombie.submit("s", "go")
        await gate.wait()
        judged.add(supervisor_of(zombie).owner.name)
        await until_idle(other)
        gate.may_end.set()
        with pytest.raises(TurnReleased, match="another process"):
            await collect(turn.follow())
        assert await statuses(other) == ["done" if how == "taken over" else "interrupted"]
    assert len(provider.requests) == 1


async def test_a_store_outage_at_the_end_of_a_turn_does_not_keep_the_session_busy(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lango.errors import StoreUnavailable

    provider = ScriptedProvider(["first", "second"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime, asyncio.timeout(TIMEOUT_S):
        end_turn = store_of(runtime).end_turn
        failures = 3

        async def away(*args: Any, **fields: Any) -> bool:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise StoreUnavailable("away for a moment")
            return await end_turn(*args, **fields)

        monkeypatch.setattr(store_of(runtime), "end_turn", away)
        with pytest.raises(StoreUnavailable):
            await runtime.run("s", "one")
        assert await runtime.run("s", "two") == "second"
        assert await statuses(runtime) == ["failed", "done"], "as it was reported"


async def test_a_turn_of_an_owner_that_was_idle_is_not_taken_over_before_its_first_heartbeat(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[bool] = []

    class Judge(LivenessMonitor):
        def is_gone(self, owner: str, heartbeat: int) -> bool:
            judged.append(super().is_gone(owner, heartbeat))
            return judged[-1]

    monkeypatch.setattr("lango.runtime.execution.turn_supervisor.LivenessMonitor", Judge)
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as runtime:
        async with asyncio.timeout(TIMEOUT_S):
            session, store = await session_of(runtime), store_of(runtime)
            await store.write(beat, ELSEWHERE)
            first = await store.submit_turn(session, entry("first"), ELSEWHERE)
            while not judged:
                await asyncio.sleep(0.01)
            await store.end_turn(session.name, first, "done")
            while vars(supervisor_of(runtime).liveness)["_last_heartbeats"]:  # until the loop saw that it holds nothing
                await asyncio.sleep(0.01)
            del judged[:]
            vars(supervisor_of(runtime).liveness)["_gone_after_s"] = 0.0  # a second look at the same heartbeat decides
            await store.submit_turn(session, entry("second"), ELSEWHERE)
            while not judged:
                await asyncio.sleep(0.01)
            assert judged[0] is False
