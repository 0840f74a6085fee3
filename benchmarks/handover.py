"""Turns of two writers on one session, in one process and in two, relative to a single writer."""

import asyncio
import itertools
import logging
import multiprocessing
import os
import tempfile
import time
import uuid
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango import Settings, open_runtime
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider

TURNS = 100
SINGLE, ONE, TWO = "a single writer", "two writers, one process", "two writers, two processes"

_context = multiprocessing.get_context("spawn")


def write_when_told(pipe: Connection, url: str, session: str, writers: int, turns: int) -> None:
    """Open the runtime, run a turn on another session to warm up, then run each writer's turns on a signal."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    async def write(runtime: Runtime) -> None:
        for _ in range(turns):
            await runtime.run(session, "and now?")

    async def run() -> None:
        settings = Settings.model_validate({"store": {"url": url}})
        async with open_runtime(settings, provider=ScriptedProvider(itertools.repeat("yes"))) as runtime:
            await runtime.run(uuid.uuid4().hex, "hello")
            pipe.send("ready")
            pipe.recv()
            await asyncio.gather(*(write(runtime) for _ in range(writers)))
            pipe.send("done")

    asyncio.run(run())


def rate(url: str, processes: int, writers: int, turns: int) -> float:
    """Return the turns per second of several processes with several writers each, all on one new session."""
    session = uuid.uuid4().hex
    pipes: list[Connection] = []
    workers = []
    for _ in range(processes):
        ours, theirs = _context.Pipe()
        share = turns // (processes * writers)
        workers.append(_context.Process(target=write_when_told, args=(theirs, url, session, writers, share)))
        workers[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    began = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        pipe.recv()
    took_s = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return turns / took_s


def measure(url: str, turns: int, rounds: int) -> dict[str, float]:
    """Alternate between the contestants; the best round of each counts."""
    contestants = {SINGLE: (1, 1), ONE: (1, 2), TWO: (2, 1)}
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(rounds):
        for name, (processes, writers) in contestants.items():
            best[name] = max(best[name], rate(url, processes, writers, turns))
    return best


def main() -> None:
    """Print the table."""
    print_line(f"{os.cpu_count()} cores{', quick' if quick() else ''}")
    turns, rounds = (20, 1) if quick() else (TURNS, 3)
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder, postgres_server() as postgres:
        urls = {"SQLite": f"sqlite:///{Path(folder)}/lango.db", "PostgreSQL": f"{postgres}&schema=handover"}
        measured = {database: measure(url, turns, rounds) for database, url in urls.items()}
    names = [SINGLE, ONE, TWO]
    rows: list[list[object]] = [[name, *(measured[database][name] for database in measured)] for name in names]
    rows += [[f"{name} / single", *(rates[name] / rates[SINGLE] for rates in measured.values())] for name in names[1:]]
    table(
        "one session, instant model: turns per second of all writers together",
        ["", *measured],
        rows,
        *(
            bar(f"{name} / single, {database}", rates[name] / rates[SINGLE], at_least=0.5)
            for database, rates in measured.items()
            for name in names[1:]
        ),
    )


if __name__ == "__main__":
    main()
