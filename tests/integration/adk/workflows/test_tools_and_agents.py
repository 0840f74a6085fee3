"""Scenarios of ADK's own tests of tools as nodes, nodes as tools, and agents as nodes, which do not pause."""

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.agents.invocation_context import InvocationContext
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, FunctionTool, ToolContext
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow, node
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from lango.messages import ToolCall
from tests.support.workflow_scenarios import Scenario, double, flow, join_values, listed, note, run_scenario, text

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of ADK: experimental features


class Trip(BaseModel):
    city: str
    days: int = 1


def chain(*nodes: Any) -> Callable[[], Workflow]:
    return flow((START, *nodes))


def gives(value: Any) -> Any:
    def give(node_input: Any) -> Any:
        return value

    return node(give)


# -- tools as nodes -------------------------------------------------------------------------------------------------


def travel(city: str, days: int = 1) -> dict[str, Any]:
    """Travel."""
    note("travel")
    return {"city": city, "days": days}


def rest() -> dict[str, Any]:
    """Rest."""
    return {"rested": True}


def fails(city: str) -> dict[str, Any]:
    """Fail."""
    raise ValueError(f"nothing about {city}")


def fails_once(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Fail in the first attempt."""
    note("try")
    if tool_context.attempt_count == 1:
        raise ConnectionError("again")
    return {"city": city}


def lazy(city: str = "") -> None:
    """Return nothing."""


def writes(ctx: Context) -> None:
    ctx.state["city"], ctx.state["days"] = "Rome", 5


async def saves(tool_context: ToolContext) -> dict[str, Any]:
    """Save a file, and note it in the state."""
    await tool_context.save_artifact("report.txt", types.Part.from_text(text="hello"))
    tool_context.state["status"] = "saved"
    return {"saved": True}


async def loads(ctx: Context, node_input: Any) -> list[Any]:
    part = await ctx.load_artifact("report.txt")
    return [node_input, ctx.state["status"], part and part.text]


def tool_after(value: Any, function: Any = travel) -> Callable[[], Workflow]:
    return lambda: Workflow(name="flow", edges=[(START, gives(value), FunctionTool(function), listed)])


RETRY = RetryConfig(max_attempts=3, initial_delay=0.01, jitter=0)
ROME = {"city": "Rome", "days": 1}


class Watching(BasePlugin):
    """Notes the calls of tools."""

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        note("before")
        return None

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        note("after")
        return None


class Answering(BasePlugin):
    """Answers in place of a tool."""

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        return {"cached": True}


class Redacting(BasePlugin):
    """Replaces what a tool returned."""

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        return {"redacted": True}


class Handling(BasePlugin):
    """Handles the error of a tool."""

    @override
    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any] | None:
        return {"handled": str(error)}


class Halting(BasePlugin):
    """Answers in place of the whole run."""

    @override
    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        return types.Content(role="model", parts=[types.Part(text="halted")])


TOOL_NODES: dict[str, Scenario] = {
    "a tool after a mapping": Scenario(tool_after({"city": "Rome"}), [ROME]),
    "a tool after a model": Scenario(tool_after(Trip(city="Rome")), [ROME]),
    "a tool after JSON": Scenario(tool_after('{"city": "Rome"}'), [ROME]),
    "a tool after nothing": Scenario(tool_after(None, rest), [{"rested": True}]),
    "a tool after an empty text": Scenario(tool_after(" ", rest), [{"rested": True}]),
    "a tool after a list": Scenario(tool_after([1, 2], rest), error="must be a dictionary"),
    "a tool whose parameters are in the state": Scenario(
        lambda: Workflow(name="flow", edges=[(START, writes, FunctionTool(travel), listed)]), [ROME]
    ),
    "a tool that saves": Scenario(
        lambda: Workflow(name="flow", edges=[(START, gives({}), FunctionTool(saves), loads)]),
        [{"saved": True}, "saved", "hello"],
    ),
    "a tool that fails": Scenario(tool_after({"city": "Rome"}, fails), error="nothing about Rome"),
    "a tool that fails once": Scenario(
        lambda: Workflow(
            name="flow",
            edges=[
                (START, gives({"city": "Rome"}), node(FunctionTool(fails_once), retry_config=RETRY), listed),
            ],
        ),
        [{"city": "Rome"}],
        ran=("try", "try"),
    ),
    "a tool without a result": Scenario(tool_after({}, lazy), [None]),
    "plugins see a tool": Scenario(
        tool_after({"city": "Rome"}), [ROME], plugin=Watching, ran=("before", "travel", "after")
    ),
    "a plugin answers for a tool": Scenario(tool_after({"city": "Rome"}), [{"cached": True}], plugin=Answering),
    "a plugin replaces a result": Scenario(tool_after({"city": "Rome"}), [{"redacted": True}], plugin=Redacting),
    "a plugin handles an error": Scenario(
        tool_after({"city": "Rome"}, fails), [{"handled": "nothing about Rome"}], plugin=Handling
    ),
    "a plugin halts a workflow": Scenario(chain(text("never")), says="halted", plugin=Halting),
}


# -- nodes as tools -------------------------------------------------------------------------------------------------


def agent(name: str = "clerk", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model="openai/x", **more)


@node
def greet(name: str) -> str:
    """Greet somebody."""
    note(f"greet {name}")
    return f"Hello, {name}!"


@node
def constant() -> str:
    """Return a constant."""
    return "constant"


@node
def profile(name: str) -> dict[str, Any]:
    """Return a profile."""
    return {"name": name, "role": "admin"}


@node
def returns_nothing(name: str) -> None:
    """Return nothing."""
    note(f"nothing for {name}")


@node
def total(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def survey(*nodes: Any) -> Workflow:
    return Workflow(name="survey", description="Ask.", input_schema=dict[str, str], edges=[(START, *nodes)])


def seen(expected: str) -> Any:
    """Answer if the model reads the expected result, and fail otherwise."""

    def check(request: Any) -> str:
        shown = str([message for message in request.messages if message.role == "tool"])
        return "fine" if expected in shown else f"read {shown}"

    return check


def calls(tool: str, expected: str, **arguments: Any) -> tuple[Any, ...]:
    return ToolCall("c1", tool, arguments), seen(expected)


async def runs_child(ctx: Context, node_input: Any) -> Any:
    yield [await ctx.run_node(node(double, name="child"), 2)]


BOTH = [ToolCall("c1", "greet", {"name": "Ann"}), ToolCall("c2", "greet", {"name": "Bob"})]

NODE_TOOLS: dict[str, Scenario] = {
    "a node as a tool": Scenario(
        lambda: agent(tools=[greet]), script=calls("greet", "Hello, Ann!", name="Ann"), says="fine", ran=("greet Ann",)
    ),
    "a node without parameters as a tool": Scenario(
        lambda: agent(tools=[constant]), script=calls("constant", "constant"), says="fine"
    ),
    "a node with two parameters as a tool": Scenario(
        lambda: agent(tools=[total]), script=calls("total", "8", x=3, y=5), says="fine"
    ),
    "a node that returns a mapping as a tool": Scenario(
        lambda: agent(tools=[profile]), script=calls("profile", "admin", name="Ann"), says="fine"
    ),
    "a node that returns nothing as a tool": Scenario(
        lambda: agent(tools=[returns_nothing]),
        script=calls("returns_nothing", "None", name="Ann"),
        says="fine",
        ran=("nothing for Ann",),
    ),
    "a node as a tool, twice at once": Scenario(
        lambda: agent(tools=[greet]), script=(BOTH, seen("Hello, Bob!")), says="fine", ran=("greet Ann", "greet Bob")
    ),
    "a workflow as a tool": Scenario(
        lambda: agent(tools=[survey(text("a"), text("b"))]), script=calls("survey", "b", topic="x"), says="fine"
    ),
    "a workflow with a join as a tool": Scenario(
        lambda: agent(tools=[survey((text("a"), text("b")), JoinNode(name="join"), join_values)]),
        script=calls("survey", "a=a", topic="x"),
        says="fine",
    ),
    "a workflow with a dynamic node as a tool": Scenario(
        lambda: agent(tools=[survey(node(runs_child, rerun_on_resume=True))]),
        script=calls("survey", "4", topic="x"),
        says="fine",
    ),
    "a nested workflow as a tool": Scenario(
        lambda: agent(tools=[survey(text("a"), Workflow(name="inner", edges=[(START, text("deep"))]))]),
        script=calls("survey", "deep", topic="x"),
        says="fine",
    ),
}


# -- agents as nodes ------------------------------------------------------------------------------------------------


def read(expected: str, answer: str) -> Any:
    """Answer if the request has a text, and fail otherwise."""

    def check(request: Any) -> str:
        shown = "".join(message.content for message in request.messages)
        return answer if expected in shown else f"read {shown!r}"

    return check


def transfers() -> LlmAgent:
    return agent("root", sub_agents=[agent("one", sub_agents=[agent("deep")]), agent("two")])


def to(name: str) -> ToolCall:
    return ToolCall(f"to-{name}", "transfer_to_agent", {"agent_name": name})


def two_tasks() -> LlmAgent:
    return agent("root", sub_agents=[agent("one", mode="task"), agent("two", mode="task")])


def strict_task() -> LlmAgent:
    return agent("root", sub_agents=[agent("one", mode="task", output_schema=Trip)])


def task(name: str) -> ToolCall:
    return ToolCall(f"task-{name}", name, {"request": "do it"})


def finish(call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, "finish_task", arguments)


class Answer(BaseModel):
    city: str


AGENTS: dict[str, Scenario] = {
    "an agent reads the message": Scenario(chain(agent(), listed), ["yes"], script=(read("go", "yes"),)),
    "an agent reads the output before it": Scenario(
        chain(gives("made before"), agent(), listed), ["yes"], script=(read("made before", "yes"),)
    ),
    "an agent with an input schema": Scenario(
        chain(gives({"city": "Rome"}), agent(input_schema=Trip), listed), ["yes"], script=(read("Rome", "yes"),)
    ),
    "an agent with an input that does not fit": Scenario(
        chain(gives({"days": 1}), agent(input_schema=Trip), listed), error="city", script=("never",)
    ),
    "a task in a workflow": Scenario(
        chain(agent(mode="task"), listed), [{"result": "x"}], script=(finish("f1", result="x"),)
    ),
    "a transfer to a sibling": Scenario(transfers, script=(to("one"), to("two"), "two here"), says="two here"),
    "a transfer to a child of a child": Scenario(
        transfers, script=(to("one"), to("deep"), "deep here"), says="deep here"
    ),
    "a transfer back": Scenario(transfers, script=(to("one"), to("root"), "root here"), says="root here"),
    "transfers in a circle": Scenario(
        transfers, script=(to("one"), to("two"), to("root"), "root here"), says="root here"
    ),
    "two tasks": Scenario(
        two_tasks,
        script=(task("one"), finish("f1", result="1"), task("two"), finish("f2", result="2"), "both done"),
        says="both done",
    ),
    "a task whose result does not fit at first": Scenario(
        strict_task,
        script=(task("one"), finish("f1", days="many"), finish("f2", city="Rome"), "done"),
        says="done",
    ),
}

SCENARIOS = TOOL_NODES | NODE_TOOLS | AGENTS


@pytest.mark.parametrize("name", SCENARIOS)
async def test_tools_and_agents_run_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name])
