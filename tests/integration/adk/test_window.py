"""H2, H4, H5 and H6 in the runtime: the loaded messages are those that are sent, whatever the session's length."""

import logging
import random
import time
from typing import Any

import pytest

from lango import open_runtime
from lango.messages import Message, ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import NewEvent
from lango.store.sessions.sessions import create_session, find_session
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.parts import broken_for, settings_for
from tests.support.runtimes import store_of


@tool(effect="none")
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} " + "word " * 20


async def fill(runtime: Runtime, turns: int, seed: int = 1) -> None:
    """Store turns of every shape: plain ones, calls, parallel calls."""
    dice = random.Random(seed)
    name = SessionId(runtime.app_name, "user", "s")
    session = await store_of(runtime).read(find_session, name) or await store_of(runtime).write(
        create_session, name, None, time.time()
    )
    revision, count = session.revision, 0
    for number in range(turns):
        messages = [Message("user", f"question {number}", author="user")]
        for step in range(dice.randrange(4)):
            ids = [f"c{number}_{step}_{n}" for n in range(dice.randrange(1, 4))]
            messages.append(Message("assistant", "", tuple(ToolCall(i, "look", {"page": 1}) for i in ids), "lango"))
            results = tuple(ToolCall(i, "look", output={"result": "seen " * 30}) for i in ids)
            messages.append(Message("tool", "{}", results, "lango"))
        messages.append(Message("assistant", f"answer {number}", author="lango"))
        for message in messages:
            count += 1
            entry = NewEvent(f"e{seed}-{count}", float(count), message, tokens=60, invocation_id=f"i{number}")
            revision = (await store_of(runtime).append(session.key, name, revision, entry)).revision


async def request_of(runtime: Runtime, provider: ScriptedProvider) -> Request:
    await runtime.run("s", "and now?")
    return provider.requests[-1]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_h2_messages_that_are_not_loaded_would_not_have_been_sent(sqlite_url: str, seed: int) -> None:
    provider = ScriptedProvider(["yes"] * 4)
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[look]) as runtime:
        await fill(runtime, 60, seed)
        inside: Any = runtime
        bounded = await request_of(runtime, provider)
        inside._engine._runner.session_service._max_messages = None
        unbounded = await request_of(runtime, provider)
    assert len(bounded.messages) <= 100
    assert broken_for(bounded) == broken_for(unbounded) == []
    # the second request has a further turn, and is at most as long
    assert [message.content for message in bounded.messages[-90:]] == [
        message.content for message in unbounded.messages[-92:-2]
    ]


async def test_h2_the_warning_counts_messages_that_were_not_loaded(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider(["yes"] * 2)
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[look]) as runtime:
        await fill(runtime, 60)
        stored = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "user", "s"))
        assert stored
        with caplog.at_level(logging.WARNING, "lango.history"):
            sent = await request_of(runtime, provider)
    [warning] = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    in_all = stored.last_seq + 1
    assert f"left out {in_all - len(sent.messages)} of {in_all} messages" in warning


async def test_h6_the_same_request_from_a_short_and_a_long_session(sqlite_url: str) -> None:
    provider = ScriptedProvider(["yes"] * 2)
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[look]) as runtime:
        await fill(runtime, 60)
        short = await request_of(runtime, provider)
    assert short.messages[-1].content == "and now?"
    assert 60 <= len(short.messages) <= 100


async def test_h5_a_turn_of_many_calls_keeps_its_user_message(sqlite_url: str) -> None:
    calls = [ToolCall(f"c{n}", "look", {"page": n}) for n in range(60)]  # more messages than the window holds
    provider = ScriptedProvider([*calls, "all seen", "yes"])
    settings = settings_for(sqlite_url, max_turns=500)
    async with open_runtime(settings, provider=provider, tools=[look]) as runtime:
        assert await runtime.run("s", "look at all of them") == "all seen"
        assert await runtime.run("s", "and now?") == "yes"
    assert all(broken_for(request) == [] for request in provider.requests[::20])
    assert "look at all of them" in provider.requests[60].messages[0].content, "H4: the current message is never cut"
    assert provider.requests[-1].messages[-1].content == "and now?"
    assert broken_for(provider.requests[-1]) == []
