"""A8: a cancelled turn leaves a truthful record, which the next turn reads."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest

from lango import open_runtime
from lango.errors import TurnCancelled, TurnReleased, WaitNotOpen
from lango.events import TextDelta, ToolStart, TurnEvent
from lango.messages import Message, ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import NewEvent
from lango.store.sessions.sessions import find_session
from lango.store.waits.recovery import SAFE_TO_REPEAT_RESULT, UNKNOWN_RESULT
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.answers import submit_approval
from tests.agents.parts import (
    TIMEOUT_S,
    Gate,
    approvals,
    broken_for,
    check_order,
    collect,
    last_error,
    messages,
    results_in,
    rows,
    settings_for,
    statuses,
    until,
)
from tests.support.paused_turns import confirmation_in_a_tool
from tests.support.runtimes import store_of

Stop = Callable[[Runtime, Gate], Awaitable[None]]


async def by_cancelling_the_task(runtime: Runtime, gate: Gate) -> None:
    task = asyncio.create_task(runtime.run("s", "go"))
    await gate.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_leaving_the_stream(runtime: Runtime, gate: Gate) -> None:
    async with asyncio.timeout(TIMEOUT_S), aclosing(runtime.stream("s", "go")) as events:
        async for event in events:
            if isinstance(event, ToolStart):
                break
        await gate.wait()


async def by_asking_the_runtime(runtime: Runtime, gate: Gate) -> None:
    task = asyncio.create_task(collect(runtime.stream("s", "go")))
    await gate.wait()
    assert await runtime.cancel("s")
    events = await task
    check_order(events)
    assert last_error(events).error == "TurnCancelled"


async def by_a_failure_beside_it(runtime: Runtime, gate: Gate) -> None:
    async def stop_it_inside() -> None:
        await gate.wait()
        raise TimeoutError

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runtime.run("s", "go"))
            tasks.create_task(stop_it_inside())

    with pytest.raises(ExceptionGroup) as raised:
        await both()
    assert raised.group_contains(TimeoutError)


STOPS = [by_cancelling_the_task, by_leaving_the_stream, by_asking_the_runtime, by_a_failure_beside_it]


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
async def test_a8_the_next_turns_model_learns_of_a_cancel_in_a_tool(store_url: str, stop: Stop) -> None:
    gate = Gate()
    provider = ScriptedProvider([["On it. ", ToolCall("c1", gate.tool.name, {})]])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        await stop(runtime, gate)
        assert await statuses(runtime) == ["cancelled"]
        history = await messages(runtime)
        assert [message.role for message in history] == ["user", "assistant", "tool"]
        assert history[-1].tool_calls[0].output == {"error": UNKNOWN_RESULT, "outcome": "unknown"}
    later = ScriptedProvider(["I see"])
    async with open_runtime(settings_for(store_url), provider=later, tools=[gate.tool]) as runtime:
        assert await runtime.run("s", "what happened?") == "I see"
    request = later.requests[0]
    assert "outcome is unknown" in results_in(request)["c1"]["error"]
    assert broken_for(request) == []
    assert gate.runs == 1, "a tool with effects is never run again by itself"


async def test_closing_a_runtime_in_a_tool_cancels_nothing(store_url: str) -> None:
    """The tool does not end in time: the turn continues in the next runtime, whose model reads "outcome unknown"."""
    gate = Gate()
    provider = ScriptedProvider([["On it. ", ToolCall("c1", gate.tool.name, {})]])
    settings = settings_for(store_url, drain_s=0.1)
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go", idempotency_key="k")
        await gate.wait()
        await runtime.close()
        with pytest.raises(TurnReleased):
            await collect(turn.follow())
        assert await statuses(runtime) == ["running"]
    later = ScriptedProvider(["I see"])
    async with open_runtime(settings_for(store_url), provider=later, tools=[gate.tool]) as runtime:
        assert await runtime.run("s", "go", idempotency_key="k") == "On it. I see"
        assert await statuses(runtime) == ["done"]
    [request] = later.requests
    assert "outcome is unknown" in results_in(request)["c1"]["error"]
    assert broken_for(request) == []
    assert gate.runs == 1, "a tool with effects is never run again by itself"


async def test_a8_a_cancel_from_another_runtime_stops_the_turn(store_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "I see"])
    async with (
        open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as first,
        open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as other,
    ):
        task = asyncio.create_task(first.run("s", "go"))
        await gate.wait()
        assert await other.cancel("s")
        with pytest.raises(TurnCancelled):
            async with asyncio.timeout(TIMEOUT_S):
                await task
        assert await statuses(other) == ["cancelled"]
        assert not await other.cancel("s"), "none runs any more"
        assert not await other.cancel("nobody"), "there is no such session"
        assert await first.run("s", "and?") == "I see"
    assert broken_for(provider.requests[-1]) == []


async def test_a8_the_result_of_a_cancelled_tool_says_whether_it_can_be_repeated(sqlite_url: str) -> None:
    gates = [Gate("reads", effect="none"), Gate("sets", effect="idempotent"), Gate("sends", effect="once")]
    calls = [ToolCall(f"c_{gate.tool.name}", gate.tool.name, {}) for gate in gates]
    provider = ScriptedProvider([calls, "I see"])
    tools = [gate.tool for gate in gates]
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools) as runtime:
        task = asyncio.create_task(runtime.run("s", "go"))
        await asyncio.gather(*(gate.wait() for gate in gates))
        await runtime.cancel("s")
        with pytest.raises(TurnCancelled):
            await task
        await runtime.run("s", "and?")
    errors = {call_id: result["error"] for call_id, result in results_in(provider.requests[-1]).items()}
    assert errors == {"c_reads": SAFE_TO_REPEAT_RESULT, "c_sets": SAFE_TO_REPEAT_RESULT, "c_sends": UNKNOWN_RESULT}
    assert broken_for(provider.requests[-1]) == []


async def test_a8_a_tool_that_finished_before_the_cancel_keeps_its_result(sqlite_url: str) -> None:
    finished = asyncio.Event()

    @tool
    async def quick() -> str:
        """Be quick."""
        finished.set()
        return "quick result"

    gate = Gate()
    provider = ScriptedProvider([[ToolCall("c1", "quick", {}), ToolCall("c2", gate.tool.name, {})], "I see"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[quick, gate.tool]) as runtime:
        task = asyncio.create_task(runtime.run("s", "go"))
        await gate.wait()
        await finished.wait()
        while ("finished",) not in await rows(store_of(runtime), "SELECT status FROM tool_journal"):
            await asyncio.sleep(0)
        await runtime.cancel("s")
        with pytest.raises(TurnCancelled):
            await task
        await runtime.run("s", "and?")
    results = results_in(provider.requests[-1])
    assert results["c1"] == {"result": "quick result"}
    assert results["c2"]["error"] == UNKNOWN_RESULT
    assert broken_for(provider.requests[-1]) == []


async def test_a8_a_cancel_during_the_answer_stores_no_partial_answer(sqlite_url: str) -> None:
    speaks = asyncio.Event()

    async def hang(_: object) -> str:
        speaks.set()
        await asyncio.Event().wait()
        return "never"

    provider = ScriptedProvider([hang, "whole"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        task = asyncio.create_task(runtime.run("s", "go"))
        await speaks.wait()
        await runtime.cancel("s")
        with pytest.raises(TurnCancelled):
            await task
        assert [message.role for message in await messages(runtime)] == ["user"]
        assert await runtime.run("s", "again") == "whole"
    assert [message.content for message in provider.requests[-1].messages][-1].endswith("again")
    assert broken_for(provider.requests[-1]) == []


async def test_a8_leaving_a_stream_after_its_first_text_stores_no_partial_answer(sqlite_url: str) -> None:
    class Halting(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            async for delta in super().stream(request):
                yield delta
                if len(self.requests) == 1:
                    await asyncio.Event().wait()

    provider = Halting(["a long answer in pieces", "whole"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await until(runtime.stream("s", "go"), TextDelta)
        assert [message.role for message in await messages(runtime)] == ["user"]
        assert await statuses(runtime) == ["cancelled"]
        assert await runtime.run("s", "again") == "whole"


async def test_a8_the_same_id_in_another_turn_is_another_call(sqlite_url: str) -> None:
    """An older call of the same id has a result in the journal; it is not this call's result."""
    gate = Gate()

    @tool
    def quick() -> str:
        """Be quick."""
        return "old result"

    old = ScriptedProvider([ToolCall("same", "quick", {}), "done"])
    async with open_runtime(settings_for(sqlite_url), provider=old, tools=[quick]) as runtime:
        await runtime.run("s", "go")
        for number in range(120):  # the id leaves the window, so that the model adapter no longer sees it
            name = (await store_of(runtime).read(find_session, _name(runtime))) or pytest.fail("gone")
            await store_of(runtime).append(name.key, name.name, name.revision, _filler(number))
    provider = ScriptedProvider([ToolCall("same", gate.tool.name, {}), "I see"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        await until(runtime.stream("s", "again"), ToolStart)
        assert (await messages(runtime))[-1].tool_calls[0].output == {"error": UNKNOWN_RESULT, "outcome": "unknown"}
        assert await runtime.run("s", "and?") == "I see"
    assert broken_for(provider.requests[-1]) == []


def _name(runtime: Runtime) -> SessionId:
    return SessionId(runtime.app_name, "user", "s")


def _filler(number: int) -> NewEvent:
    role = "user" if number % 2 == 0 else "assistant"
    return NewEvent(
        f"filler-{number}", 0.0, Message(role, "word " * 500, author="user" if role == "user" else "lango"), 500
    )


async def test_a8_a_cancel_can_be_repeated_without_harm(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "I see"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await asyncio.gather(*(runtime.cancel("s") for _ in range(5)))
        events: list[TurnEvent] = await collect(turn.follow())
        check_order(events)
        assert last_error(events).error == "TurnCancelled"
        assert await statuses(runtime) == ["cancelled"]
        assert await runtime.run("s", "and?") == "I see"


STOPPED = {"error": "not run: the user stopped the turn before this call was approved", "outcome": "not run"}


async def test_a_cancel_closes_an_open_approval(store_url: str) -> None:
    gate = Gate(level="dangerous")
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "I see"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        await collect(runtime.stream("s", "go"))
        assert len(await runtime.inbox.list()) == 1
        assert await runtime.cancel("s")
        assert not await runtime.cancel("s")
        assert await runtime.inbox.list() == []
        assert await rows(store_of(runtime), "SELECT call_id FROM open_calls") == []
        journal = await rows(store_of(runtime), "SELECT approved, approved_by, status FROM tool_journal")
        assert journal == [(0, "user", "intended")]
        with pytest.raises(WaitNotOpen, match="has no wait"):
            await submit_approval(runtime, "s", "c1", approved=True)
        assert await runtime.run("s", "and?") == "I see"
    assert results_in(provider.requests[-1]) == {"c1": STOPPED}
    assert broken_for(provider.requests[-1]) == []


async def test_a_cancel_of_a_running_turn_closes_the_approval_beside_it(store_url: str) -> None:
    gate = Gate(level="dangerous")
    other = Gate("another", level="dangerous")
    calls = [ToolCall("c1", gate.tool.name, {}), ToolCall("c2", other.tool.name, {})]
    provider = ScriptedProvider([calls, "I see"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, other.tool]) as runtime:
        await collect(runtime.stream("s", "go"))
        turn = await submit_approval(runtime, "s", "c1", approved=True)
        await gate.wait()
        assert await runtime.cancel("s")
        await turn.wait()
        assert await rows(store_of(runtime), "SELECT call_id FROM open_calls") == []
        with pytest.raises(WaitNotOpen):
            await submit_approval(runtime, "s", "c2", approved=True)
        assert await runtime.run("s", "and?") == "I see"
    assert results_in(provider.requests[-1])["c2"] == STOPPED


async def test_a_cancel_closes_the_workflow_around_an_approval(store_url: str) -> None:
    effects: list[str] = []
    async with open_runtime(settings_for(store_url), root_agent=confirmation_in_a_tool(effects.append)) as runtime:
        assert approvals(await collect(runtime.stream("s", "go")))
        assert await runtime.cancel("s")
        assert await rows(store_of(runtime), "SELECT call_id FROM open_calls") == []
    assert effects == []
