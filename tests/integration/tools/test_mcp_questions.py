"""A real MCP server asks the user during a call, and reports its progress."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lango import Settings, open_runtime
from lango.errors import InvalidAnswer, WaitNotOpen
from lango.events import ToolEnd, ToolProgress, TurnDone, TurnEvent, WaitOpened
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.waits import QuestionWait
from tests.agents.answers import open_questions, submit_input
from tests.agents.parts import TIMEOUT_S
from tests.support.forked_commands import forked_command, forked_http_server
from tests.support.kill_points import copy_store, until_idle
from tests.support.servers import mcp_tools

STDIO: Any = forked_command(mcp_tools.__file__)


def settings_for(url: str, server: dict[str, Any], **agent: Any) -> Settings:
    tools: dict[str, Any] = {"approval": "auto", "enabled": []}
    return Settings.model_validate({"store": {"url": url}, "mcp": {"media": server}, "tools": tools, "agent": agent})


async def until_asked(events: AsyncIterator[TurnEvent]) -> QuestionWait:
    async with asyncio.timeout(TIMEOUT_S):
        async for event in events:
            if isinstance(event, WaitOpened) and isinstance(event.wait, QuestionWait):
                return event.wait
    raise AssertionError("nothing was asked")


async def rest(events: AsyncIterator[TurnEvent]) -> tuple[str, TurnDone]:
    """Return the text of the tool's result, and the end of the turn."""
    result = ""
    async with asyncio.timeout(TIMEOUT_S):
        async for event in events:
            if isinstance(event, ToolEnd):
                result = event.result["content"][0]["text"] if event.ok else event.result["error"]
            if isinstance(event, TurnDone):
                return result, event
    raise AssertionError("the turn has no end")


async def test_a_question_is_answered_within_the_call_through_any_process(store_url: str) -> None:
    # the time limit of the tool does not run while the user is asked
    settings = settings_for(store_url, STDIO, tool_timeout_s=TIMEOUT_S)
    provider = ScriptedProvider([ToolCall("c1", "order", {}), "thanks", ToolCall("c2", "sign_in", {}), "signed in"])
    async with (
        open_runtime(settings, provider=provider) as runtime,
        open_runtime(settings, provider=ScriptedProvider([])) as other,
    ):
        events = (await runtime.submit("s", "order something")).follow()
        asked = await until_asked(events)
        assert (asked.id, asked.call_id, asked.message) == ("c1.1", "c1", "What may it be?")
        assert asked.schema
        assert asked.schema["required"] == ["size", "colour"]
        assert asked.payload == {"server": "media"}
        assert asked.expires_at

        [item] = await other.inbox.list()
        assert item.wait.id == asked.id
        assert (asked.session_id, asked.turn) == ("s", 1)
        assert [wait.id for wait in await open_questions(other, "s")] == [asked.id]
        with pytest.raises(InvalidAnswer, match="does not fit"):
            await submit_input(other, "s", "c1.1", {"size": "large"})
        turn = await submit_input(other, "s", "c1.1", {"size": 3, "colour": "red"})
        result, done = await rest(events)
        assert result == "accept: size=3 colour='red'"
        assert done.status == "done"
        last = [event async for event in turn.follow()][-1]
        assert isinstance(last, TurnDone), "the turn is followed in the other process, too"
        assert last.usage == done.usage
        assert await other.inbox.list() == []
        with pytest.raises(WaitNotOpen):
            await submit_input(runtime, "s", "c1.1", {"size": 3, "colour": "red"})

        events = (await runtime.submit("s", "sign me in")).follow()
        asked = await until_asked(events)
        assert asked.schema is None
        assert asked.payload == {"server": "media", "url": "https://example.org/sign-in?id=1"}
        await submit_input(runtime, "s", asked.id, "yes")
        assert (await rest(events))[0] == "accept"


async def test_a_question_that_is_declined_cancelled_or_too_late_ends(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [ToolCall("c1", "order", {}), "pity", ToolCall("c2", "order", {}), ToolCall("c3", "order", {}), "late"]
    )
    async with open_runtime(settings_for(sqlite_url, STDIO), provider=provider) as runtime:
        events = (await runtime.submit("s", "go")).follow()
        await submit_input(runtime, "s", (await until_asked(events)).id, None, decline=True)
        assert (await rest(events))[0] == "decline: None"

        events = (await runtime.submit("s", "go")).follow()
        await until_asked(events)
        assert await runtime.cancel("s")
        assert [event async for event in events]
        assert await runtime.inbox.list() == [], "no tool waits for an answer any more"
    impatient = settings_for(sqlite_url, {**STDIO, "input_timeout_s": 0.2})
    async with open_runtime(impatient, provider=provider) as runtime:
        events = (await runtime.submit("s", "go")).follow()
        await until_asked(events)
        assert (await rest(events))[0] == "cancel: None"


async def test_over_http_each_question_goes_to_the_session_whose_call_asks(sqlite_url: str) -> None:
    with forked_http_server(mcp_tools.__file__) as address:
        provider = ScriptedProvider([*(ToolCall(f"c{number}", "order", {}) for number in range(2)), "done", "done"])
        async with open_runtime(settings_for(sqlite_url, {"url": address}), provider=provider) as runtime:
            users = ("alice", "bob")
            streams = [(await runtime.submit("s", "go", user_id=user)).follow() for user in users]
            asked = [await until_asked(events) for events in streams]
            for number, user in enumerate(users):
                answer = {"size": number, "colour": user}
                await submit_input(runtime, "s", asked[number].id, answer, user_id=user)
            results = [(await rest(events))[0] for events in streams]
            assert results == ["accept: size=0 colour='alice'", "accept: size=1 colour='bob'"]


async def test_over_stdio_no_user_is_asked_for_another_one(sqlite_url: str) -> None:
    provider = ScriptedProvider([*(ToolCall(f"c{number}", "order", {}) for number in range(2)), "done", "done"])
    async with open_runtime(settings_for(sqlite_url, STDIO), provider=provider) as runtime:
        first = (await runtime.submit("s", "go", user_id="alice")).follow()
        await until_asked(first)
        second = (await runtime.submit("s", "go", user_id="bob")).follow()
        assert "does not say which one asks" in (await rest(second))[0]
        [item] = await runtime.inbox.list(user_id="alice")
        await submit_input(runtime, "s", item.wait.id, {"size": 1, "colour": "red"}, user_id="alice")
        assert (await rest(first))[0] == "accept: size=1 colour='red'"


async def test_progress_is_shown_and_the_last_report_always(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "count", {}), "done"])
    async with open_runtime(settings_for(sqlite_url, STDIO), provider=provider) as runtime:
        events = [event async for event in (await runtime.submit("s", "go")).follow()]
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert (reports[0].call_id, reports[0].name, reports[0].progress, reports[0].message) == (
        "c1",
        "count",
        1,
        "step 1",
    )
    assert (reports[-1].progress, reports[-1].total, reports[-1].message) == (3, 3, "step 3")
    assert len(reports) <= 3
    kinds = [type(event) for event in events]
    assert kinds.index(ToolProgress) < kinds.index(ToolEnd)


async def test_after_a_kill_the_outcome_of_the_call_is_unknown_and_nothing_is_asked_any_more(tmp_path: Path) -> None:
    first = ScriptedProvider([ToolCall("c1", "order", {}), "never"])
    async with open_runtime(settings_for(f"sqlite:///{tmp_path}/first.db", STDIO), provider=first) as runtime:
        events = (await runtime.submit("s", "go")).follow()
        question = await until_asked(events)
        copy_store(tmp_path / "first.db", tmp_path / "copy.db")
        await runtime.cancel("s")
    second = ScriptedProvider(["what happened is not known"])
    async with open_runtime(settings_for(f"sqlite:///{tmp_path}/copy.db", STDIO), provider=second) as runtime:
        await until_idle(runtime)
        [result] = [message for message in second.requests[0].messages if message.role == "tool"]
        assert (result.tool_calls[0].output or {})["outcome"] == "unknown"
        assert await runtime.inbox.list() == []
        with pytest.raises(WaitNotOpen):
            await submit_input(runtime, "s", question.id, {"size": 1, "colour": "red"})
