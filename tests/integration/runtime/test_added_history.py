"""Messages that a client adds to a session start no turn, and the model reads them with the next message."""

import asyncio

import pytest

from lango import open_runtime
from lango.errors import ClientToolRefused, SessionExists, SessionNotFound, StaleSession, StateRefused, TurnRunning
from lango.messages import Message, ToolCall
from lango.store.lifecycle.integrity import check_session
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import Gate, collect, results_in, settings_for
from tests.support.runtimes import store_of

ASK = Tool("ask", "Ask.", None, dict, level="dangerous")
HISTORY = [
    Message("user", "My name is Ada."),
    Message("assistant", "", (ToolCall("c1", "look", {"at": "her"}),)),
    Message("tool", tool_calls=(ToolCall("c1", "look", output={"seen": "x" * 200_000}),)),
    Message("assistant", "Hello Ada."),
]


async def test_added_messages_are_read_with_the_next_message(store_url: str) -> None:
    provider = ScriptedProvider([ToolCall("r1", "read_result", {"call_id": "c1", "offset": 199_995}), "Ada."])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[ASK]) as runtime:
        await runtime.sessions.create("s")
        assert await runtime.turns.add_history("s", HISTORY) == 0
        assert [one.message and one.message.role for one in await runtime.sessions.messages("s")] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert await runtime.turns.add_history("s", [Message("user", "One more.")]) == 4
        await runtime.run("s", "Who am I?")
        first, second = provider.requests
        roles = [message.role for message in first.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "user"]
        assert len(str(results_in(first)["c1"])) < 50_000, "a long result is clipped"
        assert results_in(second)["r1"]["text"] == "x" * 5, "and can be read in whole"
        assert await runtime.sessions.check("s") == []
        await runtime.sessions.rewind("s", before=5)
        assert [one.seq for one in await runtime.sessions.messages("s") if one.message] == [1, 2, 3, 4]


async def test_a_session_is_created_with_its_messages_or_not_at_all(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as runtime:
        add = runtime.turns.add_history
        assert await add("s", HISTORY, first_state={"topic": "Ada"}) == 0
        made = await runtime.sessions.read("s")
        assert (made.last_seq, made.state["topic"]) == (4, "Ada")
        assert await runtime.sessions.check("s") == []
        assert (await runtime.sessions.rewind("s", before=1)).state["topic"] == "Ada"
        with pytest.raises(SessionExists):
            await add("s", HISTORY, first_state={})
        with pytest.raises(StateRefused):
            await add("refused", HISTORY, first_state={"adk_x": 1})
        with pytest.raises(StaleSession):
            await add("stale", HISTORY, first_state={}, at_revision=7)
        for name in ("refused", "stale"):
            assert await runtime.sessions.find(name) is None
        assert await add("empty", [], first_state={}) == 0
        assert (await runtime.sessions.read("empty")).last_seq == 0


async def test_the_state_is_changed_with_the_messages_or_neither(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as runtime:
        read = await runtime.sessions.create("s", state={"rules": ["one"]})
        delta = {"rules": ["one", "two"]}
        await runtime.turns.add_history("s", HISTORY, state_delta=delta, at_revision=read.revision)
        with pytest.raises(StaleSession):
            await runtime.turns.add_history("s", HISTORY, state_delta={"rules": []}, at_revision=read.revision)
        with pytest.raises(StateRefused):
            await runtime.turns.add_history("s", HISTORY, state_delta={"adk_x": 1})
        changed = await runtime.sessions.read("s")
        assert (changed.last_seq, changed.state["rules"]) == (4, ["one", "two"])
        assert await runtime.sessions.check("s") == []


async def test_nothing_is_added_while_a_turn_runs_or_waits_or_by_a_reserved_name(store_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", "wait_here", {}), "Done.", ToolCall("c2", "ask", {}), "Asked."])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, ASK]) as runtime:
        with pytest.raises(SessionNotFound):
            await runtime.turns.add_history("s", HISTORY)
        running = asyncio.create_task(runtime.run("s", "go"))
        await gate.wait()
        with pytest.raises(TurnRunning, match="is busy"):
            await runtime.turns.add_history("s", HISTORY)
        gate.may_end.set()
        await running
        with pytest.raises(ClientToolRefused):
            await runtime.turns.add_history("s", [Message("assistant", "", (ToolCall("c", "adk_request_input", {}),))])
        await runtime.turns.add_history("s", HISTORY)
        await collect(runtime.stream("s", "ask"))
        with pytest.raises(TurnRunning, match="waits for an answer"):
            await runtime.turns.add_history("s", HISTORY)
        assert await store_of(runtime).read(check_session, (await runtime.sessions.read("s")).name) == []
