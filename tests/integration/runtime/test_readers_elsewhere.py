"""A reader at another replica gets the events of a turn that is handed over, wherever the turn continues."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby

import pytest

from lango import open_runtime
from lango.events import Accepted, Resumed, ToolStart, TurnDone
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.execution import event_log, take_over
from lango.runtime.execution.event_log import EventLogReader
from lango.runtime.runtime import Runtime
from lango.store import Store
from lango.store.turns.event_log import LoggedEvent
from lango.testing import Entry, ScriptedProvider
from lango.tools import Tool
from lango.turns.running_turn import RunningTurn
from tests.agents.parts import TIMEOUT_S, rows, settings_for, statuses, until
from tests.support.runtimes import store_of, supervisor_of

LISTENING = """
SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND datname = current_database()
"""


class Replica:
    """A runtime whose tool returns once its gate is open."""

    def __init__(self, url: str) -> None:
        self.gate, self.asked, self.may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._settings = settings_for(url, drain_s=0.0)

    @asynccontextmanager
    async def open(self, *answers: Entry) -> AsyncGenerator[Runtime]:
        async with open_runtime(self._settings, tools=[self.tool], provider=ScriptedProvider(answers)) as runtime:
            yield runtime

    @property
    def tool(self) -> Tool:
        return Tool("wait", "Wait.", {"type": "object", "properties": {}}, self._wait, effect="idempotent")

    async def answer_later(self, _: Request) -> str:
        self.asked.set()
        await self.may_answer.wait()
        return "answered"

    async def _wait(self) -> str:
        await self.gate.wait()
        return "waited"


async def start_turn(runtime: Runtime) -> RunningTurn:
    """Start a turn, and return once its tool waits."""
    turn = await runtime.submit("s", "wait, then answer")
    await until(turn.follow(), ToolStart)
    return turn


async def read(events: AsyncGenerator[LoggedEvent | None], seen: list[LoggedEvent], *, to: type) -> None:
    """Read up to the first event of a kind."""
    async for logged in events:
        if logged is not None:
            seen.append(logged)
            if isinstance(logged.event, to):
                return


async def test_a_reader_follows_the_turn_where_it_reads_once_the_turn_is_taken_over_there(store_url: str) -> None:
    old, new = Replica(store_url), Replica(store_url)
    async with AsyncExitStack() as first, new.open("answered") as there, asyncio.timeout(TIMEOUT_S):
        runtime = await first.enter_async_context(old.open(ToolCall("c1", "wait", {})))
        turn = await start_turn(runtime)
        seen: list[LoggedEvent] = []
        events = there.turns.follow(turn.session, turn.turn.turn, 0, TIMEOUT_S)
        await read(events, seen, to=ToolStart)
        reading = asyncio.create_task(read(events, seen, to=TurnDone))
        await first.aclose()
        while [running.log.readers for running in supervisor_of(there).running_turns()] != [1]:
            await asyncio.sleep(0.01)
        new.gate.set()
        await reading
    ids = [logged.id for logged in seen]
    assert ids == sorted(set(ids))
    assert [logged.event.type for logged in seen].count("resumed") == 1


async def test_the_events_of_a_turn_that_was_taken_over_are_written_for_readers_elsewhere(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "UNREAD_INTERVAL_S", 1e9)  # never, during the turn
    old, new = Replica(store_url), Replica(store_url)
    async with AsyncExitStack() as first, new.open("answered") as there, asyncio.timeout(TIMEOUT_S):
        runtime = await first.enter_async_context(old.open(ToolCall("c1", "wait", {})))
        turn = await start_turn(runtime)
        await first.aclose()
        elsewhere = EventLogReader(store_of(there))
        seen: list[LoggedEvent] = []
        await read(elsewhere.follow(turn.session.key, turn.turn.turn), seen, to=Resumed)
        assert not new.gate.is_set()
        new.gate.set()
        await read(elsewhere.follow(turn.session.key, turn.turn.turn, seen[-1].id), seen, to=TurnDone)
    assert [logged.event.type for logged in seen][-1] == "done"


async def test_a_released_turn_is_taken_over_at_once_on_postgres(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_over, "POLL_S", 1e9)  # only a notification leads to the take-over
    old, new = Replica(postgres_url), Replica(postgres_url)
    async with AsyncExitStack() as first, new.open("answered") as there, asyncio.timeout(TIMEOUT_S):
        runtime = await first.enter_async_context(old.open(ToolCall("c1", "wait", {})))
        await start_turn(runtime)
        while await rows(store_of(there), LISTENING) != [(2,)]:
            await asyncio.sleep(0.01)
        await first.aclose()
        new.gate.set()
        while await statuses(there) != ["done"]:
            await asyncio.sleep(0.01)


@pytest.fixture
def only_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers and writers of the event log do nothing by time."""
    for interval in ("UNREAD_INTERVAL_S", "_POLL_S", "_MAX_POLL_S"):
        monkeypatch.setattr(event_log, interval, 1e9)


@pytest.mark.usefixtures("only_notified")
async def test_readers_elsewhere_are_notified_of_the_events_of_a_turn_that_is_handed_over(postgres_url: str) -> None:
    old, new = Replica(postgres_url), Replica(postgres_url)
    seen: list[LoggedEvent] = []
    async with (
        Store(postgres_url) as elsewhere,
        AsyncExitStack() as first,
        new.open("answered"),
        asyncio.timeout(TIMEOUT_S),
    ):
        runtime = await first.enter_async_context(old.open(ToolCall("c1", "wait", {})))
        turn = await start_turn(runtime)
        events = EventLogReader(elsewhere).follow(turn.session.key, turn.turn.turn)
        await read(events, seen, to=Accepted)
        reading = asyncio.create_task(read(events, seen, to=TurnDone))
        await first.aclose()
        new.gate.set()
        await reading
    kinds = [logged.event.type for logged in seen if logged.event.type != "text_end"]
    kinds = [kind for kind, _ in groupby(kinds)]  # a text may be read in pieces
    assert kinds == ["accepted", "tool_start", "resumed", "tool_end", "text_delta", "done"]


@pytest.mark.usefixtures("only_notified")
async def test_readers_elsewhere_are_notified_of_what_a_process_does_while_it_stops(postgres_url: str) -> None:
    """Its own readers were told to reconnect to another replica. The step under way ends the turn."""
    replica, seen = Replica(postgres_url), list[LoggedEvent]()
    async with (
        Store(postgres_url) as elsewhere,
        replica.open(ToolCall("c1", "wait", {}), replica.answer_later) as runtime,
        asyncio.timeout(TIMEOUT_S),
    ):
        turn = await start_turn(runtime)
        events = EventLogReader(elsewhere).follow(turn.session.key, turn.turn.turn)
        await read(events, seen, to=Accepted)
        reading = asyncio.create_task(read(events, seen, to=TurnDone))
        replica.gate.set()
        await replica.asked.wait()
        stopping = asyncio.create_task(runtime.hand_over(TIMEOUT_S))
        await asyncio.sleep(0)
        replica.may_answer.set()
        await reading
        await stopping
