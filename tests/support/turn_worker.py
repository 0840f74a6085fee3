"""Turns in a process of their own, to be killed at an exact point, and what must hold after each kill.

The worker reports over a pipe where it is, and waits there, so that it is killed at that point. It wraps the store, the
provider and the tools of its own process.
"""

import asyncio
import functools
import itertools
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow

from lango import open_runtime
from lango.adk import AdkTool
from lango.errors import TurnReleased
from lango.events import Accepted, TurnDone
from lango.messages import Message, ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import Store
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.window import read_session_events
from lango.store.tool_calls import tool_journal
from lango.store.waits.recovery import UNKNOWN_RESULT
from lango.testing import ScriptedProvider
from lango.tools import Tool, ToolContext
from tests.agents.parts import TIMEOUT_S, broken_for, rows, settings_for
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of
from tests.support.store_workers import Worker

BOUNDARIES = [
    "message stored",
    "model called",
    "call stored",
    "effect intended",
    "effect begun",
    "tool running",
    "tool finished",
    "result journaled",
    "result stored",
    "model speaking",
    "answer stored",
    "turn ended",
]
AGENT = "payer"
Point = Callable[[str], None]


# -- the worker ------------------------------------------------------------------------------------------------------


def run_a_turn(
    pipe: Connection, url: str, folder: str, session: str, text: str, key: str, stop_at: str, agents: int = 1
) -> None:
    """Run one turn, held once at a boundary, for the kill or until something is sent; with `stop_at` empty, never."""
    hold_at = {stop_at}

    def point(name: str) -> None:
        if name in hold_at:
            hold_at.clear()
            pipe.send("here")
            pipe.recv()

    async def run() -> None:
        announce(point)
        async with open_paying_runtime(url, Path(folder), AnnouncingProvider(point), point, agents) as runtime:
            pipe.send("ready")
            with suppress(TurnReleased):  # another process took the turn over
                async for event in runtime.stream(session, text, idempotency_key=key):
                    if isinstance(event, Accepted | TurnDone):
                        pipe.send(event.type)

    logging.disable(logging.WARNING)  # ADK's own, on the terminal of the test run
    asyncio.run(run())


def run_many_turns(pipe: Connection, url: str, folder: str, session: str, name: str, count: int) -> None:
    """Run turn after turn beside other processes, all on one session."""

    async def run() -> None:
        provider = ScriptedProvider(itertools.repeat(answer))
        async with open_paying_runtime(url, Path(folder), provider) as runtime:
            pipe.send("ready")
            pipe.recv()
            answers = [await runtime.run(session, f"{name} {number}") for number in range(count)]
            pipe.send((answers, [problem for request in provider.requests for problem in broken_for(request)]))

    logging.disable(logging.WARNING)
    asyncio.run(run())


def announce(point: Point) -> None:
    """Report each operation of the store that a turn has completed."""

    def after(method: Callable[..., Awaitable[Any]], name_of: Callable[..., str]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def wrapped(*args: Any, **fields: Any) -> Any:
            result = await method(*args, **fields)
            point(name_of(*args))
            return result

        return wrapped

    store: Any = Store
    store.append = after(store.append, _appended)
    for method, name in {"submit_turn": "message stored", "end_turn": "turn ended"}.items():
        setattr(store, method, after(getattr(store, method), functools.partial(_named, name)))
    store.write = after(store.write, _journaled)


def _named(name: str, *_: object) -> str:
    return name


def _journaled(_store: object, operation: Any, *args: Any) -> str:
    """Both tools run at once, and either may be the first: the boundaries are those of the one with an effect."""
    names: dict[Any, str] = {
        tool_journal.record_intent: "effect intended",
        tool_journal.record_start: "effect begun",
        tool_journal.record_result: "result journaled",
    }
    return names[operation] if operation in names and args[1].startswith("pay-") else ""


def _appended(*args: Any) -> str:
    message: Message | None = args[4].message
    if message is None:
        return "state stored"
    if message.role == "tool":
        return "result stored"
    return "call stored" if message.tool_calls else "answer stored"


def answer(request: Request) -> Any:
    """Call both tools once for a message of the user, then answer that it is done."""
    last = request.messages[-1]
    if last.role == "tool":
        return "it is done"
    unique = os.urandom(6).hex()
    return ["I pay. ", ToolCall(f"pay-{unique}", "pay", {"amount": 1}), ToolCall(f"look-{unique}", "look", {})]


class AnnouncingProvider(ScriptedProvider):
    """A model that reports when it is called, and when it is in the middle of its answer."""

    def __init__(self, point: Point) -> None:
        super().__init__(itertools.repeat(answer))
        self._point = point

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self._point("model called")
        async for delta in super().stream(request):
            yield delta
            if request.messages[-1].role == "tool":
                self._point("model speaking")


@asynccontextmanager
async def open_paying_runtime(
    url: str, folder: Path, provider: ScriptedProvider, point: Point = lambda _: None, agents: int = 1
) -> AsyncGenerator[Runtime, None]:
    """Open a runtime whose agent has a tool with an effect that can be seen, one without, and keeps state."""

    async def pay(amount: int, context: ToolContext) -> str:
        point("tool running")
        with (folder / "effects").open("a") as effects:
            effects.write(f"{context.call_id}\n")
        point("tool finished")
        return f"paid {amount}"

    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    tools = [
        Tool("pay", "Pay.", schema, pay, effect="once"),
        Tool("look", "Look.", None, lambda: "seen", effect="none"),
    ]
    settings = settings_for(url, name="crash")
    root: Any = LlmAgent(name=AGENT, model="scripted/x", output_key="answer")
    if agents > 1:  # in a row, one after the other
        own: Any = [AdkTool(tool) for tool in tools]
        row = [LlmAgent(name=f"{AGENT}{number}", model="scripted/x", tools=own) for number in range(agents)]
        root, tools = Workflow(name="row", edges=[("START", *row)]), []
    async with open_runtime(settings, provider=provider, root_agent=root, tools=tools) as runtime:
        yield runtime


# -- what must hold ----------------------------------------------------------------------------------------------------


@dataclass
class Kill:
    """One round: the request, and what the client had received when the process was killed."""

    session: str
    text: str
    key: str
    where: str
    received: list[str] = field(default_factory=list[str])
    agents: int = 1


def kill_at(url: str, folder: Path, kill: Kill, dice: random.Random | None = None) -> Kill:
    """Start a worker and kill it: at the boundary, or, with dice, at a random moment of its turn."""
    stop_at = "" if dice else kill.where
    worker = Worker(run_a_turn, url, str(folder), kill.session, kill.text, kill.key, stop_at, kill.agents)
    assert worker.recv() == "ready"
    if dice is not None:
        time.sleep(dice.uniform(0, 0.08))  # the random moment
    else:
        while (message := worker.recv()) != "here":
            kill.received.append(message)
    worker.kill()
    kill.received += [message for message in worker.drain() if message != "here"]
    return kill


async def finish_without_a_client(url: str, folder: Path, agents: int = 1) -> ScriptedProvider:
    """Open a runtime, and wait until it has finished every turn that it found."""
    async with Store(url) as store:
        stored = await count_responses(store)
    provider = ScriptedProvider(itertools.repeat(answer))
    async with open_paying_runtime(url, folder, provider, agents=agents) as runtime:
        await until_idle(runtime)
        # F8: each request brought a response that was not stored before
        assert len(provider.requests) == await count_responses(store_of(runtime)) - stored
    return provider


async def count_responses(store: Store) -> int:
    return (await rows(store, "SELECT COUNT(*) FROM messages WHERE role = 'assistant'"))[0][0]


async def retry_and_go_on(url: str, folder: Path, kill: Kill) -> ScriptedProvider:
    """Do what a client does later: send the same request again, and get its answer; then the next message."""
    provider = ScriptedProvider(itertools.repeat(answer))
    async with open_paying_runtime(url, folder, provider) as runtime, asyncio.timeout(TIMEOUT_S):
        assert await runtime.run(kill.session, kill.text, idempotency_key=kill.key) == "I pay. it is done"
        if kill.received:
            assert provider.requests == [], "it was accepted, and is finished"
        assert await runtime.run(kill.session, f"after {kill.text}") == "I pay. it is done"
    return provider


async def check(url: str, folder: Path, kills: list[Kill], requests: list[Request]) -> None:
    """F1 to F6 over everything that was killed so far in one session."""
    name = SessionId("crash", "user", kills[0].session)
    async with Store(url) as store:
        found = await store.read(read_session_events, name)
        assert found
        record, stored = found
        messages = [one.message for one in stored if one.message]
        # F1 and F2: each message once, acknowledged or not, since each was sent again
        sent = [one.content for one in messages if one.role == "user"]
        assert sent == [text for kill in kills for text in (kill.text, f"after {kill.text}")]
        keys = await rows(store, "SELECT session_key, idempotency_key, COUNT(*) FROM turns GROUP BY 1, 2")
        assert all(count == 1 for _, key, count in keys if key is not None)
        # F2 and F3
        assert [one.seq for one in stored if one.message] == list(range(1, len(messages) + 1))
        assert len({one.event_id for one in stored}) == len(stored)
        # F4: the answer of the agent becomes state with the same event, or not at all
        answers = [one for one in stored if one.message and one.message.role == "assistant"]
        assert all("answer" in (one.state_delta or {}) for one in answers)
        assert record.state["answer"] == (answers[-1].state_delta or {})["answer"]
        check_calls(messages, folder)
        await check_statuses(store, record.key, len(kills))
        assert await rows(store, "SELECT COUNT(*) FROM open_calls") == [(0,)]
        assert await store.read(check_session, name) == []
    # F6
    assert [problem for request in requests for problem in broken_for(request)] == []


def check_calls(messages: list[Message], folder: Path) -> None:
    """F5: each call has one result, and it is true; no effect happened twice."""
    made = [call.id for one in messages if one.role == "assistant" for call in one.tool_calls]
    results = Counter(call.id for one in messages if one.role == "tool" for call in one.tool_calls)
    assert results == Counter(made), "each call has exactly one result"
    file = folder / "effects"
    effects = Counter(file.read_text().split() if file.exists() else [])
    assert all(count == 1 for count in effects.values()), "an effect happened twice"
    for one in messages:
        for call in one.tool_calls if one.role == "tool" else ():
            match (call.name, call.output or {}):
                case ("pay", {"result": "paid 1"}):
                    assert effects[call.id] == 1
                case ("pay", {"error": error}):
                    assert error == UNKNOWN_RESULT  # it may have happened, or not
                case ("look", {"result": "seen"}):
                    pass
                case other:
                    raise AssertionError(f"neither a result nor the truth about it: {other}")


async def check_statuses(store: Store, session_key: int, kills: int) -> None:
    found = await rows(store, f"SELECT status FROM turns WHERE session_key = {session_key}")
    assert Counter(status for [status] in found) == {"done": 2 * kills}
