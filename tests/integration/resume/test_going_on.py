"""Turns of other processes go on: after a hand-over, after failures, in order, and not for ever."""

import asyncio

import pytest

from lango import open_runtime
from lango.errors import ProviderUnavailable, TurnReleased
from lango.events import Resumed, TextDelta, TextWithdrawn, ToolEnd, ToolStart, TurnDone, TurnEvent
from lango.messages import ToolCall
from lango.providers.protocol import TextDelta as ProviderText
from lango.store import Store
from lango.store.engine.database import Operation, Row
from lango.testing import ScriptedProvider
from lango.tools import Tool, client_tool
from lango.turns.liveness import Owner
from tests.agents.answers import submit_results
from tests.agents.parts import Gate, check_order, collect, kinds, last_error, messages, rows, settings_for, text_of
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of


async def execute(store: Store, sql: str) -> None:
    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    await store.write(operation)


async def forget_owners(store: Store) -> None:
    """Leave the open turns as a runtime does that is gone."""
    owner = Owner()
    owner.release()
    await execute(store, f"UPDATE turns SET owner = '{owner.name}' WHERE status IN ('queued', 'running')")


async def test_a_closed_runtime_finishes_its_step_and_hands_the_turn_over(store_url: str) -> None:
    gate = Gate(effect="once")
    first = ScriptedProvider([["I wait. ", ToolCall("c1", "wait_here", {})], "never asked here"])
    second = ScriptedProvider(["waited and done"])
    settings = settings_for(store_url)
    async with open_runtime(settings, provider=second, tools=[gate.tool]) as other:
        async with open_runtime(settings, provider=first, tools=[gate.tool]) as runtime:
            turn = await runtime.submit("s", "go")
            await gate.wait()
            closing = asyncio.create_task(runtime.close())
            await asyncio.sleep(0)
            gate.may_end.set()
            await closing
            with pytest.raises(TurnReleased):
                await collect(turn.follow())
        await until_idle(other)
        assert [one.content for one in await messages(other) if one.role == "assistant"] == [
            "I wait. ",
            "waited and done",
        ]
        assert await rows(store_of(other), "SELECT status, attempts FROM turns") == [("done", 0)], (
            "no attempt is counted"
        )
        assert '"handover"' in (await rows(store_of(other), "SELECT resumptions FROM turns"))[0][0]
    assert gate.runs == 1
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_queued_message_is_handed_over_with_its_client_tools(store_url: str) -> None:
    gate = Gate()
    pick = client_tool("pick", "Pick a color.", {"type": "object", "properties": {}})
    first = ScriptedProvider([ToolCall("c1", "wait_here", {}), "never"])
    async with open_runtime(settings_for(store_url), provider=first, tools=[gate.tool]) as runtime:
        await runtime.submit("s", "one")
        await gate.wait()
        await runtime.submit("s", "two", client_tools=[pick], idempotency_key="k")
        closing = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        gate.may_end.set()
        await closing
    second = ScriptedProvider(["one is done", ToolCall("c2", "pick", {}), "red it is"])
    async with open_runtime(settings_for(store_url), provider=second, tools=[gate.tool]) as runtime:
        await until_idle(runtime)
        assert [tool.name for tool in second.requests[1].tools if tool.name == "pick"] == ["pick"]
        events = await collect((await runtime.submit("s", "two", client_tools=[pick], idempotency_key="k")).follow())
        assert isinstance(events[-1], TurnDone)
        assert events[-1].waits[0].kind == "client_result"
        done = await collect((await submit_results(runtime, "s", {"c2": {"color": "red"}})).follow())
        assert text_of(done) == "red it is"


async def test_a_turn_that_fails_for_a_while_goes_on_from_what_is_stored(store_url: str) -> None:
    ran: list[str] = []
    note = Tool("note", "Note.", None, lambda: ran.append("note") or "noted", effect="once")
    provider = ScriptedProvider(
        [["I note. ", ToolCall("c1", "note", {})], [ProviderText("It is "), ProviderText("no")], "all noted"]
    )
    settings = settings_for(store_url, retry_delay_s=0)
    async with open_runtime(settings, provider=provider, tools=[note]) as runtime:
        events = await collect(runtime.stream("s", "go"))
        check_order(events)
        assert ran == ["note"]
        assert visible_text(events) == "I note. all noted"
        assert [event.reason for event in events if isinstance(event, Resumed)] == ["failure"]
        assert len([event for event in events if isinstance(event, ToolStart | ToolEnd)]) == 2
        assert await rows(store_of(runtime), "SELECT status, attempts FROM turns") == [("done", 1)]


def visible_text(events: list[TurnEvent]) -> str:
    """Return the text that a reader sees in the end."""
    shown: list[TextDelta] = []
    for event in events:
        if isinstance(event, TextDelta):
            shown.append(event)
        elif isinstance(event, TextWithdrawn):
            shown = [one for one in shown if one.block != event.block]
    return "".join(one.text for one in shown)


async def test_a_provider_that_stays_away_ends_the_turn_after_all_attempts(store_url: str) -> None:
    away = ProviderUnavailable("busy")
    note = Tool("note", "Note.", None, lambda: "noted")
    provider = ScriptedProvider([ToolCall("c1", "note", {}), away, away, away, away, away, away, away, away, away])
    settings = settings_for(store_url, retry_delay_s=0)
    async with open_runtime(settings, provider=provider, tools=[note]) as runtime:
        events = await collect(runtime.stream("s", "go"))
        assert last_error(events).error == "ProviderUnavailable"
        assert kinds(events).count("resumed") == 2
        assert await rows(store_of(runtime), "SELECT status, attempts FROM turns") == [("failed", 2)]


async def test_a_turn_whose_process_died_each_time_is_abandoned_and_the_queue_goes_on(store_url: str) -> None:
    await leave_open(store_url, ["one", "two"])
    async with Store(store_url) as store:
        await execute(store, "UPDATE turns SET attempts = 2 WHERE turn = 1")
    provider = ScriptedProvider(["two is answered"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        await until_idle(runtime)
        assert await rows(store_of(runtime), "SELECT status FROM turns ORDER BY turn") == [("failed",), ("done",)]
        events = await collect((await runtime.submit("s", "one", idempotency_key="one")).follow())
        assert last_error(events).error == "TurnAbandoned"
        assert "agent.max_attempts" in last_error(events).message


async def test_turns_of_a_process_that_is_gone_are_interrupted_if_the_settings_say_so(store_url: str) -> None:
    await leave_open(store_url, ["one", "two"])
    provider = ScriptedProvider([])
    async with open_runtime(settings_for(store_url, on_crash="stop"), provider=provider) as runtime:
        await until_idle(runtime)
        assert await rows(store_of(runtime), "SELECT status FROM turns") == [("interrupted",), ("interrupted",)]


async def test_a_cancel_that_was_requested_before_the_crash_holds(store_url: str) -> None:
    await leave_open(store_url, ["one"])
    async with Store(store_url) as store:
        await execute(store, "UPDATE turns SET cancel_requested = 1 WHERE turn = 1")
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as runtime:
        await until_idle(runtime)
        assert await rows(store_of(runtime), "SELECT status FROM turns") == [("cancelled",)]


async def leave_open(store_url: str, texts: list[str]) -> None:
    """Leave turns as a process does that was killed: the first runs its tool, the others are queued."""
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", "wait_here", {})])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        for text in texts:
            await runtime.submit("s", text, idempotency_key=text)
        await gate.wait()
        await forget_owners(store_of(runtime))  # its later writes are those of a process that was taken for dead
