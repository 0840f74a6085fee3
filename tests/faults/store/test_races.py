"""Two transactions at the same moment on PostgreSQL: what a write relies on still holds when it commits.

One of the two is held just before its decisive statement, in its transaction, with the locks that it has. The other one
begins then, and must either wait for it or leave it nothing to do.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango.events import IDS_PER_TURN, TextDelta
from lango.messages import Message, ToolCall
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.engine.database import Operation
from lango.store.engine.postgres.notifications import channel_name
from lango.store.lifecycle import delete
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_session_events
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import record_intent
from lango.store.turns import event_log, lease
from lango.store.turns.event_log import LoggedEvent, read_event_log
from lango.store.turns.lease import lease_turn
from lango.store.turns.turns import read_turn
from lango.store.waits.recovery import NOT_RUN_RESULT
from tests.agents.parts import TIMEOUT_S, rows
from tests.support.store_workers import Worker

NAME = SessionId("app", "alice", "s")
ROUNDS = 150
GATE = 7

T = TypeVar("T")


@pytest.fixture
async def store(postgres_url: str) -> AsyncGenerator[Store]:
    async with Store(postgres_url) as store, asyncio.timeout(TIMEOUT_S):
        yield store


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


def user_message(text: str) -> NewEvent:
    return NewEvent(f"event {text}", time.time(), Message("user", text, author="user"), 5, f"invocation {text}")


def held_before(statement: str, operation: Callable[[], Operation[T]]) -> Callable[[], Operation[T]]:
    """Pause an operation before the first statement that contains a text, until the gate opens."""

    def held() -> Generator[Any, Any, T]:
        inner = operation()
        sent = next(inner)
        while statement not in sent[0]:
            sent = inner.send((yield sent))
        yield "SELECT pg_advisory_xact_lock($1)", (GATE,)
        return (yield from _rest(inner, sent))

    return held


def _rest(inner: Operation[T], sent: Any) -> Generator[Any, Any, T]:
    while True:
        try:
            sent = inner.send((yield sent))
        except StopIteration as end:
            return end.value


async def together(
    store: Store, url: str, held: Callable[[], Operation[Any]], other: Callable[[], Coroutine[Any, Any, Any]]
) -> tuple[Any, Any]:
    """Run an operation up to its gate, then another one until it ends or waits for a lock; then open the gate."""
    waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
    driver: Any = asyncpg
    gate = await driver.connect(url.partition("&schema")[0])
    try:
        await gate.execute("SELECT pg_advisory_lock($1)", GATE)
        first = asyncio.create_task(store.write(held))
        while await rows(store, waiting) != [(1,)]:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(other())
        while not second.done() and await rows(store, waiting) != [(2,)]:
            await asyncio.sleep(0.01)
    finally:
        await gate.close()
    return await first, await second


async def test_a_message_withdrawn_while_its_turn_is_leased_is_not_answered(
    store: Store, session: SessionInfo, postgres_url: str
) -> None:
    running = await store.submit_turn(session, user_message("first"), "me")
    queued = await store.submit_turn(session, user_message("second"), "me")
    await store.end_turn(NAME, running, "done")
    claiming = held_before(
        "SET status = 'running'", lambda: lease.lease_turn(session.key, NAME, queued.turn, "me", time.time())
    )
    claimed, withdrawn = await together(store, postgres_url, claiming, lambda: store.withdraw_turn(queued))
    record = await store.read(read_turn, queued.session_key, queued.turn)
    assert record
    assert isinstance(claimed, Turn)
    assert (withdrawn, claimed.epoch is not None, record.status) in [
        (True, False, "cancelled"),
        (False, True, "running"),
    ]


async def test_a_tool_does_not_start_while_its_turn_is_taken_over(
    store: Store, session: SessionInfo, postgres_url: str
) -> None:
    zombie = await store.submit_turn(session, user_message("first"), "gone")
    now = await store.read(find_session, NAME)
    assert now
    call = NewEvent("call", time.time(), Message("assistant", tool_calls=(ToolCall("c1", "f", {}),)))
    await store.append(session.key, NAME, now.revision, call, epoch=zombie.epoch)
    await store.write(record_intent, zombie, "c1", "f", "once", "hash", time.time())
    starting = held_before("SET status = 'started'", lambda: tool_journal.record_start(zombie, "c1", time.time()))
    gone = OpenTurn(zombie.turn, "running", "gone", 0)
    began, interrupted = await together(store, postgres_url, starting, lambda: store.interrupt_turn(session, gone))
    found = await store.read(read_session_events, NAME)
    assert found
    closed = found[1][-1].message
    assert closed
    assert interrupted
    told_not_run = (closed.tool_calls[0].output or {}).get("error") == NOT_RUN_RESULT
    assert not (began and told_not_run), "the model sees that it did not run"


async def test_the_events_of_a_turn_have_one_final_event(store: Store, session: SessionInfo, postgres_url: str) -> None:
    """Events are appended while the turn ends."""
    turn = await store.submit_turn(session, user_message("first"), "me")
    logged = [LoggedEvent.of(TextDelta(id_, "late")) for id_ in range(IDS_PER_TURN + 2, IDS_PER_TURN + 6)]
    adding = held_before("INSERT INTO event_log", lambda: event_log.append_log_events(session.key, 1, logged))
    await together(store, postgres_url, adding, lambda: store.end_turn(NAME, turn, "done"))
    assert [one.final for one in (await store.read(read_event_log, session.key, 1)).events].count(True) == 1
    assert (await store.read(read_event_log, session.key, 1)).events[-1].final


async def test_a_deleted_session_leaves_no_events_behind(store: Store, session: SessionInfo, postgres_url: str) -> None:
    await store.submit_turn(session, user_message("first"), "me")
    logged = [LoggedEvent.of(TextDelta(IDS_PER_TURN + 2, "x"))]
    adding = held_before("INSERT INTO event_log", lambda: event_log.append_log_events(session.key, 1, logged))
    await together(store, postgres_url, adding, lambda: store.write(delete.delete_session, NAME))
    assert await rows(store, "SELECT COUNT(*) FROM event_log") == [(0,)]


async def test_sessions_that_change_at_the_same_time_share_one_notification(store: Store, postgres_url: str) -> None:
    """Commits that notify exclude each other on the whole server."""
    driver: Any = asyncpg
    schema = postgres_url.partition("schema=")[2]
    database: Any = vars(store)["_database"]
    heard: list[list[str]] = []
    last = asyncio.Event()

    def hear(_connection: object, _pid: int, _channel: str, keys: str) -> None:
        heard.append(keys.split())
        if "last" in heard[-1]:
            last.set()

    listener = await driver.connect(postgres_url.partition("&schema")[0])
    try:
        await listener.add_listener(channel_name(schema), hear)
        for key in range(200):
            database.notify_changed(key, elsewhere=True)
        await database.close()
        await listener.execute("SELECT pg_notify($1, 'last')", channel_name(schema))
        await last.wait()
    finally:
        await listener.close()
    assert [sorted(map(int, keys)) for keys in heard[:-1]] == [[*range(200)]]


# -- two processes ----------------------------------------------------------------------------------------------------


def lease_on_request(pipe: Connection, url: str) -> None:
    """Lease each turn that is sent; reply whether it runs now."""

    async def run() -> None:
        async with Store(url) as store:
            pipe.send("ready")
            while (turn := await asyncio.to_thread(pipe.recv)) is not None:
                claimed = await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time())
                pipe.send(isinstance(claimed, Turn) and claimed.epoch is not None and claimed)

    asyncio.run(run())


async def test_a_withdrawn_message_is_never_answered_by_another_process(store_url: str) -> None:
    worker = Worker(lease_on_request, store_url)
    outcomes: set[tuple[bool, bool]] = set()
    async with Store(store_url) as store, asyncio.timeout(TIMEOUT_S):
        session = await store.write(create_session, NAME, None, time.time())
        assert worker.recv() == "ready"
        for number in range(ROUNDS):
            running = await store.submit_turn(session, user_message(f"first {number}"), "me")
            queued = await store.submit_turn(session, user_message(f"second {number}"), "me")
            await store.end_turn(NAME, running, "done")
            worker.send(queued)
            await asyncio.sleep(number % 10 / 1000)  # so that the two overlap at every point
            withdrawn = await store.withdraw_turn(queued)
            claimed = await asyncio.to_thread(worker.recv)
            outcomes.add((withdrawn, bool(claimed)))
            record = await store.read(read_turn, queued.session_key, queued.turn)
            assert record
            assert record.status == ("cancelled" if withdrawn else "running")
            if claimed:
                await store.end_turn(NAME, claimed, "done")
    worker.send(None)
    worker.join()
    assert outcomes <= {(True, False), (False, True)}
