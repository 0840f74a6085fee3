"""The connection is lost in each COMMIT in turn: every write takes effect once, and no client notices."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from lango import open_runtime
from lango.events import TurnEvent
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.api_keys import find_key, revoke_key, spend_tokens, spent_tokens
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import create_session, find_session
from lango.store.turns.event_log import append_log_events, read_event_log
from lango.testing import Answer
from lango.tools import Tool, client_tool
from tests.agents.answers import submit_approval, submit_results
from tests.agents.memory_parts import Roles, remembering
from tests.agents.parts import (
    TIMEOUT_S,
    add_api_key,
    approvals,
    broken_for,
    check_order,
    collect,
    kinds,
    stored,
    text_of,
)
from tests.contract.test_event_log import log_event
from tests.support.postgres_proxy import Loss, Proxy
from tests.support.runtimes import store_of

pytestmark = pytest.mark.postgres

BY = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
PICK = client_tool("pick", "Let the user pick.", BY)


def agent(request: Request) -> Answer:
    """Call the tool whose name a message begins with; answer other messages with text."""
    last = request.messages[-1]
    if last.role != "user":
        return "it is done"
    name, _, by = last.content.partition(" ")
    return [f"I {name}. ", ToolCall(f"{name}-1", name, {"by": by})] if name in TOOLS else f"{name} to you"


class Tools:
    """The effects of the tools, by session."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, str]] = Counter()
        self.began: dict[str, asyncio.Event] = {}
        self.may_end: dict[str, asyncio.Event] = {}
        self.tools = [
            Tool("pay", "Pay.", BY, self._pay),
            Tool("send", "Send.", BY, self._send, level="dangerous"),
            Tool("wait", "Wait.", BY, self._wait),
        ]

    async def _pay(self, by: str) -> str:
        self.runs["pay", by] += 1
        return "paid"

    async def _send(self, by: str) -> str:
        self.runs["send", by] += 1
        return "sent"

    async def _wait(self, by: str) -> str:
        self.runs["wait", by] += 1
        self.began[by].set()
        await self.may_end[by].wait()
        return "waited"


TOOLS = ("pay", "send", "wait", "pick")


class Stage:
    """A runtime whose connections go through the proxy."""

    def __init__(self, runtime: Runtime, tools: Tools, roles: Roles) -> None:
        self.runtime = runtime
        self.tools = tools
        self.roles = roles

    async def say(self, session: str, text: str, **more: Any) -> list[Any]:
        turn = await self.runtime.submit(session, text, **more)
        return self.shown(await collect(turn.follow()))

    def shown(self, events: list[TurnEvent]) -> list[Any]:
        check_order(events)
        return [kinds(events), text_of(events), getattr(events[-1], "status", None), getattr(events[-1], "error", None)]

    async def whole(self, session: str) -> list[Any]:
        """Check the integrity of a session; return its rows without what differs between sessions."""
        assert await self.runtime.sessions.check(session) == []
        record = await self.runtime.sessions.read(session)
        turns = [await store_of(self.runtime).read(read_event_log, record.key, turn) for turn in range(1, 10)]
        return [
            [
                (one.seq, one.message.role, len(one.message.tool_calls))
                for one in await stored(self.runtime, session)
                if one.message
            ],
            [one.turn.status for one in turns if one.turn],
            sorted((name, runs) for (name, by), runs in self.tools.runs.items() if by == session),
            record.revision,
            record.display_title.replace(session, "..."),
        ]


async def turns_with_a_tool(stage: Stage, session: str) -> list[Any]:
    return [
        await stage.say(session, f"pay {session}", idempotency_key="a key"),
        await stage.say(session, "hello"),
        await stage.say(session, f"pay {session}", idempotency_key="a key"),  # repeated
        await stage.whole(session),
    ]


async def an_approval(stage: Stage, session: str) -> list[Any]:
    events = await collect((await stage.runtime.submit(session, f"send {session}")).follow())
    [pending] = approvals(events)
    turn = await submit_approval(stage.runtime, session, pending.call_id, approved=True)
    return [stage.shown(events), stage.shown(await collect(turn.follow())), await stage.whole(session)]


async def queued_messages(stage: Stage, session: str) -> list[Any]:
    runtime, tools = stage.runtime, stage.tools
    began, may_end = tools.began[session], tools.may_end[session] = asyncio.Event(), asyncio.Event()
    first = await runtime.submit(session, f"wait {session}")
    second = await runtime.submit(session, "hello")
    third = await runtime.submit(session, "bye", idempotency_key="a key")
    fourth = await runtime.submit(session, "no")
    assert await runtime.withdraw(session, fourth.turn.turn)
    await began.wait()
    may_end.set()
    shown = [stage.shown(await collect(one.follow())) for one in (first, second, third, fourth)]
    return [shown, await stage.whole(session)]


async def a_cancelled_turn(stage: Stage, session: str) -> list[Any]:
    began, _ = stage.tools.began[session], stage.tools.may_end[session] = asyncio.Event(), asyncio.Event()
    turn = await stage.runtime.submit(session, f"wait {session}")
    await began.wait()
    assert await stage.runtime.cancel(session)
    shown = stage.shown(await collect(turn.follow()))
    return [shown, await stage.say(session, "hello"), await stage.whole(session)]


async def results_of_the_client(stage: Stage, session: str) -> list[Any]:
    pending = await stage.say(session, f"pick {session}", client_tools=[PICK])
    turn = await submit_results(stage.runtime, session, {"pick-1": {"color": "red"}}, client_tools=[PICK])
    return [pending, stage.shown(await collect(turn.follow())), await stage.whole(session)]


async def sessions_of_all_kinds(stage: Stage, session: str) -> list[Any]:
    sessions, store = stage.runtime.sessions, store_of(stage.runtime)
    await sessions.create(session, title="a title", state={"user:told": session})
    await stage.say(session, "one")
    await stage.say(session, f"pay {session}")
    forked = await sessions.fork(session, new_id=f"fork of {session}", at=2, title="a fork")
    await stage.say(forked.name.id, "hello")
    await sessions.rewind(session, before=3)
    lines = [line async for line in sessions.export_lines(session)]
    imported = await sessions.import_lines(lines, session_id=f"copy of {session}")
    await stage.say(imported.name.id, "hello")
    found = {hit.session_id for hit in await sessions.search("hello") if session in hit.session_id.split()}
    whole = [await stage.whole(one) for one in (session, forked.name.id, imported.name.id)]
    assert await sessions.delete(imported.name.id)
    assert await store.read(find_session, imported.name) is None
    return [whole, len(found)]


async def what_a_server_keeps(stage: Stage, session: str) -> list[Any]:
    store = store_of(stage.runtime)
    key, secret = await add_api_key(store, session)
    for _ in range(3):
        await store.write(spend_tokens, key.id, 100, time.time())
    record = await store.write(create_session, SessionId(stage.runtime.app_name, "user", session), None, time.time())
    await stage.say(session, "hello")
    kept = [
        await store.write(append_log_events, record.key, 1, [log_event(1)]),
        await store.write(append_log_events, record.key, 1, [log_event(2, final=True)]),
    ]
    kept.append(await store.write(revoke_key, key.id, time.time()))
    return [
        kept,
        await store.read(spent_tokens, key.id, time.time()),
        await store.read(find_key, secret),
        await stage.whole(session),
    ]


async def memory(stage: Stage, session: str) -> list[Any]:
    for number in range(3):
        await stage.say(session, f"m{number} " + "the cat sat on the mat and looked at all of us " * 8)
        await stage.runtime.memory.settle()
    batches = await stage.runtime.memory.history(session)
    spans = [(one.first_seq, one.last_seq, one.generation, len(one.observations)) for one in batches]
    return [spans, await stage.whole(session)]


Scenario = Callable[[Stage, str], Awaitable[list[Any]]]
SCENARIOS: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        turns_with_a_tool,
        an_approval,
        queued_messages,
        a_cancelled_turn,
        results_of_the_client,
        sessions_of_all_kinds,
        what_a_server_keeps,
        memory,
    )
}


@pytest.fixture
async def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Proxy]:
    monkeypatch.setattr("lango.store.engine.outages._DELAYS_S", (0.01,))
    monkeypatch.setattr("tests.support.postgres_proxy._LATE_S", 0.05)
    async with Proxy.before(postgres_url) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def staged(proxy: Proxy, name: str) -> AsyncGenerator[Stage]:
    tools, roles = Tools(), Roles(agent)
    settings = remembering(proxy.url, enabled=name == "memory")
    async with open_runtime(settings, provider=roles.provider, tools=tools.tools) as runtime:
        yield Stage(runtime, tools, roles)
        assert await store_of(runtime).read(check_database, store_of(runtime).dialect) == []
    assert not [broken for request in roles.agent for broken in broken_for(request)]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_commits_that_are_lost_again_and_again_take_effect_once(proxy: Proxy, name: str) -> None:
    """Also COMMITs that never arrive, and those that arrive while another connection looks for them.

    While one commit is retried, a commit of another task may pass: so not every run loses all of them.
    """
    async with staged(proxy, name) as stage:
        proxy.lose(0, "answer")
        expected = await SCENARIOS[name](stage, "expected")
        commits = proxy.commits

        async def repeat(session: str) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                assert await SCENARIOS[name](stage, session) == expected, session
            assert 2 * proxy.lost > commits > 1, f"of {commits} commits, {proxy.lost} were lost"
            proxy.lose(0, "answer")

        losses: tuple[Loss, ...] = ("answer", "commit")
        for how in losses:
            proxy.lose_each(how)
            await repeat(f"each-{how}")
        for first in (1, 2):  # what follows a late one depends on when it arrives
            proxy.lose(first, "late", every=2)
            await repeat(f"late-{first}")
