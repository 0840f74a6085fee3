"""A5: a transfer to an agent that does not exist is corrected once; the same for a tool that does not exist."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import BaseAgent, InvocationContext, LlmAgent
from google.adk.events import Event
from google.genai import types

from lango import open_runtime
from lango.errors import AgentFailed, AgentNotFound, EmptyAnswer, ProviderRejected, TurnTimeout
from lango.messages import ToolCall
from lango.providers import Request
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.parts import (
    Leaps,
    broken_for,
    check_order,
    collect,
    kinds,
    last_error,
    messages,
    results_in,
    settings_for,
    statuses,
    text_of,
)

CORRECTION = (
    '[System: Agent "{}" does not exist. Valid agents: clerk, poet. '
    "Please retry using one of the valid agent names listed above.]"
)
SUBS: dict[str, Any] = {"clerk": {"description": "Counts."}, "poet": {"description": "Writes."}}


def transfer(name: str, call_id: str = "t") -> ToolCall:
    return ToolCall(call_id, "transfer_to_agent", {"agent_name": name})


@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a5_a_bad_transfer_is_corrected_and_the_answer_comes_without_an_error(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer", "t1"), transfer("poet", "t2"), "a poem", "more"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "a poem, please"))
        check_order(events)
        assert kinds(events) == ["accepted", "text_delta", "text_end", "done"]
        assert text_of(events) == "a poem"
        assert await statuses(runtime) == ["done"]
        history = await messages(runtime)
        assert await runtime.run("s", "more") == "more"
    assert provider.requests[1].messages[-1].role == "user"
    assert provider.requests[1].messages[-1].content == CORRECTION.format("writer")
    assert [broken_for(request) for request in provider.requests] == [[]] * 4
    outputs = {call.id: call.output for message in history if message.role == "tool" for call in message.tool_calls}
    assert "error" in (outputs["t1"] or {}), "the failed transfer is not in history as a success"
    assert "error" not in (outputs["t2"] or {})
    assert history[-1].author == "poet"


async def test_a5_run_returns_the_answer_after_a_correction(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer"), "I do it myself"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        assert await runtime.run("s", "a poem, please", idempotency_key="k") == "I do it myself"
        assert await runtime.run("s", "a poem, please", idempotency_key="k") == "I do it myself", "replayed"


async def test_a5_a_second_failure_is_raised_with_the_first_as_its_cause(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer", "t1"), transfer("author", "t2"), "fine"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        with pytest.raises(AgentNotFound, match="author") as raised:
            await runtime.run("s", "a poem, please")
        assert isinstance(raised.value.__cause__, AgentNotFound)
        assert "writer" in str(raised.value.__cause__)
        assert await statuses(runtime) == ["failed"]
        assert await runtime.run("s", "then hello") == "fine", "the next turn works"
    assert len(provider.requests) == 3
    assert broken_for(provider.requests[-1]) == []


OTHER_FAILURES = [
    (ProviderRejected("too long"), ProviderRejected),
    (RuntimeError("something else"), AgentFailed),
    ("", EmptyAnswer),
    (None, TurnTimeout),
]


@pytest.mark.parametrize(("answer", "error"), OTHER_FAILURES, ids=lambda one: getattr(one, "__name__", ""))
async def test_a5_a_failure_after_a_correction_has_the_bad_transfer_as_its_cause(
    sqlite_url: str, answer: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaps = Leaps(monkeypatch)

    async def never(request: Request) -> str:
        leaps.leap(10_000.0)
        await asyncio.Event().wait()
        return ""

    provider = ScriptedProvider([transfer("writer", "t1"), never if error is TurnTimeout else answer, "fine"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        with pytest.raises(error) as raised:
            await runtime.run("s", "a poem, please")
        assert isinstance(raised.value.__cause__, AgentNotFound)
        assert "writer" in str(raised.value.__cause__)
        assert await runtime.run("s", "then hello") == "fine"


async def test_a5_a_failure_of_the_next_turn_does_not_have_it_as_its_cause(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer", "t1"), "I do it myself", ProviderRejected("too long")])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        assert await runtime.run("s", "a poem, please") == "I do it myself"
        with pytest.raises(ProviderRejected) as raised:
            await runtime.run("s", "and another")
        assert raised.value.__cause__ is None


async def test_a5_without_sub_agents_a_bad_transfer_is_raised_at_once(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer"), "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        with pytest.raises(AgentNotFound, match="writer") as raised:
            await runtime.run("s", "a poem, please")
        assert raised.value.__cause__ is None
        assert len(provider.requests) == 1
        assert await runtime.run("s", "hello") == "fine"
    assert broken_for(provider.requests[-1]) == []


async def test_a5_other_errors_are_raised_at_once(sqlite_url: str) -> None:
    provider = ScriptedProvider([ProviderRejected("too long"), RuntimeError("something else"), "fine"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        with pytest.raises(ProviderRejected, match="too long"):
            await runtime.run("s", "hi")
        with pytest.raises(AgentFailed, match="something else"):
            await runtime.run("s", "hi")
        assert len(provider.requests) == 2
        assert await runtime.run("s", "hi") == "fine"


class Sloppy(BaseAgent):
    """An agent that raises ADK's own error, without our check of the transfer tool."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        user_events = [event for event in ctx.session.events if event.author == "user"]
        if len(user_events) == 1:
            raise ValueError("Agent writer not found in the agent tree.")
        assert user_events[-1].content
        text = (user_events[-1].content.parts or [])[0].text
        yield Event(
            author=self.name,
            invocation_id=ctx.invocation_id,
            content=types.Content(role="model", parts=[types.Part(text=f"told: {text}")]),
        )


async def test_a5_a_transfer_error_that_adk_raises_is_corrected_too(sqlite_url: str) -> None:
    root = Sloppy(name="root", sub_agents=[LlmAgent(name="clerk"), LlmAgent(name="poet")])
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([]), root_agent=root) as runtime:
        assert await runtime.run("s", "hi") == "told: " + CORRECTION.format("writer")


async def test_a5_a_sub_agent_that_transfers_to_a_missing_agent_gets_the_valid_names(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("clerk", "t1"), transfer("nobody", "t2"), "I stay"])
    async with open_runtime(settings_for(sqlite_url, name="boss", sub_agents=SUBS), provider=provider) as runtime:
        assert await runtime.run("s", "hi") == "I stay"
    assert 'Agent "nobody" does not exist. Valid agents: boss, poet.' in provider.requests[2].messages[-1].content


async def test_a5_a_bad_transfer_beside_a_good_call_loses_neither(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ToolCall("c1", "add", {"a": 1, "b": 2}), transfer("writer", "t1")], "three"])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider, tools=[add]) as runtime:
        assert await runtime.run("s", "1 + 2?") == "three"
    assert results_in(provider.requests[1])["c1"] == {"result": 3}
    assert broken_for(provider.requests[1]) == []


async def test_a5_a_call_of_an_unknown_tool_returns_the_valid_names_and_the_turn_continues(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [ToolCall("c1", "plus", {"a": 1, "b": 2}), ToolCall("c2", "add", {"a": 1, "b": 2}), "3"]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[add]) as runtime:
        events = await collect(runtime.stream("s", "1 + 2?"))
        check_order(events)
        assert text_of(events) == "3"
        assert await statuses(runtime) == ["done"]
    error = results_in(provider.requests[1])["c1"]["error"]
    assert "plus" in error
    assert "read_result, add" in error
    assert kinds(events) == [
        "accepted",
        *["tool_start", "tool_end"],
        "turn_error",
        *["tool_start", "tool_end"],
        "text_delta",
        "text_end",
        "done",
    ]
    assert [broken_for(request) for request in provider.requests] == [[]] * 3


async def test_a5_the_error_of_a_stream_names_its_type(sqlite_url: str) -> None:
    provider = ScriptedProvider([transfer("writer", "t1"), transfer("author", "t2")])
    async with open_runtime(settings_for(sqlite_url, sub_agents=SUBS), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "a poem, please"))
        check_order(events)
        assert last_error(events).error == "AgentNotFound"
