"""A turn that is killed after any of its commits has its steering messages once, at the step where it took them in."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lango import open_runtime
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.lifecycle.integrity import check_session
from lango.testing import Answer, ScriptedProvider
from lango.tools import tool
from tests.agents.parts import broken_for, collect, rows, settings_for
from tests.support.kill_points import check_trace, copy_after_each_commit, until_idle
from tests.support.runtimes import store_of

SENT = ["also this", "and that"]
MAX_CALLS = 20


def plan(request: Request) -> Answer:
    """Call three tools, one after the other, by the results in the request; then answer."""
    done = sum(message.role == "tool" for message in request.messages)
    return ToolCall(f"c{done}", ("work", "look", "work")[done], {"step": done}) if done < 3 else "done"


def said(request: Request) -> list[str]:
    return [message.content for message in request.messages if message.role == "user" and message.content in SENT]


async def stored(runtime: Runtime) -> list[tuple[int, str, str, str]]:
    return await rows(store_of(runtime), "SELECT seq, role, content, event_id FROM messages ORDER BY seq")


@pytest.mark.parametrize("when_busy", ["steer", "rollback"])
async def test_no_message_is_lost_or_seen_twice_after_a_kill_at_each_commit(tmp_path: Path, when_busy: Any) -> None:
    effects: list[int] = []
    client: list[Runtime] = []

    @tool
    async def work(step: int) -> str:
        """Work, while the user sends a message."""
        effects.append(step)
        if client:
            text = SENT[step // 2]
            sending = asyncio.create_task(client[0].submit("s", text, idempotency_key=text, when_busy=when_busy))
            await asyncio.wait([sending])  # in a task of its own, as that of a client
        return f"worked {step}"

    @tool(effect="none")
    async def look(step: int) -> str:
        """Look."""
        return f"seen {step}"

    first = ScriptedProvider([plan] * MAX_CALLS)
    async with open_runtime(
        settings_for(f"sqlite:///{tmp_path}/first.db"), provider=first, tools=[work, look]
    ) as runtime:
        client.append(runtime)
        await runtime.sessions.create("s")

        async def run() -> None:
            turn = await runtime.submit("s", "go", idempotency_key="go")
            await collect(turn.follow())
            await until_idle(runtime)

        copies = await copy_after_each_commit(runtime, tmp_path, run)
        check_requests(first.requests, when_busy)
        whole = [(role, content) for _, role, content, _ in await stored(runtime)]
        client.clear()
    assert len(copies) > 6
    for copy in copies:
        effects.clear()
        async with open_runtime(
            settings_for(f"sqlite:///{copy}"),
            provider=(again := ScriptedProvider([plan] * MAX_CALLS)),
            tools=[work, look],
        ) as runtime:
            store = store_of(runtime)
            before = await stored(runtime)
            accepted = [key for [key] in await rows(store, "SELECT idempotency_key FROM turns WHERE turn > 1")]
            await until_idle(runtime)
            check_requests(again.requests, when_busy)
            after = await stored(runtime)
            assert after[: len(before)] == before, f"{copy.name}: what was stored stays, in its place"
            texts = [content for _, role, content, _ in after if role == "user" and content in SENT]
            assert texts == accepted, f"{copy.name}: none is lost, none is doubled"
            await check_client_retries(runtime, accepted)
            assert await store.read(check_session, SessionId(runtime.app_name, "user", "s")) == []
            was_taken = {content for _, _, content, _ in before} >= set(SENT)
            if when_busy == "steer" and was_taken and "unknown" not in str(after):
                assert [(role, content) for _, role, content, _ in after] == whole, f"{copy.name}: at the same step"
            if when_busy == "steer":
                assert not again.requests or said(again.requests[-1]) == accepted, copy.name
                await check_trace(runtime)


async def check_client_retries(runtime: Runtime, accepted: list[str]) -> None:
    """Send the messages again, as a client does that never got the reply: nothing is stored."""
    before = await stored(runtime)
    for text in accepted:
        repeated = await runtime.submit("s", text, idempotency_key=text)
        assert repeated.turn.repeated
        await collect(repeated.follow())
    assert await stored(runtime) == before


def check_requests(requests: list[Request], when_busy: str) -> None:
    """Check that each request is valid, has each message once, and that a message that was seen stays."""
    known: list[str] = []
    for request in requests:
        assert broken_for(request) == []
        now = said(request)
        assert len(now) == len(set(now)), now
        if when_busy == "steer":
            assert now[: len(known)] == known
        known = now
