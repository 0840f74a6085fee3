"""T2: a `BaseException` in a turn ends neither the process nor the stream, and the session can continue."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import BaseAgent, InvocationContext, LlmAgent
from google.adk.events import Event
from google.adk.tools import BaseTool, FunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from lango import open_runtime
from lango.errors import AgentFailed
from lango.events import ToolEnd
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.memory_parts import remembering
from tests.agents.parts import broken_for, check_order, collect, results_in, rows, settings_for, statuses, text_of
from tests.support.runtimes import store_of


class Panic(BaseException):
    """The exception of a panic in a native library."""


ERRORS = [SystemExit(2), Panic("index out of bounds"), GeneratorExit("closed"), asyncio.CancelledError("inside")]
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)


def told_of(error: BaseException) -> str:
    return "cancelled itself" if isinstance(error, asyncio.CancelledError) else type(error).__name__


class RaisingTool(BaseTool):
    """A tool of the user's own class."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(name="parse", description="Parse.")
        self._error = error

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        raise self._error


def tools_of(kind: str, error: BaseException) -> tuple[list[Tool], Any]:
    """Return the tools of the runtime, and the agent that brings its own."""

    def parse() -> str:
        raise error

    async def parse_later() -> str:
        await asyncio.sleep(0)
        raise error

    parse_later.__name__ = "parse"
    match kind:
        case "lango sync":
            return [Tool("parse", "Parse.", None, parse)], None
        case "adk sync":
            own: Any = FunctionTool(parse)
        case "adk async":
            own = FunctionTool(parse_later)
        case _:
            own = RaisingTool(error)
    return [], LlmAgent(name="mine", model="openai/x", tools=[own])


# our own handlers with each error: tests/unit/tools/test_execution.py
HANDLERS = [("lango sync", ERRORS[0]), *itertools.product(["adk sync", "adk async", "adk class"], ERRORS)]


@pytest.mark.parametrize(("kind", "error"), HANDLERS, ids=[f"{kind}-{type(one).__name__}" for kind, one in HANDLERS])
async def test_t2_a_base_exception_of_a_handler_is_an_error_result(
    sqlite_url: str, kind: str, error: BaseException
) -> None:
    provider = ScriptedProvider([ToolCall("c1", "parse", {}), "I see", "fine"])
    tools, root = tools_of(kind, error)
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools, root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "try"))
        check_order(events)
        assert text_of(events) == "I see"
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert not end.ok
        assert await statuses(runtime) == ["done"]
        assert await rows(store_of(runtime), "SELECT status FROM tool_journal") == [("finished",)]
        assert await runtime.run("s", "and?") == "fine"
    assert told_of(error) in results_in(provider.requests[1])["c1"]["error"]
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own tool uses it
@every_error
async def test_t2_a_base_exception_in_an_agent_tool_is_an_error_result(sqlite_url: str, error: BaseException) -> None:
    def parse() -> str:
        """Parse."""
        raise error

    helper = LlmAgent(name="helper", model="openai/x", description="Helps.", tools=[FunctionTool(parse)])
    root = LlmAgent(name="mine", model="openai/x", tools=[AgentTool(helper)])
    provider = ScriptedProvider(
        [ToolCall("c1", "helper", {"request": "parse"}), ToolCall("c2", "parse", {}), "it failed", "I see", "fine"]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert await runtime.run("s", "try") == "I see"
        assert await runtime.run("s", "and?") == "fine"
    assert told_of(error) in results_in(provider.requests[2])["c2"]["error"]


CALLBACKS = [
    "before_agent_callback",
    "after_agent_callback",
    "before_model_callback",
    "after_model_callback",
    "before_tool_callback",
    "after_tool_callback",
]


RAISED = [
    *((name, False, ERRORS[0]) for name in CALLBACKS),
    *(("before_tool_callback", True, one) for one in ERRORS[:3]),
]


@pytest.mark.parametrize(("name", "is_async", "error"), RAISED)
async def test_t2_a_base_exception_of_a_callback_fails_only_its_turn(
    sqlite_url: str, name: str, is_async: bool, error: BaseException
) -> None:
    first = [True]

    def once(*_: Any, **__: Any) -> None:
        if first.pop() if first else False:
            raise error

    async def once_later(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)
        once()

    def look() -> str:
        """Look."""
        return "seen"

    callbacks: dict[str, Any] = {name: [once_later] if is_async else once}
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)], **callbacks)
    script: list[Any] = [ToolCall("c1", "look", {}), *["fine"] * 4]
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider(script), root_agent=root) as runtime:
        await _fails_once(runtime, type(error).__name__)


async def _fails_once(runtime: Runtime, message: str) -> None:
    async with asyncio.timeout(120):
        with pytest.raises(AgentFailed, match=message):
            await runtime.run("s", "try")
        assert await statuses(runtime) == ["failed"]
        assert await runtime.run("s", "and?") == "fine"


class Sloppy(BaseAgent):
    """An agent of the user's own class that fails in its first turn."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        if len([event for event in ctx.session.events if event.author == "user"]) == 1:
            raise ERRORS[int(self.description)]
        content = types.Content(role="model", parts=[types.Part(text="fine")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


@pytest.mark.parametrize("number", [1, 3], ids=["panic", "cancel"])
async def test_t2_a_base_exception_of_an_agent_fails_only_its_turn(sqlite_url: str, number: int) -> None:
    root = Sloppy(name="mine", description=str(number))
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([]), root_agent=root) as runtime:
        await _fails_once(runtime, told_of(ERRORS[number]))


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda one: type(one).__name__)
async def test_t2_an_observer_that_raised_a_base_exception_is_tried_again_later(
    sqlite_url: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider(["word " * 400, error, "fine"])
    async with open_runtime(remembering(sqlite_url), provider=provider) as runtime:
        await runtime.run("s", "tell me")
        await runtime.memory.settle()
        assert "was not observed" in caplog.text
        assert await runtime.run("s", "and?") == "fine"
