"""A4 and A6: which events a turn emits, in which order, and what is stored by then."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import Field

from lango import open_runtime
from lango.errors import ProviderRejected, ProviderUnavailable
from lango.events import Accepted, TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnDone, TurnError
from lango.events import TextDelta as Text
from lango.messages import ToolCall
from lango.providers.protocol import Finish, UsageDelta
from lango.providers.protocol import TextDelta as TextPiece
from lango.providers.protocol import ThoughtDelta as ThoughtPiece
from lango.store.turns.event_log import read_turn_errors
from lango.testing import ScriptedProvider
from lango.tools import Tool, ToolContext, tool
from tests.agents.parts import (
    TIMEOUT_S,
    check_order,
    collect,
    kinds,
    last_error,
    messages,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.support.runtimes import store_of

if TYPE_CHECKING:
    from lango.events import TurnEvent
    from lango.runtime.runtime import Runtime


@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("it broke")


class Whole(BaseLlm):
    """A model that does not stream."""

    model: str = "whole"
    answers: list[str] = Field(default_factory=list[str])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=self.answers.pop(0))]))


class Pieces(BaseLlm):
    """A model whose last response repeats its pieces, or is empty."""

    model: str = "pieces"
    repeat: bool = True

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        for piece in ("one ", "two"):
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        parts = [types.Part(text="one two")] if self.repeat else []
        yield LlmResponse(content=types.Content(role="model", parts=parts), finish_reason=types.FinishReason.STOP)


async def test_a4_text_of_a_model_that_streams_comes_once(sqlite_url: str) -> None:
    provider = ScriptedProvider([["Hello ", "world"], "again"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert text_of(events) == "Hello world"
        assert sum(isinstance(event, TextDelta) for event in events) > 1
        assert await runtime.run("s", "hi") == "again"
        assert [message.content for message in await messages(runtime)] == ["hi", "Hello world", "hi", "again"]


async def test_a4_text_of_a_model_that_does_not_stream_comes_once(sqlite_url: str) -> None:
    root = LlmAgent(name="mine", model=Whole(answers=["Hello world", "again"]))
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hello world"]
        assert await runtime.run("s", "hi") == "again"


@pytest.mark.parametrize("repeat", [True, False])
async def test_a4_text_is_emitted_from_pieces_or_the_final_event_but_not_both(sqlite_url: str, repeat: bool) -> None:
    root = LlmAgent(name="mine", model=Pieces(repeat=repeat))
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert await runtime.run("s", "hi") == "one two"
        assert text_of(await collect(runtime.stream("s", "hi"))) == "one two"


async def test_a4_text_of_several_steps_is_all_there_once(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [
            ["Let me add. ", ToolCall("c1", "add", {"a": 1, "b": 2})],
            [ToolCall("c2", "add", {"a": 3, "b": 4})],
            "3 and 7.",
        ]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[add]) as runtime:
        assert await runtime.run("s", "1 + 2, 3 + 4?") == "Let me add. 3 and 7."


async def test_a6_the_message_is_stored_when_it_is_accepted_and_before_the_model_is_called(sqlite_url: str) -> None:
    seen: list[list[str]] = []

    async def look(_: object) -> str:
        seen.append([message.content for message in await messages(holder[0])])
        return "done"

    holder: list[Runtime] = []
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([look])) as runtime:
        holder.append(runtime)
        stream = runtime.stream("s", "keep this")
        first = await anext(stream)
        assert isinstance(first, Accepted)
        assert [message.content for message in await messages(runtime)][:1] == ["keep this"]
        rest = await collect(stream)
        check_order([first, *rest])
    assert seen == [["keep this"]]


async def test_a6_a_tool_runs_between_its_start_event_and_its_end_event(sqlite_url: str) -> None:
    order: list[str] = []
    holder: list[Runtime] = []

    async def look(context: ToolContext) -> str:
        order.append("ran")
        status = await rows(store_of(holder[0]), "SELECT status FROM tool_journal")
        assert status == [("started",)]
        assert [message.tool_calls[0].id for message in await messages(holder[0]) if message.tool_calls] == ["c1"]
        assert context.call_id == "c1"
        return "seen"

    tools = [Tool("look", "Look.", None, look)]
    provider = ScriptedProvider([["Looking. ", ToolCall("c1", "look", {})], "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools) as runtime:
        holder.append(runtime)
        events: list[TurnEvent] = []
        async for event in runtime.stream("s", "look"):
            events.append(event)
            if isinstance(event, ToolStart):
                assert event.name == "look"
                order.append("start")
            if isinstance(event, ToolEnd):
                order.append("end")
                assert event.ok
                assert event.result == {"result": "seen"}
                assert (await messages(runtime))[-1].role in ("tool", "assistant")
                assert [message for message in await messages(runtime) if message.role == "tool"]
                assert await rows(store_of(runtime), "SELECT status FROM tool_journal") == [("finished",)]
        check_order(events)
        assert kinds(events) == [
            "accepted",
            "text_delta",
            "text_end",
            "tool_start",
            "tool_end",
            "text_delta",
            "text_end",
            "done",
        ]
    assert [message for message in order if message != "start"] == ["ran", "end"]
    assert "start" in order


async def test_a6_the_start_of_a_tool_is_emitted_while_it_runs(sqlite_url: str) -> None:
    """The reader lets the tool continue at its start: if that event came later, both would wait forever."""
    go = asyncio.Event()

    async def wait() -> str:
        await go.wait()
        return "went on"

    provider = ScriptedProvider([ToolCall("c1", "wait", {}), "done"])
    async with open_runtime(
        settings_for(sqlite_url), provider=provider, tools=[Tool("wait", "Wait.", None, wait)]
    ) as runtime:
        async with asyncio.timeout(TIMEOUT_S):
            async for event in runtime.stream("s", "go"):
                if isinstance(event, ToolStart):
                    go.set()


async def test_a6_ids_grow_across_turns_and_processes(store_url: str) -> None:
    ids: list[int] = []
    for number in range(2):  # each in a new runtime
        provider = ScriptedProvider([ToolCall(f"c{number}", "add", {"a": 1, "b": 1}), "2", "bye"])
        async with open_runtime(settings_for(store_url), provider=provider, tools=[add]) as runtime:
            for text in ("1 + 1?", "bye"):
                ids += [event.id for event in await collect(runtime.stream("s", text))]
    assert ids == sorted(set(ids))


async def test_a6_a_failed_tool_emits_an_error_and_the_turn_continues(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "fail", {}), "It broke, sorry."])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[fail]) as runtime:
        events = await collect(runtime.stream("s", "try"))
        check_order(events)
    assert kinds(events) == ["accepted", "tool_start", "tool_end", "turn_error", "text_delta", "text_end", "done"]
    end, error = events[2], events[3]
    assert isinstance(end, ToolEnd)
    assert isinstance(error, TurnError)
    assert (end.ok, error.fatal, error.call_id) == (False, False, "c1")
    assert "it broke" in error.message
    assert "it broke" in str(provider.requests[1].messages[-1].tool_calls[0].output)


async def test_a6_a_failure_of_the_run_is_the_last_event(sqlite_url: str) -> None:
    provider = ScriptedProvider([ProviderUnavailable("down for now", retry_after_s=3)])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        check_order(events)
        error = last_error(events)
        assert (error.error, error.message) == ("ProviderUnavailable", "down for now")


async def test_a6_the_last_event_has_usage_and_cost(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [
            [ToolCall("c1", "add", {"a": 1, "b": 1}), UsageDelta(1_000, 20), Finish("tool_calls", model="gpt-4o")],
            [TextPiece("two"), UsageDelta(2_000, 30), Finish("stop", model="gpt-4o")],
        ]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[add]) as runtime:
        done = (await collect(runtime.stream("s", "1 + 1?")))[-1]
        assert isinstance(done, TurnDone)
        assert (done.turn, done.status, done.finish_reason) == (1, "done", "stop")
        usage = done.usage
        assert (usage.input_tokens, usage.output_tokens, usage.model_calls) == (3_000, 50, 2)
        assert usage.cost_usd == pytest.approx(3_000 * 2.5e-6 + 50 * 10e-6)  # pyright: ignore[reportUnknownMemberType]
        assert await statuses(runtime) == ["done"]


async def test_an_unknown_price_is_no_price(sqlite_url: str) -> None:
    provider = ScriptedProvider([[TextPiece("hi"), UsageDelta(10, 2), Finish("stop")]])
    async with open_runtime(settings_for(sqlite_url, model="openai/nobody-knows-me"), provider=provider) as runtime:
        done = (await collect(runtime.stream("s", "hi")))[-1]
        assert isinstance(done, TurnDone)
        assert done.usage.cost_usd is None


async def test_thoughts_are_emitted_separately_from_text(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ThoughtPiece("hm, "), ThoughtPiece("well"), TextPiece("yes"), Finish("stop")]])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "sure?"))
    assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["hm, ", "well"]
    assert [event.text for event in events if isinstance(event, Text)] == ["yes"]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own use of it
async def test_calls_inside_an_agent_tool_emit_no_events(sqlite_url: str) -> None:
    """A reader would see starts without ends."""

    def inner() -> str:
        """Do something inside."""
        return "inside"

    helper = LlmAgent(name="helper", model="openai/x", tools=[FunctionTool(inner)])
    root = LlmAgent(name="mine", model="openai/x", tools=[AgentTool(helper)])
    provider = ScriptedProvider(
        [ToolCall("c1", "helper", {"request": "help"}), ToolCall("c2", "inner", {}), "helped", "done"]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "go"))
        check_order(events)
    assert [event.call_id for event in events if isinstance(event, ToolStart | ToolEnd)] == ["c1", "c1"]
    assert text_of(events) == "done"


async def test_why_turns_ended_without_an_answer_is_read_by_their_first_message(store_url: str) -> None:
    rejected = ProviderRejected("it does not want to", provider="scripted", status=400)
    provider = ScriptedProvider(["first", rejected, "third"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        await runtime.run("s", "one")
        with pytest.raises(ProviderRejected):
            await runtime.run("s", "two")
        await runtime.run("s", "three")
        forked = await runtime.sessions.fork("s", new_id="f")
        for session in (await runtime.sessions.read("s"), forked):
            errors = await store_of(runtime).read(read_turn_errors, session, 1, session.last_seq)
            assert {seq: error.message for seq, error in errors.items()} == {3: "it does not want to"}, session.name.id
            assert await store_of(runtime).read(read_turn_errors, session, 4, session.last_seq) == {}
