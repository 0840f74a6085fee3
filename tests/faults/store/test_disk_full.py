"""A full disk is an outage: running turns wait for room, new messages are refused with a sentence, reads continue."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango import Settings, open_runtime
from lango.errors import StoreUnavailable
from lango.events import TurnDone
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import create_session
from lango.testing import ScriptedProvider
from tests.agents.parts import (
    TIMEOUT_S,
    Gate,
    Leaps,
    collect,
    last_error,
    messages,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.support.runtimes import store_of, supervisor_of

FULL_FOR_S = 12.0
LONG_ANSWER = "a long answer " * 8_000


class Disk(Protocol):
    """The disk of a store, which can be full."""

    async def fill(self, store: Store) -> None: ...

    async def make_room(self, store: Store) -> None: ...


class SqliteDisk:
    """SQLite gets no more pages, and the last ones are used up."""

    async def fill(self, store: Store) -> None:
        await store.write(_pragma, "max_page_count = 1")  # as many as it has
        with contextlib.suppress(StoreUnavailable):
            for number in itertools.count():
                await store.write(create_session, SessionId("filler", "user", f"{number}"), {"x": "x" * 2_000}, 0.0)

    async def make_room(self, store: Store) -> None:
        await store.write(_pragma, "max_page_count = 1073741823")


def _pragma(text: str) -> Operation[None]:
    yield f"PRAGMA {text}", ()


class PostgresDisk:
    """Every write of a row fails with the server's own error for a full disk."""

    def __init__(self, url: str, when: str = "TRUE") -> None:
        """`when` is a condition on the rows of `turns` that cannot be written; other tables have none of them."""
        self._url, _, self._schema = url.partition("&schema=")
        self._when = when

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        connect: Any = cast("Any", asyncpg).connect
        connection = await connect(self._url, server_settings={"search_path": self._schema})
        try:
            yield connection
        finally:
            await connection.close()

    async def fill(self, store: Store) -> None:
        del store
        async with self._connection() as connection:
            await connection.execute("""
                CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$
            """)
            for table in await self._tables(connection):
                await connection.execute(
                    f"CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({self._when}) "
                    "EXECUTE FUNCTION no_room()"
                )

    async def make_room(self, store: Store) -> None:
        del store
        async with self._connection() as connection:
            await connection.execute("DROP FUNCTION no_room CASCADE")

    async def _tables(self, connection: Any) -> list[str]:
        if self._when != "TRUE":
            return ["turns"]
        # a row of `commits` is updated in place, in every transaction
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'commits'"
        return [name for [name] in await connection.fetch(sql)]


@pytest.fixture(params=["sqlite", "postgres"])
def store_and_disk(request: pytest.FixtureRequest) -> tuple[str, Disk]:
    """A store of each kind with its disk."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url, SqliteDisk() if request.param == "sqlite" else PostgresDisk(url)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_turn_waits_for_room_on_the_disk(
    store_and_disk: tuple[str, Disk], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (url, disk), gate, leaps = store_and_disk, Gate(), Leaps(monkeypatch)
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), LONG_ANSWER, "next"])
    async with open_runtime(settings_for(url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await disk.fill(store_of(runtime))
        gate.may_end.set()
        with caplog.at_level(logging.WARNING, "lango"):
            await until(lambda: "is full" in caplog.text or "is out of space" in caplog.text)
            for _ in range(3):
                leaps.leap(FULL_FOR_S / 3)
                await messages(runtime)  # reads continue
                assert not turn.finished
            sending = asyncio.create_task(runtime.submit("other", "x" * 50_000, idempotency_key="a key"))
            leaps.leap(FULL_FOR_S)
            with pytest.raises(StoreUnavailable, match=r"is full|is out of space") as refused:
                await asyncio.wait_for(sending, TIMEOUT_S)
        assert refused.value.retry_after_s
        assert not turn.finished
        await disk.make_room(store_of(runtime))
        events = await collect(turn.follow())
        assert isinstance(events[-1], TurnDone), events[-1]
        assert text_of(events) == LONG_ANSWER
        assert gate.runs == 1
        assert await statuses(runtime) == ["done"]
        again = runtime.run("other", "x" * 50_000, idempotency_key="a key")
        assert await asyncio.wait_for(again, TIMEOUT_S) == "next", "its key is not used up"
        await _nothing_is_wrong(runtime)


async def _nothing_is_wrong(runtime: Runtime) -> None:
    for session in ("s", "other"):
        assert await runtime.sessions.check(session) == []


@pytest.mark.postgres
async def test_a_turn_whose_end_found_no_room_in_time_is_stored_as_it_was_reported(postgres_url: str) -> None:
    disk = PostgresDisk(postgres_url, "NEW.status = 'done'")
    settings = Settings.model_validate({"store": {"url": postgres_url, "wait_s": 0}})
    async with open_runtime(settings, provider=ScriptedProvider(["an answer", "another"])) as runtime:
        await disk.fill(store_of(runtime))
        turn = await runtime.submit("s", "go")
        reported = last_error(await collect(turn.follow()))
        assert reported.error == "StoreUnavailable"
        await disk.make_room(store_of(runtime))
        assert await asyncio.wait_for(runtime.run("s", "again"), TIMEOUT_S) == "another"
        assert await statuses(runtime) == ["failed", "done"]
        [[extra]] = await rows(store_of(runtime), "SELECT extra FROM turns WHERE turn = 1")
        assert reported.message in extra


@pytest.mark.postgres
async def test_the_owner_of_a_turn_that_finds_no_room_for_its_heartbeat_is_not_gone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runtimes on one store: the second one can read that the heartbeat of the first stands still."""
    url, disk, gate = postgres_url, PostgresDisk(postgres_url), Gate(effect="once")
    # as if they were on different machines, where only heartbeats show who is alive
    machines = itertools.count()
    monkeypatch.setattr("lango.turns.liveness._machine_id", lambda: f"machine {next(machines)}")
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), LONG_ANSWER])
    async with (
        open_runtime(settings_for(url), provider=provider, tools=[gate.tool]) as runtime,
        open_runtime(settings_for(url), provider=ScriptedProvider([]), tools=[gate.tool]) as other,
    ):
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await disk.fill(store_of(runtime))
        await until(
            lambda: store_of(other).outages.is_away
        )  # it found the owner gone, and could not take the turn over
        await disk.make_room(store_of(runtime))
        await until(lambda: not store_of(other).outages.is_away)
        gate.may_end.set()
        assert text_of(await collect(turn.follow())) == LONG_ANSWER
        assert not supervisor_of(other).running_turns()
        assert await rows(store_of(runtime), "SELECT attempts, resumptions FROM turns WHERE turn = 1") == [(0, None)]
