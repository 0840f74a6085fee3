"""How soon turns go on after the end of their server: kill -9 and SIGTERM with two replicas, and a restart on SQLite.

Real servers run an agent whose tool logs when each of its steps starts and ends, and in which process. The measured
time is that between the end of a server, or of the last step there, and the next step of the turn elsewhere.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx

from benchmarks.server import BIN, started
from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table

KILLS = 5
TURNS = 50
LIMIT_S = 60.0

AGENT = """
import asyncio, os, time
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from lango.adk import AdkTool
from lango.tools import Tool
from lango.turns import liveness

if os.environ.get("HEARTBEAT_ONLY"):  # as if each server had a machine of its own
    liveness._machine_id = lambda: f"machine of {os.getpid()}"


class Steps(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts or []]
        turn, steps, seconds = next(part.text for part in parts if part.text and part.text.startswith("turn-")).split()
        number = sum(bool(part.function_response) for part in parts)
        if number == int(steps):
            part = types.Part(text="done")
        else:
            args = {"turn": turn, "number": number, "seconds": float(seconds)}
            part = types.Part(function_call=types.FunctionCall(id=f"{turn}.{number}", name="step", args=args))
        yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=False, turn_complete=True)


def log(kind, turn, number):
    with Path(os.environ["STEPS"]).open("a") as file:
        file.write(f"{time.time()} {os.getpid()} {kind} {turn} {number}\\n")


async def step(turn: str, number: int, seconds: float) -> str:
    log("start", turn, number)
    await asyncio.sleep(seconds)
    log("end", turn, number)
    return "stepped"


kinds = {"turn": "string", "number": "integer", "seconds": "number"}
schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}
tools = [AdkTool(Tool("step", "Step.", schema, step, effect="once"))]
root_agent = LlmAgent(name="steps", model=Steps(model="steps"), tools=tools)
"""


@dataclass
class Step:
    """A line of the log."""

    at: float
    pid: int
    kind: str
    turn: str
    number: int


class Place:
    """A folder with an agent and its settings; servers that are started here share a store."""

    def __init__(self, folder: Path, store_url: str, *, heartbeat_only: bool = False) -> None:
        self._folder = folder
        self._log = folder / "steps"
        agent = folder / "agent" / "agent.py"
        agent.parent.mkdir(parents=True)
        (agent.parent / "__init__.py").write_text("from . import agent\n")
        agent.write_text(AGENT)
        config = f"[agent]\nmodule = {json.dumps(str(agent.parent))}\n[store]\nurl = {json.dumps(store_url)}\n"
        config += "[trace]\nrequests = false\n"  # as a server with keys
        (folder / "lango.toml").write_text(config)
        self._environment = {"STEPS": str(self._log), "HEARTBEAT_ONLY": "1" if heartbeat_only else ""}

    @contextlib.contextmanager
    def server(self) -> Iterator[tuple[str, int]]:
        """Start a server; yield its address and process when it is ready."""
        os.environ.update(self._environment)
        command = [str(BIN / "lango"), "serve", "--config", str(self._folder / "lango.toml")]
        with started(command, self._folder, "/readyz") as (url, pid, _):
            yield url, pid

    def steps(self) -> list[Step]:
        """Read the log."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        found = [line.split() for line in lines]
        return [Step(float(at), int(pid), kind, turn, int(number)) for at, pid, kind, turn, number in found]

    def wait_for(self, turn: str, pid: int, *, after: float = 0.0, kind: str = "start") -> Step:
        """Wait until a turn logs a step in a process."""
        deadline = time.time() + LIMIT_S
        while time.time() < deadline:
            for step in self.steps():
                if (step.turn, step.pid, step.kind) == (turn, pid, kind) and step.at > after:
                    return step
            time.sleep(0.01)
        raise TimeoutError(f"{turn} took no step in process {pid}")


async def send(url: str, turn: str, steps: int, seconds: float) -> None:
    """Send a message, and leave when it is accepted."""
    async with httpx.AsyncClient(timeout=60) as client:
        body = {"text": f"{turn} {steps} {seconds}"}
        async with client.stream("POST", f"{url}/v1/sessions/{turn}/messages", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    return


def new_turn() -> str:
    return f"turn-{uuid.uuid4().hex[:8]}"


def after_kill(place: Place, kills: int) -> list[float]:
    """Kill one of two replicas in a step; return the seconds until the other takes the next step of the turn."""
    found: list[float] = []
    with place.server() as (_, other):
        for _ in range(kills):
            with place.server() as (url, pid):
                turn = new_turn()
                asyncio.run(send(url, turn, 6, 0.3))
                place.wait_for(turn, pid, kind="end")
                time.sleep(0.1)
                os.kill(pid, signal.SIGKILL)
                killed_at = time.time()
                found.append(place.wait_for(turn, other).at - killed_at)
    return found


def after_restart(place: Place, kills: int) -> list[float]:
    """Kill a server in a step and start it again; return the seconds from `ready` to the next step of the turn."""
    found: list[float] = []
    for _ in range(kills):
        with place.server() as (url, pid):
            turn = new_turn()
            asyncio.run(send(url, turn, 6, 0.3))
            place.wait_for(turn, pid, kind="end")
            os.kill(pid, signal.SIGKILL)
        with place.server() as (_, pid):
            ready_at = time.time()
            found.append(max(0.0, place.wait_for(turn, pid).at - ready_at))
    return found


@dataclass
class Deploy:
    """What became of the turns when one of two replicas was stopped."""

    failed: int
    doubled: int
    moved: int
    gaps_s: list[float]


def after_sigterm(place: Place, store_url: str, turns: int) -> Deploy:
    """Stop one of two replicas with SIGTERM while it runs turns; the other goes on with them."""
    names = [new_turn() for _ in range(turns)]

    async def send_all(url: str) -> None:
        for name in names:
            await send(url, name, 8, 1.0)

    with place.server() as (other_url, other), place.server() as (url, pid):
        warm_up = new_turn()  # a replica that has run no turn yet imports ADK first
        asyncio.run(send(other_url, warm_up, 1, 0.0))
        place.wait_for(warm_up, other, kind="end")
        asyncio.run(send_all(url))
        for name in names:
            place.wait_for(name, pid)
        os.kill(pid, signal.SIGTERM)
        statuses = asyncio.run(wait_until_ended(store_url))
    gaps = [gap for name in names for gap in moves([step for step in place.steps() if step.turn == name], other)]
    starts = Counter((step.turn, step.number) for step in place.steps() if step.kind == "start")
    doubled = sum(count - 1 for count in starts.values())
    return Deploy(turns + 1 - statuses["done"], doubled, len(gaps), gaps)


def moves(steps: list[Step], other: int) -> list[float]:
    """Return how long a turn made no progress when it moved to the other process."""
    pairs = itertools.pairwise(steps)
    return [after.at - before.at for before, after in pairs if before.pid != other and after.pid == other]


async def wait_until_ended(store_url: str) -> Counter[str]:
    """Wait until no turn is open; return what became of all."""
    address, _, schema = store_url.partition("&schema=")
    connection = await asyncpg.connect(address)
    deadline = time.time() + 2 * LIMIT_S
    while True:
        rows = await connection.fetch(f"SELECT status, COUNT(*) AS n FROM {schema}.turns GROUP BY status")
        found = Counter({row["status"]: row["n"] for row in rows})
        if not found["running"] + found["queued"] or time.time() > deadline:
            await connection.close()
            return found
        await asyncio.sleep(0.1)


def main() -> None:
    """Print the tables."""
    print_line(f"{os.cpu_count()} cores{', quick' if quick() else ''}")
    kills, turns = (2, 20) if quick() else (KILLS, TURNS)
    with tempfile.TemporaryDirectory(prefix="lango-takeover-") as name, postgres_server() as postgres:
        folder = Path(name)
        stores = {kind: f"{postgres}&schema={kind}" for kind in ("local", "remote", "deploy")}
        local = after_kill(Place(folder / "local", stores["local"]), kills)
        remote = after_kill(Place(folder / "remote", stores["remote"], heartbeat_only=True), kills)
        restarted = after_restart(Place(folder / "restart", f"sqlite:///{folder}/restart.db"), kills)
        deploy = after_sigterm(Place(folder / "deploy", stores["deploy"]), stores["deploy"], turns)
    measured = {
        "kill -9 of a replica, PostgreSQL, same machine": (local, 5.0),
        "kill -9 of a replica, PostgreSQL, by heartbeat only": (remote, 5.0),
        "restart after kill -9, SQLite, from ready": (restarted, 1.0),
    }
    table(
        f"seconds until a turn goes on, {kills} kills each",
        ["", "median", "longest"],
        [[what, statistics.median(found), max(found)] for what, (found, _) in measured.items()],
        *(bar(f"{what}, longest", max(found), at_most=limit) for what, (found, limit) in measured.items()),
    )
    gaps = sorted(deploy.gaps_s)
    p99 = statistics.quantiles(gaps, n=100, method="inclusive")[98] if len(gaps) > 1 else max(gaps, default=0.0)
    table(
        f"SIGTERM of one of two replicas on PostgreSQL that runs {turns} turns",
        ["turns moved", "failed", "steps doubled", "no progress, median s", "p99 s"],
        [[deploy.moved, deploy.failed, deploy.doubled, statistics.median(gaps) if gaps else 0.0, p99]],
        bar("turns that failed", deploy.failed, at_most=0),
        bar("steps that were done twice", deploy.doubled, at_most=0),
        bar("seconds without progress, p99", p99, at_most=1.0),
    )


if __name__ == "__main__":
    main()
