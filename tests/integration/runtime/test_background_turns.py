"""Turns in the background: left to another process, with progress, and run again after they failed for good."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext as AdkToolContext

from lango import open_runtime
from lango.adk import ProviderLlm, report_progress
from lango.errors import Conflict, TurnFailed
from lango.events import ToolProgress
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import ToolContext, tool
from tests.agents.parts import collect, settings_for, statuses, text_of
from tests.support.kill_points import until_idle


async def test_a_turn_that_failed_for_good_is_listed_and_continues_from_its_record(store_url: str) -> None:
    charged: list[int] = []

    @tool
    async def charge(amount: int) -> str:
        """Charge."""
        charged.append(amount)
        return "charged"

    call = ToolCall("c1", "charge", {"amount": 5})
    script = ["hello", call, ValueError("boom"), "done at last", RuntimeError("again")]
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(script), tools=[charge]) as runtime:
        await runtime.run("s", "hi", user_id="ada")
        with pytest.raises(TurnFailed, match="boom"):
            await runtime.run("s", "charge me", user_id="ada")
        [failed] = await runtime.turns.failed("ada")
        assert (failed.session.id, failed.turn, failed.can_retry) == ("s", 2, True)
        assert "boom" in failed.message
        assert await runtime.turns.failed("bob") == []
        with pytest.raises(Conflict, match="did not fail"):
            await runtime.turns.retry("s", 1, user_id="ada")
        await runtime.turns.retry("s", 2, user_id="ada")
        await until_idle(runtime)
        assert charged == [5], "what is stored is not done again"
        assert await runtime.turns.failed() == []
        page = await runtime.sessions.messages("s", user_id="ada")
        assert page[-1].message
        assert page[-1].message.content == "done at last"
        with pytest.raises(TurnFailed):
            await runtime.run("s", "and more", user_id="ada")
        await runtime.sessions.rewind("s", before=page[-1].seq + 1, user_id="ada")
        assert await runtime.turns.failed() == [], "a rewind removed it"


async def test_a_turn_is_left_to_another_process(store_url: str) -> None:
    answers = ScriptedProvider(["by the server"])
    idle = ScriptedProvider([])
    async with open_runtime(settings_for(store_url), provider=idle, every_session=False) as runtime:
        turn = await runtime.turns.leave("s", "hello", idempotency_key="k")
        assert await runtime.turns.leave("s", "hello", idempotency_key="k") == turn == 1
        assert await statuses(runtime) == ["queued"]
        [listed] = await runtime.turns.unfinished("user")
        assert (listed.session.id, listed.turn, listed.status) == ("s", 1, "queued")
    async with open_runtime(settings_for(store_url), provider=answers) as server:
        await until_idle(server)
        repeated = await server.submit("s", "hello", idempotency_key="k")
        events = await collect(repeated.follow())
        assert [event.type for event in events if not event.type.startswith("text_")] == ["accepted", "done"]
        assert text_of(events) == "by the server"
    assert idle.requests == []


async def test_tools_of_ones_own_report_their_progress(sqlite_url: str) -> None:
    @tool
    async def in_loop(context: ToolContext) -> str:
        """Work."""
        context.progress(1, 2, "half")
        return "ok"

    @tool
    def in_thread(context: ToolContext) -> str:
        """Work."""
        context.progress(2, 2, "all")
        return "ok"

    calls: list[Any] = [ToolCall("c1", "in_loop", {}), ToolCall("c2", "in_thread", {}), "done"]
    async with open_runtime(
        settings_for(sqlite_url), provider=ScriptedProvider(calls), tools=[in_loop, in_thread]
    ) as runtime:
        events = await collect((await runtime.submit("s", "go")).follow())
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert [(one.call_id, one.name, one.progress, one.total, one.message) for one in reports] == [
        ("c1", "in_loop", 1.0, 2, "half"),
        ("c2", "in_thread", 2.0, 2, "all"),
    ]


async def test_a_tool_of_an_adk_agent_reports_its_progress(sqlite_url: str) -> None:
    def copy_files(tool_context: AdkToolContext) -> str:
        """Copy."""
        report_progress(tool_context, 3, 3, "copied")
        return "ok"

    model = ProviderLlm(ScriptedProvider([ToolCall("c1", "copy_files", {}), "done"]), "scripted")
    agent = LlmAgent(name="helper", model=model, tools=[copy_files])
    async with open_runtime(settings_for(sqlite_url), root_agent=agent) as runtime:
        events = await collect((await runtime.submit("s", "go")).follow())
    [report] = [event for event in events if isinstance(event, ToolProgress)]
    assert (report.call_id, report.name, report.progress, report.message) == ("c1", "copy_files", 3.0, "copied")
