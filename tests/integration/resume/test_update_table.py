"""Code changes times moments: what an old version began continues with a new one, and nothing of it is done again.

A process with the old version is killed while one session is in a model call, one in a tool, one between two steps, and
others wait for an approval, a result or a person's input. Then the new version opens a copy of what it left.
"""

import asyncio
import importlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from lango import Runtime, Settings, open_runtime
from lango.errors import TurnReleased
from lango.events import TurnDone, TurnEvent
from lango.runtime.checks import judge_turns
from lango.runtime.opening import build_agent_app
from lango.store import Store
from lango.store.turns.turns import TurnResult
from tests.agents.parts import TIMEOUT_S, collect, rows, settings_for
from tests.support.changed_agents import (
    CHANGES,
    CONTINUED_AT_MODEL_CALL,
    GRAPH_MOMENTS,
    HELD,
    MOMENTS,
    OLD,
    Change,
    World,
)
from tests.support.deploys import STATUS, answer_to
from tests.support.kill_points import copy_store
from tests.support.runtimes import store_of, supervisor_of
from tests.support.store_workers import Worker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'test' AND tablename <> 'lango_schema'"
EMPTY_COPY = 21  # bytes of PostgreSQL's binary format without a row
ON_POSTGRES = (
    "nothing",
    "Lango's next version",
    "two agents",
    "graph",
    "graph of Lango's next version",
)
"""What the database decides: each old version, read back, and what the next version of Lango adds to its rows."""
CASES = [*(("sqlite", name) for name in CHANGES), *(("postgres", name) for name in ON_POSTGRES)]


class Begun(Struct):
    """What a process with an old version left when it was killed."""

    url: str
    effects: list[tuple[str, str]]


@pytest.fixture(scope="module")
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Begun]]:
    """Return what an old version left in a database of the kind of a URL; each is begun once."""
    made: dict[tuple[bool, str], Begun] = {}

    def get(url: str, old: str) -> Begun:
        is_sqlite = url.startswith("sqlite")
        if (is_sqlite, old) not in made:
            url = (
                f"sqlite:///{tmp_path_factory.mktemp('begun')}/lango.db"
                if is_sqlite
                else request.getfixturevalue("postgres_databases").take()
            )
            made[is_sqlite, old] = begin(url, old)
        return made[is_sqlite, old]

    yield get
    for (is_sqlite, _), one in made.items():
        if not is_sqlite:
            request.getfixturevalue("postgres_databases").give_back(one.url)


def test_the_table_has_at_least_forty_changes() -> None:
    assert len(CHANGES) >= 40


@pytest.mark.parametrize(("store_url", "name"), CASES, indirect=["store_url"])
async def test_what_an_old_version_began_continues(
    store_url: str, name: str, begun: Callable[[str, str], Begun]
) -> None:
    change, world = CHANGES[name], World()
    before = begun(store_url, change.old)
    await copy(before.url, store_url)
    if change.newer is not None:
        async with Store(store_url) as store:
            await store.write(change.newer)
    for session, what in before.effects:
        world.count(session, what)
    checked = await checked_verdicts(store_url, change)
    async with open_runtime(settings_of(store_url), root_agent=change.new(world)) as runtime:
        ends = {moment: await end_of(runtime, moment) for moment in moments_of(change.old)}
        assert {moment for moment, (status, _) in ends.items() if status != "done"} == change.ends, ends
        for moment in change.ends:
            assert f"lango turns retry {moment}" in ends[moment][1], "it says how to continue"
        check(world, change)
        assert world.notes == {*CONTINUED_AT_MODEL_CALL.get(name, ())}, "where the record fits, it is replayed"
        expected = dict.fromkeys(change.ends, "cannot continue")
        expected |= dict.fromkeys(world.notes, "continues at the next model call")
        assert checked == dict.fromkeys(ends, "same") | expected, "the check before the deploy said so"
        for moment in ends:
            await check_queue(runtime, moment)


async def checked_verdicts(url: str, change: Change) -> dict[str, str]:
    """Return what `lango deploy check` says of the first turn of each session."""
    store = Store(url)
    app = build_agent_app(settings_of(url), change.new(World()))
    try:
        found = await judge_turns(store, app, 0)
    finally:
        await store.close()
        await app.models.close()
    return {one.session: one.verdict for one in found if one.state != "queued"}


def moments_of(old: str) -> tuple[str, ...]:
    return GRAPH_MOMENTS if old == "graph" else MOMENTS


def settings_of(url: str) -> Settings:
    return settings_for(url, name="app", input_expires_s=0, retry_delay_s=0)


def begin(url: str, old: str) -> Begun:
    """Let each session come to its moment in a process of its own, and kill it."""
    worker, effects = Worker(run_old_version, url, old), list[tuple[str, str]]()
    while (message := worker.recv()) != "held":
        effects.append(message)
    worker.kill()
    return Begun(url, [*effects, *worker.drain()])


def run_old_version(pipe: Connection, url: str, old: str) -> None:
    """Bring the sessions to their moments, and a message behind each that does not wait; report, and hang."""

    async def run() -> None:
        world = World(report=pipe.send, holds=True)
        async with open_runtime(settings_of(url), root_agent=OLD[old](world)) as runtime:
            for moment in moments_of(old):
                await runtime.sessions.create(moment)
            turns = {moment: await runtime.submit(moment, "go") for moment in moments_of(old)}
            await asyncio.gather(*(collect(turn.follow()) for moment, turn in turns.items() if moment not in HELD))
            await world.until_held({*HELD})
            for moment in HELD:
                await runtime.submit(moment, "next")
            stopping = asyncio.create_task(supervisor_of(runtime).hand_over(TIMEOUT_S))
            await asyncio.sleep(0)
            world.release.set()
            with suppress(TurnReleased):  # its step has ended
                await collect(turns["between"].follow())
            pipe.send("held")
            await stopping

    logging.disable(logging.WARNING)  # ADK's own, on the terminal of the test run
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.run(run())


async def copy(source: str, target: str) -> None:
    """Copy a store to an empty one."""
    if source.startswith("sqlite"):
        copy_store(*(Path(url.removeprefix("sqlite:///")) for url in (source, target)))
        return
    driver: Any = importlib.import_module("asyncpg")  # it ships no types
    reader, writer = [await driver.connect(url.partition("&schema=")[0]) for url in (source, target)]
    for [table] in await reader.fetch(TABLES):
        data = io.BytesIO()
        await reader.copy_from_table(table, schema_name="test", output=data, format="binary")
        if data.tell() > EMPTY_COPY:
            data.seek(0)
            await writer.copy_to_table(table, schema_name="test", source=data, format="binary")
    await reader.close()
    await writer.close()


async def end_of(runtime: Runtime, moment: str) -> tuple[str, str]:
    """Answer what a session waits for until its first turn has ended; return how, and the error."""
    async with asyncio.timeout(TIMEOUT_S):
        while any(status in ("queued", "running") for status, _ in await turns_of(runtime, moment)):
            await asyncio.sleep(0.01)
    if moment not in HELD:
        await answer_all(runtime, moment)
    status, extra = (await turns_of(runtime, moment))[0 if moment in HELD else -1]
    failure = TurnResult.decode(extra).error
    return status, failure.message if failure else ""


async def turns_of(runtime: Runtime, moment: str) -> list[Any]:
    return await rows(store_of(runtime), STATUS.format(moment))


async def check_queue(runtime: Runtime, moment: str) -> None:
    """Check that the message behind the turn is answered, or the next message where none was queued."""
    if moment in HELD:
        assert [status for status, _ in await turns_of(runtime, moment)][1:] == ["done"], moment
    else:
        assert isinstance(await answer_all(runtime, moment, "next"), TurnDone), f"{moment}: the queue continues"


async def answer_all(runtime: Runtime, moment: str, text: str = "") -> TurnEvent | None:
    """Send a message, if any, and answer every wait until there is none; return the last event."""
    last = (await collect((await runtime.submit(moment, text)).follow()))[-1] if text else None
    for _ in range(4):
        if not (waits := await runtime.waits(moment)):
            break
        turn = await runtime.answer(moment, waits[0].id, answer_to(waits[0]))
        last = (await collect(turn.follow()))[-1]
    return last


def check(world: World, change: Change) -> None:
    """Nothing took effect twice, and everything took effect, unless the new version cannot do it."""
    for moment in moments_of(change.old):
        effects = world.effects.get(moment, Counter())
        first = {what: effects[what] for what in ("pay 1", "pay 2", "buy 9", "one")}
        assert max(first.values()) <= 1, f"{moment}: {effects}"
        if moment == "approval" and not change.unbought and moment not in change.ends:
            assert effects["buy 9"] == 1, f"{moment}: {effects}, what was approved is done, or asked again"
        # after a pause, ADK runs only the agent of a sequence that asked
        is_whole = change.old != "two" or moment not in ("approval", "result")
        if is_whole and not change.unpaid and moment not in change.ends:
            assert effects["pay 1"] == effects["pay 2"] == 1, f"{moment}: {effects}"
