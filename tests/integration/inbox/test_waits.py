"""One list of what a session waits for, and one way to answer: every kind, once, in any process."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools import LongRunningFunctionTool
from google.adk.workflow import START, Workflow, node

from lango import Settings, open_runtime, tool
from lango.adk import AdkTool
from lango.errors import IdempotencyKeyReused, InvalidAnswer, WaitNotOpen
from lango.events import ToolEnd, ToolStart, TurnEvent, WaitClosed
from lango.messages import ToolCall
from lango.runtime import RunningTurn, Runtime
from lango.server.app import create_app
from lango.submissions import SubmittedAnswer
from lango.testing import ScriptedProvider
from lango.tools import client_tool
from lango.waits import ApprovalWait, Approve, ClientResultWait, InputWait, LongRunningWait, Refuse, Result, Value
from tests.agents.answers import approval_id, submit_approval
from tests.agents.parts import Gate, collect, kinds, settings_for
from tests.support.runtimes import store_of


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


async def by_an_answer(runtime: Runtime, wait_id: str) -> None:
    await collect((await runtime.answer("s", wait_id, Refuse())).follow())


async def by_its_time(runtime: Runtime, wait_id: str) -> None:
    def set_expiry() -> Any:
        yield "UPDATE waits SET expires_at = 1.0 WHERE id = $1", (wait_id,)

    await store_of(runtime).write(set_expiry)


async def by_a_message(runtime: Runtime, _: str) -> None:
    await runtime.run("s", "something else")


async def by_a_cancel(runtime: Runtime, _: str) -> None:
    assert await runtime.cancel("s")


async def by_a_rewind(runtime: Runtime, _: str) -> None:
    await runtime.sessions.rewind("s", before=1)


CLOSED: dict[str, tuple[Callable[[Runtime, str], Awaitable[None]], str]] = {
    "answered": (by_an_answer, "was answered before"),
    "expired": (by_its_time, "has expired"),
    "superseded": (by_a_message, "was closed when the conversation continued without an answer"),
    "cancelled": (by_a_cancel, "was closed when the turn was stopped"),
    "rewound": (by_a_rewind, "was removed by a rewind"),
}


@pytest.mark.parametrize("reason", CLOSED)
async def test_an_answer_that_comes_too_late_is_refused_with_the_reason(store_url: str, reason: str) -> None:
    close, why = CLOSED[reason]
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), "not sent")
    settings = settings_for(store_url)
    async with open_runtime(settings, provider=provider, root_agent=agent) as runtime:
        await collect((await runtime.submit("s", "write")).follow())
        [wait] = await runtime.waits("s")
        await close(runtime, wait.id)
        assert await runtime.waits("s") == []
        await _check_refused(settings, runtime, wait.id, reason, f"the wait {wait.id!r} of session 's' {why}")


async def test_an_answer_to_a_wait_that_never_existed_is_refused(store_url: str) -> None:
    settings = settings_for(store_url)
    async with open_runtime(settings, provider=ScriptedProvider(["hello"])) as runtime:
        await runtime.run("s", "hello")
        await _check_refused(settings, runtime, "none", "unknown", "session 's' has no wait 'none'")


async def _check_refused(settings: Settings, runtime: Runtime, wait_id: str, reason: str, message: str) -> None:
    """Check that an answer is refused by the runtime and by its route, and starts no turn."""
    session = await runtime.sessions.find("s") or pytest.fail("gone")
    newest = await runtime.turns.current(session)
    with pytest.raises(WaitNotOpen) as raised:
        await runtime.answer("s", wait_id, Approve())
    assert (raised.value.reason, str(raised.value)) == (reason, message)
    transport = httpx.ASGITransport(app=create_app(settings, runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        response = await client.post(f"/v1/sessions/s/waits/{wait_id}", json={"type": "approve"})
    assert (response.status_code, response.json()["error"]) == (409, {"type": "WaitNotOpen", "message": message})
    assert await runtime.turns.current(session) == newest


async def test_a_message_that_supersedes_a_wait_emits_that_it_is_closed(store_url: str) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), "not sent")
    settings = settings_for(store_url)
    async with open_runtime(settings, provider=provider, root_agent=agent) as runtime:
        await collect((await runtime.submit("s", "write")).follow())
        [wait] = await runtime.waits("s")
        turn = await runtime.submit("s", "something else")
        events = await collect(turn.follow())
        assert kinds(events) == ["accepted", "wait_closed", "text_delta", "text_end", "done"]
        closed = WaitClosed(events[1].id, wait, "superseded")
        assert events[1] == (await _log_of(runtime, turn))[1] == closed


async def test_stopping_a_running_turn_emits_that_the_requests_beside_it_are_closed(store_url: str) -> None:
    """The requests are closed when the turn ends: its log has the events before the final one."""
    gate, other = Gate(level="dangerous"), Gate("another", level="dangerous")
    calls = [ToolCall("c1", gate.tool.name, {}), ToolCall("c2", other.tool.name, {})]
    provider = ScriptedProvider([calls])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, other.tool]) as runtime:
        await collect(runtime.stream("s", "do both"))
        turn = await submit_approval(runtime, "s", "c1", approved=True)
        await gate.wait()
        [wait] = await runtime.waits("s")
        assert await runtime.cancel("s")
        events = await collect(turn.follow())
        assert kinds(events) == ["accepted", "wait_closed", "tool_start", "wait_closed", "turn_error"]
        assert events[-2] == WaitClosed(events[-2].id, wait, "cancelled")
        assert await runtime.waits("s") == []
        assert await _log_of(runtime, turn) == events


async def test_a_turn_that_its_last_reader_left_leaves_the_requests_beside_it_open(store_url: str) -> None:
    gate, other = Gate(level="dangerous"), Gate("another", level="dangerous")
    calls = [ToolCall("c1", gate.tool.name, {}), ToolCall("c2", other.tool.name, {})]
    provider = ScriptedProvider([calls])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, other.tool]) as runtime:
        await collect(runtime.stream("s", "do both"))
        answer = SubmittedAnswer(await approval_id(runtime, "s", "c1"), Approve())
        turn = await runtime.accept("s", answer, detached=False)
        async with aclosing(turn.follow_until_left()) as events:
            async for event in events:
                if isinstance(event, ToolStart):
                    break
            await gate.wait()
        assert kinds(turn.events)[-2:] == ["tool_start", "turn_error"]
        assert [wait.id for wait in await runtime.waits("s")] == [await approval_id(runtime, "s", "c2")]


async def _log_of(runtime: Runtime, turn: RunningTurn) -> list[TurnEvent]:
    """Read the events of a turn as the event log has them."""
    session = await runtime.sessions.find("s") or pytest.fail("gone")
    return [logged.event for logged in (await runtime.turns.events(session, turn.turn.turn)).events]
