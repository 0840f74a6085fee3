"""A turn runs on from one of its steps with something changed, as a fork; the original stays."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import ToolContext
from google.adk.workflow import START, RetryConfig, Workflow, node
from google.genai import types

from lango import Tool, open_runtime
from lango.adk import ProviderLlm
from lango.errors import AgentFailed, Conflict, ModelOptionsRefused, ProviderRejected, StateRefused, TraceNotFound
from lango.messages import ToolCall
from lango.model_options import AgentOptions
from lango.runtime.playground import Changes
from lango.runtime.runtime import Runtime
from lango.testing import Entry, ScriptedProvider
from lango.tools import client_tool
from lango.waits import Approve, Value
from tests.agents.answers import submit_results
from tests.agents.parts import settings_for
from tests.support.kill_points import until_idle

RUNS: list[str] = []


def look(place: str, tool_context: ToolContext) -> dict[str, Any]:
    """Look at a place."""
    RUNS.append(place)
    tool_context.state["place"] = place
    return {"seen": f"nothing in {place}"}


def helper(provider: ScriptedProvider) -> LlmAgent:
    return LlmAgent(name="helper", model=ProviderLlm(provider, "m"), instruction="Be kind in {place?}.", tools=[look])


async def texts(runtime: Runtime, session_id: str) -> list[str]:
    messages = await runtime.sessions.messages(session_id)
    return [event.message.content for event in messages if event.message and event.message.role != "tool"]


async def test_a_turn_runs_on_from_a_tool_with_another_result(store_url: str) -> None:
    RUNS.clear()
    script: list[Entry] = ["Hello.", [ToolCall("c1", "look", {"place": "drawer"})], "Nothing.", "A key!", "Still here."]
    provider = ScriptedProvider(script)
    async with open_runtime(settings_for(store_url), root_agent=helper(provider)) as runtime:
        await runtime.run("s", "hi")
        await runtime.run("s", "look")
        before = await runtime.sessions.messages("s")
        changes = Changes(results={"c1": {"seen": "a key"}}, state={"place": "attic", "mood": 1})
        fork, turn = await runtime.playground.run_on("s", 2, changes, before=5, new_id="f")
        assert await turn.collect_answer() == "A key!"
        assert await texts(runtime, "f") == ["hi", "Hello.", "look", "", "A key!"]
        assert RUNS == ["drawer"], "the tool did not run again"
        assert provider.requests[-1].messages[-1].tool_calls[0].output == {"seen": "a key"}
        assert "Be kind in attic." in provider.requests[-1].system
        assert (fork.name.id, fork.forked_from and fork.forked_from.id) == ("f", "s")
        state = await runtime.sessions.state("f")
        assert state.session == {"place": "attic", "mood": 1}
        assert await runtime.sessions.messages("s") == before, "the original stays"
        assert (await runtime.sessions.state("s")).session == {"place": "drawer"}
        [traced] = (await runtime.sessions.trace("f")).turns
        assert [(step.kind, step.status) for step in traced.steps[0].steps] == [("model_call", "done")] * 2
        assert not await runtime.sessions.check("f")
        assert await runtime.run("f", "more") == "Still here."


async def test_a_turn_runs_again_with_another_prompt_and_model_of_a_sub_agent(sqlite_url: str) -> None:
    transfer = ToolCall("t1", "transfer_to_agent", {"agent_name": "helper"})
    provider = ScriptedProvider([[transfer], "Kindly.", "Rudely.", [transfer], "Again."])
    root = LlmAgent(name="desk", model=ProviderLlm(provider, "m"), sub_agents=[helper(provider)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        await runtime.run("s", "help me")
        [traced] = (await runtime.sessions.trace("s")).turns
        step = next(one for group in traced.steps if group.name == "helper" for one in group.steps)
        changes = Changes(agents={"helper": AgentOptions(system="Be rude.")})
        _, turn = await runtime.playground.run_on("s", 1, changes, before=step.seq, new_id="rude")
        assert await turn.collect_answer() == "Rudely."
        assert (provider.requests[-1].system, len(provider.requests)) == ("Be rude.", 3), "desk was not asked again"
        _, turn = await runtime.playground.run_on("s", 1, Changes(), new_id="again")
        assert await turn.collect_answer() == "Again."
        other = Changes(agents={"helper": AgentOptions(model="nowhere/x")})
        with pytest.raises(ModelOptionsRefused, match="nowhere"):
            await runtime.playground.run_on("s", 1, other, new_id="unknown")
        assert await runtime.sessions.find("unknown") is None


async def test_a_workflow_runs_on_from_its_agent_without_its_first_node(sqlite_url: str) -> None:
    ran: list[str] = []

    def prepare(node_input: Any) -> str:
        ran.append("prepare")
        return "prepared"

    def close(node_input: Any) -> str:
        ran.append("close")
        return f"closed after {node_input}"

    provider = ScriptedProvider(["one", "two"])
    writer = LlmAgent(name="writer", model=ProviderLlm(provider, "m"), instruction="Write.")
    flow = Workflow(name="flow", edges=[(START, prepare, writer, close)])
    async with open_runtime(settings_for(sqlite_url), root_agent=flow) as runtime:
        assert await runtime.run("s", "go") == "closed after one"
        [traced] = (await runtime.sessions.trace("s")).turns
        group = next(group for group in traced.steps if group.name == "writer")
        changes = Changes(agents={"writer": AgentOptions(system="Write well.")})
        _, turn = await runtime.playground.run_on("s", 1, changes, before=group.steps[0].seq, new_id="f")
        assert await turn.collect_answer() == "closed after two"
        assert ran == ["prepare", "close", "close"]
        assert provider.requests[-1].system == "Write well."


class EchoLlm(BaseLlm):
    """A model object of the user's own, which Lango does not know."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.ModelContent(f"echo of {len(llm_request.contents)}"))


async def test_a_model_object_of_the_users_own_is_replaced(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ToolCall("c1", "look", {"place": "attic"})], "Nothing there.", "Kindly."])
    root = LlmAgent(name="desk", model=EchoLlm(model="mine"), tools=[look])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert await runtime.run("s", "hi") == "echo of 1"
        changes = Changes(agents={"desk": AgentOptions(model="openai/y")})
        _, turn = await runtime.playground.run_on("s", 1, changes, new_id="f")
        assert await turn.collect_answer() == "Nothing there."
        assert [request.model for request in provider.requests] == ["y", "y"]
        _, turn = await runtime.playground.run_on("s", None, Changes("again", changes.agents), new_id="g")
        assert await turn.collect_answer() == "Kindly."
        assert await runtime.run("g", "and now?") == "echo of 5", "its own model again"


async def test_one_message_is_sent_to_several_forks_with_other_models(sqlite_url: str) -> None:
    provider = ScriptedProvider(["Hello.", "Fine.", "In German: gut."])
    root = LlmAgent(name="helper", model="openai/x", instruction="Be kind.")
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "hi")
        options = AgentOptions(system="Be German.", model="openai/y")
        for agents in ({}, {"helper": options}):
            _, turn = await runtime.playground.run_on("s", None, Changes("How are you?", agents, state={"a": 1}))
            await turn.wait()
        assert [(request.model, request.system.splitlines()[0]) for request in provider.requests] == [
            ("x", "Be kind."),
            ("x", "Be kind."),
            ("y", "Be German."),
        ]
        assert (await runtime.sessions.state(turn.session.name.id)).session == {"a": 1}
        assert len(await runtime.sessions.messages("s")) == 2


async def test_a_turn_after_an_approval_runs_on_from_its_steps(store_url: str) -> None:
    ran: list[Any] = []

    def wipe(arguments: dict[str, Any]) -> dict[str, Any]:
        ran.append(arguments["disk"])
        return {"wiped": arguments["disk"]}

    schema = {"type": "object", "properties": {"disk": {"type": "string"}}}
    tool = Tool("wipe", "Wipe a disk.", schema, wipe, level="dangerous")
    provider = ScriptedProvider(
        [[ToolCall("c1", "wipe", {"disk": "a"})], "Wiped.", "It failed?", "Wiped again.", "Yes."]
    )
    async with open_runtime(settings_for(store_url), tools=[tool], provider=provider) as runtime:
        await runtime.run("s", "wipe a")
        [wait] = await runtime.waits("s")
        await (await runtime.answer("s", wait.id, Approve())).collect_answer()
        [_, traced] = (await runtime.sessions.trace("s")).turns
        stored = await runtime.sessions.messages("s")
        result = next(one.seq for one in stored if one.message and "wiped" in str(one.message.tool_calls))
        changes = Changes(results={"c1": {"error": "the disk is busy"}})
        _, turn = await runtime.playground.run_on("s", traced.turn, changes, before=result, new_id="f")
        assert await turn.collect_answer() == "It failed?"
        assert provider.requests[-1].messages[-1].tool_calls[0].output == {"error": "the disk is busy"}
        assert ran == ["a"], "the tool did not run again"
        _, turn = await runtime.playground.run_on("s", traced.turn, Changes(), new_id="g")
        assert await turn.collect_answer() == "Wiped again."
        assert ran == ["a", "a"], "the same answer starts the turn again"
        for session in ("s", "f", "g"):
            assert not await runtime.sessions.check(session)
            assert await runtime.waits(session) == []
        assert await runtime.run("g", "sure?") == "Yes."
        with pytest.raises(Conflict, match="fork the session before message"):
            await runtime.playground.run_on("s", traced.turn, Changes("no"), new_id="h")


async def test_a_turn_after_an_input_runs_on_from_its_agent(store_url: str) -> None:
    ran: list[str] = []

    async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
        ran.append("ask")
        yield RequestInput(message="How many?", response_schema={"type": "integer"})

    provider = ScriptedProvider(["one", "two", "three"])
    writer = LlmAgent(name="writer", model=ProviderLlm(provider, "m"), instruction="Write.")
    flow = Workflow(name="flow", edges=[(START, node(ask), writer)])
    async with open_runtime(settings_for(store_url), root_agent=flow) as runtime:
        await runtime.run("s", "go")
        [wait] = await runtime.waits("s")
        await (await runtime.answer("s", wait.id, Value(3))).collect_answer()
        [_, traced] = (await runtime.sessions.trace("s")).turns
        group = next(group for group in traced.steps if group.name == "writer")
        changes = Changes(agents={"writer": AgentOptions(system="Write well.")})
        _, turn = await runtime.playground.run_on("s", 2, changes, before=group.steps[0].seq, new_id="f")
        assert await turn.collect_answer() == "two"
        assert (provider.requests[-1].system, provider.requests[-1].messages) == (
            "Write well.",
            provider.requests[0].messages,
        )
        _, turn = await runtime.playground.run_on("s", 2, Changes(), new_id="g")
        assert await turn.collect_answer() == "three"
        assert ran.count("ask") == 1
        assert not await runtime.sessions.check("g")


async def test_a_turn_that_tries_results_again_runs_on_from_its_steps(store_url: str) -> None:
    pick = client_tool("pick", "Pick a color.", {"type": "object", "properties": {}})
    provider = ScriptedProvider(
        [
            [ToolCall("c1", "pick", {})],
            ProviderRejected("no"),
            [ToolCall("c2", "look", {"place": "attic"})],
            "Red.",
            "Green.",
        ]
    )
    RUNS.clear()
    async with open_runtime(settings_for(store_url), root_agent=helper(provider)) as runtime:
        await (await runtime.submit("s", "pick one", client_tools=[pick])).wait()
        for _ in range(2):  # the first turn with the result fails
            await (await submit_results(runtime, "s", {"c1": {"color": "red"}})).wait()
        assert (await texts(runtime, "s"))[-1] == "Red."
        turn = (await runtime.sessions.trace("s")).turns[-1]
        last = (await runtime.sessions.messages("s"))[-1].seq
        _, running = await runtime.playground.run_on("s", turn.turn, Changes(), before=last, new_id="f")
        assert await running.collect_answer() == "Green."
        assert provider.requests[-1].messages == provider.requests[-2].messages
        assert RUNS == ["attic"], "the tool did not run again"
        assert not await runtime.sessions.check("f")


class Teller:
    """An agent that pays twice, in three versions: the first two are stopped while they pay."""

    def __init__(self, *script: Entry) -> None:
        self.paid: list[int] = []
        self.provider = ScriptedProvider(script)
        self.holds, self.may_end = asyncio.Event(), asyncio.Event()

    async def pay(self, n: int) -> dict[str, int]:
        """Pay."""
        self.paid.append(n)
        if len(self.paid) <= 2:
            self.holds.set()
            await self.may_end.wait()
        return {"paid": n}

    def agent(self, name: str) -> LlmAgent:
        """Make an agent that reads only the newest message: what it paid before an update looks undone to it."""
        model = ProviderLlm(self.provider, "m")
        return LlmAgent(name=name, model=model, tools=[self.pay], include_contents="none")

    async def stop(self, runtime: Runtime, *, may_end: bool = True) -> None:
        """Stop a version while it pays, and let that end or cut it off."""
        await self.holds.wait()
        closing = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        if may_end:
            self.may_end.set()
        await closing
        self.holds.clear()
        self.may_end.clear()


async def test_a_turn_that_continued_after_updates_runs_on_from_its_steps(store_url: str) -> None:
    first, second = [ToolCall("c1", "pay", {"n": 1})], [ToolCall("c2", "pay", {"n": 2})]
    teller = Teller(
        first,
        second,
        "Both paid.",
        "Paid, both.",
        first,
        "Again.",
        [*first, ToolCall("c3", "pay", {"n": 3})],
        "Between.",
        "Other two.",
        second,
        "Taken over.",
        "Anew.",
    )
    settings = settings_for(store_url, name="app")
    async with open_runtime(settings, root_agent=teller.agent("shop")) as runtime:
        await runtime.submit("s", "pay")
        await teller.stop(runtime)
    async with open_runtime(settings, root_agent=teller.agent("store")) as runtime:
        await teller.stop(runtime)
    async with open_runtime(settings, root_agent=teller.agent("till")) as runtime:
        await until_idle(runtime)
        stored = await runtime.sessions.messages("s")
        notes = [one.seq for one in stored if one.message and one.message.role == "system"]
        assert stored[-1].message
        assert (stored[-1].message.content, teller.paid, len(notes)) == ("Both paid.", [1, 2], 2)

        async def run_on(before: int | None, new_id: str) -> str:
            _, running = await runtime.playground.run_on("s", 1, Changes(), before=before, new_id=new_id)
            answer = await running.collect_answer()
            assert not await runtime.sessions.check(new_id)
            return answer

        assert await run_on(stored[-1].seq, "end") == "Paid, both."
        assert teller.provider.requests[-1].messages == teller.provider.requests[-2].messages
        assert await run_on(notes[1] + 1, "after") == "Again."
        assert teller.paid == [1, 2], "what was paid before the updates is not paid again"
        assert await run_on(notes[0] + 1, "between") == "Between."
        assert teller.paid == [1, 2, 3], "what was paid before the first update is not paid again"
        assert await run_on(notes[1], "before the second") == "Other two."
        assert await run_on(notes[0], "before") == "Taken over."
        assert teller.paid == [1, 2, 3, 2], "what was paid before that step is not paid again"
        assert await run_on(None, "start") == "Anew."
        assert await runtime.sessions.messages("s") == stored, "the original stays"


async def test_a_turn_runs_on_from_where_updates_closed_its_calls(store_url: str) -> None:
    first, second = [ToolCall("c1", "pay", {"n": 1})], [ToolCall("c2", "pay", {"n": 2})]
    teller = Teller(first, second, "Perhaps paid.", second, "Paid one.", "Paid none.")
    settings = settings_for(store_url, name="app", drain_s=0)
    for name in ("shop", "store"):
        async with open_runtime(settings, root_agent=teller.agent(name)) as runtime:
            if name == "shop":
                await runtime.submit("s", "pay")
            await teller.stop(runtime, may_end=False)
    async with open_runtime(settings, root_agent=teller.agent("till")) as runtime:
        await until_idle(runtime)
        stored = await runtime.sessions.messages("s")
        closed = [one.seq for one in stored if one.event_id.startswith("closed-")]
        assert [one.message.role for one in stored if one.seq - 1 in closed and one.message] == ["system", "system"]
        for at, answer in zip(closed, ("Paid one.", "Paid none."), strict=True):
            fork, running = await runtime.playground.run_on("s", 1, Changes(), before=at + 1)
            assert await running.collect_answer() == answer
            assert not await runtime.sessions.check(fork.name.id)
            kept = (await runtime.sessions.messages(fork.name.id))[: at + 1]
            assert [one.event_id for one in kept] == [one.event_id for one in stored[: at + 1]], "all of the update"
        assert teller.paid == [1, 2, 2], "after the first update the second call is made again"


async def test_what_cannot_be_run_on_is_refused_and_leaves_no_fork(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ToolCall("c1", "look", {"place": "drawer"})], "Nothing."])
    async with open_runtime(settings_for(sqlite_url), root_agent=helper(provider)) as runtime:
        await runtime.run("s", "look")
        refused: list[tuple[int | None, Changes, int | None, type[Exception], str]] = [
            (9, Changes(), None, TraceNotFound, "no turn 9"),
            (9, Changes("again"), None, TraceNotFound, "no turn 9"),
            (1, Changes(), 1, Conflict, "choose one from 2 on"),
            (1, Changes(), 6, Conflict, "not a step of turn 1"),
            (1, Changes(results={"c2": {}}), 3, Conflict, "call c2 had no result"),
            (1, Changes(results={"c1": {}}), 2, Conflict, "call c1 had no result"),
            (1, Changes(results={"c1": {}}), None, Conflict, "name the message"),
            (1, Changes("again"), 3, Conflict, "leave out `before`"),
            (None, Changes(), None, Conflict, "name the turn"),
            (1, Changes(state={"user:x": 1}), None, StateRefused, "shared with the original"),
        ]
        for turn, changes, before, error, why in refused:
            with pytest.raises(error, match=why):
                await runtime.playground.run_on("s", turn, changes, before=before, new_id="f")
            assert await runtime.sessions.find("f") is None


@pytest.mark.parametrize("how", ["run on", "retry"])
async def test_a_failed_turn_runs_on_once_its_code_is_mended(store_url: str, how: str) -> None:
    broken, ran = [True], list[str]()

    @node(retry_config=RetryConfig(max_attempts=2, initial_delay=0, jitter=0))
    def fetch(node_input: Any) -> str:
        ran.append("fetch")
        if len(ran) == 1:
            raise ConnectionError("try again")
        return "fetched"

    def store(node_input: Any) -> str:
        if broken:
            raise LookupError("no shelf")
        return f"stored {node_input}"

    provider = ScriptedProvider(["a book"])
    writer = LlmAgent(name="writer", model=ProviderLlm(provider, "m"), instruction="Write.")
    flow = Workflow(name="flow", edges=[(START, fetch, writer, store)])
    async with open_runtime(settings_for(store_url), root_agent=flow) as runtime:
        with pytest.raises(AgentFailed, match="no shelf"):
            await runtime.run("s", "go")
        broken.clear()
        session = await runtime.sessions.read("s")
        if how == "run on":
            _, turn = await runtime.playground.run_on("s", 1, Changes(), before=session.last_seq + 1)
            assert await turn.collect_answer() == "stored a book"
        else:
            await runtime.turns.retry("s", 1)
            await until_idle(runtime)
            assert (await texts(runtime, "s"))[-1] == "stored a book"
        assert len(provider.requests) == 1, "the model is not asked again"
        assert ran == ["fetch", "fetch"], "a node that succeeded at last does not run again"
