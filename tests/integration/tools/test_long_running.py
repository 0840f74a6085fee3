"""Long-running tools: results and updates come later, to any process, and the conversation may go on meanwhile."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import LongRunningFunctionTool

from lango import Settings, open_runtime
from lango.errors import WaitNotOpen
from lango.events import ToolStart, TurnEvent
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from tests.agents.answers import awaited_results, submit_results, waiting_for
from tests.agents.parts import (
    broken_for,
    check_order,
    collect,
    kinds,
    messages,
    results_in,
    rows,
    settings_for,
    text_of,
)
from tests.support.runtimes import store_of

ORDER = ToolCall("c1", "order", {"item": "boat"})


def order(item: str) -> None:
    """Order something; the result comes later."""


def ticket(item: str) -> dict[str, str]:
    """Open a ticket."""
    return {"status": "pending", "ticket": item}


def agent(*functions: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="clerk", tools=[LongRunningFunctionTool(function) for function in functions], **fields)


async def send(runtime: Runtime, text: str = "go") -> list[TurnEvent]:
    events = await collect((await runtime.submit("s", text)).follow())
    check_order(events)
    return events


async def give(runtime: Runtime, will_continue: bool = False, **results: dict[str, Any]) -> list[TurnEvent]:
    events = await collect((await submit_results(runtime, "s", results, will_continue=will_continue)).follow())
    check_order(events)
    return events


def status(events: list[TurnEvent]) -> str:
    return waiting_for(events)


async def test_the_result_of_a_tool_that_returned_nothing_continues_in_another_process(store_url: str) -> None:
    async with open_runtime(
        settings_for(store_url), provider=ScriptedProvider([ORDER]), root_agent=agent(order)
    ) as runtime:
        events = await send(runtime)
        assert kinds(events) == ["accepted", "tool_start", "wait_opened", "done"]
        assert status(events) == "long_running_result"
    provider = ScriptedProvider(["It has come."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(order)) as runtime:
        events = await give(runtime, c1={"delivered": True})
        assert (text_of(events), status(events)) == ("It has come.", "done")
        assert results_in(provider.requests[-1]) == {"c1": {"delivered": True}}
        assert broken_for(provider.requests[-1]) == []
        with pytest.raises(WaitNotOpen):
            await give(runtime, c1={"delivered": True})
        assert await rows(store_of(runtime), "SELECT id FROM waits WHERE closed IS NULL") == []
        assert await rows(store_of(runtime), "SELECT * FROM open_calls") == []


async def test_updates_and_the_final_result_follow_a_first_report(store_url: str) -> None:
    call = ToolCall("c1", "ticket", {"item": "boat"})
    provider = ScriptedProvider([call, "I opened a ticket.", "Half done.", "It is done."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(ticket)) as runtime:
        events = await send(runtime)
        assert (text_of(events), status(events)) == ("I opened a ticket.", "done")
        events = await give(runtime, will_continue=True, c1={"status": "half"})
        assert text_of(events) == "Half done."
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(ticket)) as runtime:
        events = await give(runtime, c1={"status": "ready"})
        assert text_of(events) == "It is done."
        with pytest.raises(WaitNotOpen):
            await give(runtime, c1={"status": "again"})
        shown = [results_in(request) for request in provider.requests]
        assert shown[1:] == [
            {"c1": {"status": "pending", "ticket": "boat"}},
            {"c1": {"status": "half"}},
            {"c1": {"status": "ready"}},
        ]
        assert [broken_for(request) for request in provider.requests] == [[]] * 4


async def test_the_conversation_goes_on_while_a_result_is_awaited(store_url: str) -> None:
    provider = ScriptedProvider([ORDER, "Hello.", "It has come."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(order)) as runtime:
        await send(runtime)
        assert text_of(await send(runtime, "hello meanwhile")) == "Hello."
        assert broken_for(provider.requests[-1]) == []
        assert text_of(await give(runtime, c1={"delivered": True})) == "It has come."
        assert broken_for(provider.requests[-1]) == []
        assert {"delivered": True} in results_in(provider.requests[-1]).values()


async def test_the_model_continues_when_all_its_calls_have_results(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ORDER, ToolCall("c2", "order", {"item": "oar"})], "Both have come."])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent(order)) as runtime:
        events = await send(runtime)
        assert len([event for event in events if isinstance(event, ToolStart)]) == 2
        assert status(await give(runtime, c2={"n": 2})) == "long_running_result"
        assert len(provider.requests) == 1
        assert text_of(await give(runtime, c1={"n": 1})) == "Both have come."
        assert results_in(provider.requests[-1]) == {"c1": {"n": 1}, "c2": {"n": 2}}
        assert broken_for(provider.requests[-1]) == []


async def test_a_sub_agents_tool_gets_its_result(sqlite_url: str) -> None:
    to_clerk = ToolCall("t1", "transfer_to_agent", {"agent_name": "clerk"})
    provider = ScriptedProvider([to_clerk, ORDER, "It has come."])
    root = LlmAgent(name="root", sub_agents=[agent(order)])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert status(await send(runtime)) == "long_running_result"
        await give(runtime, c1={"delivered": True})
        assert [message.author for message in await messages(runtime)][-1] == "clerk"


async def test_a_result_of_a_call_outside_of_the_window_brings_its_call_along(sqlite_url: str) -> None:
    call = ToolCall("c1", "ticket", {"item": "boat"})
    provider = ScriptedProvider([call, "I opened a ticket.", *["Yes."] * 3, "It is done."])
    settings = Settings.model_validate({"store": {"url": sqlite_url}, "history": {"max_message_token_budget": 3_000}})
    async with open_runtime(settings, provider=provider, root_agent=agent(ticket)) as runtime:
        await send(runtime)
        for _ in range(3):
            await send(runtime, "words " * 1_200)
        assert text_of(await give(runtime, c1={"status": "ready"})) == "It is done."
        assert {"status": "ready"} in results_in(provider.requests[-1]).values()
        assert broken_for(provider.requests[-1]) == []


async def test_a_tool_that_failed_or_was_rewound_awaits_no_result(sqlite_url: str) -> None:
    def fail(item: str) -> None:
        """Fail."""
        raise RuntimeError("no boats")

    wrong, right = ToolCall("c1", "fail", {"item": "boat"}), ToolCall("c2", "order", {"item": "boat"})
    provider = ScriptedProvider([wrong, "Sorry.", right])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent(fail, order)) as runtime:
        assert status(await send(runtime)) == "done"
        with pytest.raises(WaitNotOpen):
            await give(runtime, c1={})
        await send(runtime)
        await runtime.sessions.rewind("s", before=5)
        with pytest.raises(WaitNotOpen):
            await give(runtime, c2={})


async def test_the_same_request_again_is_the_same_turn(store_url: str) -> None:
    provider = ScriptedProvider([ORDER, "It has come."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(order)) as runtime:
        await send(runtime)
        for _ in range(2):
            turn = await submit_results(runtime, "s", {"c1": {"delivered": True}}, idempotency_key="k")
            assert text_of(await collect(turn.follow())) == "It has come."
        assert len(provider.requests) == 2


@pytest.mark.parametrize("name", ["order", "ticket"])
async def test_a_fork_accepts_the_results_that_its_source_awaits(store_url: str, name: str) -> None:
    call = ToolCall("c1", name, {"item": "boat"})
    provider = ScriptedProvider([call, *["It has come."] * 3])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(order, ticket)) as runtime:
        await send(runtime)
        await runtime.sessions.fork("s", new_id="f")
        await runtime.sessions.fork("f", new_id="g")
        for session in ("g", "s"):
            assert [awaited.call_id for awaited in await awaited_results(runtime, session)] == ["c1"]
            turn = await submit_results(runtime, session, {"c1": {"delivered": session}})
            assert status(await collect(turn.follow())) == "done"
            assert {"delivered": session} in results_in(provider.requests[-1]).values()
            assert await awaited_results(runtime, session) == []
        assert len(await awaited_results(runtime, "f")) == 1, "each session on its own"
