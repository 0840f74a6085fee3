"""T1, T2 and provider failures: results of all kinds of tools reach the model, through ADK's Runner."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types
from pydantic import Field

from lango import open_runtime
from lango.errors import AgentFailed, ProviderProtocolError, ProviderTimeout, ProviderUnavailable, TurnCancelled
from lango.events import ToolEnd
from lango.messages import ToolCall
from lango.providers.protocol import TextDelta
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import (
    TIMEOUT_S,
    broken_for,
    check_order,
    collect,
    messages,
    results_in,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.support.runtimes import store_of


def raises() -> str:
    """Raise."""
    raise ValueError("no good")


async def hangs() -> str:
    """Hang."""
    await asyncio.Event().wait()
    return "never"


RELEASED = threading.Event()
"""Releases the handlers that block a thread, after their test."""


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    RELEASED.clear()
    yield
    RELEASED.set()


def blocks() -> str:
    """Block a thread."""
    RELEASED.wait(TIMEOUT_S)
    return "late"


def gives_bytes() -> Any:
    """Return bytes."""
    return {"data": b"\x00\xff"}


def gives_nan() -> Any:
    """Return NaN."""
    return float("nan")


def gives_nul() -> Any:
    """Return NUL and a lone surrogate."""
    return "a\0b\ud800c"


BAD = [
    (raises, "no good"),
    (hangs, "timed out"),
    (blocks, "timed out"),
    (gives_bytes, "bytes"),
    (gives_nan, "nan"),
]


# our own tools with each of them: tests/unit/tools/test_execution.py
@pytest.mark.parametrize(
    ("function", "message", "own"),
    [(raises, "no good", False), *((function, message, True) for function, message in BAD)],
    ids=["raises-lango", *(f"{function.__name__}-adk" for function, _ in BAD)],
)
async def test_t2_a_failing_tool_returns_an_error_and_the_turn_continues(
    sqlite_url: str, function: Any, message: str, own: bool
) -> None:
    name = function.__name__
    provider = ScriptedProvider([ToolCall("c1", name, {}), "I see", "fine"])
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(function)]) if own else None
    tools = [] if own else [Tool(name, "A tool.", None, function)]
    settings = settings_for(sqlite_url, tool_timeout_s=0.3 if message == "timed out" else TIMEOUT_S)
    async with open_runtime(settings, provider=provider, tools=tools, root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "try"))
        check_order(events)
        assert text_of(events) == "I see"
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert not end.ok
        assert await statuses(runtime) == ["done"]
        assert await rows(store_of(runtime), "SELECT status FROM tool_journal") == [("finished",)]
        assert await runtime.run("s", "and?") == "fine"
    assert message in results_in(provider.requests[1])["c1"]["error"]
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


@pytest.mark.parametrize("own", [False, True], ids=["lango", "adk"])
async def test_t2_nul_and_half_characters_read_back_the_same_from_both_databases(store_url: str, own: bool) -> None:
    provider = ScriptedProvider([ToolCall("c1", "gives_nul", {}), "I see", "fine"])
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(gives_nul)]) if own else None
    tools = [] if own else [Tool("gives_nul", "A tool.", None, gives_nul)]
    async with open_runtime(settings_for(store_url), provider=provider, tools=tools, root_agent=root) as runtime:
        await runtime.run("s", "try")
        await runtime.run("s", "and?")
    seen = [results_in(request)["c1"] for request in provider.requests[1:]]
    assert seen == [{"result": "a\ufffdb\ufffdc"}] * 2


async def test_t2_a_blocking_function_does_not_stop_the_process(sqlite_url: str) -> None:
    go = threading.Event()

    def block() -> str:
        """Block until released."""
        assert go.wait(TIMEOUT_S)
        return "went on"

    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(block)])
    provider = ScriptedProvider([ToolCall("c1", "block", {}), "other", "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        blocked = asyncio.create_task(runtime.run("s", "block"))
        while len(provider.requests) < 1 or not await rows(store_of(runtime), "SELECT 1 FROM tool_journal"):
            await asyncio.sleep(0.01)
        assert await runtime.run("other", "hi") == "other"
        go.set()
        assert await blocked == "done"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_t2_a_tool_that_does_not_stop_is_abandoned(sqlite_url: str, cancelled: bool) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        """Do not stop."""
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(stubborn)])
    provider = ScriptedProvider([ToolCall("c1", "stubborn", {}), "I see", "fine"])
    settings = settings_for(sqlite_url, tool_timeout_s=TIMEOUT_S if cancelled else 0.2)
    async with open_runtime(settings, provider=provider, root_agent=root) as runtime, asyncio.timeout(TIMEOUT_S):
        task = asyncio.create_task(runtime.run("s", "try"))
        await began.wait()
        if cancelled:
            assert await runtime.cancel("s")
            with pytest.raises(TurnCancelled):
                await task
        else:
            assert await task == "I see"
        assert "outcome is unknown" in str((await messages(runtime))[2].tool_calls)
        assert (await runtime.run("s", "and?")) in ("I see", "fine")
        go.set()


async def test_t1_an_own_agents_callbacks_see_their_tools_results(sqlite_url: str) -> None:
    seen: list[Any] = []

    def plain() -> str:
        """Return text."""
        return "as it is"

    def after(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        seen.append(tool_response)

    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(plain)], after_tool_callback=after)
    provider = ScriptedProvider([ToolCall("c1", "plain", {}), "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert await runtime.run("s", "go") == "done"
    assert seen == ["as it is"]
    assert results_in(provider.requests[1])["c1"] == {"result": "as it is"}


async def test_large_results_are_clipped_for_the_model_whole_in_the_store_and_readable(store_url: str) -> None:
    whole = "".join(f"line {n}\n" for n in range(20_000))
    provider = ScriptedProvider(
        [
            ToolCall("c1", "long_text", {}),
            ToolCall("c2", "read_result", {"call_id": "c1", "offset": 100_000, "limit": 40}),
            "found it",
            "fine",
        ]
    )
    tools = [Tool("long_text", "Give a long text.", None, lambda: whole)]
    async with open_runtime(settings_for(store_url), provider=provider, tools=tools) as runtime:
        assert await runtime.run("s", "read") == "found it"
        assert await rows(store_of(runtime), "SELECT whole FROM tool_journal WHERE call_id = 'c1'") == [(whole,)]
        stored = [call for one in await messages(runtime) for call in one.tool_calls if call.output]
        assert len(str(stored[0].output)) < 60_000
        assert await runtime.run("s", "and?") == "fine"
    shown = results_in(provider.requests[1])["c1"]["result"]
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 19999\n")
    assert "were left out" in shown
    assert 'read_result, call_id "c1"' in shown
    assert results_in(provider.requests[2])["c2"] == {
        "offset": 100_000,
        "characters": 40,
        "text": whole[100_000:100_040],
    }


async def test_a_clipped_result_belongs_to_its_session(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [ToolCall("c1", "long_text", {}), "read", ToolCall("c2", "read_result", {"call_id": "c1"}), "nothing there"]
    )
    tools = [Tool("long_text", "Give a long text.", None, lambda: "secret " * 20_000)]
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools) as runtime:
        await runtime.run("a", "read", user_id="alice")
        await runtime.run("b", "steal", user_id="bob")
    assert "error" in results_in(provider.requests[3])["c2"]


class Counting(BaseLlm):
    """A model that numbers its calls from 1 in every answer."""

    model: str = "counting"
    answers: list[list[types.Part]] = Field(default_factory=list[list[types.Part]])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=self.answers.pop(0)))


async def test_repeated_call_ids_are_made_unique_before_they_are_stored(sqlite_url: str) -> None:
    ran: list[int] = []

    def step(number: int) -> str:
        """Do a step."""
        ran.append(number)
        return f"step {number}"

    def call(number: int) -> types.Part:
        return types.Part(function_call=types.FunctionCall(id="call_1", name="step", args={"number": number}))

    model = Counting(answers=[[call(1)], [call(2), call(3)], [types.Part(text="all done")]])
    root = LlmAgent(name="mine", model=model, tools=[FunctionTool(step)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert await runtime.run("s", "go") == "all done"
        history = await messages(runtime)
    assert ran == [1, 2, 3]
    made = [call.id for one in history if one.role == "assistant" for call in one.tool_calls]
    answered = [call.id for one in history if one.role == "tool" for call in one.tool_calls]
    assert len(set(made)) == 3
    assert answered == made


FAILURES = [
    (ProviderUnavailable("busy"), ProviderUnavailable),
    (ProviderTimeout("too slow"), ProviderTimeout),
    (RuntimeError("anything"), AgentFailed),
    ([TextDelta("half an ans")], ProviderProtocolError),  # a stream without its end
]


@pytest.mark.parametrize(("answer", "error"), FAILURES, ids=lambda one: type(one).__name__)
async def test_a_provider_that_fails_in_a_turn_leaves_the_message_and_no_half_answer(
    sqlite_url: str, answer: Any, error: type[Exception]
) -> None:
    provider = ScriptedProvider([answer, "fine"])
    async with open_runtime(settings_for(sqlite_url, max_attempts=1), provider=provider) as runtime:
        with pytest.raises(error):
            await runtime.run("s", "hi")
        kept = [(one.role, one.content) for one in await messages(runtime) if one.role != "event"]
        assert kept == [("user", "hi")], "the error is an event, and no message"
        assert await statuses(runtime) == ["failed"]
        assert await runtime.run("s", "again") == "fine"
    assert broken_for(provider.requests[-1]) == []
    assert "hi" in provider.requests[-1].messages[0].content


async def test_a_provider_that_fails_after_a_tool_keeps_its_result(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "look", {}), ProviderUnavailable("busy"), "fine"])
    tools = [Tool("look", "Look.", None, lambda: "seen")]
    async with open_runtime(settings_for(sqlite_url, max_attempts=1), provider=provider, tools=tools) as runtime:
        with pytest.raises(ProviderUnavailable):
            await runtime.run("s", "hi")
        assert await runtime.run("s", "again") == "fine"
    assert results_in(provider.requests[-1]) == {"c1": {"result": "seen"}}
    assert broken_for(provider.requests[-1]) == []
