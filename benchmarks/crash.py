"""kill -9 in the middle of turns, hundreds of times, and no client that retries: Lango beside ADK and DBOS.

`python -m benchmarks.crash --rounds 300 --peer-rounds 60`. In each round a process runs a turn (an idempotent tool, a
tool whose effect must happen once, an answer) with a second message queued behind it, and is killed: after its n-th
commit, model call or effect, or at a random moment. A new process opens the store and goes on. One judge reads what is
stored, which requests the model got and which effects happened, the same for every system.
"""

import asyncio
import logging
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks._crash_systems import APP, SYSTEMS, USER, System, kill_this_process, responses_in
from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango.adk.agents.adk_internals import preload_adk
from lango.history import warm_up
from tests.support.fork_server import context
from tests.support.store_workers import Worker

context.set_forkserver_preload(["benchmarks.crash"])
if sys.argv[:1] == ["-c"]:  # the server that workers are forked from: what takes a second is loaded once, there
    warm_up()
    preload_adk()

OURS = "Lango"
ROUNDS, QUICK_ROUNDS = 60, 12
PEER_ROUNDS = 60
"""The most kills of a peer, unless `--peer-rounds` says otherwise: DBOS needs four seconds for each."""
GO_ON_LIMIT_S = 20.0
ANSWER_LIMIT_S = 10.0
COUNTED = ["once twice", "asked again", "busy", "stored twice", "answered twice"]
SECOND_AFTER_S = 0.01
"""The second message is sent so long after the first."""


# -- the processes ---------------------------------------------------------------------------------------------------


def run_until_killed(
    pipe: Connection, name: str, url: str, folder: str, session: str, kill_at: int, kill_after_s: float
) -> None:
    """Send two messages, and kill this process at a point or after some time; 0 is never."""
    points = 0
    armed = threading.Event()

    def point() -> None:
        nonlocal points
        if armed.is_set():
            points += 1
            if points == kill_at:
                kill_this_process()

    async def send(system: System, text: str) -> None:
        pipe.send(("sent", text))
        await system.send(session, text, lambda: pipe.send(("acknowledged", text)))

    async def run() -> None:
        async with SYSTEMS[name].open(url, Path(folder), point) as system:
            start = time.perf_counter()
            armed.set()
            if kill_after_s:
                timer = threading.Timer(kill_after_s, kill_this_process)
                timer.daemon = True
                timer.start()
            first = asyncio.create_task(send(system, texts_of(session)[0]))
            await asyncio.sleep(SECOND_AFTER_S)
            await asyncio.gather(first, send(system, texts_of(session)[1]))
            await system.go_on(session)
            pipe.send(("finished", (points, time.perf_counter() - start)))
            pipe.recv()

    silence()
    asyncio.run(run())


def go_on(pipe: Connection, name: str, url: str, folder: str, session: str) -> None:
    """Go on after a kill, in a new process, and send what the judge needs."""

    async def events(service: Any) -> list[Any]:
        found = await service.get_session(app_name=APP, user_id=USER, session_id=session)
        return found.events if found else []

    async def run() -> None:
        texts = texts_of(session)
        service = SYSTEMS[name].sessions(url)
        before = responses_in(await events(service))
        pipe.send("ready")
        start = time.perf_counter()
        error = ""
        async with SYSTEMS[name].open(url, Path(folder), lambda: None) as system:
            try:
                async with asyncio.timeout(GO_ON_LIMIT_S):
                    await system.go_on(session)
            except Exception as failed:  # noqa: BLE001 - whatever it is, the judge counts what is stored
                error = f"{type(failed).__name__}: {failed}"
            took_s = time.perf_counter() - start
            requests = (Path(folder) / "requests").read_text().splitlines() if before else []
            stored = await events(service)
            busy = not await answers(system, session, texts[2], lambda: events(service))
            found = Found(
                before=before,
                requests=requests,
                users=[part.text for one in stored if one.author == "user" for part in one.content.parts if part.text],
                responses=responses_in(stored),
                stopped=await system.stopped(session, texts),
                busy=busy,
                took_s=took_s,
                error=error,
            )
            pipe.send(found)
            pipe.recv()

    silence()
    asyncio.run(run())


async def answers(system: System, session: str, text: str, read_events: Any) -> bool:
    """Send one more message; return whether it is answered in time: else the session is busy, or broken."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await system.send(session, text, lambda: None)
            while f"{text}|2" not in responses_in(await read_events()):
                await asyncio.sleep(0.02)
    except Exception:  # noqa: BLE001 - whatever it is, there is no answer
        return False
    return True


def texts_of(session: str) -> list[str]:
    """Return the messages of a session: two for the process that is killed, one for the next."""
    return [f"message {session}.{number}" for number in (1, 2, 3)]


def silence() -> None:
    """Log nothing: the processes that are killed share the terminal."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


# -- the judge -------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What the process after a kill found, and what it left."""

    before: list[str]
    requests: list[str]
    users: list[str]
    responses: list[str]
    stopped: list[str]
    busy: bool
    took_s: float
    error: str


@dataclass
class Tally:
    """The counts of all rounds of a system."""

    kills: int = 0
    sent: int = 0
    sent_ended: int = 0
    acknowledged: int = 0
    acknowledged_ended: int = 0
    once_twice: int = 0
    asked_again: int = 0
    busy: int = 0
    stored_twice: int = 0
    answered_twice: int = 0
    took_s: list[float] = field(default_factory=list[float])
    where: Counter[str] = field(default_factory=Counter[str])

    def count(self, heard: list[tuple[str, Any]], found: Found, asked: list[str], effects: list[str], at: str) -> None:
        """Count a round: what the client heard, what is stored, and what the model and the tools did."""
        self.kills += 1
        told = set(heard)
        sent = [text for kind, text in heard if kind == "sent"]
        answers = Counter(found.responses)
        for text in sent:
            ended = bool(answers[f"{text}|2"]) or text in found.stopped
            self.sent += 1
            self.sent_ended += ended
            if ("acknowledged", text) in told:
                self.acknowledged += 1
                self.acknowledged_ended += ended
                self._note("acknowledged and not ended", not ended, f"{at} {found.error}".strip())
        for name, count in {
            "once_twice": sum(max(0, effects.count(f"pay {text}") - 1) for text in sent),
            "asked_again": sum(key in found.before for key in asked),
            "busy": int(found.busy),
            "stored_twice": sum(max(0, found.users.count(text) - 1) for text in sent),
            "answered_twice": sum(max(0, answers[f"{text}|2"] - 1) for text in sent),
        }.items():
            setattr(self, name, getattr(self, name) + count)
            self._note(name.replace("_", " "), count, f"{at} {found.error}".strip())
        self.took_s.append(found.took_s)

    def _note(self, what: str, count: int, at: str) -> None:
        if count:
            self.where[f"{what}, killed {at}"[:160]] += count

    @property
    def row(self) -> list[object]:
        """The cells of the table."""
        return [
            self.kills,
            f"{percent(self.acknowledged_ended, self.acknowledged):.1f} % of {self.acknowledged}",
            f"{percent(self.sent_ended, self.sent):.1f} % of {self.sent}",
            self.once_twice,
            self.asked_again,
            self.busy,
            self.stored_twice,
            self.answered_twice,
            statistics.median(self.took_s),
        ]


def percent(part: int, whole: int) -> float:
    """Return a share in percent."""
    return 100 * part / whole if whole else 100.0


class Rounds:
    """Kills one system on one database, round after round."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.tally = Tally()
        self._name, self._url, self._folder = name, url, folder
        self._dice = random.Random(1)
        self._number = 0
        worker = Worker(run_until_killed, *self._where("warm-up"), 0, 0.0)  # makes the tables
        self._finish(worker)
        worker = Worker(run_until_killed, *self._where("whole"), 0, 0.0)
        self._points, self._took_s = self._finish(worker)
        self._schedule = self._kills()

    def _kills(self) -> Iterator[tuple[int, float]]:
        """Yield kills without end: at each point once, in random order, then again; every third at a random moment."""
        while True:
            for number, at in enumerate(self._dice.sample(range(1, self._points + 1), self._points)):
                yield at, 0.0
                if number % 2:
                    yield 0, self._dice.uniform(0.001, self._took_s)

    def _where(self, session: str) -> tuple[str, str, str, str]:
        return self._name, self._url, str(self._folder), session

    def _finish(self, worker: Worker) -> Any:
        while (heard := worker.recv())[0] != "finished":
            pass
        worker.kill()
        return heard[1]

    def run(self) -> None:
        """Kill a process, let the next one go on, and count."""
        session = f"s{self._number}"
        self._number += 1
        at, after_s = next(self._schedule)
        worker = Worker(run_until_killed, *self._where(session), at, after_s)
        heard: list[tuple[str, Any]] = []
        try:
            while not heard or heard[-1][0] != "finished":
                heard.append(worker.recv())
        except (EOFError, OSError):
            pass  # it was killed
        worker.kill()
        requests = self._folder / "requests"
        asked_before = len(requests.read_text().splitlines()) if requests.exists() else 0
        after = Worker(go_on, *self._where(session))
        assert after.recv() == "ready"
        found: Found = after.recv()
        after.kill()
        effects = (self._folder / "effects").read_text().splitlines()
        where = f"at point {at} of {self._points}" if at else "at a random moment"
        self.tally.count(heard, found, found.requests[asked_before:], effects, where)


# -- main ------------------------------------------------------------------------------------------------------------


def option(name: str, default: int) -> int:
    """Return the number after an option: `--rounds 300`."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def measure(database: str, url_of: dict[str, str], folder: Path) -> None:
    """Kill all systems on one database, in turns, and print their table."""
    rounds = option("--rounds", QUICK_ROUNDS if quick() else ROUNDS)
    peer_rounds = min(rounds, option("--peer-rounds", PEER_ROUNDS))
    start = time.perf_counter()
    systems: dict[str, Rounds] = {}
    for number, name in enumerate(SYSTEMS):
        own = folder / f"{database}-{number}"
        own.mkdir()
        systems[name] = Rounds(name, url_of.get(name) or f"sqlite:///{own}/store.db", own)
    for number in range(rounds):
        for name, one in systems.items():
            if name == OURS or number < peer_rounds:
                one.run()
    ours = systems[OURS].tally
    table(
        f"{database}: kill -9 at each commit, model call and effect and at random; no client retries "
        f"({time.perf_counter() - start:.0f} s)",
        ["", "kills", "acknowledged, ended", "sent, ended", *COUNTED, "s to end"],
        [[name, *one.tally.row] for name, one in systems.items()],
        "ended: in an answer or a typed stop; once twice: effects of the `once` tool; asked again: model responses",
        "that were stored; busy: one more message gets no answer; stored twice: messages of the user; s to end: from",
        "the opening of the store in the new process to the end of both turns, median",
        bar("acknowledged messages that ended, %", percent(ours.acknowledged_ended, ours.acknowledged), at_least=100),
        bar("effects of the `once` tool that happened twice", ours.once_twice, at_most=0),
        bar("stored model responses that were requested again", ours.asked_again, at_most=0),
        bar("sessions that stayed busy", ours.busy, at_most=0),
    )
    for name, one in systems.items():
        for what, count in one.tally.where.most_common(1000 if name == OURS else 4):
            print_line(f"  {name}: {count} x {what}")


def main() -> None:
    """Print the tables."""
    silence()
    os.environ["PYTHONWARNINGS"] = "ignore"  # for the processes that are killed
    if "dbos-google-adk" not in SYSTEMS:
        print_line("dbos-google-adk is not installed, and left out: it is in the dependency group `bench`")
    with tempfile.TemporaryDirectory(prefix="lango-crash-") as name, postgres_server() as postgres:
        measure("SQLite", {}, Path(name))
        measure("PostgreSQL", asyncio.run(create_databases(postgres)), Path(name))


async def create_databases(postgres: str) -> dict[str, str]:
    """Create a PostgreSQL database for each system; return their URLs."""
    urls: dict[str, str] = {}
    connection = await asyncpg.connect(postgres)
    for number, system in enumerate(SYSTEMS):
        await connection.execute(f"CREATE DATABASE crash{number}")
        urls[system] = postgres.replace("/postgres?", f"/crash{number}?")
    await connection.close()
    return urls


if __name__ == "__main__":
    main()
