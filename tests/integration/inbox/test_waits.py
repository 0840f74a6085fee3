"""One list of what a session waits for, and one way to answer: every kind, once, in any process."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools import LongRunningFunctionTool
from google.adk.workflow import START, Workflow, node

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.errors import IdempotencyKeyReused, InvalidAnswer, WaitNotOpen
from lango.events import ToolEnd
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import client_tool
from lango.waits import ApprovalWait, Approve, ClientResultWait, InputWait, LongRunningWait, Refuse, Result, Value
from tests.agents.parts import collect, settings_for


@tool(level="dangerous")
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


def order(item: str) -> None:
    """Order something; the result comes later."""


@node
async def size(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="Which size?", payload={"sizes": [1, 2]}, response_schema=int)


def shop(*replies: Any) -> tuple[LlmAgent, ScriptedProvider]:
    return LlmAgent(name="shop", tools=[AdkTool(send), LongRunningFunctionTool(order)]), ScriptedProvider(list(replies))


async def test_an_approval_is_answered_once(store_url: str) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), "done")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await collect((await runtime.submit("s", "write")).follow())
        [wait] = await runtime.waits("s")
        assert isinstance(wait, ApprovalWait)
        assert (wait.session_id, wait.turn, wait.tool, wait.call_id) == ("s", 1, "send", "c1")
        assert (wait.arguments, wait.expires_at is not None) == ({"to": "bob"}, True)
        [item] = await runtime.inbox.list()
        assert (item.wait.id, item.title) == (wait.id, "write")
        with pytest.raises(InvalidAnswer, match="approval"):
            await runtime.answer("s", wait.id, Value("yes"))
        events = await collect((await runtime.answer("s", wait.id, Approve())).follow())
        assert [event.result for event in events if isinstance(event, ToolEnd)] == [{"result": "sent to bob"}]
        assert await runtime.waits("s") == []
        with pytest.raises(WaitNotOpen):
            await runtime.answer("s", wait.id, Approve())


async def test_an_answer_with_an_idempotency_key_may_be_repeated(store_url: str) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), "not sent")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await collect((await runtime.submit("s", "write")).follow())
        [wait] = await runtime.waits("s")
        first = await runtime.answer("s", wait.id, Refuse("no"), idempotency_key="k")
        await collect(first.follow())
        again = await runtime.answer("s", wait.id, Refuse("no"), idempotency_key="k")
        assert again.turn.turn == first.turn.turn
        with pytest.raises(IdempotencyKeyReused):
            await runtime.answer("s", wait.id, Approve(), idempotency_key="k")


async def test_inputs_and_results_are_answered_in_another_process(store_url: str) -> None:
    workflow = Workflow(name="shirts", edges=[(START, size)])
    async with open_runtime(settings_for(store_url), root_agent=workflow) as runtime:
        await collect((await runtime.submit("s", "a shirt")).follow())
    async with open_runtime(settings_for(store_url), root_agent=workflow) as other:
        [wait] = await other.waits("s")
        assert isinstance(wait, InputWait)
        assert (wait.message, wait.schema, wait.payload) == ("Which size?", {"type": "integer"}, {"sizes": [1, 2]})
        with pytest.raises(InvalidAnswer, match="schema"):
            await other.answer("s", wait.id, Value("large"))
        await collect((await other.answer("s", wait.id, Value(2))).follow())
        assert await other.waits("s") == []


async def test_results_of_clients_and_of_long_running_tools_are_awaited(store_url: str) -> None:
    calls = ToolCall("c1", "order", {"item": "boat"}), ToolCall("c2", "look", {"at": "map"})
    agent, provider = shop(calls[0], calls[1], "seen", "on its way", "here")
    look = client_tool("look", "Look at something.", {"type": "object"})
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await collect((await runtime.submit("boats", "order")).follow())
        await collect((await runtime.submit("maps", "look", client_tools=[look])).follow())
        [ordered], [looked] = await runtime.waits("boats"), await runtime.waits("maps")
        assert isinstance(ordered, LongRunningWait)
        assert isinstance(looked, ClientResultWait)
        assert (ordered.id, ordered.tool, ordered.arguments) == ("c1", "order", {"item": "boat"})
        assert (looked.id, looked.tool, looked.arguments) == ("c2", "look", {"at": "map"})
        await collect((await runtime.answer("maps", "c2", Result({"seen": 1}))).follow())
        await collect((await runtime.answer("boats", "c1", Result({"at": "sea"}, will_continue=True))).follow())
        assert await runtime.waits("boats") == [ordered], "more results follow"
        await collect((await runtime.answer("boats", "c1", Result({"at": "home"}))).follow())
        assert await runtime.waits("boats") == await runtime.waits("maps") == []
