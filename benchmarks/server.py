"""The server: many streams at once, memory over many turns, and its start beside `adk api_server`, from one run."""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.table import bar, print_line, quick, table

STREAMS = 200
CROWD = 500
COUNTS = (1, 50, STREAMS)
CHUNKS, CHUNK_S, RAMP_S = 200, 0.05, 4.0
TURNS = 10_000
SETTLE_S = 2.0
BIN = Path(sys.executable).parent

AGENT = """
import asyncio

from google.adk.agents import LlmAgent

from lango.adk import ProviderLlm
from lango.providers.protocol import Finish, TextDelta, UsageDelta


class Ticking:
    name = "ticking"

    async def stream(self, request):
        count, delay = request.messages[-1].content.split()[-2:]
        due = asyncio.get_running_loop().time()
        for number in range(int(count)):
            due += float(delay)
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            yield TextDelta(f"word{number} ")
        yield UsageDelta(10, int(count))
        yield Finish("stop")


root_agent = LlmAgent(name="ticking", model=ProviderLlm(provider=Ticking(), model="ticking"))
"""

PLAIN = """
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Brief(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="hello there")]))


root_agent = LlmAgent(name="plain", model=Brief(model="brief"))
"""


MODEL = f"""
import asyncio, json, sys

HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\nconnection: close\\r\\n\\r\\n"

def chunk(delta, finish=None):
    choice = {{"index": 0, "delta": delta, "finish_reason": finish}}
    body = {{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}}
    return b"data: " + json.dumps(body).encode() + b"\\n\\n"

CHUNKS = [chunk({{"content": f"word{{number}} "}}) for number in range({CHUNKS})]
END = chunk({{}}, "stop") + b"data: [DONE]\\n\\n"

async def serve(reader, writer):
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\\r", 1)[0]))
    writer.write(HEAD)
    due = asyncio.get_running_loop().time()
    for piece in CHUNKS:
        due += {CHUNK_S}
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        writer.write(piece)
    writer.write(END)
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
"""A model server with OpenAI's wire format, which does as little work as possible."""


@dataclass
class Gaps:
    """The times that one client measured."""

    gaps_s: list[float] = field(default_factory=list)
    first_s: float = 0.0
    """From the request to the first text."""
    admitted_first_s: float = 0.0
    """From the event that reports the admission, or from the request if the turn did not queue, to the first text.

    The event is stored and sent before anything of the turn, some 0.1 s after the admission when the server is full.
    """
    error: str = ""


@contextlib.contextmanager
def started(command: list[str], folder: Path, path: str) -> Iterator[tuple[str, int, float]]:
    """Start a server; yield its address, its process and the time until it answered a request."""
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        while not answers(url + path):
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"{command} did not start")
            time.sleep(0.005)
        yield url, process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment, with a cache of compiled modules, as an installed program has."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def rss_mb(pid: int) -> float:
    """Return the memory of a process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(fields[0].split()[1]) / 1024 + sum(rss_mb(int(child)) for child in children)


# -- streams ---------------------------------------------------------------------------------------------------------


async def one_stream(port: int, number: int, wait_s: float, seen: Gaps) -> None:
    """Read a stream with as little work as possible, so that the client does not affect the measurement."""
    await asyncio.sleep(wait_s)
    body = json.dumps({"text": f"{CHUNKS} {CHUNK_S}"}).encode()
    head = f"POST /v1/sessions/stream-{number}/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    began, last, tail = time.perf_counter(), 0.0, b""
    admitted = 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + length).encode() + body)
        while data := await reader.read(65_536):
            now, tail = time.perf_counter(), tail[-2_000:] + data
            if not admitted and b'"place":0' in tail:
                admitted = now
            if b"event: text_delta" in data:
                if last:
                    seen.gaps_s.append(now - last)
                else:
                    seen.first_s, seen.admitted_first_s = now - began, now - (admitted or began)
                last = now
        seen.error = "" if b"event: done" in tail else tail.decode("utf-8", "replace")
    except OSError as error:
        seen.error = repr(error)
    finally:
        writer.close()


async def many_streams(url: str, count: int, ramp_s: float = RAMP_S) -> list[Gaps]:
    """Start streams one after the other until `count` run at once."""
    seen = [Gaps() for _ in range(count)]
    port = int(url.rpartition(":")[2])
    places = enumerate(seen)
    await asyncio.gather(*(one_stream(port, number, ramp_s * number / count, gaps) for number, gaps in places))
    return seen


def streams(url: str, pid: int) -> None:
    """Measure the time between two chunks with many clients at once."""
    rows: list[list[object]] = []
    worst = errors = 0.0
    for count in COUNTS:
        cpu = cpu_s(pid)
        seen = asyncio.run(many_streams(url, count))
        spent = cpu_s(pid) - cpu
        gaps = [gap * 1e3 for one in seen for gap in one.gaps_s]
        failed = [one.error for one in seen if one.error]
        worst, errors = statistics.quantiles(gaps, n=100)[98], errors + len(failed)
        first = statistics.median(one.first_s * 1e3 for one in seen)
        rows.append(
            [count, len(failed), statistics.median(gaps), worst, max(gaps), first, spent * 1e3 / count / CHUNKS]
        )
        for error in failed[:3]:
            print_line(f"  {error}")
    table(
        f"streams at once, begun over {RAMP_S:g} s; the provider sends {CHUNKS} chunks, one every {CHUNK_S * 1e3:g} ms",
        ["streams", "errors", "gap p50 ms", "gap p99 ms", "gap max ms", "first text ms", "CPU ms/chunk"],
        rows,
        bar(f"errors of {STREAMS} streams", errors, at_most=0),
        bar(f"gap between chunks at {STREAMS} streams, p99 (ms)", worst, at_most=250),
    )


def crowd(folder: Path) -> None:
    """Measure more turns at once than a process carries: how soon, and how evenly, a turn streams once it is admitted.

    The server has just started: the first 16, 3 % of them, also wait for the imports of ADK and of the vendor's SDK.
    """
    model = subprocess.Popen([sys.executable, "-c", MODEL], stdout=subprocess.PIPE, text=True)
    assert model.stdout
    address = f"http://127.0.0.1:{int(model.stdout.readline())}/v1"
    config = folder / "crowd.toml"
    config.write_text(
        "[trace]\nrequests = false\n"
        f'[agent]\nmodel = "openai/m"\n[providers.openai]\nbase_url = "{address}"\napi = "chat"\napi_key_env = "PATH"\n'
    )
    (folder / "lango.db").unlink(missing_ok=True)
    with started([str(BIN / "lango"), "serve", "--config", str(config)], folder, "/readyz") as (url, _, _):
        began = time.perf_counter()
        seen = asyncio.run(many_streams(url, CROWD, ramp_s=0.0))
        took_s = time.perf_counter() - began
    model.terminate()
    model.wait()
    failed = [one.error for one in seen if one.error]
    for error in failed[:3]:
        print_line(f"  {error}")
    gaps = [gap * 1e3 for one in seen for gap in one.gaps_s]
    admitted = statistics.quantiles((one.admitted_first_s for one in seen), n=100)
    first_s = statistics.median(one.first_s for one in seen)
    gap_p99 = statistics.quantiles(gaps, n=100)[98]
    table(
        f"{CROWD} turns begun at the same moment; the provider sends {CHUNKS} chunks, one every {CHUNK_S * 1e3:g} ms",
        [
            "turns",
            "errors",
            "admitted to text p50 s",
            "p95 s",
            "p99 s",
            "request to text p50 s",
            "gap p99 ms",
            "all done s",
        ],
        [[CROWD, len(failed), admitted[49], admitted[94], admitted[98], first_s, gap_p99, took_s]],
        bar(f"errors of {CROWD} turns at once", len(failed), at_most=0),
        bar("admission to first text, p50 (s)", admitted[49], at_most=1),
        bar("admission to first text, p95 (s)", admitted[94], at_most=2),
        bar("gap between chunks of admitted turns, p99 (ms)", gap_p99, at_most=500),
    )


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- memory ----------------------------------------------------------------------------------------------------------


async def many_turns(url: str, count: int, run: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def worker(number: int) -> None:
            for turn in range(count // 20):
                path = f"/v1/sessions/{run}-{number}-{turn // 10}/messages"
                answer = await client.post(path, json={"text": "5 0"})
                assert "event: done" in answer.text, answer.text

        await asyncio.gather(*(worker(number) for number in range(20)))


def memory(url: str, pid: int) -> None:
    """Measure memory before and after many turns."""
    turns = 1_000 if quick() else TURNS
    asyncio.run(many_turns(url, max(200, turns // 5), "warm"))
    before = rss_mb(pid)
    began = time.perf_counter()
    asyncio.run(many_turns(url, turns, "many"))
    took = time.perf_counter() - began
    after = rss_mb(pid)
    table(
        "memory of the server over many turns, 10 in each session, 20 at once",
        ["turns", "turns/s", "MB before", "MB after", "bytes/turn"],
        [[turns, turns / took, before, after, (after - before) * 2**20 / turns]],
        bar("memory after / before", after / before, at_most=1.1),
    )


# -- start -----------------------------------------------------------------------------------------------------------


def ask_ours(url: str) -> str:
    """Create a session, send one message and return the answer."""
    return httpx.post(f"{url}/v1/sessions/s/messages", json={"text": "hi"}, timeout=60).text


def ask_adk(url: str) -> str:
    """Create a session, send one message and return the answer."""
    httpx.post(f"{url}/apps/plain/users/user/sessions/s", json={}, timeout=60)
    message = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"app_name": "plain", "user_id": "user", "session_id": "s", "new_message": message}
    return httpx.post(f"{url}/run_sse", json=body, timeout=60).text


def request_ms(url: str) -> float:
    """Return the median time of a small request on a kept connection: the session, in ADK's format."""
    times: list[float] = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(50):
            began = time.perf_counter()
            client.get("/apps/plain/users/user/sessions/s").raise_for_status()
            times.append(time.perf_counter() - began)
    return 1_000 * statistics.median(times)


def starts(folder: Path) -> None:
    """Measure the time until a server answers and until its agent does, alternating between Lango and ADK."""
    ours, adk = "lango serve", "adk api_server"
    commands = {
        ours: ([str(BIN / "lango"), "serve", "--config", str(folder / "lango.toml")], "/readyz", ask_ours),
        adk: ([str(BIN / "adk"), "api_server", str(folder / "agents")], "/list-apps", ask_adk),
    }
    seen: dict[str, list[list[float]]] = {name: [] for name in commands}
    for number in range(4 if quick() else 8):
        for name, (command, path, ask) in commands.items():
            (folder / "lango.db").unlink(missing_ok=True)
            with started(command, folder, path) as (url, pid, ready_s):
                time.sleep(SETTLE_S)  # modules that a server loads after it is ready count, too
                size, began = rss_mb(pid), time.perf_counter()
                if "hello there" not in (answer := ask(url)):
                    raise RuntimeError(f"{name} did not answer: {answer}")
                answered_s = ready_s + time.perf_counter() - began
                if number:  # the first start compiles
                    seen[name].append([ready_s, size, answered_s, rss_mb(pid), request_ms(url)])
    middle = {name: [statistics.median(values) for values in zip(*rows, strict=True)] for name, rows in seen.items()}
    ratios = [mine / theirs for mine, theirs in zip(middle[ours], middle[adk], strict=True)]
    table(
        "from the command to the first answer of the server, and of its agent (ADK loads agents on first use)",
        ["server", "ready s", "MB", "agent answered s", "MB then", "ms for its session"],
        [[name, *middle[name]] for name in commands],
        bar("time to readiness / ADK's", ratios[0], at_most=0.8),
        bar("memory when ready / ADK's", ratios[1], at_most=1),
        bar("time to the agent's first answer / ADK's", ratios[2], at_most=0.8),
        bar("memory then / ADK's", ratios[3], at_most=1),
        bar("time to read the session / ADK's", ratios[4], at_most=1),
    )


def main() -> None:
    """Run all measurements."""
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as name:
        folder = Path(name)
        for agent, code in (("ticking", AGENT), ("agents/plain", PLAIN)):
            (folder / agent).mkdir(parents=True)
            (folder / agent / "__init__.py").write_text("from . import agent\n")
            (folder / agent / "agent.py").write_text(textwrap.dedent(code))
        config = folder / "lango.toml"
        keep_nothing = "[trace]\nrequests = false\n"  # as a server with keys
        config.write_text(f"{keep_nothing}[agent]\nmodule = {json.dumps(str(folder / 'agents/plain'))}\n")
        starts(folder)
        config.write_text(f"{keep_nothing}[agent]\nmodule = {json.dumps(str(folder / 'ticking'))}\n")
        command = [str(BIN / "lango"), "serve", "--config", str(config)]
        with started(command, folder, "/readyz") as (url, pid, _):
            streams(url, pid)
            memory(url, pid)
        crowd(folder)


if __name__ == "__main__":
    main()
