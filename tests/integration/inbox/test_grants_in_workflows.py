"""Grants and tools that are nodes of a workflow: a node asks by an input request, unless a grant covers its call."""

from pathlib import Path
from typing import Any

import pytest
from google.adk.workflow import START, JoinNode, Workflow

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.errors import InvalidAnswer
from lango.runtime.runtime import Runtime
from lango.waits import ApprovalWait, InputWait, NewGrant
from tests.agents.answers import submit_approval, submit_input
from tests.agents.parts import collect, rows, settings_for, statuses
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, copy_after_each_commit, left_behind, until_idle
from tests.support.runtimes import store_of

JOURNAL = "SELECT call_id, approved, approved_by, grant_id FROM tool_journal WHERE call_id LIKE 'node:%send%'"


def send_tool(j: Journal) -> AdkTool:
    @tool(level="dangerous")
    def send(to: str) -> dict[str, str]:
        """Send something."""
        j.effects.append(f"send {to}")
        return {"sent": to}

    return AdkTool(send)


def to_eve(node_input: Any) -> dict[str, str]:
    return {"to": "eve"}


def one_after_the_other(j: Journal) -> Any:
    """An agent sends to bob, then a node sends to eve."""
    sender = agent(j, "a", call("send", to="bob"), "sent", tools=[send_tool(j)])
    return Workflow(name="r", edges=[(START, sender, to_eve, send_tool(j))])


def side_by_side(j: Journal) -> Any:
    """An agent sends to bob, and a node to eve."""
    sender = agent(j, "a", call("send", to="bob"), "sent", tools=[send_tool(j)])
    node = send_tool(j)
    return Workflow(name="r", edges=[(START, sender), (START, to_eve, node), ((sender, node), JoinNode(name="join"))])


async def ask(runtime: Runtime) -> None:
    await collect((await runtime.submit("s", "go")).follow())


async def approve(runtime: Runtime, grant: NewGrant) -> None:
    """Approve what the agent asks for, with a grant."""
    for item in await runtime.inbox.list():
        if isinstance(item.wait, ApprovalWait):
            await collect((await submit_approval(runtime, "s", item.wait.id, approved=True, grant=grant)).follow())


async def confirm(runtime: Runtime) -> None:
    """Confirm what a node asks for."""
    for item in await runtime.inbox.list():
        if isinstance(item.wait, InputWait):
            await collect((await submit_input(runtime, "s", item.wait.id, "yes")).follow())


async def test_a_node_runs_under_a_grant_that_another_process_was_given(store_url: str) -> None:
    first, second = Journal(), Journal()
    async with open_runtime(settings_for(store_url), root_agent=one_after_the_other(first)) as runtime:
        await ask(runtime)
    async with open_runtime(settings_for(store_url), root_agent=one_after_the_other(second)) as runtime:
        await approve(runtime, NewGrant())
        assert await runtime.inbox.list() == []
        assert first.effects + second.effects == ["send bob", "send eve"]
        [(call_id, *decision)] = await rows(store_of(runtime), JOURNAL)
        assert call_id.startswith("node:r")
        assert decision == [1, "user", 1]
        assert await statuses(runtime) == ["done", "done"]


async def test_a_node_that_a_grant_does_not_cover_asks_for_input(store_url: str) -> None:
    journal = Journal()
    async with open_runtime(settings_for(store_url), root_agent=one_after_the_other(journal)) as runtime:
        await ask(runtime)
        await approve(runtime, NewGrant({"to": {"equals": "bob"}}))
        [item] = await runtime.inbox.list()
        assert isinstance(item.wait, InputWait)
        assert journal.effects == ["send bob"]
        with pytest.raises(InvalidAnswer):  # a wait for input takes no grant
            await submit_approval(runtime, "s", item.wait.id, approved=True, grant=NewGrant())
        await confirm(runtime)
        assert journal.effects == ["send bob", "send eve"]
        assert {grant_id for *_, grant_id in await rows(store_of(runtime), JOURNAL)} == {None}


async def test_a_grant_does_not_answer_a_node_that_has_asked(store_url: str) -> None:
    journal = Journal()
    async with open_runtime(settings_for(store_url), root_agent=side_by_side(journal)) as runtime:
        await ask(runtime)
        assert {type(item.wait) for item in await runtime.inbox.list()} == {ApprovalWait, InputWait}
        await approve(runtime, NewGrant())
        assert [type(item.wait) for item in await runtime.inbox.list()] == [InputWait]
        assert journal.effects == ["send bob"]
        await confirm(runtime)
        assert journal.effects == ["send bob", "send eve"]
        assert await runtime.inbox.list() == []


@pytest.mark.parametrize("make", [one_after_the_other, side_by_side], ids=["one after the other", "side by side"])
async def test_a_kill_at_each_commit_before_the_answer_runs_nothing_twice(tmp_path: Path, make: Any) -> None:
    """The answer with a grant may come while the process that asked is dead: its turn is run again as it was."""
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=make(journal)) as runtime:
        await runtime.sessions.create("s")
        copies = await copy_after_each_commit(runtime, tmp_path, lambda: ask(runtime))
    for copy in copies:
        again = Journal()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=make(again)) as runtime:
            await approve(runtime, NewGrant())
            await until_idle(runtime)
            await approve(runtime, NewGrant())
            await confirm(runtime)
            assert sorted(again.effects) == ["send bob", "send eve"], copy.name
            assert await runtime.inbox.list() == [], copy.name
            assert await rows(store_of(runtime), "SELECT DISTINCT status FROM turns") == [("done",)], copy.name


async def test_a_kill_at_each_commit_under_a_grant_runs_nothing_twice(tmp_path: Path) -> None:
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=one_after_the_other(journal)) as runtime:
        await runtime.sessions.create("s")
        await ask(runtime)
        copies = await copy_after_each_commit(runtime, tmp_path, lambda: approve(runtime, NewGrant()))
    assert journal.effects == ["send bob", "send eve"]
    for copy in copies:
        before, again = left_behind(copy), Journal()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=one_after_the_other(again)) as runtime:
            await until_idle(runtime)
            await approve(runtime, NewGrant())
            assert await runtime.inbox.list() == [], copy.name
            done = again.effects_by_name["send"] + before.finished["send"]
            unknown = await rows(store_of(runtime), "SELECT 1 FROM messages WHERE content LIKE '%outcome is unknown%'")
            assert done == 2 or unknown, copy.name
            assert len(set(again.effects)) == len(again.effects), f"{copy.name}: nothing runs twice"
            assert await rows(store_of(runtime), "SELECT DISTINCT status FROM turns") == [("done",)], copy.name
