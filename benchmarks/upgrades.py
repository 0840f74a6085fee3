"""An upgrade of the schema on 10 million messages while another process appends and reads, on SQLite and PostgreSQL.

The rows are generated; the upgrade has the steps that a release may have (docs/howto/upgrades.md). What counts is the
longest time that an append or a read of the old version waits while a step runs.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec.structs import replace

from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango.messages import Message
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine.database import Operation, Row
from lango.store.engine.outages import wait_for_database
from lango.store.engine.schema import Migration, load_migrations
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_session_window
from tests.support import index_tables

MESSAGES, PER_SESSION, PER_STATEMENT, PER_BATCH = 10_000_000, 1_000, 500_000, 1_000
BAR_S, WAIT_S = 1.0, 3_600.0
NAME = SessionId("app", "user", "under way")
STEPS = (
    ("two columns", "ALTER TABLE messages ADD COLUMN label TEXT"),
    ("", "ALTER TABLE messages ADD COLUMN weight BIGINT NOT NULL DEFAULT 7"),
    ("a table", "CREATE TABLE labels (name TEXT PRIMARY KEY, weight BIGINT NOT NULL DEFAULT 0)"),
)
FILL = "filling that table, in batches"
_MESSAGES = {
    "sqlite": "WITH RECURSIVE n (v) AS (SELECT $1 UNION ALL SELECT v + 1 FROM n WHERE v < $2) ",
    "postgres": "WITH n (v) AS (SELECT generate_series(CAST($1 AS BIGINT), CAST($2 AS BIGINT))) ",
}
_ROWS = f"""
INSERT INTO messages
    (session_key, seq, role, author, content, tokens, total_tokens, created_at, event_id, invocation_id)
SELECT 1000 + v / {PER_SESSION}, 1 + v % {PER_SESSION}, 'assistant', 'agent', 'lorem ipsum dolor sit amet, consectetur',
    10, 10 * (1 + v % {PER_SESSION}), v, 'e-' || v, 'i-' || v FROM n
"""


def _statement(sql: str, *values: object) -> Operation[list[Row]]:
    return (yield sql, values)


class OldVersion:
    """Appends to a session and reads its window again and again, and notes the longest waits."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.longest_append_s = self.longest_read_s = 0.0
        self.appends = 0

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Work during the body."""
        ended = asyncio.Event()
        async with Store(self._url, wait_s=WAIT_S) as store:
            tasks = [asyncio.create_task(work(store, ended)) for work in (self._append, self._read)]
            try:
                yield
            finally:
                ended.set()
                await asyncio.gather(*tasks)

    async def _append(self, store: Store, ended: asyncio.Event) -> None:
        session = await store.read(find_session, NAME)
        assert session
        revision = session.revision
        while not ended.is_set():
            event = NewEvent(f"w-{revision}", time.time(), Message("assistant", "found"), tokens=3)
            began = time.monotonic()
            with wait_for_database():  # as in a turn
                revision = (await store.append(session.key, NAME, revision, event)).revision
            self.longest_append_s = max(self.longest_append_s, time.monotonic() - began)
            self.appends += 1
            await asyncio.sleep(0.005)

    async def _read(self, store: Store, ended: asyncio.Event) -> None:
        while not ended.is_set():
            began = time.monotonic()
            await store.read(read_session_window, NAME, 1_000)
            self.longest_read_s = max(self.longest_read_s, time.monotonic() - began)
            await asyncio.sleep(0.005)


async def measure(url: str, messages: int) -> list[list[object]]:
    """Fill a store, then run each step beside the old version; return a row per step."""
    async with Store(url) as store:
        session = await store.write(create_session, NAME, None, time.time())
        await store.append(session.key, NAME, 0, NewEvent("first", 0.0, Message("user", "go"), tokens=1))
        began = time.monotonic()
        for first in range(0, messages, PER_STATEMENT):
            last = min(first + PER_STATEMENT, messages) - 1
            await store.write_long(_statement, _MESSAGES[store.dialect] + _ROWS, first, last)
        print_line(f"{store.dialect}: {messages:,} messages in {time.monotonic() - began:.0f} s")
        dialect = store.dialect
    own = load_migrations()
    steps, rows = own.steps, list[list[object]]()
    groups: list[tuple[str, list[str]]] = []
    for name, sql in STEPS:
        if name:
            groups.append((name, []))
        groups[-1][1].append(sql)
    like_an_index = index_tables.migration("weight").strip().removesuffix(";").split(";\n")
    groups.append(("an index" if dialect == "postgres" else "a table in place of an index", like_an_index))
    if dialect == "sqlite":
        groups.append((FILL, []))
    for name, statements in [("nothing, for one second", []), *groups]:
        old = OldVersion(url)
        async with old.at_work():
            await asyncio.sleep(0.5)
            began = time.monotonic()
            if statements:
                steps = (*steps, Migration(steps[-1].version + 1, "expand_step", tuple(statements)))
                async with Store(url, migrations=replace(own, steps=steps), wait_s=WAIT_S) as newer:
                    assert await newer.due_migrations() == []
            if name == FILL:
                async with Store(url, migrations=replace(own, steps=steps), wait_s=WAIT_S) as newer:
                    is_more = True
                    while is_more:
                        batch_began = time.monotonic()
                        is_more = await newer.write(index_tables.fill_batch, "weight", PER_BATCH)
                        await asyncio.sleep(time.monotonic() - batch_began)  # other writers get as much time
            took_s = time.monotonic() - began
            await asyncio.sleep(0.5)
        rows.append([f"{dialect}, {name}", took_s, old.longest_append_s, old.longest_read_s, old.appends])
    return rows


def main() -> None:
    """Print the table."""
    messages = 200_000 if quick() else MESSAGES
    print_line(f"{os.cpu_count()} cores{', quick' if quick() else ''}, load average {os.getloadavg()[0]:.1f}")
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as name:
        rows += asyncio.run(measure(f"sqlite:///{Path(name)}/lango.db", messages))
    with postgres_server() as postgres:
        rows += asyncio.run(measure(postgres, messages))
    bars = [bar(f"{row[0]}, longest append", float(str(row[2])), at_most=BAR_S) for row in rows]
    columns = ["an upgrade adds", "took s", "longest append s", "longest read s", "appends"]
    table(f"an upgrade on {messages:,} messages, beside the version before it", columns, rows, *bars)


if __name__ == "__main__":
    main()
