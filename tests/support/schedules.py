"""Set the clock of a database, and follow what its schedules start."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from lango.runtime.runtime import Runtime
from lango.runtime.submissions.schedules import ScheduledRun
from lango.schedules import ScheduleSpec
from lango.store import Store
from lango.store.engine.database import Operation
from tests.agents.parts import TIMEOUT_S
from tests.support.runtimes import store_of


def at(text: str) -> float:
    """Return a time in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def spec(**fields: Any) -> ScheduleSpec:
    """Return a schedule that runs every day at seven in UTC, unless the fields say otherwise."""
    times: dict[str, Any] = {} if {"every_s", "times"} & fields.keys() else {"cron": "0 7 * * *"}
    given: dict[str, Any] = {"name": "news", "message": "the news of {slot}", **times, **fields}
    return ScheduleSpec(**given)


async def set_clock(store: Store, now: float) -> None:
    """Let the clock of the database stand at a time."""

    def replace_view() -> Operation[None]:
        yield "DROP VIEW database_clock", ()
        yield f"CREATE VIEW database_clock AS SELECT CAST({now!r} AS DOUBLE PRECISION) AS now", ()

    await store.write(replace_view)


class Watched:
    """A runtime whose schedules a test follows: it moves the clock, and waits for what is recorded."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.store = store_of(runtime)
        self.schedules = runtime.schedules

    async def move_clock(self, text: str) -> None:
        """Move the clock of the database, and let the schedules be checked."""
        await set_clock(self.store, at(text))
        store_of(self.runtime).notify_due()

    async def until(self, met: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not await met():
                await asyncio.sleep(0.01)

    async def runs(self, schedule_id: str, count: int, *outcomes: str) -> list[ScheduledRun]:
        """Wait until so many rows are recorded, with these outcomes; return them, the oldest first."""
        found: list[ScheduledRun] = []

        async def met() -> bool:
            nonlocal found
            found = sorted(await self.schedules.runs(schedule_id), key=lambda run: run.slot_at)
            shown = [run.outcome for run in found]
            return len(found) == count and (not outcomes or shown == list(outcomes))

        try:
            await self.until(met)
        except TimeoutError:
            raise AssertionError(f"not {count} {outcomes}: {found}") from None
        return found
