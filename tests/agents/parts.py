"""What tests of the runtime share: settings, gates, and checks on what was stored and sent."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from lango import Settings
from lango.adk.agents import model_registry
from lango.events import Accepted, TextDelta, TurnDone, TurnError, TurnEvent, WaitOpened
from lango.messages import Message
from lango.providers import Request, anthropic, catalog, gemini, openai, openai_responses
from lango.providers.local.known_models import SMOLLM2
from lango.providers.local.weights import pull
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId, StoredEvent
from lango.store import Store
from lango.store.api_keys import ApiKey, add_key, new_secret
from lango.store.engine.database import Operation, Row
from lango.store.sessions.window import read_session_events
from lango.tools import Tool
from lango.waits import ApprovalWait
from tests.support import wire_rules
from tests.support.provider_rules import broken_rules
from tests.support.runtimes import store_of

TIMEOUT_S = 120.0
"""Long enough for any machine: what takes longer hangs."""
USER = "user"


def settings_for(url: str, *, tools: dict[str, Any] | None = None, drain_s: float = 20.0, **agent: Any) -> Settings:
    sections = {"agent": agent, "tools": tools or {}, "server": {"drain_s": drain_s}}
    return Settings.model_validate({"store": {"url": url}, **sections})


def bring_demonstration_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the model that is used without a configuration be the demonstration model, whatever else is here."""
    assert SMOLLM2.weights
    (folder / SMOLLM2.weights.file_name).symlink_to(pull(SMOLLM2))
    monkeypatch.setenv("LANGO_MODELS_DIR", str(folder))
    monkeypatch.setattr(catalog, "_typed_keys", {})  # those that this test types
    monkeypatch.setattr(model_registry, "_ANSWER_TIMEOUT_S", TIMEOUT_S)  # the first request imports an SDK


async def collect(stream: AsyncIterator[TurnEvent]) -> list[TurnEvent]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in stream]


async def until(stream: AsyncGenerator[TurnEvent, None], kind: type[Any]) -> list[TurnEvent]:
    """Read up to the first event of a kind, and leave."""
    seen: list[TurnEvent] = []
    async with asyncio.timeout(TIMEOUT_S), aclosing(stream) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, kind):
                break
    return seen


def text_of(events: Iterable[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kinds(events: Iterable[TurnEvent]) -> list[str]:
    """Name the events in order, pieces of one text as one."""
    named: list[str] = []
    for event in events:
        if not (isinstance(event, TextDelta) and named[-1:] == ["text_delta"]):
            named.append(event.type)
    return named


def approvals(events: Iterable[TurnEvent]) -> list[ApprovalWait]:
    waits = [event.wait for event in events if isinstance(event, WaitOpened)]
    return [wait for wait in waits if isinstance(wait, ApprovalWait)]


def last_error(events: list[TurnEvent]) -> TurnError:
    assert isinstance(events[-1], TurnError), events
    assert events[-1].fatal
    return events[-1]


def check_order(events: list[TurnEvent]) -> None:
    """Accepted first, one end last, ids that grow."""
    assert isinstance(events[0], Accepted), events
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    ends = [
        at for at, one in enumerate(events) if isinstance(one, TurnDone) or (isinstance(one, TurnError) and one.fatal)
    ]
    assert ends == [len(events) - 1], events


def broken_for(request: Request, name: str = "scripted") -> list[str]:
    """Return what any provider would find wrong with a request."""
    own = wire_rules.own_signatures(request.messages, name, request.model)
    return [
        *broken_rules(request.messages),
        *wire_rules.gemini(gemini.encode(request, provider=name), own),
        *wire_rules.openai_chat(openai.encode(request)),
        *wire_rules.openai_responses(openai_responses.encode(request, provider=name), own),
        *wire_rules.anthropic(anthropic.encode(request, provider=name), own, cut=request.cut),
    ]


def results_in(request: Request) -> dict[str, Any]:
    """Return the results that a model was shown, by the id of their call."""
    return {
        call.id: call.output for message in request.messages if message.role == "tool" for call in message.tool_calls
    }


async def stored(runtime: Runtime, session: str = "s", user: str = USER) -> list[StoredEvent]:
    found = await store_of(runtime).read(read_session_events, SessionId(runtime.app_name, user, session))
    assert found
    return found[1]


async def messages(runtime: Runtime, session: str = "s", user: str = USER) -> list[Message]:
    return [one.message for one in await stored(runtime, session, user) if one.message]


async def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Run a query on the store's database."""

    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    return [tuple(row) for row in await store.read(operation)]


async def add_api_key(store: Store, user: str, **limits: int | None) -> tuple[ApiKey, str]:
    """Create an API key of a user; the second value is its secret."""
    secret = new_secret()
    return await store.write(add_key, user, secret, time.time(), **limits), secret


async def statuses(runtime: Runtime) -> list[str]:
    """What became of every turn, in order; for tests with one session."""
    return [status for [status] in await rows(store_of(runtime), "SELECT status FROM turns ORDER BY turn")]


class Leaps:
    """The clock of the running loop, which goes on by itself and can be moved on: time runs out where a test says so.

    A limit of a minute then passes in no time, and a slow machine does not reach it by itself.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self._ahead_s = 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead_s)

    def leap(self, seconds: float) -> None:
        """Let this much time be over at once."""
        self._ahead_s += seconds

    async def pass_by(self, seconds: float) -> None:
        """Let time be over, and let everything that is due by then happen."""
        self.leap(seconds)
        for _ in range(10):
            await asyncio.sleep(0)


class Gate:
    """A tool that says when it has begun, and waits until it may end."""

    def __init__(self, name: str = "wait_here", **fields: Any) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.runs = 0
        self.tool = Tool(name, "Wait.", None, self._handle, **fields)

    async def _handle(self) -> str:
        self.runs += 1
        self.began.set()
        await self.may_end.wait()
        return "waited"

    async def wait(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self.began.wait()
