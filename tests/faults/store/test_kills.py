"""kill -9 at any moment: in an append, at the first start, in a migration. F1 to F4 hold."""

import functools
import random
import sqlite3
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from lango.store import Store
from lango.store.engine.schema import load_migrations
from lango.store.lifecycle import integrity
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import read_session_events
from tests.support.store_workers import NAME, Worker, append_for_ever, append_ordinary_for_ever, open_on_request

ROUNDS = 15
NEWEST = load_migrations().newest


def check_integrity(url: str) -> None:
    if url.startswith("sqlite"):
        connection: Any = apsw.Connection(url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


async def check_session(store: Store, acknowledged: int) -> int:
    """Check F1 to F4 after a kill; return the number of stored events."""
    found = await store.read(read_session_events, NAME)
    assert found
    record, stored = found
    count = len(stored)
    assert acknowledged <= count <= acknowledged + 1, "what was acknowledged is stored, and at most one more"
    assert [one.seq for one in stored] == list(range(1, count + 1)), "no gap"
    assert [one.event_id for one in stored] == [f"w-{n}" for n in range(1, count + 1)], "in order, each once"
    assert record.last_seq == record.revision == count
    assert record.total_tokens == 3 * count == (stored[-1].total_tokens if stored else 0)
    # an event and its state delta are committed together, in every scope
    expected: dict[str, int] = {f"w{n}": n for n in range(1, count + 1)}
    if count:
        expected |= {"newest": count, "user:w": count, "app:n": count}
    assert record.state == expected
    assert await store.read(integrity.check_session, NAME) == []
    return count


async def check_ordinary(store: Store, acknowledged: int) -> int:
    """Check F1 to F3 after a kill in a single-statement append; return the number of stored events."""
    found = await store.read(read_session_events, NAME)
    assert found
    stored = [one.event_id for one in found[1]]
    assert acknowledged <= len(stored) <= acknowledged + 1
    assert stored == [f"w-{n}" for n in range(1, len(stored) + 1)]
    assert await store.read(integrity.check_session, NAME) == [], (
        "with its place in the session and its call, or not at all"
    )
    return len(stored)


@pytest.mark.parametrize(
    ("work", "check"), [(append_for_ever, check_session), (append_ordinary_for_ever, check_ordinary)]
)
async def test_f1_to_f4_after_kill_9_in_an_append_at_many_random_points(
    store_url: str, work: Callable[..., None], check: Callable[[Store, int], Awaitable[int]]
) -> None:
    dice = random.Random(0)
    async with Store(store_url) as store:
        await store.write(create_session, NAME, None, time.time())
        acknowledged = 0
        for _ in range(ROUNDS):
            worker = Worker(work, store_url)
            acknowledged = max(acknowledged, worker.recv())
            time.sleep(dice.uniform(0, 0.02))  # the random point
            worker.kill()
            acknowledged = max([acknowledged, *worker.drain()])
            acknowledged = await check(store, acknowledged)
        assert acknowledged >= ROUNDS, "each round got at least one through"
    check_integrity(store_url)


async def test_kill_9_at_the_first_start(tmp_path: Path) -> None:
    dice = random.Random(1)
    cut_off = 0
    for round_ in range(ROUNDS):
        url = f"sqlite:///{tmp_path}/{round_}.db"
        for _ in range(dice.randrange(1, 3)):
            worker = Worker(open_on_request)
            worker.recv()
            worker.send(url)
            time.sleep(dice.uniform(0, 0.012))
            worker.kill()
            cut_off += not worker.drain()
        await opens_and_works(url)
        check_integrity(url)
    assert cut_off > 0, "every start was done before its kill: this shows nothing"


async def test_kill_9_of_the_first_client_of_a_fresh_postgres(postgres_server: str) -> None:
    dice = random.Random(2)
    for _ in range(6):
        url = f"{postgres_server}&schema=kill_{uuid.uuid4().hex[:12]}"
        worker = Worker(open_on_request)
        worker.recv()
        worker.send(url)
        time.sleep(dice.uniform(0, 0.06))
        worker.kill()
        await opens_and_works(url)


async def opens_and_works(url: str) -> None:
    async with Store(url) as store:
        assert await store.schema_version() == NEWEST
        await store.write(create_session, NAME, None, time.time())
        assert await check_session(store, 0) == 0


@pytest.mark.parametrize("statement", [1, 2, 5, 9, 12])
async def test_kill_during_schema_creation_leaves_the_database_unchanged(statement: int, tmp_path: Path) -> None:
    """Kill the process after so many statements of the migration, without a commit."""
    path = tmp_path / "lango.db"
    worker = Worker(functools.partial(_migrate_halfway), str(path), statement)
    assert worker.recv() == "halfway"
    worker.kill()
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()
    await opens_and_works(f"sqlite:///{path}")


def _migrate_halfway(pipe: Any, path: str, statements: int) -> None:
    from lango.store.engine.schema import upgrade

    connection: Any = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA cache_size = 1")  # so that pages reach the file before there is a commit
    connection.execute("BEGIN IMMEDIATE")
    operation = upgrade(path)
    sql, values = next(operation)
    for _ in range(statements):
        sql, values = operation.send(connection.execute(sql, values).fetchall())
    pipe.send("halfway")
    pipe.recv()  # never: killed here
