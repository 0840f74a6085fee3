"""Deaths and stops beside a healthy turn: real processes on one session, whose order, owner and effects hold."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango.adk.turn import record
from lango.messages import Message
from lango.runtime.execution import take_over
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine import changes
from lango.store.engine.database import Operation
from lango.store.engine.postgres import notifications, postgres_database
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.sessions import create_session
from lango.testing import ScriptedProvider
from lango.turns import lease_holder, liveness
from lango.turns.liveness import LivenessMonitor
from tests.agents.parts import TIMEOUT_S, collect, messages, rows, statuses
from tests.support.held_turns import run_a_held_turn
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of, supervisor_of
from tests.support.store_workers import Worker
from tests.support.turn_worker import answer, check_calls, open_paying_runtime, run_many_turns

NAME = SessionId("crash", "user", "s")
NEVER_S = 2 * TIMEOUT_S
TURN = ["user", "assistant", "tool", "assistant"]


class Clock:
    """The clock by which heartbeats are judged: it stands still, and goes on where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1_000.0
        monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: self._now))
        for module in (lease_holder, take_over):
            monkeypatch.setattr(module, "POLL_S", 0.05)

    def leap(self) -> None:
        """Let the time be over after which an owner without a heartbeat is gone."""
        self._now += liveness.SUSPENDED_AFTER_S + 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Looks(LivenessMonitor):
    """Counts how often each owner was checked."""

    def __init__(self) -> None:
        super().__init__()
        self._looks: Counter[str] = Counter()

    def is_gone(self, owner: str, heartbeat: int) -> bool:
        self._looks[owner] += 1
        return super().is_gone(owner, heartbeat)

    async def at(self, owner: str) -> None:
        """Wait until a check of an owner has begun and ended since now."""
        seen = self._looks[owner]
        async with asyncio.timeout(TIMEOUT_S):
            while self._looks[owner] < seen + 3:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def here(url: str, folder: Path) -> AsyncGenerator[tuple[Runtime, Looks]]:
    """Open a runtime in this process, and show when it checks the owners of other turns."""
    looks = Looks()
    with mock.patch("lango.runtime.execution.turn_supervisor.LivenessMonitor", return_value=looks):
        async with open_paying_runtime(url, folder, ScriptedProvider(itertools.repeat(answer))) as runtime:
            yield runtime, looks


async def owner_of(runtime: Runtime, turn: int) -> str:
    return (await rows(store_of(runtime), f"SELECT owner FROM turns WHERE turn = {turn}"))[0][0]


def held(url: str, folder: Path, text: str, where: str, run: Callable[..., None] = run_a_held_turn) -> Worker:
    """Start a turn in a process of its own, which holds at a point until it is sent something."""
    worker = Worker(run, url, str(folder), "s", text, f"key of {text}", where)
    while worker.recv() != "here":
        pass
    return worker


def wake(worker: Worker) -> None:
    """Let it go on: out of its hold, too."""
    worker.send("go on")
    worker.resume()


async def ended(worker: Worker) -> list[str]:
    """Wait for the end of a process; return what it said of its turn."""
    await asyncio.to_thread(worker.join)
    return worker.drain()


async def spoken(runtime: Runtime) -> list[str]:
    """Return the roles of the messages, and what the user said."""
    return [one.content if one.role == "user" else one.role for one in await messages(runtime)]


def turn_of(text: str) -> list[str]:
    return [text, *TURN[1:]]


async def snapshot(store: Store) -> list[list[tuple[object, ...]]]:
    tables = ("sessions", "messages", "turns", "tool_journal", "event_log", "open_calls", "session_states")
    return [await rows(store, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


# -- a death ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["the next message", "the same message again"])
async def test_a_death_in_the_queue_leaves_the_turn_that_runs_alone(
    store_url: str, tmp_path: Path, clock: Clock, sent: str
) -> None:
    first = held(store_url, tmp_path, "first", "tool finished")
    held(store_url, tmp_path, "second", "message stored").kill()
    async with here(store_url, tmp_path) as (runtime, _), asyncio.timeout(TIMEOUT_S):
        if sent == "the next message":
            turn = await runtime.submit("s", "third")
        else:
            turn = await runtime.submit("s", "second", idempotency_key="key of second")
        while await owner_of(runtime, 2) != supervisor_of(runtime).owner.name:
            await asyncio.sleep(0.01)
        assert (await statuses(runtime))[:2] == ["running", "queued"], "it keeps its place"
        assert await spoken(runtime) == ["first", "assistant"], "nothing is written into the turn that runs"
        first.send("go on")
        assert await ended(first) == ["done"]
        assert (await collect(turn.follow()))[-1].type == "done"
        third = turn_of("third") if sent == "the next message" else []
        assert await spoken(runtime) == [*turn_of("first"), *turn_of("second"), *third]
        assert set(await statuses(runtime)) == {"done"}
        check_calls(await messages(runtime), tmp_path)
        assert await store_of(runtime).read(check_session, NAME) == []


@pytest.mark.parametrize("sent", ["nothing", "the same message again"])
async def test_the_turns_of_two_dead_processes_are_finished_in_the_order_of_the_queue(
    store_url: str, tmp_path: Path, sent: str
) -> None:
    first = held(store_url, tmp_path, "first", "tool finished")
    second = held(store_url, tmp_path, "second", "message stored")
    first.kill()
    second.kill()
    async with here(store_url, tmp_path) as (runtime, _), asyncio.timeout(TIMEOUT_S):
        if sent == "the same message again":
            assert await runtime.run("s", "second", idempotency_key="key of second") == "I pay. it is done"
        await until_idle(runtime)
        assert await spoken(runtime) == [*turn_of("first"), *turn_of("second")]
        assert await runtime.run("s", "third") == "I pay. it is done"
        assert await statuses(runtime) == ["done", "done", "done"]
        check_calls(await messages(runtime), tmp_path)
        assert await store_of(runtime).read(check_session, NAME) == []


# -- a stop ----------------------------------------------------------------------------------------------------


def run_a_turn_and_notice(pipe: Connection, *args: Any) -> None:
    """Run a turn that notices a stop of a moment: in life it is one of many seconds that costs it the turn."""
    record.RECHECK_LEASE_AFTER_S = 0.05  # of this process
    run_a_held_turn(pipe, *args)


@pytest.mark.parametrize("where", ["model called", "call stored", "effect intended", "effect begun", "model speaking"])
async def test_a_stopped_process_is_taken_over_and_writes_nothing_when_it_wakes_up(
    store_url: str, tmp_path: Path, clock: Clock, where: str
) -> None:
    stopped = held(store_url, tmp_path, "first", where, run_a_turn_and_notice)
    stopped.suspend(store_url)
    async with here(store_url, tmp_path) as (runtime, looks):
        await looks.at(await owner_of(runtime, 1))
        assert await statuses(runtime) == ["running"], "it had no time yet"
        clock.leap()
        await until_idle(runtime)
        assert await spoken(runtime) == turn_of("first")
        before, effects = await snapshot(store_of(runtime)), effects_in(tmp_path)
        wake(stopped)
        assert await ended(stopped) == []
        assert effects_in(tmp_path) == effects, "it starts no tool"
        assert await snapshot(store_of(runtime)) == before, "it writes nothing"
        assert await statuses(runtime) == ["done"]
        check_calls(await messages(runtime), tmp_path)


def effects_in(folder: Path) -> str:
    return (folder / "effects").read_text() if (folder / "effects").exists() else ""


@pytest.mark.parametrize("wakes", ["in time", "too late"])
async def test_a_queued_turn_whose_process_is_stopped_waits_for_it_for_a_while(
    store_url: str, tmp_path: Path, clock: Clock, wakes: str
) -> None:
    first = held(store_url, tmp_path, "first", "tool finished")
    stopped = held(store_url, tmp_path, "second", "message stored")
    stopped.suspend(store_url)
    async with here(store_url, tmp_path) as (runtime, looks):
        turn = await runtime.submit("s", "third")
        first.send("go on")
        assert await ended(first) == ["done"]
        await looks.at(await owner_of(runtime, 2))
        assert await statuses(runtime) == ["done", "queued", "queued"]
        if wakes == "in time":
            wake(stopped)
            assert await ended(stopped) == ["accepted", "done"]
        else:
            clock.leap()
        assert (await collect(turn.follow()))[-1].type == "done"
        assert await spoken(runtime) == [*turn_of("first"), *turn_of("second"), *turn_of("third")]
        if wakes == "too late":
            before = await snapshot(store_of(runtime))
            wake(stopped)
            assert await ended(stopped) == ["accepted"]
            assert await snapshot(store_of(runtime)) == before, "it writes nothing"
        assert await statuses(runtime) == ["done", "done", "done"]


def stand_still_in_a_transaction(pipe: Connection, url: str, where: str) -> None:
    """Take the session's row, and stop there: after a statement, or when the next one is prepared and not run."""
    postgres_database._IDLE_IN_TRANSACTION_S = postgres_database._TRANSACTION_S = 1.0  # pyright: ignore[reportPrivateUsage]
    tries = itertools.count()

    def hold() -> None:
        if next(tries) == 0:
            pipe.send("here")
            pipe.recv()

    def lock() -> Operation[int]:
        yield "UPDATE sessions SET epoch = epoch WHERE id = $1", ("s",)
        if where == "after a statement":
            hold()
        return (yield "SELECT revision FROM sessions WHERE session_key > $1", (0,))[0][0]

    async def prepare(self: Any, *args: Any, **fields: Any) -> Any:
        prepared = await real(self, *args, **fields)
        if where == "in a statement" and "session_key > $1" in args[0]:
            hold()
        return prepared

    driver: Any = asyncpg.connection.Connection  # pyright: ignore[reportUnknownMemberType]
    real, driver._get_statement = driver._get_statement, prepare

    async def run() -> None:
        async with Store(url) as store:
            pipe.send(await store.write(lock))

    asyncio.run(run())


@pytest.mark.parametrize("where", ["after a statement", "in a statement"])
async def test_a_process_that_is_stopped_in_a_transaction_gives_its_locks_back(postgres_url: str, where: str) -> None:
    async with Store(postgres_url) as store, asyncio.timeout(TIMEOUT_S):
        session = await store.write(create_session, NAME, None, time.time())
        stopped = Worker(stand_still_in_a_transaction, postgres_url, where)
        assert stopped.recv() == "here"
        stopped.suspend()
        turn = await store.submit_turn(session, NewEvent("e", 0.0, Message("user", "hi", author="user")), "me")
        assert turn.status == "running"
        wake(stopped)
        assert await asyncio.to_thread(stopped.recv) == 1, "tried again, it sees what came meanwhile"
        stopped.join()


# -- the next turn is woken ------------------------------------------------------------------------------------------


def run_many_turns_without_polling(pipe: Connection, *args: Any) -> None:
    """Run turn after turn, each woken by the end of the one before it: by nothing else."""
    lease_holder.POLL_S = NEVER_S
    notifications._LISTEN_TIMEOUT_S = TIMEOUT_S  # pyright: ignore[reportPrivateUsage] - of this process
    run_many_turns(pipe, *args)


def run_many_turns_unheard(pipe: Connection, *args: Any) -> None:
    """Run turn after turn where no wake-up of another process comes through."""
    notifications.Notifications.send = lambda _, key: None  # pyright: ignore[reportAttributeAccessIssue]
    changes.SqliteChanges.data_version = lambda _: 0  # pyright: ignore[reportAttributeAccessIssue]
    lease_holder.POLL_S = 0.05
    run_many_turns(pipe, *args)


@pytest.mark.parametrize("run", [run_many_turns_without_polling, run_many_turns_unheard])
async def test_a_turn_of_another_process_is_handed_over(
    store_url: str, tmp_path: Path, run: Callable[..., None]
) -> None:
    workers = [Worker(run, store_url, str(tmp_path), "s", name, 4) for name in ("one", "two", "three")]
    async with Store(store_url) as store:
        assert [worker.recv() for worker in workers] == ["ready"] * 3
        for worker in workers:
            worker.send("go")
        for worker in workers:
            said, broken = await asyncio.to_thread(worker.recv)
            assert (said, broken) == (["I pay. it is done"] * 4, [])
            worker.join()
        assert await rows(store, "SELECT status, COUNT(*) FROM turns GROUP BY status") == [("done", 12)]


async def test_a_turn_of_this_process_is_handed_over_at_once(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "POLL_S", NEVER_S)
    async with here(store_url, tmp_path) as (runtime, _), asyncio.timeout(TIMEOUT_S):

        async def writes(name: str) -> list[str]:
            return [await runtime.run("s", f"{name} {number}") for number in range(4)]

        said = await asyncio.gather(writes("one"), writes("two"), writes("three"))
        assert said == [["I pay. it is done"] * 4] * 3
        assert await statuses(runtime) == ["done"] * 12
