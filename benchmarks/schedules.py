"""Many schedules that are due in the same second, on four replicas that are killed: how late each slot starts.

10,000 schedules on PostgreSQL, 1,000 of them with a slot in the same second. While they run, replicas are killed with
kill -9 and replaced. Each slot must be one turn. Then the replicas are left alone, and the queries for what is due are
counted by the scans of the index that they use. `LANGO_BENCH_SCHEDULES=1000` makes it smaller: a tenth of so many
schedules is due.

As many schedules, at most 200, run beside it on DBOS and on APScheduler 4: four replicas each, with as many kills, in a
database of their own. DBOS has a thread for each schedule in each replica, and adds a random delay to each slot.
APScheduler 4 is a pre-release: uv installs it for its processes alone, and it is left out where uv cannot.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import asyncpg

from benchmarks._schedule_worker import APP
from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango.schedules import ScheduleSpec
from lango.schedules.spec import iso_time
from lango.store import Store
from lango.store.schedules import ScheduleId, add_schedule

REPLICAS = 4
KILLS = 4
IDLE_S = 20.0
LIMIT_S = 600.0
PEER_LIMIT_S = 120.0
PEER_MOST = 200
PEER_AHEAD_S = 60
# with what was current when it was released: newer releases of these break it
APSCHEDULER = ("apscheduler==4.0.0a6", "anyio==4.9.0", "sqlalchemy[asyncio]==2.0.40", "asyncpg==0.30.0")
_PER_USER = 100


class Replicas:
    """The processes that run the schedules."""

    def __init__(self, url: str, module: str, python: str) -> None:
        self._command = [python, "-m", module, url]
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> None:
        """Start one more, and wait until it is ready."""
        command = [*self._command, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        self.running.append(process)

    def kill_oldest(self) -> None:
        """Kill the one that has run for longest."""
        process = self.running.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def replicas(url: str, module: str = "benchmarks._schedule_worker", python: str = sys.executable) -> Iterator[Replicas]:
    """Kill all replicas at the end of the block."""
    found = Replicas(url, module, python)
    try:
        yield found
    finally:
        for process in found.running:
            process.kill()
            process.wait()


async def fill(url: str, count: int, due: int) -> None:
    """Store schedules whose slots are far away; the first ones get theirs when the replicas are ready."""
    async with Store(url) as store:
        far = ScheduleSpec("far", "tick {slot}", times=[iso_time(time.time() // 1 + 10 * 86_400)])
        for number in range(count):
            name = ScheduleId(APP, f"user-{number // _PER_USER}", f"{'due' if number < due else 'far'}-{number}")
            await store.write(add_schedule, name, far, time.time())


async def run(url: str, count: int, due: int) -> None:
    """Run the benchmark on one database."""
    began = time.monotonic()
    await fill(url, count, due)
    print_line(f"{count:,} schedules stored in {time.monotonic() - began:.0f} s")
    connection = await asyncpg.connect(url)
    await connection.execute("SET search_path TO lango")
    try:
        with replicas(url) as running:
            for _ in range(REPLICAS):
                running.start()
            idle = await _idle_queries(connection)
            slot = float(int(time.time()) + 5)
            times = f'["{iso_time(slot)}"]'
            await connection.execute(
                "UPDATE schedules SET next_slot = $1, check_at = $1,"
                " spec = jsonb_set(spec::jsonb, '{times}', $2::jsonb)::text WHERE id LIKE 'due-%'",
                slot,
                times,
            )
            await asyncio.sleep(max(0.0, slot - time.time()))
            killed = await _until_done(connection, running, slot, due)
            rows = await connection.fetch(
                "SELECT s.id, COUNT(*) AS turns, MIN(t.created_at) AS at, MIN(t.status) AS status"
                " FROM sessions s JOIN turns t USING (session_key) WHERE s.id LIKE 'schedule-due-%' GROUP BY s.id"
            )
    finally:
        await connection.close()
    late = sorted(row["at"] - slot for row in rows)
    lost, doubled = due - len(rows), sum(row["turns"] - 1 for row in rows)
    done = sum(row["status"] == "done" for row in rows)
    table(
        f"{count:,} schedules, {due:,} due in the same second, {REPLICAS} replicas, {killed} kills",
        ("slots", "lost", "doubled", "done", "late p50 s", "p99 s", "most s", "idle queries/s per replica"),
        [
            (
                due,
                lost,
                doubled,
                done,
                statistics.median(late),
                late[int(len(late) * 0.99) - 1],
                late[-1],
                idle,
            )
        ],
        bar("lost slots", lost, at_most=0),
        bar("slots with a second turn", doubled, at_most=0),
        bar("queries per second and replica while nothing is due", idle, at_most=1.05),
    )


async def _until_done(connection: asyncpg.Connection, running: Replicas, slot: float, due: int) -> int:
    """Kill replicas while slots are left, and start others meanwhile; return how many were killed."""
    killed, end = 0, time.monotonic() + LIMIT_S
    starting: list[asyncio.Task[None]] = []
    while time.monotonic() < end:
        started = int(await connection.fetchval("SELECT COUNT(*) FROM turns") or 0)
        left = await connection.fetchval("SELECT COUNT(*) FROM schedules WHERE next_slot <= $1", slot)
        unfinished = await connection.fetchval("SELECT COUNT(*) FROM turns WHERE status IN ('queued', 'running')")
        if not left and not unfinished:
            await asyncio.gather(*starting)
            return killed
        if killed < KILLS and started >= due * (killed + 1) / (KILLS + 1):
            running.kill_oldest()
            killed += 1
            starting.append(asyncio.create_task(asyncio.to_thread(running.start)))
        await asyncio.sleep(0.05)
    raise TimeoutError(f"slots are left after {LIMIT_S:g} s")


async def _idle_queries(connection: asyncpg.Connection) -> float:
    """Return how often each replica looks for due schedules while none is."""
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'schedules_due'"
    await asyncio.sleep(2.0)
    before, began = int(await connection.fetchval(scans) or 0), time.monotonic()
    await asyncio.sleep(IDLE_S)
    scanned = int(await connection.fetchval(scans) or 0) - before
    return scanned / (time.monotonic() - began) / REPLICAS


async def run_dbos(url: str, due: int) -> None:
    """Run schedules of DBOS that are due in the same second."""
    slot = datetime.fromtimestamp(int(time.time()) + PEER_AHEAD_S, UTC)
    cron = f"{slot.second} {slot.minute} {slot.hour} * * *"
    with replicas(url, "benchmarks._schedule_peer") as running:
        _start_peers(running, due, cron)
        done = "SELECT COUNT(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
        started = "SELECT created_at / 1000.0 AS at FROM dbos.workflow_status"
        await _peer_table("DBOS", url, due, slot.timestamp(), running, done, started)


async def run_apscheduler(url: str, due: int) -> None:
    """Run schedules of APScheduler 4 that are due in the same second."""
    uv = os.environ.get("UV")
    if not uv:
        print_line("APScheduler 4 was left out: start this benchmark with uv, which installs it")
        return
    with tempfile.TemporaryDirectory(prefix="lango-peer-") as folder:
        python = f"{folder}/bin/python"
        subprocess.run([uv, "venv", "--quiet", "--clear", folder], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *APSCHEDULER], check=True)
        slot = int(time.time()) + PEER_AHEAD_S
        with replicas(url, "benchmarks._apscheduler_peer", python) as running:
            _start_peers(running, due, str(slot))
            done, started = "SELECT COUNT(DISTINCT schedule) FROM ran", "SELECT EXTRACT(EPOCH FROM at) AS at FROM ran"
            await _peer_table("APScheduler 4", url, due, slot, running, done, started)


def _start_peers(running: Replicas, due: int, slot: str) -> None:
    running.start("0", str(due), slot)
    for number in range(1, REPLICAS):
        running.start(str(number))


async def _peer_table(
    name: str,
    url: str,
    due: int,
    slot: float,
    running: Replicas,
    count_done: str,
    select_started: str,
) -> None:
    """Kill and replace replicas of a peer while slots are left, and print what became of the slots."""
    connection = await asyncpg.connect(url)
    try:
        done, killed, end = 0, 0, time.monotonic() + PEER_AHEAD_S + PEER_LIMIT_S
        starting: list[asyncio.Task[None]] = []
        while done < due and time.monotonic() < end:
            done = await connection.fetchval(count_done)
            if killed < KILLS and done >= due * (killed + 1) / (KILLS + 1):
                running.kill_oldest()
                starting.append(asyncio.create_task(asyncio.to_thread(running.start, str(killed))))
                killed += 1
            await asyncio.sleep(0.05)
        await asyncio.gather(*starting)
        rows = await connection.fetch(select_started)
    finally:
        await connection.close()
    late = sorted(float(row["at"]) - slot for row in rows)
    table(
        f"{name}: {due:,} schedules due in the same second, {REPLICAS} replicas, {killed} kills",
        ("slots", "lost", "doubled", "done", "late p50 s", "p99 s", "most s"),
        [
            (
                due,
                due - done,
                max(0, len(rows) - done),
                done,
                statistics.median(late),
                late[int(len(late) * 0.99) - 1],
                late[-1],
            )
        ],
    )


def main() -> None:
    """Run the benchmark."""
    count = int(os.environ.get("LANGO_BENCH_SCHEDULES", "500" if quick() else "10000"))
    with postgres_server() as url:
        asyncio.run(run(url, count, max(1, count // 10)))
    for peer in (run_dbos, run_apscheduler):
        with postgres_server() as url:
            asyncio.run(peer(url, min(PEER_MOST, max(1, count // 10))))


if __name__ == "__main__":
    main()
