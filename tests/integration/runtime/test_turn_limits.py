"""Limits on model calls, repeated calls, silence and empty answers end a turn; the next turn works."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext

from lango import open_runtime
from lango.adk import ProviderLlm
from lango.adk.run.tool_limits import FINAL_STEP_INSTRUCTION
from lango.errors import EmptyAnswer, TurnLimit, TurnTimeout
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool, tool
from tests.agents.parts import (
    Gate,
    Leaps,
    broken_for,
    check_order,
    collect,
    last_error,
    messages,
    results_in,
    settings_for,
    statuses,
    text_of,
)


@tool(effect="none")
def look(page: int = 0) -> str:
    """Look at a page."""
    return f"page {page}"


def pages(count: int, start: int = 0) -> list[ToolCall]:
    return [ToolCall(f"c{n}", "look", {"page": n}) for n in range(start, start + count)]


async def works_again(runtime: Runtime, provider: ScriptedProvider, answer: str = "fine") -> None:
    assert await runtime.run("s", "and now?") == answer
    assert broken_for(provider.requests[-1]) == []


async def test_the_last_model_call_has_no_tools_and_must_answer(sqlite_url: str) -> None:
    provider = ScriptedProvider([*pages(4), "I saw four pages", "fine"])
    async with open_runtime(settings_for(sqlite_url, max_turns=5), provider=provider, tools=[look]) as runtime:
        assert await runtime.run("s", "look at everything") == "I saw four pages"
        assert await statuses(runtime) == ["done"]
        assert [bool(request.tools) for request in provider.requests] == [True] * 4 + [False]
        assert FINAL_STEP_INSTRUCTION in provider.requests[4].system
        assert all(FINAL_STEP_INSTRUCTION not in request.system for request in provider.requests[:4])
        await works_again(runtime, provider)
        assert provider.requests[-1].tools, "the next turn has its tools again"


async def test_a_warning_is_logged_at_four_fifths_of_the_limit(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider([*pages(9), "wrapped up"])
    with caplog.at_level(logging.WARNING, "lango.runtime"):
        async with open_runtime(settings_for(sqlite_url, max_turns=10), provider=provider, tools=[look]) as runtime:
            await runtime.run("s", "look at everything")
    assert [record.getMessage() for record in caplog.records if record.name == "lango.runtime"] == [
        "turn 1: 8 of 10 model calls are used"
    ]


async def test_a_model_that_still_calls_tools_at_the_last_step_reaches_the_limit(sqlite_url: str) -> None:
    provider = ScriptedProvider([*pages(5), "fine"])
    async with open_runtime(settings_for(sqlite_url, max_turns=5), provider=provider, tools=[look]) as runtime:
        with pytest.raises(TurnLimit, match=r"more than 5 .*agent\.max_turns"):
            await runtime.run("s", "look at everything")
        assert await statuses(runtime) == ["failed"]
        results = [message for message in await messages(runtime) if message.role == "tool"]
        assert len(results) == 5, "what was found so far stays"
        await works_again(runtime, provider)


async def test_a_call_that_runs_may_be_repeated(sqlite_url: str) -> None:
    runs = 0

    def roll(sides: int) -> int:
        nonlocal runs
        runs += 1
        return runs

    tools = [Tool("roll", "Roll a die.", {"properties": {"sides": {"type": "integer"}}}, roll)]
    provider = ScriptedProvider([*(ToolCall(f"c{n}", "roll", {"sides": 6}) for n in range(8)), "all rolled"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools) as runtime:
        assert await runtime.run("s", "roll eight times") == "all rolled"
        assert runs == 8


async def test_repeated_calls_of_an_unknown_tool_end_the_turn(sqlite_url: str) -> None:
    provider = ScriptedProvider([*(ToolCall(f"c{n}", "no_such_tool", {}) for n in range(5)), "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[look]) as runtime:
        with pytest.raises(TurnLimit, match="no_such_tool"):
            await runtime.run("s", "look")
        await works_again(runtime, provider)


async def test_a_silent_model_times_the_turn_out(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Leaps(monkeypatch)

    async def hang(_: Request) -> str:
        await clock.pass_by(60)
        await asyncio.Event().wait()
        return "never"

    provider = ScriptedProvider([hang, "fine"])
    async with open_runtime(settings_for(sqlite_url, idle_timeout_s=60), provider=provider) as runtime:
        with pytest.raises(TurnTimeout, match="idle_timeout_s"):
            await runtime.run("s", "hi")
        assert await statuses(runtime) == ["failed"]
        assert [message.role for message in await messages(runtime)] == ["user"]
        await works_again(runtime, provider)


async def test_each_piece_of_text_restarts_the_idle_timeout(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Leaps(monkeypatch)

    class Slow(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            async for delta in super().stream(request):
                await clock.pass_by(40)
                yield delta

    provider = Slow([["one ", "two ", "three ", "four"]])
    async with open_runtime(settings_for(sqlite_url, idle_timeout_s=60), provider=provider) as runtime:
        assert await runtime.run("s", "count") == "one two three four", "in all longer than one silence may be"


@pytest.mark.parametrize("own_callback", [False, True], ids=["past ADK", "through ADK"])
async def test_reading_a_long_prompt_or_writing_a_long_call_is_progress(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, own_callback: bool
) -> None:
    clock = Leaps(monkeypatch)

    class Reading(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            for _ in range(3):
                await clock.pass_by(40)
                yield UsageDelta(input_tokens=1_000)
            async for delta in super().stream(request):
                await clock.pass_by(40)
                yield delta

    async def unchanged(callback_context: Any, llm_response: Any) -> None:
        return None

    provider = Reading(["at last"])
    model = ProviderLlm(provider=provider, model="m")
    agent = LlmAgent(name="lango", model=model, after_model_callback=unchanged if own_callback else None)
    settings = settings_for(sqlite_url, idle_timeout_s=60)
    async with open_runtime(settings, provider=provider, root_agent=agent) as runtime:
        assert await runtime.run("s", "hi") == "at last"


async def test_a_turn_that_exceeds_the_request_timeout_ends(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Leaps(monkeypatch)

    async def late(_: Request) -> str:
        await clock.pass_by(60)
        await asyncio.Event().wait()
        return "never"

    provider = ScriptedProvider([*pages(3), late])
    settings = settings_for(sqlite_url, request_timeout_s=60)
    async with open_runtime(settings, provider=provider, tools=[look]) as runtime:
        with pytest.raises(TurnTimeout, match="request_timeout_s"):
            await runtime.run("s", "go")
        assert await statuses(runtime) == ["failed"]
        open_calls = [message for message in await messages(runtime) if message.role == "assistant"]
        results = [message for message in await messages(runtime) if message.role == "tool"]
        assert len(open_calls) == len(results) == 3, "what was done so far stays, and every call has its result"


async def test_a_tool_may_take_longer_than_the_idle_timeout(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Leaps(monkeypatch)

    async def slow() -> str:
        await clock.pass_by(100)
        return "slow but sure"

    provider = ScriptedProvider([ToolCall("c1", "slow", {}), "done"])
    settings = settings_for(sqlite_url, idle_timeout_s=60, tool_timeout_s=300)
    async with open_runtime(settings, provider=provider, tools=[Tool("slow", "Slow.", None, slow)]) as runtime:
        assert await runtime.run("s", "go") == "done"


async def test_the_time_limit_of_a_tool_overrides_those_of_the_settings(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Leaps(monkeypatch)

    async def slow() -> str:
        await clock.pass_by(100)
        return "slow but sure"

    provider = ScriptedProvider([ToolCall("c1", "slow", {}), "done"])
    settings = settings_for(sqlite_url, idle_timeout_s=60, tool_timeout_s=30)
    tools = [Tool("slow", "Slow.", None, slow, timeout_s=300)]
    async with open_runtime(settings, provider=provider, tools=tools) as runtime:
        assert await runtime.run("s", "go") == "done"
    assert results_in(provider.requests[1])["c1"] == {"result": "slow but sure"}


@pytest.mark.parametrize("empty", ["", "  \n"])
async def test_an_empty_answer_after_a_tool_is_an_error(sqlite_url: str, empty: str) -> None:
    provider = ScriptedProvider([["Looking. ", *pages(1)], [TextDelta(empty), Finish("stop")], "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[look]) as runtime:
        with pytest.raises(EmptyAnswer, match=r"(?i)stop"):
            await runtime.run("s", "look")
        assert await statuses(runtime) == ["failed"]
        await works_again(runtime, provider)


async def test_an_empty_answer_without_a_tool_is_an_error(sqlite_url: str) -> None:
    provider = ScriptedProvider([[Finish("stop")], "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        with pytest.raises(EmptyAnswer):
            await runtime.run("s", "hi")
        await works_again(runtime, provider)


@pytest.mark.parametrize("deltas", [[], [TextDelta("I would ra")]])
async def test_a_safety_block_is_an_error_with_its_reason(sqlite_url: str, deltas: list[Any]) -> None:
    provider = ScriptedProvider([[*deltas, Finish("safety", detail="PROHIBITED_CONTENT")], "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        check_order(events)
        if deltas:
            assert text_of(events) == "I would ra"
            assert getattr(events[-1], "finish_reason", "") == "safety"
        else:
            assert last_error(events).error == "EmptyAnswer"
            assert "PROHIBITED_CONTENT" in last_error(events).message
        await works_again(runtime, provider)


async def test_an_answer_that_was_cut_has_its_finish_reason(sqlite_url: str) -> None:
    provider = ScriptedProvider([[TextDelta("and then"), Finish("length")]])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        done = (await collect(runtime.stream("s", "a story")))[-1]
        assert getattr(done, "finish_reason", "") == "max_tokens"


async def test_a_tool_that_ends_the_run_itself_is_no_empty_answer(sqlite_url: str) -> None:
    def show_chart(tool_context: ToolContext) -> dict[str, str]:
        """Show a chart, which needs no answer."""
        tool_context.actions.skip_summarization = True
        return {"chart": "shown"}

    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(show_chart)])
    provider = ScriptedProvider([ToolCall("c1", "show_chart", {})])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "a chart"))
        check_order(events)
        assert events[-1].type == "done"


async def test_one_turn_that_hangs_does_not_stop_the_others(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "other", "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        hanging = asyncio.create_task(runtime.run("s", "hang"))
        await gate.wait()
        assert await runtime.run("other", "hi") == "other"
        gate.may_end.set()
        assert await hanging == "done"
