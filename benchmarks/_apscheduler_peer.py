"""Run a replica of the benchmark on APScheduler 4: `python -m benchmarks._apscheduler_peer URL NUMBER [COUNT SLOT]`.

It runs until it is killed. One that is given a count creates so many schedules for that time before it is ready.
Version 4 is a pre-release, so the benchmark starts this module in an environment of its own, without Lango's packages.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime

import asyncpg
from apscheduler import AsyncScheduler  # pyright: ignore
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore  # pyright: ignore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker  # pyright: ignore
from apscheduler.triggers.date import DateTrigger  # pyright: ignore

LEASE_S = 5  # as the claims of the other replicas in this benchmark


async def tick(url: str, schedule: str) -> None:
    """Keep a row that says which schedule ran, and when."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("INSERT INTO ran (schedule, at) VALUES ($1, clock_timestamp())", schedule)
    finally:
        await connection.close()


async def main(url: str, number: str, count: str = "0", slot: str = "0") -> None:
    """Start a scheduler, create schedules if asked to, and say that it is ready."""
    store = SQLAlchemyDataStore(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    broker, identity = AsyncpgEventBroker(url), f"replica-{number}-{os.getpid()}"
    scheduler = AsyncScheduler(store, broker, identity=identity, lease_duration=LEASE_S, cleanup_interval=LEASE_S)
    async with scheduler:
        if int(count):
            connection = await asyncpg.connect(url)
            await connection.execute("CREATE TABLE ran (schedule TEXT, at TIMESTAMPTZ)")
            await connection.close()
        at = datetime.fromtimestamp(float(slot), UTC)
        for due in range(int(count)):
            name = f"due-{due}"
            await scheduler.add_schedule(tick, DateTrigger(at), id=name, args=(url, name), misfire_grace_time=None)
        await scheduler.start_in_background()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
