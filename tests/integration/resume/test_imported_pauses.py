"""Imported sessions that wait: an export has the calls, and not that they wait, so no answer is accepted."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.errors import LangoError, WaitNotOpen
from lango.events import TurnDone, TurnEvent, WaitOpened
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from tests.agents.answers import awaited_results, open_inputs, submit_approval, submit_input, submit_results
from tests.agents.parts import collect, settings_for, stored

Answer = Callable[[Runtime, str, str], Awaitable[Any]]


def order(x: str) -> None:
    """Order something; the result comes later."""


def pay(x: str) -> dict[str, str]:
    """Pay."""
    return {"paid": x}


async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="How many?", response_schema=int)


def show(node_input: Any) -> dict[str, Any]:
    return {"got": node_input}


def result(runtime: Runtime, session: str, call_id: str) -> Awaitable[Any]:
    return submit_results(runtime, session, {call_id: {"at": "home"}})


def update(runtime: Runtime, session: str, call_id: str) -> Awaitable[Any]:
    return submit_results(runtime, session, {call_id: {"at": "sea"}}, will_continue=True)


def value(runtime: Runtime, session: str, call_id: str) -> Awaitable[Any]:
    return submit_input(runtime, session, call_id, 3)


def approval(runtime: Runtime, session: str, call_id: str) -> Awaitable[Any]:
    return submit_approval(runtime, session, call_id, approved=True)


def ordering() -> Any:
    return LlmAgent(name="a", tools=[LongRunningFunctionTool(order)])


def paying() -> Any:
    return LlmAgent(name="a", tools=[FunctionTool(pay, require_confirmation=True)])


def asking() -> Any:
    return Workflow(name="flow", edges=[(START, ask, show)])


WAITING: dict[str, tuple[Callable[[], Any], str, Answer, type[LangoError]]] = {
    "a result": (ordering, "order", result, WaitNotOpen),
    "an update": (ordering, "order", update, WaitNotOpen),
    "an input": (asking, "", value, WaitNotOpen),
    "an approval": (paying, "pay", approval, WaitNotOpen),
}


def call_id_in(events: list[TurnEvent]) -> str:
    [wait] = [event.wait for event in events if isinstance(event, WaitOpened)]
    return wait.id


@pytest.mark.parametrize("name", WAITING)
async def test_an_imported_session_accepts_no_answer(store_url: str, name: str) -> None:
    make, tool, answer, error = WAITING[name]
    provider = ScriptedProvider([ToolCall("c1", tool, {"x": "1"}), "It is done.", "I do not know."] if tool else ["x"])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=make()) as runtime:
        call_id = call_id_in(await collect((await runtime.submit("s", "go")).follow()))
        lines = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.import_lines(lines, session_id="copy")
        before = await stored(runtime, "copy")
        with pytest.raises(error):
            await collect((await answer(runtime, "copy", call_id)).follow())
        assert await stored(runtime, "copy") == before, "what is refused is not stored"
        assert await awaited_results(runtime, "copy") == []
        assert await open_inputs(runtime, "copy") == []
        events = await collect((await answer(runtime, "s", call_id)).follow())
        assert isinstance(events[-1], TurnDone), "the session that made the call still accepts it"
        if tool:  # and the imported one goes on with a message
            assert await runtime.run("copy", "How is it?") == "I do not know." or name == "an update"
