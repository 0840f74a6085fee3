"""Rolling deploys of changed agents under load, and one long turn with a deploy every ten model calls.

Three replicas behind a proxy are replaced one after the other, each time by another version of the agents: another
schema, a new sub-agent, a wrapped root, a renamed agent. Clients send a message, follow its stream, reconnect when it
is cut, and send the next one. Every message charges once: the tool that does so logs it.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks._crash_systems import SYSTEMS
from benchmarks.server import BIN, answers, environment, free_port
from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango.runtime.stored_data import open_store

PEER = "dbos-google-adk"
REPLICAS, CLIENTS, DEPLOY_EVERY_S, RUN_S = 3, 50, 10.0, 120.0
PAUSE_S = 1.0
"""Between the answer to a message of a client and its next message."""
CALLS, CALLS_PER_DEPLOY, TOKENS_PER_RESULT = 100, 10, 2_000
READY_TIMEOUT_S = 120.0
READERS, MOVED_S = 20, 2.0
"""How many streams and WebSockets each are open on a server that stops, and how soon all are to be sent away."""
LISTED_GAPS, AROUND_S = 3, 3.0
"""How many of the longest gaps are explained, and by what was done to the servers how long before them."""

AGENT = '''
import asyncio, os, re
from pathlib import Path

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps.app import App
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from lango.adk import AdkTool
from lango.tools import Tool

VERSION = {version}


class Scripted(BaseLlm):
    """Reads its request as a model does: what to charge from the message, and what is charged from the newest result.

    A call that was not run is made again. A request need not have all results: a long turn does not fit the window.
    """

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts or []]
        texts = [part.text for part in parts if part.text]
        name, calls = [found for text in texts for found in re.findall(r"^message ([^ ]+) ([0-9]+)", text)][-1]
        made = {{part.function_call.id: part.function_call.args["what"] for part in parts if part.function_call}}
        results = [part.function_response for part in parts if part.function_response]
        charged = [made.get(one.id, "") for one in results if one.response.get("outcome") != "not run"]
        charged += [what for text in texts for what in re.findall(r"charged ([^ ]+)", text)]  # of another agent
        numbers = [int(what.rpartition(".")[2]) for what in charged if what.rpartition(".")[0] == name]
        number = max(numbers, default=-1) + 1
        await asyncio.sleep(0.05)
        if number < int(calls):
            what = f"{{name}}.{{number}}"
            parts = [types.Part(function_call=types.FunctionCall(id=what, name="charge", args={{"what": what}}))]
        else:
            parts = [types.Part(text=f"answer to {{name}}")]
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False, turn_complete=True)


async def charge(what: str, note: str = "") -> str:
    with Path(os.environ["CHARGES"]).open("a") as file:
        file.write(what + "\\n")
    await asyncio.sleep(0.1)
    return f"charged {{what}} " + "lorem ipsum dolor " * int(os.environ["WORDS"])


fields = {{"what": {{"type": "string"}}}}
if VERSION % 5 == 1:
    fields["note"] = {{"type": "string"}}
schema = {{"type": "object", "properties": fields, "required": ["what"]}}
tools = [AdkTool(Tool("charge", "Charge.", schema, charge, effect="once"))]
model = Scripted(model="scripted")
others = [LlmAgent(name="helper", model=model, description="Helps.")] if VERSION % 5 == 2 else []
shop = LlmAgent(name="store" if VERSION % 5 == 4 else "shop", model=model, tools=tools, sub_agents=others)
root = SequentialAgent(name="steps", sub_agents=[shop]) if VERSION % 5 == 3 else shop
app = App(name="shop", root_agent=root)
'''


def write_agent(folder: Path, version: int) -> Path:
    """Write the package of a version of the agents, unless it is there; return its folder."""
    agent = folder / f"version-{version}" / "agent"
    if not agent.exists():
        agent.mkdir(parents=True)
        (agent / "__init__.py").write_text("from . import agent\n")
        (agent / "agent.py").write_text(AGENT.format(version=version))
    return agent


class Replicas:
    """The servers of one store, and a proxy that gives each connection to the one with the fewest."""

    def __init__(self, folder: Path, store_url: str, words: int) -> None:
        self._folder = folder
        self._store_url = store_url
        self._environment = {"CHARGES": str(folder / "charges"), "WORDS": str(words)}
        self._versions = itertools.count()
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._open: Counter[int] = Counter()
        self._stopped: list[subprocess.Popen[bytes]] = []
        self.port = 0
        self.steps: list[tuple[float, str]] = []
        """What was done to the servers, and when."""

    @contextlib.asynccontextmanager
    async def proxy(self) -> AsyncIterator[None]:
        """Listen on a port, and pass bytes on to the servers."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for process in [*self._servers.values(), *self._stopped]:
                process.terminate()
            for process in [*self._servers.values(), *self._stopped]:
                await asyncio.to_thread(process.wait, 60)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in sorted(self._servers, key=lambda one: self._open[one]):
            try:
                there, here = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            self._open[port] += 1
            try:
                await asyncio.gather(_pass_on(reader, here), _pass_on(there, writer))
            finally:
                self._open[port] -= 1
            return
        writer.close()

    async def start(self, version: int) -> int:
        """Start a server with a version of the agents, and wait until it is ready; return its port."""
        agent = write_agent(self._folder, version)
        folder = agent.parent
        if not (folder / "lango.toml").exists():
            config = {"agent": {"module": str(agent), "max_turns": 2 * CALLS}, "store": {"url": self._store_url}}
            config |= {"trace": {"requests": False}}  # as a server with keys
            lines = [
                f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
                for name, values in config.items()
            ]
            (folder / "lango.toml").write_text("".join(lines))
        port = free_port()
        command = [str(BIN / "lango"), "serve", "--config", str(folder / "lango.toml"), "--port", str(port)]
        with (folder / f"log-{port}").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=environment(self._folder) | self._environment, stdout=log, stderr=log
            )
        self._note(f"{port} started")
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/readyz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"version {version} did not start: see {folder}")
            await asyncio.sleep(0.05)
        self._servers[port] = process
        self._note(f"{port} ready")
        return port

    def stop(self, port: int) -> None:
        """Give a server no more connections, and stop it."""
        process = self._servers.pop(port)
        self._stopped.append(process)
        process.terminate()
        self._note(f"{port} told to stop")

    def _note(self, step: str) -> None:
        self.steps.append((time.monotonic(), step))

    async def deploy(self) -> None:
        """Replace the servers one after the other by the next version."""
        version, old = next(self._versions), list(self._servers)
        for number in range(max(1, len(old)) if old else REPLICAS):
            await self.start(version)
            if old:
                self.stop(old[number])

    @property
    def ports(self) -> list[int]:
        """The ports of the servers that get connections."""
        return [*self._servers]

    @property
    def charges(self) -> Counter[str]:
        """What was charged, and how often."""
        return read_charges(self._folder)


def read_charges(folder: Path) -> Counter[str]:
    """Read what the agents of a folder charged, and how often."""
    file = folder / "charges"
    return Counter(file.read_text().split() if file.exists() else ())


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass(order=True)
class Gap:
    """A time without an event of a message, and what ended it."""

    seconds: float = 0.0
    since: float = 0.0
    name: str = ""
    events: str = ""


@dataclass
class Outcome:
    """What clients saw."""

    answered: int = 0
    failed: list[str] = field(default_factory=list[str])
    gaps: list[Gap] = field(default_factory=list[Gap])
    """The longest one of each message."""


def open_http() -> httpx.AsyncClient:
    """Open a client for all: each loads the certificates of the system. It connects anew for every request."""
    return httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))


class Client:
    """Sends messages to one session, each with its key, and reconnects whenever a stream is cut."""

    def __init__(self, client: httpx.AsyncClient, port: int, session: str, outcome: Outcome) -> None:
        self._client = client
        self._url = f"http://127.0.0.1:{port}/v1/sessions/{session}"
        self._outcome = outcome

    async def send(self, name: str, calls: int) -> None:
        """Send a message, and follow it to its end."""
        last_id, last_at, last_type, longest = 0, time.monotonic(), "sent", Gap()
        while True:
            with contextlib.suppress(httpx.TransportError):
                async with self._request(name, calls, last_id) as response:
                    if response.status_code != 200:
                        await response.aread()
                    else:
                        async for event_id, event in _events(response):
                            if not event_id:  # the end of this stream, and no event of the turn
                                continue
                            now = time.monotonic()
                            between = f"{last_type} to {event['type']}"
                            longest = max(longest, Gap(now - last_at, last_at, name, between))
                            last_id, last_at, last_type = event_id, now, event["type"]
                            if event["type"] == "turn_error" and event["fatal"]:
                                self._outcome.failed.append(f"{name}: {event['error']}: {event['message']}")
                                return
                            if event["type"] == "done":
                                self._outcome.answered += 1
                                self._outcome.gaps.append(longest)
                                return
            await asyncio.sleep(0.1)

    def _request(self, name: str, calls: int, last_id: int) -> contextlib.AbstractAsyncContextManager[httpx.Response]:
        if last_id:
            return self._client.stream("GET", f"{self._url}/stream", headers={"Last-Event-ID": str(last_id)})
        body = {"text": f"message {name} {calls}"}
        return self._client.stream("POST", f"{self._url}/messages", json=body, headers={"Idempotency-Key": name})


async def _events(response: httpx.Response) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    event_id = 0
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            event_id = int(line[4:])
        elif line.startswith("data: "):
            yield event_id, json.loads(line[6:])
            event_id = 0


def print_gaps(gaps: list[Gap], steps: list[tuple[float, str]]) -> None:
    """Print the longest gaps, each with what was done to the servers around it."""
    for gap in sorted(gaps, reverse=True)[:LISTED_GAPS]:
        print_line(f"  gap of {gap.seconds:.2f} s in {gap.name}, {gap.events}")
        around = [(at - gap.since, step) for at, step in steps if -AROUND_S < at - gap.since < gap.seconds]
        print_line("    " + ("; ".join(f"{step} at {at:+.2f} s" for at, step in around) or "no step of a deploy"))


@dataclass
class Stored:
    """What the store has at the end."""

    lost: int = 0
    doubled: int = 0


async def judge(store_url: str, sent: dict[str, str], charges: Counter[str], calls: int) -> Stored:
    """Compare what was sent, as message names by session, with what is stored and what was charged."""
    stored = Stored()
    async with open_store(store_url) as data:
        for session in sorted(set(sent.values())):
            messages = await data.app("shop").sessions.messages(session, limit=1_000)
            texts = Counter(one.message.content for one in messages if one.message)
            for name in (name for name, where in sent.items() if where == session):
                answers_found, asked = texts[f"answer to {name}"], texts[f"message {name} {calls}"]
                stored.lost += asked == 0 or answers_found == 0
                stored.doubled += max(0, asked - 1) + max(0, answers_found - 1)
    for name in sent:
        counts = [charges[f"{name}.{number}"] for number in range(calls)]
        stored.lost += sum(count == 0 for count in counts)
        stored.doubled += sum(max(0, count - 1) for count in counts)
    return stored


async def under_load(folder: Path, store_url: str, run_s: float, clients: int) -> list[object]:
    """Deploy again and again while clients send messages; return a row of the table."""
    replicas, outcome = Replicas(folder, store_url, words=10), Outcome()
    sent: dict[str, str] = {}
    deploys = 0
    async with replicas.proxy(), open_http() as http:
        await replicas.deploy()
        # the first server started alone, and loads ADK for its first turn
        await asyncio.gather(*(Client(http, port, "warm-up", Outcome()).send(f"w{port}", 0) for port in replicas.ports))
        ends_at = time.monotonic() + run_s

        async def converse(number: int) -> None:
            client = Client(http, replicas.port, f"s{number}", outcome)
            for count in itertools.count():
                if time.monotonic() > ends_at:
                    return
                name = f"m{number}-{count}"
                sent[name] = f"s{number}"
                await client.send(name, 1)
                await asyncio.sleep(PAUSE_S)

        talking = [asyncio.create_task(converse(number)) for number in range(clients)]
        while time.monotonic() < ends_at:
            next_at = time.monotonic() + DEPLOY_EVERY_S
            await replicas.deploy()
            deploys += 1
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
        await asyncio.gather(*talking)
    for failure in outcome.failed[:5]:
        print_line(f"  failed: {failure}")
    stored = await judge(store_url, sent, replicas.charges, 1)
    print_gaps(outcome.gaps, replicas.steps)
    gaps = sorted(gap.seconds for gap in outcome.gaps)
    return [deploys, len(sent), stored.lost, stored.doubled, len(outcome.failed), gaps[len(gaps) // 2], gaps[-1]]


async def long_turn(folder: Path, store_url: str, calls: int) -> list[object]:
    """Run one turn of many model calls, with a deploy every few of them; return a row of the table."""
    replicas, outcome = Replicas(folder, store_url, words=TOKENS_PER_RESULT // 3), Outcome()
    async with replicas.proxy(), open_http() as http:
        first = await replicas.start(0)
        await Client(http, first, "warm-up", Outcome()).send("warm-up", 0)
        turn = asyncio.create_task(Client(http, replicas.port, "long", outcome).send("long", calls))
        deploys = 0
        while not turn.done():
            if sum(replicas.charges.values()) >= (deploys + 1) * CALLS_PER_DEPLOY:
                deploys += 1
                port = await replicas.start(deploys)
                replicas.stop(first)
                first = port
            await asyncio.sleep(0.02)
        await turn
    for failure in outcome.failed:
        print_line(f"  failed: {failure}")
    stored = await judge(store_url, {"long": "long"}, replicas.charges, calls)
    print_gaps(outcome.gaps, replicas.steps)
    gap = max((gap.seconds for gap in outcome.gaps), default=float("nan"))
    return [deploys, calls + 1, stored.lost, stored.doubled, len(outcome.failed), gap, gap]


class MovingReaders:
    """Readers of turns on a server that is stopped: when they had begun, and when each was sent away."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.begun = asyncio.Semaphore(0)
        self.left_at: list[float] = []

    def _note(self, event: dict[str, Any]) -> None:
        if event["type"] == "tool_start":
            self.begun.release()
        if event["type"] == "turn_error" and event["error"] == "Stopping":
            self.left_at.append(time.monotonic())

    async def read_stream(self, http: httpx.AsyncClient, session: str) -> None:
        """Follow a turn by an event stream."""
        url = f"http://127.0.0.1:{self._port}/v1/sessions/{session}/messages"
        async with http.stream("POST", url, json={"text": f"message {session} {CALLS}"}) as response:
            async for _, event in _events(response):
                self._note(event)

    async def read_socket(self, session: str) -> None:
        """Follow a turn by a WebSocket."""
        message = {"type": "message", "session": session, "text": f"message {session} {CALLS}"}
        async with connect(f"ws://127.0.0.1:{self._port}/v1/ws") as socket:
            await socket.send(json.dumps(message))
            try:
                while True:
                    self._note(json.loads(await socket.recv()))
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code == 1012:
                    self.left_at.append(time.monotonic())


async def moving_readers(folder: Path, store_url: str, readers: int) -> float:
    """Stop one of three servers while turns run there; return after how long the last reader was sent away."""
    replicas = Replicas(folder, store_url, words=10)
    async with replicas.proxy(), open_http() as http:
        await replicas.deploy()
        port = replicas.ports[0]
        moving = MovingReaders(port)
        following = [
            asyncio.create_task(work)
            for number in range(readers)
            for work in (moving.read_stream(http, f"stream{number}"), moving.read_socket(f"socket{number}"))
        ]
        for _ in following:
            await moving.begun.acquire()
        told_at = time.monotonic()
        replicas.stop(port)
        await asyncio.gather(*following)
    if len(moving.left_at) < len(following):
        raise RuntimeError(f"{len(following) - len(moving.left_at)} readers were not told to reconnect")
    return max(moving.left_at) - told_at


async def peer_turn(folder: Path, calls: int) -> list[object]:
    """Run the same turn on `dbos-google-adk`, in one process; return a row of the table.

    A deploy stops the old process before the new one starts: otherwise both would run the turn.
    """
    folder.mkdir()
    log = (folder / "log").open("w+")

    def start(version: int, *text: str) -> subprocess.Popen[bytes]:
        write_agent(folder, version)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks._deploy_peer", str(folder), str(version), *text]
        variables = environment(folder) | {"CHARGES": str(folder / "charges"), "WORDS": str(TOKENS_PER_RESULT // 3)}
        return subprocess.Popen(command, env=variables, cwd=Path(__file__).parents[1], stdout=log, stderr=log)

    process, deploys, count, gap = start(0, f"message long {calls}"), 0, 0, 0.0
    last_at = time.monotonic()
    while process.poll() is None and time.monotonic() - last_at < READY_TIMEOUT_S:
        if (now := sum(read_charges(folder).values())) > count:
            gap = max(gap, time.monotonic() - last_at) if count else 0.0
            count, last_at = now, time.monotonic()
        if count >= (deploys + 1) * CALLS_PER_DEPLOY:
            deploys += 1
            process.terminate()
            await asyncio.to_thread(process.wait)
            process = start(deploys)
        await asyncio.sleep(0.02)
    process.kill()
    log.seek(0)
    *_, ending = ["", *log.read().splitlines()]
    log.close()
    has_failed = not ending.startswith("SUCCESS")
    if has_failed:
        print_line(f"  dbos-google-adk: {ending or 'no progress'}")
    counts = [read_charges(folder)[f"long.{number}"] for number in range(calls)]
    lost, doubled = sum(one == 0 for one in counts), sum(max(0, one - 1) for one in counts)
    return [deploys, calls + 1, lost, doubled, int(has_failed), gap, gap]


def _load() -> str:
    return f"load average {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Print the table."""
    run_s, clients, calls = (30.0, 10, 30) if quick() else (RUN_S, CLIENTS, CALLS)
    print_line(f"{os.cpu_count()} cores, PostgreSQL{', quick' if quick() else ''}, {_load()} before")
    readers = 5 if quick() else READERS
    with postgres_server() as postgres, tempfile.TemporaryDirectory(prefix="lango-bench-") as name:
        folder = Path(name)
        moved_s = asyncio.run(moving_readers(folder / "moving", f"{postgres}&schema=moving", readers))
        loaded = asyncio.run(under_load(folder / "load", f"{postgres}&schema=load", run_s, clients))
        long = asyncio.run(long_turn(folder / "long", f"{postgres}&schema=long", calls))
        peers = [asyncio.run(peer_turn(folder / "peer", calls))] if PEER in SYSTEMS else []
    print_line(f"{_load()} after{'' if peers else f'; {PEER} is not installed: it is in the dependency group `bench`'}")
    columns = ["", "deploys", "messages", "lost", "doubled", "failed", "median gap s", "longest gap s"]
    table(
        "rolling deploys of changed agents",
        columns,
        [
            [f"{clients} clients, {run_s:g} s", *loaded],
            [f"one turn, {calls + 1} model calls", *long],
            *([f"the same turn, {PEER}", *row] for row in peers),
        ],
        *(
            bar(f"{what}, {columns[at]}", float(str(row[at - 1])), at_most=limit)
            for what, row in (("load", loaded), ("long turn", long))
            for at, limit in ((3, 0), (4, 0), (5, 0), (7, 3.0))
        ),
        bar(
            f"{readers} streams and {readers} WebSockets of a server that stops, moved after s",
            moved_s,
            at_most=MOVED_S,
        ),
    )


if __name__ == "__main__":
    main()
