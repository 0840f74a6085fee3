"""Scenarios of ADK's own tests of tools and agents that wait: confirmations, long-running tools, workflows as tools.

Each answer goes to another runtime, with and without ADK's resumability.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.workflow import START, BaseNode, Workflow, node
from google.genai import types
from typing_extensions import override

from lango import open_runtime
from lango.adk import ProviderLlm
from lango.errors import InvalidAnswer
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.agents.answers import awaited_results, submit_results
from tests.agents.parts import broken_for, collect, results_in, settings_for
from tests.support.workflow_scenarios import (
    Scenario,
    asking,
    asking_again,
    flow,
    listed,
    note,
    run_scenario,
    text,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of ADK: experimental features


def chain(*nodes: Any) -> Callable[[], Workflow]:
    return flow((START, *nodes))


class AsksInTurn(BaseNode):
    """Asks a second question when the first one is answered."""

    rerun_on_resume: bool = True

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        for name in ("q1", "q2"):
            if name not in ctx.resume_inputs:
                yield RequestInput(interrupt_id=name, message=name, response_schema=str)
                return
        yield [node_input, ctx.resume_inputs["q1"], ctx.resume_inputs["q2"]]


def manager(*steps: Any, output: bool = False) -> Any:
    """Make a node that runs others, one after the other, and puts out what they put out."""

    async def manage(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        results = [await ctx.run_node(step, use_as_output=output) for step in steps]
        if not output:
            yield results

    return node(manage, rerun_on_resume=True, name=f"manage{len(steps)}")


# -- agents and tools -----------------------------------------------------------------------------------------------


def order(item: str = "") -> None:
    """Order something; the result comes later."""
    note("order")


def pay(amount: int) -> dict[str, int]:
    """Pay."""
    note("pay")
    return {"paid": amount}


def pay_silently(amount: int) -> None:
    """Pay."""
    note("pay")


def asks_itself(amount: int, tool_context: ToolContext) -> dict[str, Any]:
    """Pay, when a person agreed."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="Pay?", payload={"limit": 0})
        return {"status": "waiting"}
    if not tool_context.tool_confirmation.confirmed:
        return {"status": "declined"}
    note("pay")
    return {"paid": amount}


def asks_with_payload(amount: int, tool_context: ToolContext) -> Any:
    """Return the payload of a person's answer."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="Pay?", payload={"limit": 7})
        return {"status": "waiting"}
    return tool_context.tool_confirmation.payload


def amount(node_input: Any) -> dict[str, int]:
    return {"amount": 3}


def confirmed(function: Any = pay, *after: Any) -> Callable[[], Workflow]:
    return lambda: Workflow(
        name="flow", edges=[(START, amount, FunctionTool(function, require_confirmation=True), *(after or (listed,)))]
    )


def agent(name: str = "clerk", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model="openai/x", **more)


def agent_flow(**more: Any) -> Callable[[], Workflow]:
    return lambda: Workflow(name="flow", edges=[(START, text("a"), agent(**more), text("end"))])


def two_orders() -> Workflow:
    def first() -> None:
        """Order the first thing."""

    def second() -> None:
        """Order the second thing."""

    tools = [LongRunningFunctionTool(first), LongRunningFunctionTool(second)]
    return Workflow(name="flow", edges=[(START, agent(tools=tools))])


def task_that_talks() -> Workflow:
    return Workflow(name="flow", edges=[(START, agent(mode="task"), listed)])


def task_confirmed() -> LlmAgent:
    child = agent("child", mode="task", tools=[FunctionTool(pay, require_confirmation=True)])
    return agent("root", sub_agents=[child])


def order_beside_task() -> LlmAgent:
    return agent("root", tools=[LongRunningFunctionTool(order)], sub_agents=[agent("child", mode="task")])


def as_tool(*nodes: Any) -> Callable[[], LlmAgent]:
    """Make an agent whose tool is a workflow."""

    def make() -> LlmAgent:
        edges: Any = [(START, *nodes)]
        survey = Workflow(name="survey", description="Ask.", input_schema=dict[str, str], edges=edges)
        return agent("root", tools=[survey])

    return make


def counted(node_input: Any) -> str:
    note("counted")
    return f"counted {node_input}"


SURVEY = ToolCall("c1", "survey", {"topic": "boats"})
ORDER = ToolCall("o1", "order", {"item": "boat"})
PAY = ToolCall("p1", "pay", {"amount": 3})
CHILD = ToolCall("t1", "child", {"request": "do it"})
FINISH = ToolCall("f1", "finish_task", {"result": "done"})

SCENARIOS: dict[str, Scenario] = {
    "a tool that a person agrees to": Scenario(confirmed(), [{"paid": 3}], ({"confirmed": True},), ran=("pay",)),
    "a tool that a person declines": Scenario(
        confirmed(), [{"error": "This tool call is rejected."}], ({"confirmed": False},)
    ),
    "a tool without a result that a person agrees to": Scenario(
        confirmed(pay_silently, asking("q"), listed), ["yes"], ({"confirmed": True}, "yes"), ran=("pay",)
    ),
    "a tool that asks itself": Scenario(
        chain(amount, FunctionTool(asks_itself), listed), [{"paid": 3}], ({"confirmed": True},), ran=("pay",)
    ),
    "a tool that asks itself, declined": Scenario(
        chain(amount, FunctionTool(asks_itself), listed), [{"status": "declined"}], ({"confirmed": False},)
    ),
    "a tool that asks itself gets the payload that it asked with": Scenario(
        chain(amount, FunctionTool(asks_with_payload), listed), [{"limit": 7}], ({"confirmed": True},)
    ),
    "a tool that asks itself gets the payload of the answer": Scenario(
        chain(amount, FunctionTool(asks_with_payload), listed), [[8]], ({"confirmed": True, "payload": [8]},)
    ),
    "a tool without a result before a question": Scenario(
        chain(amount, FunctionTool(pay_silently), asking("q"), listed), ["yes"], ("yes",), ran=("pay",)
    ),
    "a tool of an agent that a person agrees to": Scenario(
        agent_flow(tools=[FunctionTool(pay, require_confirmation=True)]),
        "end",
        (True,),
        script=(PAY, "paid"),
        ran=("a", "pay", "end"),
    ),
    "two long-running tools in turn": Scenario(
        two_orders,
        None,
        ({"at": 1}, {"at": 2}),
        script=(ToolCall("a", "first", {}), ToolCall("b", "second", {}), "All done."),
        says="All done.",
    ),
    "a long-running tool of a task": Scenario(
        lambda: Workflow(
            name="flow", edges=[(START, agent(mode="task", tools=[LongRunningFunctionTool(order)]), listed)]
        ),
        [{"result": "done"}],
        ({"at": "home"},),
        script=(ORDER, FINISH),
        ran=("order",),
    ),
    "a confirmation of a task": Scenario(
        task_confirmed, None, (True,), script=(CHILD, PAY, FINISH, "All paid."), says="All paid.", ran=("pay",)
    ),
    "a long-running tool beside a task": Scenario(
        order_beside_task,
        None,
        ({"at": "home"},),
        script=([ORDER, CHILD], FINISH, "It came."),
        says="It came.",
        ran=("order",),
        only_resumable=True,
    ),
    "a workflow as a tool": Scenario(
        as_tool(asking("q"), counted), None, ("3",), script=(SURVEY, "asked"), says="asked", ran=("counted",)
    ),
    "a workflow as a tool, with a node that runs again": Scenario(
        as_tool(asking_again("q"), counted),
        None,
        ("3",),
        script=(SURVEY, "asked"),
        says="asked",
        ran=("q", "q", "counted"),
    ),
    "a workflow as a tool, with a dynamic node": Scenario(
        as_tool(manager(asking_again("q")), counted),
        None,
        ("3",),
        script=(SURVEY, "asked"),
        says="asked",
        ran=("q", "q", "counted"),
    ),
    "a workflow as a tool, with two questions": Scenario(
        as_tool(AsksInTurn(name="two"), counted), None, ("x", "y"), script=(SURVEY, "asked"), ran=("counted",)
    ),
    "a workflow as a tool, with an agent that orders": Scenario(
        as_tool(agent(tools=[LongRunningFunctionTool(order)]), counted),
        None,
        ({"at": "home"},),
        script=(SURVEY, ORDER, "it came", "asked"),
        ran=("order", "counted"),
    ),
    "a workflow as a tool, with an agent that pays": Scenario(
        as_tool(agent(tools=[FunctionTool(pay, require_confirmation=True)]), counted),
        None,
        (True,),
        script=(SURVEY, PAY, "paid", "asked"),
        ran=("pay", "counted"),
    ),
    "a workflow as a tool, with an agent that declines": Scenario(
        as_tool(agent(tools=[FunctionTool(pay, require_confirmation=True)]), counted),
        None,
        (False,),
        script=(SURVEY, PAY, "not paid", "asked"),
        ran=("counted",),
    ),
}


@pytest.mark.parametrize("resumable", [False, True], ids=["plain", "resumable"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_tool_goes_on_as_in_adk(sqlite_url: str, name: str, resumable: bool) -> None:
    scenario = SCENARIOS[name]
    await run_scenario(sqlite_url, scenario, resumable=resumable or scenario.only_resumable)


def own_call(again: bool = False) -> Any:
    """Make a node that makes a call itself; the result is its output, or it runs again with it."""

    async def order(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        note("order")
        if "o1" in ctx.resume_inputs:
            yield f"got {ctx.resume_inputs['o1']}"
            return
        called = types.FunctionCall(id="o1", name="warehouse", args={"size": 3})
        content = types.Content(role="model", parts=[types.Part(function_call=called)])
        yield Event(content=content, long_running_tool_ids={"o1"})

    return node(order, rerun_on_resume=again)


OWN_CALLS = {
    "a call of a node": Scenario(chain(own_call(), listed), [{"at": "home"}], ({"at": "home"},), ran=("order",)),
    "a call of a node that runs again": Scenario(
        chain(own_call(again=True), listed), ["got {'at': 'home'}"], ({"at": "home"},), ran=("order", "order")
    ),
    "a call of a node in a nested workflow": Scenario(
        chain(Workflow(name="inner", edges=[(START, own_call())]), listed), [{"at": "home"}], ({"at": "home"},)
    ),
}


@pytest.mark.parametrize("resumable", [False, True], ids=["", "resumable"])
@pytest.mark.parametrize("name", OWN_CALLS)
async def test_a_node_awaits_the_result_of_its_own_call(sqlite_url: str, name: str, resumable: bool) -> None:
    await run_scenario(sqlite_url, OWN_CALLS[name], resumable=resumable)


async def test_a_node_that_made_a_call_takes_a_result_and_no_update(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=chain(own_call(), listed)()) as runtime:
        await collect(runtime.stream("s", "go"))
        [awaited] = await awaited_results(runtime, "s")
        assert (awaited.tool, awaited.arguments) == ("warehouse", {"size": 3})
        with pytest.raises(InvalidAnswer, match="no updates"):
            await submit_results(runtime, "s", {"o1": {"at": "sea"}}, will_continue=True)
        await (await submit_results(runtime, "s", {"o1": {"at": "home"}})).wait()
        assert await awaited_results(runtime, "s") == []


async def test_a_task_that_asks_with_a_text_is_called_again_with_the_answer(sqlite_url: str) -> None:
    script: list[Any] = [ToolCall("t1", "child", {"request": "book"}), "Which city?"]
    script += [ToolCall("t2", "child", {"request": "book Rome"}), ToolCall("f1", "finish_task", {"result": "booked"})]
    provider = ScriptedProvider([*script, "It is booked."])
    model = ProviderLlm(provider, "m")
    root = LlmAgent(name="root", model=model, sub_agents=[LlmAgent(name="child", model=model, mode="task")])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert await runtime.run("s", "book a room") == "Which city?"
        assert await runtime.run("s", "Rome") == "It is booked."
    result = results_in(provider.requests[2])["t1"]
    assert result["asked"] == "Which city?"
    assert "Call it again" in result["status"]
    assert broken_for(provider.requests[-1]) == []
