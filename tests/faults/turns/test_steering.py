"""A process is killed while a turn takes messages in, or is replaced: each message is in the conversation once."""

import asyncio
import logging
import os
import signal
import warnings
from multiprocessing.connection import Connection
from typing import Any

import pytest

from lango import open_runtime
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.lifecycle.integrity import check_session
from lango.store.turns.lease import mark_seen
from lango.testing import Answer, ScriptedProvider
from lango.tools import Tool, tool
from tests.agents.parts import broken_for, collect, rows, settings_for
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of
from tests.support.store_workers import Worker

KILLS = (4, 6, 7, 9)
"""After so many commits of the process: before, while and after the message is taken in."""
MAX_CALLS = 10


def plan(request: Request) -> Answer:
    """Call two tools, one after the other, by the results in the request; then answer."""
    done = sum(message.role == "tool" for message in request.messages)
    return ToolCall(f"c{done}", "work", {"step": done}) if done < 2 else "done"


def working(client: list[Runtime], session: str, when_busy: Any) -> Tool:
    @tool(effect="idempotent")
    async def work(step: int) -> str:
        """Work, while the user sends a message."""
        if client and not step:
            sending = client[0].submit(session, "also this", idempotency_key="k", when_busy=when_busy)
            await asyncio.wait([asyncio.create_task(sending)])
        return f"worked {step}"

    return work


def run_until_killed(pipe: Connection, url: str, session: str, when_busy: str, commits: int) -> None:
    """Run a turn that gets a message while it runs, and kill the process right after so many commits."""

    async def run() -> None:
        client: list[Runtime] = []
        provider, tools = ScriptedProvider([plan] * MAX_CALLS), [working(client, session, when_busy)]
        async with open_runtime(settings_for(url), provider=provider, tools=tools) as runtime:
            client.append(runtime)
            await runtime.sessions.create(session)
            database: Any = vars(store_of(runtime))["_database"]
            write, count = database.write, 0

            async def write_and_count(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                result = await write(*args, **kwargs)
                count += getattr(args[0], "func", None) is not mark_seen  # the process announces itself at any moment
                if count == commits:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            database.write = write_and_count
            await collect((await runtime.submit(session, "go", idempotency_key="go")).follow())
            await until_idle(runtime)
            pipe.send("ended")

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.run(run())


@pytest.mark.parametrize("when_busy", ["steer", "rollback"])
async def test_a_message_is_there_once_after_kill_9(store_url: str, when_busy: str) -> None:
    workers = {
        f"s{commits}": Worker(run_until_killed, store_url, f"s{commits}", when_busy, commits) for commits in KILLS
    }
    killed = 0
    for worker in workers.values():
        await asyncio.to_thread(worker.process.join)
        killed += not worker.drain()
    assert killed >= len(KILLS) - 1
    provider = ScriptedProvider([plan] * (MAX_CALLS * len(KILLS)))
    async with open_runtime(settings_for(store_url), provider=provider, tools=[working([], "", "wait")]) as runtime:
        await until_idle(runtime)
        store = store_of(runtime)
        for session in workers:
            found = await runtime.sessions.find(session)
            assert found
            key = found.key
            accepted = await rows(store, f"SELECT 1 FROM turns WHERE session_key = {key} AND idempotency_key = 'k'")
            said = f"SELECT content FROM messages WHERE session_key = {key} AND content = 'also this'"
            assert len(await rows(store, said)) == len(accepted), f"{session}: not lost, not doubled"
            assert await store.read(check_session, SessionId(runtime.app_name, "user", session)) == []
            repeated = await runtime.submit(session, "also this", idempotency_key="k")
            await collect(repeated.follow())
            assert len(await rows(store, said)) == 1
    for request in provider.requests:
        assert broken_for(request) == []
        assert sum(message.content == "also this" for message in request.messages) <= 1
