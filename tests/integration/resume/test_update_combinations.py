"""Combinations of changes under open turns: several at once, several deploys, roll-backs, other settings.

`tests/integration/resume/test_update_table.py` has each change alone, at every moment and with killed processes.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import PlanReActPlanner
from google.adk.tools import FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from msgspec import Struct

from lango import open_runtime
from lango.adk import sleep, wait_for_event
from lango.config.sections import McpSettings, MemorySettings
from lango.messages import ToolCall
from lango.schedules.spec import ScheduleSpec
from lango.sessions import UPDATE
from lango.store import Store
from lango.store.engine.database import Operation
from lango.testing import ScriptedProvider
from lango.tools.client_tool_definitions import client_tool
from lango.waits import ApprovalWait, Approve, Refuse, Result, Wake
from tests.agents.parts import TIMEOUT_S, Gate, collect, settings_for
from tests.integration.resume.test_input_legs import asking
from tests.support.changed_agents import (
    TRANSFER,
    World,
    agent,
    buying,
    buying_many,
    function,
    graph,
    loop,
    no_callback,
    node_agent,
    old_graph,
    ordering,
    pair,
    parallel,
    paying,
    sequence,
    shop,
    two,
)
from tests.support.deploys import Deploys, Make, answer, finish, next_is_answered, statuses

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents

SAME, CONTINUES, LOST = "same", "continues at the next model call", "cannot continue"
PAID = {"pay 1": 1, "pay 2": 1}


def all_new(w: World) -> Any:
    tools = [paying(w, "charge"), buying(w, "purchase"), ordering(w)]
    return agent(w, plan=[("charge", "1"), ("charge", "2")], tools=tools, model_name="another", instruction="Be brief.")


def renamed(w: World) -> Any:
    return agent(w, "store")


def with_sub_agent(w: World) -> Any:
    return agent(w, "boss", [TRANSFER], [], sub_agents=[agent(w)])


def with_agent_tool(w: World, name: str = "shop") -> Any:
    return agent(w, "boss", [(name, "x")], [AgentTool(agent(w, name))])


def in_sequence(w: World) -> Any:
    return sequence(agent(w, "greeter", [], []), agent(w), name="boss")


def free(w: World) -> Any:
    """Make a shop that asks no person before it buys."""

    async def buy(x: str) -> dict[str, str]:
        """Buy something."""
        w.done(f"buy {x}")
        return {"bought": x}

    return agent(w, tools=[paying(w), buy, ordering(w)])


def careful(w: World) -> Any:
    """Make a shop that asks a person before it pays."""
    return agent(w, tools=[FunctionTool(paying(w), require_confirmation=True), buying(w), ordering(w)])


def nested(w: World) -> Any:
    return graph(w, function(w, "one"), graph(w, node_agent(w), asking(), name="inner"), function(w, "two"))


class Calling(BaseLlm):
    """Calls all of its tools at once, and answers when it has a result."""

    world: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        if any(UPDATE in (part.text or "") for part in parts):
            self.world.notes.add("s")
        made = [types.Part(text="done")]
        if llm_request.tools_dict and not any(part.function_response for part in parts):
            made = [types.Part.from_function_call(name=name, args={"x": "1"}) for name in llm_request.tools_dict]
        yield LlmResponse(content=types.Content(role="model", parts=made), partial=False, turn_complete=True)


def calling(w: World, name: str, tools: list[Any]) -> Any:
    return LlmAgent(name=name, model=Calling(model="calling", world=w), tools=tools)


async def execute(url: str, sql: str) -> None:
    """Change a store behind the back of the app."""

    def operation() -> Operation[None]:
        yield sql, ()

    async with Store(url) as store:
        await store.write(operation)


SUMS = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


server.run("stdio")
"""


class Combination(Struct, frozen=True):
    """A change, and how a turn continues that is stopped at each of some moments."""

    old: Make
    new: Make
    verdicts: dict[str, str]


HELD: dict[str, str] = dict.fromkeys(("model", "tool"), CONTINUES)
COMBINATIONS = {
    "tools, instruction and model": Combination(
        shop, all_new, {"model": SAME, "tool": SAME, "approval": CONTINUES, "result": SAME}
    ),
    "a sub-agent becomes a tool": Combination(
        with_sub_agent, with_agent_tool, HELD | {"approval": CONTINUES, "result": CONTINUES}
    ),
    "a tool becomes a sub-agent": Combination(with_agent_tool, with_sub_agent, HELD),
    "the agent inside a tool is renamed": Combination(with_agent_tool, lambda w: with_agent_tool(w, "store"), HELD),
    "a sub-agent becomes part of a sequence": Combination(
        with_sub_agent, in_sequence, HELD | {"approval": SAME, "result": SAME}
    ),
    "a part of a sequence becomes a sub-agent": Combination(
        in_sequence, with_sub_agent, HELD | {"approval": SAME, "result": SAME}
    ),
    "a planner and a callback": Combination(
        shop,
        lambda w: agent(w, planner=PlanReActPlanner(), before_agent_callback=no_callback),
        dict.fromkeys(("model", "tool", "approval", "result"), SAME),
    ),
    "no approval is needed": Combination(shop, free, dict.fromkeys(("model", "tool", "approval", "result"), SAME)),
    "an approval is needed": Combination(shop, careful, {"model": SAME, "tool": SAME}),
    "a function node becomes an agent": Combination(
        old_graph,
        lambda w: graph(w, agent(w, "one", [], []), node_agent(w), asking(), function(w, "two")),
        {"model": LOST, "tool": LOST, "input": SAME},
    ),
    "an agent node becomes a function": Combination(
        old_graph,
        lambda w: graph(w, function(w, "one"), function(w, "shop"), asking(), function(w, "two")),
        {"model": LOST, "tool": LOST, "input": SAME},
    ),
    "a nested workflow becomes flat": Combination(nested, old_graph, dict.fromkeys(("model", "tool", "input"), LOST)),
    "a sequence becomes a loop of another order": Combination(two, lambda w: loop(*pair(w)[::-1]), HELD),
}


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("killed", [False, True], ids=["handed over", "killed"])
async def test_turns_continue_as_the_check_says(sqlite_url: str, name: str, killed: bool) -> None:
    case, app = COMBINATIONS[name], Deploys(sqlite_url)
    await app.begin(case.old, *case.verdicts, killed=killed)
    async with app.version(case.new) as runtime:
        assert app.checked == case.verdicts
        for moment, verdict in case.verdicts.items():
            end = await finish(runtime, moment)
            assert end == ("failed" if verdict == LOST else "done"), moment
            assert (moment in app.world.notes) == (verdict == CONTINUES), f"{moment}: what happened is what it said"
            assert max(app.effects(moment).values(), default=1) == 1, f"{moment}, again: {app.effects(moment)}"
            await collect((await runtime.submit(moment, "next")).follow())
            await finish(runtime, moment)
            assert not {"queued", "running"} & {*await statuses(runtime, moment)}, moment


# -- several deploys -------------------------------------------------------------------------------------------------


async def test_two_deploys_in_a_row_and_back_to_the_first_version(store_url: str) -> None:
    app = Deploys(store_url)
    await app.begin(shop, "model")
    async with app.holding(), app.version(renamed):
        assert app.checked == {"model": CONTINUES}
        await app.world.until_held({"model"})
    async with app.holding(), app.version(in_sequence):
        await app.world.until_held({"model"})
    async with app.version(shop) as runtime:
        assert await finish(runtime, "model") == "done"
        assert app.effects("model") == PAID
        await next_is_answered(runtime, "model")


async def test_a_version_is_rolled_back_while_an_approval_waits(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "approval")
    async with app.version(all_new):
        assert app.checked == {"approval": CONTINUES}
    async with app.version(shop) as runtime:
        assert app.checked == {"approval": SAME}
        assert await finish(runtime, "approval") == "done"
        assert app.effects("approval") == PAID | {"buy 9": 1}
        assert app.world.notes == set()


async def test_a_version_is_rolled_back_after_it_asked_again(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "approval")
    async with app.version(lambda w: agent(w, tools=[paying(w), buying_many(w), ordering(w)])) as runtime:
        await answer(runtime, "approval")
        assert app.effects("approval")["buy 9"] == 0, "the tool takes other arguments: the person is asked again"
    async with app.version(shop) as runtime:
        assert app.checked == {"approval": CONTINUES}
        assert await finish(runtime, "approval") == "done"
        assert app.effects("approval") == PAID | {"buy 9": 1}


async def test_an_answer_is_accepted_by_the_last_process_of_all_versions(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "approval")
    async with app.version(shop) as runtime:
        [wait] = await runtime.waits("approval")
        await runtime.answer("approval", wait.id, Approve())
    async with app.version(all_new) as runtime:
        assert app.checked == {"approval": CONTINUES}
        assert await finish(runtime, "approval") == "done"
        assert app.effects("approval") == PAID
        await next_is_answered(runtime, "approval")


async def test_a_version_that_was_named_before_is_judged_by_its_agents(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "model", version="1")
    async with app.holding(), app.version(shop, version="2"):
        assert app.checked == {"model": SAME}
        await app.world.until_held({"model"})
    async with app.version(renamed, version="1") as runtime:
        assert app.checked == {"model": CONTINUES}
        await finish(runtime, "model")
        assert app.effects("model") == PAID


async def test_an_app_is_renamed_and_named_back(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "model")
    async with app.version(shop, name="other") as runtime:
        assert app.checked == {"model": LOST}
        await runtime.run("own", "next")
        assert app.effects("model") == {"pay 1": 1}
    async with app.version(all_new) as runtime:
        assert app.checked == {"model": SAME}
        assert await finish(runtime, "model") == "done"


async def test_two_requests_of_one_turn_are_answered_in_different_versions(sqlite_url: str) -> None:
    def market(w: World, second: str = "sell") -> Any:
        return calling(w, "shop", [buying(w), buying(w, second)])

    app = Deploys(sqlite_url)
    await app.begin(market, "s")
    async with app.version(market) as runtime:
        await answer(runtime, "s")
        assert app.effects("s") == {"buy 1": 1}
    async with app.version(lambda w: market(w, "offer")) as runtime:
        assert app.checked == {"s": CONTINUES}
        assert await finish(runtime, "s") == "done"
        assert app.effects("s") == {"buy 1": 1}
        await next_is_answered(runtime, "s")


# -- waits ------------------------------------------------------------------------------------------------------------


async def test_a_request_expires_between_two_versions(store_url: str) -> None:
    app = Deploys(store_url)
    await app.begin(shop, "approval")
    await execute(store_url, "UPDATE waits SET expires_at = 1.0")
    async with app.version(all_new) as runtime:
        assert await runtime.waits("approval") == []
        await next_is_answered(runtime, "approval")
        assert app.effects("approval") == {}


async def test_a_request_is_refused_after_its_tool_has_changed(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "approval")
    async with app.version(all_new) as runtime:
        await answer(runtime, "approval", Refuse("no"))
        assert await finish(runtime, "approval") == "done"
        assert app.effects("approval") == PAID
        await next_is_answered(runtime, "approval")


async def test_a_long_running_tool_has_an_update_in_one_version_and_its_result_in_another(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "result")
    async with app.version(shop) as runtime:
        await answer(runtime, "result", Result({"progress": 1}, will_continue=True))
    async with app.version(renamed) as runtime:
        assert app.checked == {"result": CONTINUES}
        assert await finish(runtime, "result") == "done"
        assert app.world.notes == {"result"}
        assert app.effects("result") == PAID
        await next_is_answered(runtime, "result")


async def test_the_result_of_a_clients_tool_comes_after_its_agent_was_renamed(sqlite_url: str) -> None:
    app, look = Deploys(sqlite_url), client_tool("look", "Look.", {"type": "object", "properties": {}})
    async with app.version(lambda w: calling(w, "shop", [])) as runtime:
        await collect((await runtime.submit("s", "go", client_tools=[look])).follow())
        assert len(await runtime.waits("s")) == 1
    async with app.version(lambda w: calling(w, "store", [])) as runtime:
        assert app.checked == {"s": CONTINUES}
        await answer(runtime, "s", Result({"seen": 1}))
        assert await finish(runtime, "s") == "done"
        assert app.world.notes == {"s"}
        await next_is_answered(runtime, "s")


PAUSES: dict[str, Callable[[], Any]] = {"timer": lambda: sleep(3_000), "event": lambda: wait_for_event("paid")}
PAUSED_CHANGES = {
    "node added last": (("one", "pause", "two", "three"), SAME),
    "pausing node renamed": (("one", "halt", "two"), LOST),
    "earlier node renamed": (("uno", "pause", "two"), LOST),
    "later node renamed": (("one", "pause", "two_"), SAME),
}


@pytest.mark.parametrize("change", PAUSED_CHANGES)
@pytest.mark.parametrize("kind", PAUSES)
async def test_a_workflow_waits_for_a_time_or_an_event_across_versions(sqlite_url: str, kind: str, change: str) -> None:
    def pausing(w: World, first: str, waits: str, *more: str) -> Any:
        def pause() -> Any:
            return PAUSES[kind]()

        pause.__name__ = waits
        return graph(w, function(w, first), pause, *(function(w, name) for name in more))

    app, (names, verdict) = Deploys(sqlite_url), PAUSED_CHANGES[change]
    await app.begin(lambda w: pausing(w, "one", "pause", "two"), "s")
    async with app.version(lambda w: pausing(w, *names)) as runtime:
        assert app.checked == {"s": verdict}
        if kind == "event":
            await runtime.send_event("paid", {"x": 1})
            async with asyncio.timeout(TIMEOUT_S):
                while len(await statuses(runtime, "s")) < 2:
                    await asyncio.sleep(0.01)
        else:
            await answer(runtime, "s", Wake())
        assert await finish(runtime, "s") == ("failed" if verdict == LOST else "done")
        done = ("one", *names[2:]) if verdict == SAME else ("one",)
        assert app.effects("s") == dict.fromkeys(done, 1)


# -- queues, forks, settings -----------------------------------------------------------------------------------------


async def test_messages_behind_a_turn_that_cannot_continue_are_answered_in_order(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    async with app.holding(), app.version(old_graph) as runtime:
        await app.come_to(runtime, "tool")
        for when in ("wait", "steer", "wait"):
            await runtime.submit("tool", "next", when_busy=when)
    async with app.version(nested) as runtime:
        assert app.checked == {"tool": LOST}
        await finish(runtime, "tool")
        assert (await statuses(runtime, "tool"))[0] == "failed"
        assert PAID.items() <= app.effects("tool").items()
        await next_is_answered(runtime, "tool")


async def test_a_message_that_replaces_a_turn_which_cannot_continue(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    async with app.holding(), app.version(old_graph) as runtime:
        await app.come_to(runtime, "tool")
        await runtime.submit("tool", "next", when_busy="rollback")
    async with app.version(nested) as runtime:
        await finish(runtime, "tool")
        assert (await statuses(runtime, "tool"))[0] in ("cancelled", "failed")
        await next_is_answered(runtime, "tool")


async def test_a_message_that_steers_is_taken_in_by_another_version(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    async with app.holding(), app.version(shop) as runtime:
        await app.come_to(runtime, "tool")
        await runtime.submit("tool", "make haste", when_busy="steer")
    async with app.version(renamed) as runtime:
        await finish(runtime, "tool")
        texts = [one.message.content for one in await runtime.sessions.messages("tool") if one.message]
        assert texts.count("make haste") == 1
        assert (await statuses(runtime, "tool"))[0] == "done"
        assert app.effects("tool") == PAID


@pytest.mark.parametrize("moment", ["tool", "approval"])
async def test_a_fork_of_a_session_whose_turn_is_open(store_url: str, moment: str) -> None:
    app = Deploys(store_url)
    async with app.holding(), app.version(shop) as runtime:
        await app.come_to(runtime, moment)
        await runtime.sessions.fork(moment, new_id="fork")
    async with app.version(all_new) as runtime:
        for session in (moment, "fork"):
            await finish(runtime, session)
            assert max(app.effects(session).values(), default=1) == 1
            await next_is_answered(runtime, session)


async def test_a_turn_that_was_to_be_cancelled_is_cancelled_by_another_version(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "model")
    await execute(sqlite_url, "UPDATE turns SET cancel_requested = 1")
    async with app.version(renamed) as runtime:
        assert await finish(runtime, "model") == "cancelled"
        await next_is_answered(runtime, "model")


async def test_fewer_attempts_are_allowed_than_a_turn_has_used(sqlite_url: str) -> None:
    app = Deploys(sqlite_url)
    await app.begin(shop, "model", max_attempts=5)
    await execute(sqlite_url, "UPDATE turns SET attempts = 3")
    async with app.version(shop, max_attempts=2) as runtime:
        assert await finish(runtime, "model") == "failed"
        assert app.effects("model") == {"pay 1": 1}
        await next_is_answered(runtime, "model")


@pytest.mark.parametrize("change", ["a sequence", "one branch"])
async def test_a_parallel_agent_changes_after_one_branch_has_ended(sqlite_url: str, change: str) -> None:
    app = Deploys(sqlite_url)
    async with app.holding(), app.version(lambda w: parallel(*pair(w))) as runtime:
        await app.come_to(runtime, "tool")
        async with asyncio.timeout(TIMEOUT_S):
            while not any(
                one.message and one.message.content == "done" for one in await runtime.sessions.messages("tool")
            ):
                await asyncio.sleep(0.01)
    async with app.version(two if change == "a sequence" else lambda w: parallel(pair(w)[1])) as runtime:
        assert app.checked == {"tool": CONTINUES}
        assert await finish(runtime, "tool") == "done"
        assert app.effects("tool") == PAID
        await next_is_answered(runtime, "tool")


async def test_a_run_of_a_schedule_is_wanted_in_one_version_and_started_by_another(store_url: str) -> None:
    app = Deploys(store_url)
    async with app.version(shop) as runtime:
        schedule = await runtime.schedules.add(ScheduleSpec("daily", "next", every_s=86_400))
    async with app.version(all_new) as runtime:
        await runtime.schedules.run_now(schedule.id)
    async with app.version(renamed) as runtime, asyncio.timeout(TIMEOUT_S):
        while [run.outcome for run in await runtime.schedules.runs(schedule.id)] != ["done"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_memory_is_switched_under_an_open_turn(sqlite_url: str, enabled: bool) -> None:
    gate = Gate(effect="idempotent")

    def settings(is_enabled: bool) -> Any:
        return settings_for(sqlite_url, drain_s=0, name="app").model_copy(
            update={"memory": MemorySettings(enabled=is_enabled)}
        )

    called = ScriptedProvider([ToolCall("c1", gate.tool.name, {})])
    async with open_runtime(settings(not enabled), provider=called, tools=[gate.tool]) as runtime:
        await runtime.submit("s", "go")
        await gate.wait()
    gate.may_end.set()
    ended = ScriptedProvider(["fine", "again"])
    async with open_runtime(settings(enabled), provider=ended, tools=[gate.tool]) as runtime:
        assert await finish(runtime, "s") == "done"
        assert await runtime.run("s", "next") == "again"


@pytest.mark.parametrize("change", ["server removed", "tool removed"])
async def test_an_approved_call_is_of_an_mcp_server_that_has_changed(
    tmp_path: Path, sqlite_url: str, change: str
) -> None:
    server = tmp_path / "server.py"
    server.write_text(SUMS)
    servers = {"sums": McpSettings(command=sys.executable, args=[str(server)])}
    settings = settings_for(sqlite_url, drain_s=0, name="app")
    called = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2})])
    async with open_runtime(settings.model_copy(update={"mcp": servers}), provider=called) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
        [wait] = await runtime.waits("s")
        assert isinstance(wait, ApprovalWait)
    if change == "tool removed":
        server.write_text(SUMS.replace("def add", "def plus"))
    ended = ScriptedProvider(["there is no such tool", "again"])
    new = settings.model_copy(update={"mcp": servers if change == "tool removed" else {}})
    async with open_runtime(new, provider=ended) as runtime:
        await answer(runtime, "s")
        assert await finish(runtime, "s") == "done"
        assert UPDATE in str(ended.requests[0].messages)
        assert await runtime.run("s", "next") == "again"
