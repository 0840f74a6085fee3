"""Approvals: requested for exact arguments, answered once, across restarts; anything but an approval denies."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool

from lango import open_runtime
from lango.adk import AdkTool
from lango.errors import WaitNotOpen
from lango.events import ToolEnd, ToolStart, TurnDone
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.store.waits.waits import read_waits
from lango.testing import ScriptedProvider
from lango.tools import Tool, tool
from lango.waits import ApprovalWait
from tests.agents.answers import approve, submit_approval
from tests.agents.parts import (
    Gate,
    approvals,
    broken_for,
    check_order,
    collect,
    kinds,
    last_error,
    messages,
    results_in,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.support.kill_points import copy_after_each_commit, story, until_idle
from tests.support.runtimes import store_of, supervisor_of


class Sent:
    """A tool that needs approval, and the record of its runs."""

    def __init__(self) -> None:
        self.to: list[str] = []
        self.tool = Tool(
            "send",
            "Send a message.",
            {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
            self._send,
            level="dangerous",
        )

    def _send(self, to: str) -> str:
        self.to.append(to)
        return f"sent to {to}"


def send(to: str, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "send", {"to": to})


async def ask(runtime: Runtime, text: str = "send it") -> list[ApprovalWait]:
    events = await collect(runtime.stream("s", text))
    check_order(events)
    done = events[-1]
    assert isinstance(done, TurnDone), events
    assert done.waits[0].kind == "approval"
    return approvals(events)


async def test_t3_a_dangerous_tool_requests_approval_with_exact_arguments_and_holds_no_worker(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([["I will. ", send("bob")], "sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        events = await collect(runtime.stream("s", "send it"))
        check_order(events)
        assert kinds(events) == ["accepted", "text_delta", "text_end", "wait_opened", "done"], (
            "a tool that waits emits no start"
        )
        [request] = approvals(events)
        assert (request.call_id, request.tool, dict(request.arguments)) == ("c1", "send", {"to": "bob"})
        assert sent.to == []
        assert await statuses(runtime) == ["done"]
        assert not supervisor_of(runtime).running_turns(), "nothing waits in memory"

        events = await collect(approve(runtime, "s", "c1", approved=True))
        check_order(events)
        assert kinds(events) == ["accepted", "wait_closed", "tool_start", "tool_end", "text_delta", "text_end", "done"]
        start, end = events[2], events[3]
        assert isinstance(start, ToolStart)
        assert isinstance(end, ToolEnd)
        assert dict(start.arguments) == {"to": "bob"}
        assert end.ok
        assert end.result == {"result": "sent to bob"}
        assert text_of(events) == "sent"
        assert sent.to == ["bob"]
        assert await statuses(runtime) == ["done", "done"]
    assert results_in(provider.requests[-1]) == {"c1": {"result": "sent to bob"}}
    assert [broken_for(request) for request in provider.requests] == [[], []]


async def test_t3_a_denial_is_reported_to_the_model_and_nothing_runs(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "then not", "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        events = await collect(approve(runtime, "s", "c1", approved=False, reason="not to bob"))
        check_order(events)
        assert text_of(events) == "then not"
        assert sent.to == []
        assert await runtime.run("s", "all right") == "fine"
    said = results_in(provider.requests[1])["c1"]["error"]
    assert said == "not run: a person refused this call. Their reason: not to bob", "the model reads the reason"
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


async def test_the_reason_of_a_refusal_survives_a_kill(tmp_path: Path) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "then not"])
    async with open_runtime(
        settings_for(f"sqlite:///{tmp_path}/first.db"), provider=provider, tools=[sent.tool]
    ) as runtime:
        await ask(runtime)

        async def refuse() -> None:
            await collect(approve(runtime, "s", "c1", approved=False, reason="not to bob"))

        copies = await copy_after_each_commit(runtime, tmp_path, refuse)
    accepted = 0
    for copy in copies:
        provider = ScriptedProvider(["then not"] * 2)
        async with open_runtime(settings_for(f"sqlite:///{copy}"), provider=provider, tools=[sent.tool]) as runtime:
            if len(await statuses(runtime)) < 2:  # killed before the answer was stored
                continue
            await until_idle(runtime)
            assert any("Their reason: not to bob" in line for line in await story(store_of(runtime))), copy.name
            accepted += 1
    assert accepted
    assert sent.to == []


async def test_t3_an_approval_survives_a_restart(store_url: str) -> None:
    sent = Sent()
    async with open_runtime(
        settings_for(store_url), provider=ScriptedProvider([send("bob")]), tools=[sent.tool]
    ) as runtime:
        await ask(runtime)
    provider = ScriptedProvider(["sent", "bye"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[sent.tool]) as runtime:
        assert text_of(await collect(approve(runtime, "s", "c1", approved=True))) == "sent"
        assert sent.to == ["bob"]
        assert await runtime.run("s", "bye") == "bye"
    assert [broken_for(request) for request in provider.requests] == [[], []]


async def test_t3_an_answer_counts_once(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "sent", "again"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        await collect(approve(runtime, "s", "c1", approved=True))
        for approved in (True, False):
            with pytest.raises(WaitNotOpen):
                await collect(approve(runtime, "s", "c1", approved=approved))
        assert sent.to == ["bob"]
        with pytest.raises(WaitNotOpen):
            await submit_approval(runtime, "s", "no-such-call", approved=True)
        with pytest.raises(WaitNotOpen):
            await submit_approval(runtime, "no-such-session", "c1", approved=True)


async def test_t3_two_answers_at_once_are_one_answer(store_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "sent"])
    async with (
        open_runtime(settings_for(store_url), provider=provider, tools=[sent.tool]) as one,
        open_runtime(settings_for(store_url), provider=provider, tools=[sent.tool]) as other,
    ):
        await ask(one)
        outcomes = await asyncio.gather(
            *(collect(approve(runtime, "s", "c1", approved=True)) for runtime in (one, one, other, other)),
            return_exceptions=True,
        )
        assert len([outcome for outcome in outcomes if isinstance(outcome, list)]) == 1
        assert len([outcome for outcome in outcomes if isinstance(outcome, WaitNotOpen)]) == 3
        assert sent.to == ["bob"]


async def test_t3_a_new_message_denies_an_open_request(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "something else, then", "bye"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        assert await runtime.run("s", "no, do something else") == "something else, then"
        with pytest.raises(WaitNotOpen):
            await collect(approve(runtime, "s", "c1", approved=True))
        assert sent.to == []
        assert await runtime.run("s", "bye") == "bye"
    assert [broken_for(request) for request in provider.requests] == [[], [], []]
    output = results_in(provider.requests[1])["c1"]
    assert "not run" in str(output), "the model must not wait for an answer that will never come"


async def test_t3_an_answer_that_comes_with_another_message_loses_to_it(store_url: str) -> None:
    """The request was open when it was answered, but an earlier message was queued before the answer."""
    sent, gate = Sent(), Gate("slow", level="dangerous")
    provider = ScriptedProvider([[ToolCall("c1", "slow", {}), send("bob", "c2")], "something else, then", "bye"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[sent.tool, gate.tool]) as runtime:
        await ask(runtime)
        first = await submit_approval(runtime, "s", "c1", approved=True)
        await gate.wait()
        message = await runtime.submit("s", "no, do something else")
        answer = await submit_approval(runtime, "s", "c2", approved=True)
        gate.may_end.set()
        assert (await collect(first.follow()))[-1].type == "done"
        assert text_of(await collect(message.follow())) == "something else, then"
        assert last_error(await collect(answer.follow())).error == "WaitNotOpen"
        assert sent.to == []
        assert await statuses(runtime) == ["done", "done", "done", "failed"]
        assert await runtime.run("s", "bye") == "bye"
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


async def test_t3_changed_arguments_never_run(sqlite_url: str) -> None:
    """The stored call is changed between the request and the answer."""
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "hm", "hm"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        await _write(runtime, "UPDATE messages SET tool_calls = REPLACE(tool_calls, 'bob', 'eve')")
        events = await collect(approve(runtime, "s", "c1", approved=True))
        assert sent.to == []
        assert "turn_error" in kinds(events)
        await runtime.run("s", "and now?")
    assert broken_for(provider.requests[-1]) == []


async def _write(runtime: Runtime, sql: str) -> None:
    def operation() -> Any:
        yield sql, ()

    await store_of(runtime).write(operation)


@pytest.mark.parametrize("first", ["c1", "c2"])
async def test_t3_two_requests_at_once_are_answered_one_by_one(sqlite_url: str, first: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([[send("ann", "c1"), send("bob", "c2")], "both sent", "bye"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        questions = await ask(runtime)
        assert [(one.call_id, dict(one.arguments)) for one in questions] == [
            ("c1", {"to": "ann"}),
            ("c2", {"to": "bob"}),
        ]
        events = await collect(approve(runtime, "s", first, approved=True))
        check_order(events)
        assert isinstance(events[-1], TurnDone)
        assert events[-1].waits[0].kind == "approval", "the other one still waits"
        assert len(sent.to) == 1
        assert len(provider.requests) == 1, "the model goes on when every request is answered"
        second = {"c1": "c2", "c2": "c1"}[first]
        assert text_of(await collect(approve(runtime, "s", second, approved=True))) == "both sent"
        assert sorted(sent.to) == ["ann", "bob"]
        assert await runtime.run("s", "bye") == "bye"
    assert results_in(provider.requests[1]) == {"c1": {"result": "sent to ann"}, "c2": {"result": "sent to bob"}}
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


async def test_t3_one_approval_and_one_denial(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([[send("ann", "c1"), send("bob", "c2")], "one sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        await collect(approve(runtime, "s", "c1", approved=False))
        assert text_of(await collect(approve(runtime, "s", "c2", approved=True))) == "one sent"
        assert sent.to == ["bob"]
    results = results_in(provider.requests[1])
    assert "refused" in results["c1"]["error"]
    assert results["c2"] == {"result": "sent to bob"}


async def test_t3_a_safe_call_beside_a_request_runs_at_once(sqlite_url: str) -> None:
    @tool(effect="none")
    def look() -> str:
        """Look."""
        return "seen"

    sent = Sent()
    provider = ScriptedProvider([[ToolCall("c1", "look", {}), send("bob", "c2")], "sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool, look]) as runtime:
        await ask(runtime)
        assert text_of(await collect(approve(runtime, "s", "c2", approved=True))) == "sent"
        assert sent.to == ["bob"]
    assert results_in(provider.requests[1]) == {"c1": {"result": "seen"}, "c2": {"result": "sent to bob"}}
    assert broken_for(provider.requests[1]) == []


async def test_t3_the_answer_to_a_sub_agents_request_goes_to_the_sub_agent(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider(
        [ToolCall("t", "transfer_to_agent", {"agent_name": "clerk"}), send("bob"), "sent", "bye"]
    )
    settings = settings_for(sqlite_url, sub_agents={"clerk": {"description": "Sends."}})
    async with open_runtime(settings, provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
    async with open_runtime(settings, provider=provider, tools=[sent.tool]) as runtime:
        assert text_of(await collect(approve(runtime, "s", "c1", approved=True))) == "sent"
        assert sent.to == ["bob"]
        assert (await messages(runtime))[-1].author == "clerk"
        assert await runtime.run("s", "bye") == "bye"
    assert [broken_for(request) for request in provider.requests] == [[]] * 4


async def test_t3_each_approved_call_leads_to_the_next_request(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("ann", "c1"), send("bob", "c2"), "both"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await ask(runtime)
        events = await collect(approve(runtime, "s", "c1", approved=True))
        assert [one.call_id for one in approvals(events)] == ["c2"]
        assert text_of(await collect(approve(runtime, "s", "c2", approved=True))) == "both"
        assert sent.to == ["ann", "bob"]
    assert broken_for(provider.requests[-1]) == []


async def test_t3_denied_tools_never_run_and_the_model_reads_it(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "not allowed"])
    settings = settings_for(sqlite_url, tools={"approval": "deny"})
    async with open_runtime(settings, provider=provider, tools=[sent.tool]) as runtime:
        assert await runtime.run("s", "send") == "not allowed"
    assert sent.to == []
    assert "not allowed" in results_in(provider.requests[1])["c1"]["error"]


@pytest.mark.parametrize("tools", [{"approval": "auto"}, {"allow": ["send"]}])
async def test_t3_allowed_tools_run_without_approval(sqlite_url: str, tools: dict[str, Any]) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "sent"])
    async with open_runtime(settings_for(sqlite_url, tools=tools), provider=provider, tools=[sent.tool]) as runtime:
        assert await runtime.run("s", "send") == "sent"
    assert sent.to == ["bob"]


async def test_t3_invalid_arguments_request_no_approval(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([ToolCall("c1", "send", {"to": 7}), "sorry"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        assert await runtime.run("s", "send") == "sorry"
    assert "to" in results_in(provider.requests[1])["c1"]["error"]


def _confirmed(sent: list[str]) -> Callable[..., str]:
    def send_it(to: str) -> str:
        """Send a message."""
        sent.append(to)
        return f"sent to {to}"

    return send_it


@pytest.mark.parametrize("approved", [True, False])
async def test_t3_adks_confirmation_of_a_users_tool_is_the_same_request(sqlite_url: str, approved: bool) -> None:
    sent: list[str] = []
    function = _confirmed(sent)
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(function, require_confirmation=True)])
    provider = ScriptedProvider([ToolCall("c1", "send_it", {"to": "bob"}), "done", "bye"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        [request] = await ask(runtime)
        assert dict(request.arguments) == {"to": "bob"}
        assert text_of(await collect(approve(runtime, "s", "c1", approved=approved))) == "done"
        assert sent == (["bob"] if approved else [])
        assert await runtime.run("s", "bye") == "bye"
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM open_calls") == [(0,)]
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


async def test_t3_the_model_reads_why_a_tool_with_adks_confirmation_was_refused(sqlite_url: str) -> None:
    sent: list[str] = []
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(_confirmed(sent), require_confirmation=True)])
    provider = ScriptedProvider([ToolCall("c1", "send_it", {"to": "bob"}), "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        [request] = await ask(runtime)
        assert (request.hint, request.payload) == ("", None), "ADK's own hint says nothing more than the call"
        await collect(approve(runtime, "s", "c1", approved=False, reason="Bob has left"))
    assert results_in(provider.requests[1])["c1"]["error"].endswith("Their reason: Bob has left")
    assert sent == []


async def test_t3_the_model_reads_why_a_tool_that_asks_by_its_own_code_was_refused(sqlite_url: str) -> None:
    def pay(tool_context: ToolContext) -> dict[str, str]:
        """Pay, when a person agreed."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Pay 30?", payload={"limit": 30})
        elif tool_context.tool_confirmation.confirmed:
            return {"paid": str(tool_context.tool_confirmation.payload)}
        return {"paid": "nothing"}

    root = LlmAgent(name="mine", model="openai/x", tools=[pay])
    provider = ScriptedProvider([ToolCall("c1", "pay", {}), "it waits", "a pity"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        [request] = await ask(runtime)
        assert (request.hint, request.payload) == ("Pay 30?", {"limit": 30})
        await collect(approve(runtime, "s", "c1", approved=False, reason="too much"))
    assert results_in(provider.requests[2])["c1"] == {"paid": "nothing", "refusal": "too much"}


async def test_t3_a_request_after_a_very_long_turn_is_answered(sqlite_url: str) -> None:
    """The first message of the turn is outside the window by then."""

    @tool(effect="none")
    def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}"

    sent = Sent()
    looks = [[ToolCall(f"l{n}_{m}", "look", {"page": n * 10 + m}) for m in range(2)] for n in range(70)]
    provider = ScriptedProvider([*looks, send("bob"), "sent", "bye"])
    settings = settings_for(sqlite_url, max_turns=200)
    async with open_runtime(settings, provider=provider, tools=[sent.tool, look]) as runtime:
        await ask(runtime)
        assert text_of(await collect(approve(runtime, "s", "c1", approved=True))) == "sent"
        assert sent.to == ["bob"]
        assert await runtime.run("s", "bye") == "bye"
    assert [broken_for(request) for request in provider.requests[-3:]] == [[], [], []]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own use of it
async def test_t3_an_agent_tool_cannot_request_approval_and_reports_it(sqlite_url: str) -> None:
    """It runs in a temporary session that ends with its call, where no request could be answered."""
    ran: list[str] = []

    @tool(level="dangerous")
    def erase(path: str) -> str:
        """Erase a file."""
        ran.append(path)
        return "erased"

    helper = LlmAgent(name="helper", model="openai/x", tools=[AdkTool(erase)])
    root = LlmAgent(name="mine", model="openai/x", tools=[AgentTool(helper)])
    provider = ScriptedProvider(
        [
            ToolCall("c1", "helper", {"request": "erase it"}),
            ToolCall("c2", "erase", {"path": "x"}),
            "it needs an approval",
            "you have to allow it",
        ]
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "go"))
        assert isinstance(events[-1], TurnDone)
        assert events[-1].status == "done"
        assert not approvals(events)
    assert not ran
    [result] = provider.requests[2].messages[-1].tool_calls
    assert "cannot request" in str(result.output)


async def test_t3_a_request_beside_a_call_that_is_done_is_listed_forked_and_answered(sqlite_url: str) -> None:
    sent = Sent()
    looked = Tool("look", "Look.", None, lambda: "nothing new", effect="none")
    provider = ScriptedProvider([[ToolCall("l1", "look", {}), send("bob")], "sent", "sent again"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool, looked]) as runtime:
        [shown] = await ask(runtime)
        session = await runtime.sessions.read("s")
        [listed] = await store_of(runtime).read(read_waits, session.key, session.name)
        assert isinstance(listed, ApprovalWait)
        assert (listed.call_id, listed.tool, listed.arguments) == (shown.call_id, shown.tool, shown.arguments)
        last = session.last_seq
        assert text_of(await collect(approve(runtime, "s", "c1", approved=True))) == "sent"
        fork = await runtime.sessions.fork("s", at=last)
        [again] = await store_of(runtime).read(read_waits, fork.key, fork.name)
        assert isinstance(again, ApprovalWait)
        assert (again.call_id, again.tool, again.arguments) == (shown.call_id, shown.tool, shown.arguments)
        assert text_of(await collect(approve(runtime, fork.name.id, "c1", approved=True))) == "sent again"
    assert sent.to == ["bob", "bob"]
    assert [broken_for(request) for request in provider.requests] == [[], [], []]


@pytest.mark.parametrize("unsafe", ["functions.send:0", "call 1", "a/b", "c?1", "..", "ü" * 10])
async def test_a_call_id_that_is_unsafe_in_an_address_is_replaced(sqlite_url: str, unsafe: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("ann", unsafe), "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        [request] = approvals(await collect(runtime.stream("s", "go")))
        assert re.fullmatch(r"[A-Za-z0-9_-]+", request.call_id)
        assert text_of(await collect(approve(runtime, "s", request.call_id, approved=True))) == "done"
    assert sent.to == ["ann"]
