"""100,000 messages in one session: H6. The window costs what the window costs, and so does a fork of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store.engine.database import LockingRead, Operation, Row, Statement
from lango.store.engine.urls import Database, open_database
from lango.store.lifecycle import fork
from lango.store.sessions import sessions, window

TOKENS, BUDGET = 100, 32_000
SIZES = {"short": 1_000, "long": 100_000}

_NUMBERS = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})",
    "postgres": "WITH n (i) AS (SELECT generate_series(1, {count}))",
}
_FILL = """
{numbers}
INSERT INTO messages (session_key, seq, role, content, tokens, total_tokens, created_at, event_id)
SELECT {key}, i, CASE WHEN i % 2 = 1 THEN 'user' ELSE 'assistant' END, 'message ' || i, {tokens}, i * {tokens}, i,
    'e' || i FROM n
"""


def fill(name: SessionId, count: int, kind: str) -> Operation[None]:
    """Insert a long session with one statement, with correct running totals."""
    record = yield from sessions.create_session(name, {}, 0.0)
    numbers = _NUMBERS[kind].format(count=count)
    yield _FILL.format(numbers=numbers, key=record.key, tokens=TOKENS), ()
    values = (count, count, count - 1, count * TOKENS, record.key)
    yield "UPDATE sessions SET revision=$1, last_seq=$2, user_seq=$3, total_tokens=$4 WHERE session_key=$5", values
    for table in ("sessions", "messages"):  # not the whole database: that locks the tables of all other tests
        yield f"ANALYZE {table}", ()


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    database = open_database(request.getfixturevalue(f"{request.param}_url"))
    for name, count in SIZES.items():
        session = SessionId("app", "user", name)
        await database.write(lambda: fill(session, count, request.param))  # noqa: B023 - awaited here
    yield database
    await database.close()


def load(name: str) -> Operation[list[StoredEvent]]:
    record = yield from sessions.find_session(SessionId("app", "user", name))
    assert record
    return (yield from window.read_window(record, BUDGET))


def statements_of_window(record: SessionInfo) -> Operation[list[Statement]]:
    """Read the window, and return the statements that it took."""
    executed: list[Statement] = []
    reading = window.read_window(record, BUDGET)
    try:
        statement = next(reading)
        while True:
            executed.append(statement)
            statement = reading.send((yield statement))
    except StopIteration:
        return executed


def counted(operation: Operation[Any], executed: list[Statement]) -> Operation[Any]:
    """Run an operation, and collect its statements."""
    try:
        statement = next(operation)
        while True:
            executed.append(statement)
            statement = operation.send((yield statement))
    except StopIteration as end:
        return end.value


def explain(statement: Statement, explain: str) -> Operation[list[Row]]:
    sql, values = statement
    return (yield f"{explain} {sql.without_lock if isinstance(sql, LockingRead) else sql}", values)


async def test_h6_the_window_is_found_by_the_primary_key(database: Database) -> None:
    record = await database.read(lambda: sessions.find_session(SessionId("app", "user", "long")))
    assert record
    executed = await database.read(lambda: statements_of_window(record))
    assert any("RECURSIVE" in statement[0] for statement in executed)
    await check_plans(database, executed)


async def check_plans(database: Database, executed: list[Statement]) -> None:
    sqlite = type(database).__name__ == "SqliteDatabase"
    for statement in executed:
        if not statement[0].lstrip().startswith(("SELECT", "WITH")):
            continue
        how = "EXPLAIN QUERY PLAN" if sqlite else "EXPLAIN"
        plan = " ".join(str(row[-1]) for row in await database.read(lambda: explain(statement, how)))  # noqa: B023
        assert "SCAN messages" not in plan, "every row of the table would be read"
        assert "SCAN m" not in plan
        assert "Seq Scan on messages" not in plan


@pytest.mark.parametrize("name", SIZES)
async def test_h6_the_window_is_the_same_whatever_lies_before_it(database: Database, name: str) -> None:
    stored = await database.read(lambda: load(name))
    assert [one.seq for one in stored] == list(range(SIZES[name] - BUDGET // TOKENS + 1, SIZES[name] + 1))


@pytest.mark.parametrize("at", [None, 50_001])
async def test_a_fork_of_100_000_messages_takes_as_many_statements_as_one_of_1_000(
    database: Database, at: int | None
) -> None:
    executed: dict[str, list[Statement]] = {name: [] for name in SIZES}
    for name, statements in executed.items():
        source, new = SessionId("app", "user", name), SessionId("app", "user", f"fork of {name}")
        point = at and at * SIZES[name] // SIZES["long"]
        made = await database.write(lambda: counted(fork.fork_session(source, new, point, None, 1.0), statements))  # noqa: B023
        count = point or SIZES[name]
        assert (made.last_seq, made.total_tokens) == (count, count * TOKENS)
        stored = await database.read(lambda: window.read_window(made, BUDGET))  # noqa: B023
        assert [one.seq for one in stored] == list(range(count - BUDGET // TOKENS + 1, count + 1))
    assert len(executed["long"]) == len(executed["short"]) < 30
    await check_plans(database, executed["long"])
    record = await database.read(lambda: sessions.find_session(SessionId("app", "user", "fork of long")))
    assert record
    await check_plans(database, await database.read(lambda: statements_of_window(record)))
