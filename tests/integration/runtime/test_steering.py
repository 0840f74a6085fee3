"""Messages that come while a turn runs: taken into it before its next model call, or in its place."""

import asyncio
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import TurnCancelled, TurnRunning
from lango.events import Steered, ToolEnd, TurnDone
from lango.messages import Message, ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.lifecycle.integrity import check_session
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.parts import Gate, broken_for, check_order, collect, messages, rows, settings_for, statuses, text_of
from tests.support.runtimes import store_of


def texts_of(request: Request) -> list[str]:
    """The user's messages of a request."""
    return [message.content for message in request.messages if message.role == "user"]


async def stored(runtime: Runtime) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in await messages(runtime)]


async def problems(runtime: Runtime) -> list[Any]:
    return await store_of(runtime).read(check_session, SessionId(runtime.app_name, "user", "s"))


async def test_a_steering_message_reaches_the_model_before_its_next_call_once(store_url: str) -> None:
    gate = Gate()
    first_call, second_call = ToolCall("c1", gate.tool.name, {}), ToolCall("c2", "look", {})

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    provider = ScriptedProvider([first_call, second_call, "both done", "next done"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, look]) as runtime:
        first = await runtime.submit("s", "first", when_busy="steer")
        await gate.wait()
        queued = await runtime.submit("s", "later")
        steering = await runtime.submit("s", "also this", when_busy="steer", idempotency_key="k")
        again = await runtime.submit("s", "also this", when_busy="steer", idempotency_key="k")
        assert await statuses(runtime) == ["running", "queued", "queued"], "stored before it is taken in"
        gate.may_end.set()
        events = await collect(first.follow())
        check_order(events)
        [taken] = [event for event in events if isinstance(event, Steered)]
        assert (taken.turn, taken.into, taken.text) == (3, 1, "also this")
        ended = [type(event) for event in events].index(ToolEnd)
        assert events[ended + 1] == taken, "after the result, before the next step"
        assert text_of(events) == "both done"
        for turn in (steering, again):
            own = await collect(turn.follow())
            assert [event.type for event in own] == ["accepted", "steered", "done"]
            assert isinstance(own[1], Steered)
            assert (own[1].into, own[1].seq) == (1, taken.seq)
            assert isinstance(own[-1], TurnDone)
            assert own[-1].status == "steered"
        assert text_of(await collect(queued.follow())) == "next done", "what was queued before keeps its place"
        assert await runtime.run("s", "also this", idempotency_key="k") == "both done", "a repeated key has its answer"
        assert [texts_of(request) for request in provider.requests] == [
            ["first"],
            ["first", "also this"],
            ["first", "also this"],
            ["first", "also this", "later"],
        ]
        assert [message.role for message in provider.requests[1].messages] == ["user", "assistant", "tool", "user"]
        assert all(broken_for(request) == [] for request in provider.requests)
        roles = [role for role, _ in await stored(runtime)]
        assert roles == ["user", "assistant", "tool", "user", "assistant", "tool", "assistant", "user", "assistant"]
        assert await statuses(runtime) == ["done", "done", "steered"]
        assert await problems(runtime) == []
        assert await rows(store_of(runtime), "SELECT user_seq FROM sessions") == [(8,)]


async def test_a_steering_message_that_no_model_call_took_becomes_the_next_turn(store_url: str) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> str:
        asked.set()
        await may_answer.wait()
        return "first done"

    provider = ScriptedProvider([answer, "second done", "third done"])
    async with open_runtime(settings_for(store_url, when_busy="steer"), provider=provider) as runtime:
        first = await runtime.submit("s", "first")
        await asked.wait()
        second = asyncio.create_task(runtime.run("s", "second"))
        while await statuses(runtime) != ["running", "queued"]:
            await asyncio.sleep(0)
        withdrawn = await runtime.submit("s", "never")
        assert await runtime.withdraw("s", withdrawn.turn.turn)
        with pytest.raises(TurnRunning):
            await runtime.run("s", "refused", when_busy="refuse")
        may_answer.set()
        assert await second == "second done"
        assert text_of(await collect(first.follow())) == "first done"
        assert await statuses(runtime) == ["done", "done", "cancelled"]
        assert [texts_of(request) for request in provider.requests] == [["first"], ["first", "second"]]


async def test_run_returns_the_answer_of_the_turn_that_took_the_message_in(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "for both"])
    async with (
        open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime,
        open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as other,
    ):
        first = asyncio.create_task(runtime.run("s", "first"))
        await gate.wait()
        steering = asyncio.create_task(other.run("s", "second", when_busy="steer"))
        while await statuses(runtime) != ["running", "queued"]:
            await asyncio.sleep(0)
        gate.may_end.set()
        assert await first == await steering == "for both"


async def test_a_message_replaces_the_turn_and_the_model_is_told_what_its_tools_did(store_url: str) -> None:
    gate = Gate()

    @tool
    async def charge(amount: int) -> dict[str, Any]:
        """Charge."""
        return {"charged": amount}

    calls = [ToolCall("c1", "charge", {"amount": 5}), ToolCall("c2", gate.tool.name, {})]
    provider = ScriptedProvider(["hello", [ToolCall("c0", "charge", {"amount": 5})], [calls[1]], "instead"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, charge]) as runtime:
        await runtime.run("s", "hi")
        first = await runtime.submit("s", "wrong")
        await gate.wait()
        queued = await runtime.submit("s", "queued")
        assert await runtime.run("s", "right", when_busy="rollback") == "instead"
        with pytest.raises(TurnCancelled):
            await first.collect_answer()
        with pytest.raises(TurnCancelled):
            await queued.collect_answer()
        [greeting, answer, note, message] = provider.requests[-1].messages
        assert [greeting.content, answer.content, message.content] == ["hi", "hello", "right"]
        assert 'charge({"amount":5}): ended with {"charged":5}' in note.content
        assert f"{gate.tool.name}({{}}): started; its outcome is unknown" in note.content
        assert "wrong" not in str(provider.requests[-1].messages)
        assert broken_for(provider.requests[-1]) == []
        assert await statuses(runtime) == ["done", "cancelled", "cancelled", "done"]
        shown = [one.message.content for one in await runtime.sessions.messages("s") if one.message]
        assert "wrong" not in shown
        assert shown[-2:] == ["right", "instead"]
        assert await problems(runtime) == []


async def test_a_message_replaces_a_turn_without_tools_and_leaves_no_note(sqlite_url: str) -> None:
    asked = asyncio.Event()

    async def hang(request: Request) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    provider = ScriptedProvider([hang, "instead"])
    async with open_runtime(settings_for(sqlite_url, when_busy="rollback"), provider=provider) as runtime:
        first = await runtime.submit("s", "wrong")
        await asked.wait()
        assert await runtime.run("s", "right") == "instead"
        assert first.finished
        assert provider.requests[-1].messages == (Message("user", "right"),)


async def test_a_steered_conversation_is_the_same_in_a_fork_and_a_copy(store_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "for both", "again", "again", "again", "again"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.submit("s", "first")
        await gate.wait()
        await runtime.submit("s", "second", when_busy="steer", idempotency_key="k")
        gate.may_end.set()
        events = await collect(first.follow())
        [taken] = [event for event in events if isinstance(event, Steered)]
        await runtime.sessions.fork("s", new_id="fork")
        await runtime.sessions.fork("s", at=taken.seq - 1, new_id="before")
        lines = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.import_lines(lines, session_id="copy")
        for session in ("s", "fork", "copy", "before"):
            assert await runtime.run(session, "third") == "again"
        of_original, of_fork, of_copy, of_earlier_fork = (texts_of(request) for request in provider.requests[2:])
        assert of_original == of_fork == of_copy == ["first", "second", "third"]
        assert of_earlier_fork == ["first", "third"], "the fork begins before the message was taken in"
        assert all(broken_for(request) == [] for request in provider.requests)
        names = [SessionId(runtime.app_name, "user", session) for session in ("s", "fork", "copy", "before")]
        assert [await store_of(runtime).read(check_session, name) for name in names] == [[], [], [], []]
        copied = await runtime.sessions.messages("copy")
        assert [one.seq for one in copied if one.message and one.message.content == "second"] == [taken.seq]
        await runtime.sessions.rewind("s", before=taken.seq)
        assert await runtime.sessions.messages("s") == [], "with the turn that took it in"
