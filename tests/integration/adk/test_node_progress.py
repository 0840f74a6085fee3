"""The progress of a workflow's nodes: emitted while they run, and read from the event log by later readers."""

from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.tools import LongRunningFunctionTool
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow, node
from google.genai import types

from lango import open_runtime
from lango.events import NodeProgress, TurnEvent
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.sessions.sessions import find_session
from lango.store.turns.event_log import read_event_log, read_nodes
from lango.testing import ScriptedProvider
from tests.agents.answers import open_inputs, submit_input, submit_results, waiting_for
from tests.agents.parts import USER, collect, settings_for
from tests.support.runtimes import store_of

Shown = tuple[str, str, int, Any, str]
"""What a reader sees of a node: its path, status, attempt, output and error."""


def one(node_input: Any) -> str:
    return "from one"


def two(node_input: Any) -> dict[str, int]:
    return {"n": 2}


def wrap(node_input: Any) -> list[Any]:
    return [node_input]


async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="How many?", response_schema=int)


async def ask_again(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
    if "again" not in ctx.resume_inputs:
        yield RequestInput(interrupt_id="again", message="And now?", response_schema=int)
        return
    yield ctx.resume_inputs["again"] + 1


def fail_once(ctx: Context, node_input: Any) -> str:
    if ctx.attempt_count == 1:
        raise ConnectionError("try again")
    return "second attempt"


async def run_another(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
    yield await ctx.run_node(node(one, name="child"), "x")


def order(item: str) -> None:
    """Order something; the result comes later."""


class Graph:
    """A workflow with every kind of node, which pauses three times."""

    def __init__(self) -> None:
        self.silent_runs = 0

    def root(self) -> Workflow:
        def silent(node_input: Any) -> None:
            self.silent_runs += 1

        retry = RetryConfig(max_attempts=3, initial_delay=0.01, jitter=0)
        writer = LlmAgent(name="writer", model="openai/x")
        clerk = LlmAgent(name="clerk", model="openai/x", tools=[LongRunningFunctionTool(order)])
        inner = Workflow(name="inner", edges=[(START, silent, ask, two)])
        parts = [
            (one, writer),
            JoinNode(name="join"),
            node(run_another, rerun_on_resume=True),
            node(fail_once, retry_config=retry),
            inner,
            node(ask_again, rerun_on_resume=True),
            clerk,
            wrap,
        ]
        return Workflow(name="flow", edges=[(START, *parts)])


def shown(events: Sequence[TurnEvent]) -> dict[str, Shown]:
    """Return what readers see last of each node."""
    return {
        event.path: (event.name, event.status, event.attempt, event.output, event.error)
        for event in events
        if isinstance(event, NodeProgress)
    }


async def nodes_by_turn(runtime: Runtime, session_id: str) -> list[list[NodeProgress]]:
    session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, USER, session_id))
    assert session is not None
    return [*(await store_of(runtime).read(read_nodes, session, 1, session.last_seq)).values()]


async def run_all(runtime: Runtime) -> list[list[TurnEvent]]:
    turns = [await collect((await runtime.submit("s", "go")).follow())]
    for value in (3, 5):
        [request] = await open_inputs(runtime, "s")
        turns.append(await collect((await submit_input(runtime, "s", request.id, value)).follow()))
    turns.append(await collect((await submit_results(runtime, "s", {"c1": {"at": "home"}})).follow()))
    return turns


SCRIPT = ["a draft", ToolCall("c1", "order", {"item": "boat"}), "it came"]
ENDED = {
    "flow@1/inner@1/ask@1": 3,
    "flow@1/ask_again@1": 6,
    "flow@1/fail_once@1": "second attempt",
    "flow@1/inner@1/silent@1": None,
    "flow@1/run_another@1/child@1": "from one",
    "flow@1/wrap@1": ["it came"],
}


async def test_later_readers_see_the_same_progress_of_nodes(store_url: str) -> None:
    graph = Graph()
    provider = ScriptedProvider(SCRIPT)
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=graph.root()) as runtime:
        live = await run_all(runtime)
    ends = [
        event.path for turn in live for event in turn if isinstance(event, NodeProgress) and event.status == "ended"
    ]
    assert sorted(ends) == sorted(set(ends)), "each node is shown once, also in later turns of the same run"
    assert [waiting_for(events) for events in live] == [
        "input",
        "input",
        "long_running_result",
        "done",
    ]
    assert graph.silent_runs == 1, "a node that ended without an output does not run again after a pause"
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=graph.root()) as another:
        nodes = await nodes_by_turn(another, "s")
        assert len(nodes) == 4
        everything: dict[str, Shown] = {}
        for turn, events in zip(live, nodes, strict=True):
            assert events == [event for event in turn if isinstance(event, NodeProgress)]
            everything |= shown(events)
    assert {everything[path][1] for path in everything} == {"ended"}
    assert {path: everything[path][3] for path in ENDED} == ENDED
    assert everything["flow@1/fail_once@1"][2] == 2
    steps = [event for events in nodes for event in events]
    failures = [event for event in steps if event.status == "failed"]
    assert [(event.attempt, event.error) for event in failures] == [(1, "ConnectionError: try again")]
    waiting = [event.path for event in steps if event.status == "waiting"]
    assert waiting == ["flow@1/inner@1/ask@1", "flow@1/inner@1", "flow@1/ask_again@1", "flow@1/clerk@1"]


@pytest.mark.parametrize(("failures", "status"), [(1, "done"), (9, "failed")], ids=["a retry works", "none works"])
async def test_a_workflow_is_traced_as_failed_when_a_node_of_it_is(sqlite_url: str, failures: int, status: str) -> None:
    left = iter(range(failures))

    def say() -> Generator[Any]:
        yield Event(author="flow", content=types.Content(role="model", parts=[types.Part(text="I begin.")]))

    @node(retry_config=RetryConfig(max_attempts=2, initial_delay=0, jitter=0))
    def fail() -> str:
        if next(left, None) is not None:
            raise ConnectionError("try again")
        return "it worked"

    async with open_runtime(
        settings_for(sqlite_url), root_agent=Workflow(name="flow", edges=[(START, say, fail)])
    ) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
        [turn] = (await runtime.sessions.trace("s")).turns
    [flow] = [step for step in turn.steps if step.kind == "agent"]
    attempts = [step.status for step in turn.steps if step.name == "fail"]
    assert (flow.name, flow.status, attempts) == ("flow", status, ["failed", status])


async def test_the_event_log_has_the_events_of_nodes(store_url: str) -> None:
    graph = Graph()
    provider = ScriptedProvider(SCRIPT)
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=graph.root()) as runtime:
        live = await run_all(runtime)
        session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, USER, "s"))
        assert session is not None
        for number, turn in enumerate(live, start=1):
            page = await store_of(runtime).read(read_event_log, session.key, number)
            assert [one.event for one in page.events if isinstance(one.event, NodeProgress)] == [
                event for event in turn if isinstance(event, NodeProgress)
            ]


async def test_sub_agents_are_no_nodes(sqlite_url: str) -> None:
    to_clerk = ToolCall("t1", "transfer_to_agent", {"agent_name": "clerk"})
    provider = ScriptedProvider([to_clerk, ToolCall("c1", "order", {"item": "boat"}), "it came"])
    clerk = LlmAgent(name="clerk", tools=[LongRunningFunctionTool(order)])
    root = LlmAgent(name="root", sub_agents=[clerk])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
        await collect((await submit_results(runtime, "s", {"c1": {"at": "home"}})).follow())
        assert await nodes_by_turn(runtime, "s") == []


async def test_a_fork_shows_the_nodes_of_its_source(store_url: str) -> None:
    root = Workflow(name="flow", edges=[(START, one, two)])
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        await runtime.run("s", "go")
        fork = await runtime.sessions.fork("s", new_id="f")
        await runtime.run("f", "again")
        ended = [event.path for events in await nodes_by_turn(runtime, "f") for event in events if event.output]
        assert ended == ["flow@1/one@1", "flow@1/two@1"] * 2
        await runtime.sessions.rewind("f", before=fork.last_seq + 1)
        session = await store_of(runtime).read(find_session, fork.name)
        assert session is not None
        details = await runtime.sessions.page_with_details(session, before=None, limit=50)
        assert [len(message.nodes) for message in details.messages if message.nodes] == [2], "rewound: not shown"


@pytest.mark.parametrize("size", [10, 20_000])
async def test_a_long_output_is_clipped_the_same_for_all_readers(sqlite_url: str, size: int) -> None:
    def large(node_input: Any) -> dict[str, str]:
        return {"text": "x" * size}

    root = Workflow(name="flow", edges=[(START, large, wrap)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        live = await collect((await runtime.submit("s", "go")).follow())
        [nodes] = await nodes_by_turn(runtime, "s")
        assert shown(nodes) == shown(live)
        assert isinstance(shown(live)["flow@1/large@1"][3], str if size > 10_000 else dict)
