"""Workflows that ask a person for input: the turn pauses, and the answer continues it, in any process."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.tools import request_input
from google.adk.workflow import START, JoinNode, Workflow, node
from pydantic import BaseModel

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.errors import IdempotencyKeyReused, InvalidAnswer, WaitNotOpen
from lango.events import TurnDone, TurnEvent
from lango.messages import Attachment, ToolCall
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.sessions.sessions import find_session
from lango.store.turns.submit import SubmitOptions
from lango.store.waits.waits import get_wait
from lango.testing import ScriptedProvider
from lango.waits import InputWait, Value
from tests.agents.answers import open_inputs, opened, submit_input
from tests.agents.parts import TIMEOUT_S, USER, collect, messages, rows, settings_for, stored, text_of
from tests.support.runtimes import expire_waits, store_of
from tests.support.store_workers import Worker

SIZE = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "required": ["size"]}


class Address(BaseModel):
    street: str
    number: int = 1


def asking(schema: Any = None, name: str = "ask", **request: Any) -> Any:
    """Make a node that asks for a value; the next node gets it."""

    async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
        yield RequestInput(message="How large?", response_schema=schema, **request)

    return node(ask, name=name)


def show(node_input: Any) -> dict[str, Any]:
    return {"got": node_input}


def flow(schema: Any = None, *before: Any, **request: Any) -> Workflow:
    return Workflow(name="flow", edges=[(START, *before, asking(schema, **request), show)])


def needed(events: list[TurnEvent]) -> InputWait:
    [found] = opened(events, InputWait)
    return found


def done(events: list[TurnEvent]) -> TurnDone:
    assert isinstance(events[-1], TurnDone), events
    return events[-1]


async def ask_for_input(runtime: Runtime, text: str = "go") -> InputWait:
    events = await collect(runtime.stream("s", text))
    assert done(events).waits[0].kind == "input"
    return needed(events)


async def answer(runtime: Runtime, call_id: str, value: Any, **options: Any) -> TurnDone:
    return done(await collect((await submit_input(runtime, "s", call_id, value, **options)).follow()))


async def test_a_workflow_pauses_for_input_and_goes_on_with_it(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=flow(SIZE, payload={"max": 9})) as runtime:
        request = await ask_for_input(runtime)
        assert (request.message, request.schema, request.payload) == ("How large?", SIZE, {"max": 9})
        assert request.path == "flow@1/ask@1"
        assert request.expires_at is not None
        assert [one.id for one in await open_inputs(runtime, "s")] == [request.id]
        ended = await answer(runtime, request.id, {"size": 3})
        assert (ended.status, ended.output) == ("done", {"got": {"size": 3}})
        assert await open_inputs(runtime, "s") == []
        assert (await messages(runtime))[-1].content == '{"got":{"size":3}}'


async def test_the_answer_may_come_to_another_process(store_url: str) -> None:
    ran: list[str] = []

    def before(node_input: Any) -> str:
        ran.append("before")
        return "ready"

    async with open_runtime(settings_for(store_url), root_agent=flow(SIZE, before)) as runtime:
        request = await ask_for_input(runtime)
    async with open_runtime(settings_for(store_url), root_agent=flow(SIZE, before)) as another:
        assert (await answer(another, request.id, {"size": 3})).output == {"got": {"size": 3}}
    assert ran == ["before"], "a finished node does not run again"


VALUES: list[tuple[Any, Any, Any]] = [
    (None, "yes", "yes"),
    (None, "3", "3"),
    (None, 3, 3),
    (None, {"result": "3"}, {"result": "3"}),
    (None, {}, {}),
    (str, "3", "3"),
    (str, '"quoted"', '"quoted"'),
    (int, "3", 3),
    (bool, "Yes", True),
    (bool, "no", False),
    (list[str], '["a", "b"]', ["a", "b"]),
    (SIZE, '{"size": 3}', {"size": 3}),
    (Address, {"street": "High Street", "number": 2}, {"street": "High Street", "number": 2}),
]


@pytest.mark.parametrize(("schema", "given", "expected"), VALUES)
async def test_an_answer_is_a_value_or_a_text(sqlite_url: str, schema: Any, given: Any, expected: Any) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=flow(schema)) as runtime:
        request = await ask_for_input(runtime)
        assert (await answer(runtime, request.id, given)).output == {"got": expected}


@pytest.mark.parametrize(
    ("schema", "given", "problem"),
    [
        (SIZE, {"size": "large"}, "size: .*integer"),
        (SIZE, {"size": 0}, "size: 0 is less than the minimum of 1"),
        (SIZE, {}, '"size" is a required property'),
        (SIZE, "three", '"three" is not of type "object"'),
        (int, "three", '"three" is not of type "integer"'),
        (Address, {"number": 3}, '"street" is a required property'),
    ],
)
async def test_a_value_that_does_not_fit_is_refused_and_not_stored(
    sqlite_url: str, schema: Any, given: Any, problem: str
) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=flow(schema)) as runtime:
        request = await ask_for_input(runtime)
        before = await stored(runtime)
        with pytest.raises(InvalidAnswer, match=problem):
            await submit_input(runtime, "s", request.id, given)
        if isinstance(given, str):
            with pytest.raises(InvalidAnswer, match=problem):
                await runtime.run("s", given)
        assert await stored(runtime) == before
        assert [one.id for one in await open_inputs(runtime, "s")] == [request.id]


async def test_a_message_answers_the_request(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=flow(int)) as runtime:
        assert await runtime.run("s", "go", idempotency_key="first") == ""
        assert await runtime.run("s", "go", idempotency_key="first") == "", "a repeated request is no answer"
        assert await runtime.run("s", "3", idempotency_key="second") == '{"got":3}'
        assert await runtime.run("s", "3", idempotency_key="second") == '{"got":3}'
        with pytest.raises(IdempotencyKeyReused):
            await runtime.run("s", "4", idempotency_key="second")
        await ask_for_input(runtime)  # nothing waits any more: the next message starts anew
        assert done(await collect((await runtime.submit("s", "5")).follow())).output == {"got": 5}


async def test_an_answer_counts_once(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        results = await asyncio.gather(
            *(submit_input(runtime, "s", request.id, number) for number in (1, 2, 3)), return_exceptions=True
        )
        assert sorted(isinstance(result, WaitNotOpen) for result in results) == [False, True, True]
        with pytest.raises(WaitNotOpen, match="was answered before"):
            await submit_input(runtime, "s", request.id, 4)
        with pytest.raises(WaitNotOpen, match="has no wait 'other'"):
            await submit_input(runtime, "s", "other", 4)


async def test_a_repeated_answer_with_the_same_key_gets_the_same_turn(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        first = await answer(runtime, request.id, 3, idempotency_key="k")
        assert (await answer(runtime, request.id, 3, idempotency_key="k")).turn == first.turn


async def test_a_request_expires(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        await expire_waits(runtime)
        async with asyncio.timeout(TIMEOUT_S):
            while (await messages(runtime))[-1].role != "tool":
                await asyncio.sleep(0.02)
        assert (await messages(runtime))[-1].tool_calls[0].output == {"error": "no answer: the input request expired"}
        with pytest.raises(WaitNotOpen):
            await submit_input(runtime, "s", request.id, 3)
        assert (await ask_for_input(runtime, "3")).id != request.id, "the next message starts anew"


async def test_cancel_closes_the_request(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        assert await runtime.cancel("s")
        assert not await runtime.cancel("s")
        with pytest.raises(WaitNotOpen):
            await submit_input(runtime, "s", request.id, 3)
        await ask_for_input(runtime, "again")


async def test_a_message_with_a_file_goes_on_without_an_answer(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        events = await collect(runtime.stream("s", "see", attachments=[Attachment("a.txt", "text/plain", b"3")]))
        assert needed(events).id != request.id
        with pytest.raises(WaitNotOpen):
            await submit_input(runtime, "s", request.id, 3)


async def test_nodes_that_run_in_parallel_each_get_their_answer(sqlite_url: str) -> None:
    first, second = asking(int, "first"), asking(str, "second")
    root = Workflow(name="flow", edges=[(START, (first, second), JoinNode(name="join"), show)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "go"))
        requests = {wait.path: wait for wait in opened(events, InputWait)}
        assert len(requests) == 2
        ended = await answer(runtime, requests["flow@1/second@1"].id, "red")
        assert ended.waits[0].kind == "input"
        assert [one.path for one in await open_inputs(runtime, "s")] == ["flow@1/first@1"]
        ended = await answer(runtime, requests["flow@1/first@1"].id, 3)
        assert ended.output == {"got": {"first": 3, "second": "red"}}


async def test_a_node_may_ask_again_with_the_same_id(sqlite_url: str) -> None:
    async def gate(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield RequestInput(interrupt_id="gate", message="Good enough?", response_schema=bool)

    def judge(node_input: Any) -> Any:
        return Event.model_validate({"output": node_input, "route": "good" if node_input else "bad"})

    gate_node, judge_node = node(gate), node(judge)
    root = Workflow(
        name="flow", edges=[(START, gate_node, judge_node), (judge_node, {"bad": gate_node, "good": node(show)})]
    )
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert (await ask_for_input(runtime)).id == "gate"
        assert (await answer(runtime, "gate", "no")).waits[0].kind == "input"
        assert (await answer(runtime, "gate", "no")).waits[0].kind == "input"
        assert (await answer(runtime, "gate", "yes")).output == {"got": True}


async def test_a_paused_workflow_with_long_texts_goes_on_where_it_was(sqlite_url: str) -> None:
    writers = [LlmAgent(name=f"writer{number}", model="openai/x") for number in range(6)]
    root = Workflow(name="flow", edges=[(START, *writers, asking(int), show)])
    provider = ScriptedProvider(["word " * 300] * 12)
    settings = settings_for(sqlite_url).model_copy(update={"history": {"max_message_token_budget": 1000}})
    settings = type(settings).model_validate(settings.model_dump(warnings=False))
    async with open_runtime(settings, root_agent=root, provider=provider) as runtime:
        request = needed(await collect(runtime.stream("s", "go")))
        assert (await answer(runtime, request.id, 3)).output == {"got": 3}
    assert len(provider.requests) == 6, "finished agents are not asked again, though they do not fit the window"


async def test_a_fork_has_its_own_request(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(int)) as runtime:
        request = await ask_for_input(runtime)
        await runtime.sessions.fork("s", new_id="fork")
        assert (await answer(runtime, request.id, 3)).output == {"got": 3}
        in_fork = await collect((await submit_input(runtime, "fork", request.id, 4)).follow())
        assert done(in_fork).output == {"got": 4}


async def test_an_agent_asks_with_adks_own_tool(sqlite_url: str) -> None:
    agent = LlmAgent(name="asker", model="openai/x", tools=[request_input])
    provider = ScriptedProvider([ToolCall("c1", "adk_request_input", {"message": "Which color?"}), "red it is"])
    async with open_runtime(settings_for(sqlite_url), root_agent=agent, provider=provider) as runtime:
        request = await ask_for_input(runtime)
        assert request.message == "Which color?"
        assert text_of(await collect((await submit_input(runtime, "s", request.id, "red")).follow())) == "red it is"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_tool_as_a_node_asks_for_approval(sqlite_url: str, approved: bool) -> None:
    wiped: list[str] = []

    @tool(level="dangerous")
    def wipe(disk: str) -> str:
        """Wipe a disk."""
        wiped.append(disk)
        return f"{disk} is empty"

    def choose(node_input: Any) -> dict[str, str]:
        return {"disk": "d1"}

    root = Workflow(name="flow", edges=[(START, choose, AdkTool(wipe), show)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        request = await ask_for_input(runtime)
        assert quote(request.id, safe="") == request.id, "ADK's own id is the path of the node"
        assert [one.id for one in await open_inputs(runtime, "s")] == [request.id]
        assert [item.wait.id for item in await runtime.inbox.list()] == [request.id]
        assert request.message == "May wipe run with exactly these arguments?"
        assert request.payload == {"tool_name": "wipe", "args": {"disk": "d1"}}
        assert wiped == []
        events = await collect((await submit_input(runtime, "s", request.id, approved)).follow())
        assert wiped == (["d1"] if approved else [])
        result = {"result": "d1 is empty"} if approved else {"error": "not run: a person refused this call"}
        assert done(events).output == {"got": result}
        assert not [event for event in events if event.type in ("tool_start", "tool_end")], "it is a node"
        journaled = "SELECT approved FROM tool_journal WHERE name = 'wipe' ORDER BY epoch DESC LIMIT 1"
        assert await rows(store_of(runtime), journaled) == [(int(approved),)]


async def test_a_pause_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """Ten pauses, each answered by a new runtime."""
    url = f"sqlite:///{tmp_path}/lango.db"
    root = [asking(int, f"ask{number}") for number in range(10)]
    flow_of_ten = Workflow(name="flow", edges=[(START, *root, show)])
    async with open_runtime(settings_for(url), root_agent=flow_of_ten) as runtime:
        await ask_for_input(runtime)
    outputs: list[Any] = []
    for number in range(10):
        async with open_runtime(settings_for(url), root_agent=flow_of_ten) as runtime:
            [request] = await open_inputs(runtime, "s")
            outputs.append((await answer(runtime, request.id, number)).output)
    assert outputs == [None] * 9 + [{"got": 9}]


def answer_when_told(pipe: Connection, url: str, value: str) -> None:
    """Answer the open request of a session at the moment that the test names, in a process of its own."""

    async def run() -> None:
        async with open_runtime(settings_for(url), root_agent=flow(str)) as runtime:
            [request] = await open_inputs(runtime, "s")
            pipe.send("ready")
            pipe.recv()
            try:
                turn = await submit_input(runtime, "s", request.id, value)
            except WaitNotOpen:
                pipe.send("WaitNotOpen")
                return
            await turn.wait()
            pipe.send(turn.answer)

    logging.disable(logging.WARNING)
    asyncio.run(run())


async def test_of_two_answers_at_once_in_two_processes_one_counts(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), root_agent=flow(str)) as runtime:
        await ask_for_input(runtime)
    workers = [Worker(answer_when_told, store_url, value) for value in ("one", "two")]
    for worker in workers:
        assert await asyncio.to_thread(worker.recv) == "ready"
    for worker in workers:
        worker.send("now")
    outcomes = sorted([await asyncio.to_thread(worker.recv) for worker in workers])
    assert outcomes[0] == "WaitNotOpen"
    assert outcomes[1] in ('{"got":"one"}', '{"got":"two"}')
    for worker in workers:
        worker.join()
    async with open_runtime(settings_for(store_url), root_agent=flow(str)) as runtime:
        answers = [message for message in await messages(runtime) if message.role == "tool"]
        assert len(answers) == 1


async def test_an_answer_that_is_queued_is_not_given_again(store_url: str) -> None:
    may_end, began = asyncio.Event(), asyncio.Event()

    async def slow(node_input: Any) -> Any:
        began.set()
        await may_end.wait()
        return node_input

    left, right = asking(str, "left"), asking(str, "right")
    root = Workflow(name="flow", edges=[(START, (left, right)), (left, slow), ((slow, right), JoinNode(name="join"))])
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        await (await runtime.submit("s", "go")).wait()
        by_path = {request.path: request.id for request in await open_inputs(runtime, "s")}
        first = await submit_input(runtime, "s", by_path["flow@1/left@1"], "l")
        async with asyncio.timeout(TIMEOUT_S):
            await began.wait()
        async with open_runtime(settings_for(store_url), root_agent=root) as another:
            name = SessionId(another.app_name, USER, "s")
            # another process has read the open request before it is answered
            session = await store_of(another).read(find_session, name)
            assert session is not None
            read = await store_of(another).read(get_wait, session.key, name, by_path["flow@1/right@1"])
            late = vars(another)["_engine"].inputs.answer(name, read, Value("late"))
            queued = await submit_input(runtime, "s", by_path["flow@1/right@1"], "r")  # behind the turn that runs
            with pytest.raises(WaitNotOpen):
                await submit_input(another, "s", by_path["flow@1/right@1"], "again")
            with pytest.raises(WaitNotOpen):
                await store_of(another).submit_turn(session, late.entry, "another", SubmitOptions(answer=late.answer))
        may_end.set()
        await first.wait()
        await queued.wait()
        assert done(await collect(queued.follow())).output == {"slow": "l", "right": "r"}
