"""Real `lango serve` processes, and the requests of tests to them."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from lango.store.api_keys import seconds_until_tomorrow
from tests.support.processes import TIMEOUT_S, Process, run_lango, start_command

AGENT = Path(__file__).with_name("command_agent.py")


@dataclass
class Server:
    """A server process under test."""

    process: Process
    url: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)


async def not_at_midnight() -> None:
    """Wait for tomorrow where today is nearly over, UTC: what a test counts by the day stays on one."""
    left_s = seconds_until_tomorrow(time.time())
    if left_s < TIMEOUT_S / 2:
        await asyncio.sleep(left_s)


def configure(
    folder: Path, store_url: str, agent: str = "", server: str = "", rest: str = "", name: str = "obedient"
) -> Path:
    """Write a configuration; without a name, that of the agent holds."""
    folder.mkdir(parents=True, exist_ok=True)
    file, named = folder / "lango.toml", f'name = "{name}"' if name else ""
    file.write_text(
        f"[agent]\n{named}\n{agent or f'module = {json.dumps(str(AGENT))}'}\n"
        f"[store]\nurl = {json.dumps(store_url)}\n[server]\n{server}\n{rest}\n"
    )
    return file


def lango(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_lango(*arguments, cwd=cwd, env=env)


@contextmanager
def serving(
    folder: Path,
    store_url: str,
    *arguments: str,
    env: dict[str, str] | None = None,
    fresh: bool = False,
    **config: str,
) -> Generator[Server]:
    """Run `lango serve` until the block ends; a `fresh` process has imported nothing before."""
    file = configure(folder, store_url, **config)
    log = folder / f"log-{os.urandom(4).hex()}.txt"
    command = ("lango", "serve", "--port", "0", "--config", str(file), *arguments)
    with log.open("w") as stderr, start_command(*command, cwd=folder, env=env, stderr=stderr, fresh=fresh) as started:
        line = started.stdout.readline()
        assert line.startswith("listening on "), log.read_text()
        yield Server(started.process, line.split()[-1], log)


@dataclass
class ReceivedEvent:
    """One event as a client reads it."""

    id: int
    type: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


async def events_of(response: httpx.Response) -> AsyncIterator[ReceivedEvent]:
    """Read server-sent events as any client does."""
    assert response.status_code == 200, await response.aread()
    assert response.headers["content-type"].startswith("text/event-stream")
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            assert name in ("id", "event", "data", "retry"), line
            fields[name] = value
        elif fields:
            data = json.loads(fields["data"])
            assert data["type"] == fields["event"]
            assert data.get("id", 0) == int(fields.get("id", 0))
            yield ReceivedEvent(int(fields.get("id", 0)), fields["event"], data)
            fields = {}
    assert not fields, "the stream was cut off in an event"


async def send(client: httpx.AsyncClient, session: str, text: str, **headers: str) -> list[ReceivedEvent]:
    """Send a message and read its turn to the end."""
    request = client.stream("POST", f"/v1/sessions/{session}/messages", json={"text": text}, headers=headers)
    async with request as response:
        return [event async for event in events_of(response)]


async def waits_of(client: httpx.AsyncClient, session: str) -> list[dict[str, Any]]:
    """Return what a session waits for."""
    response = await client.get(f"/v1/sessions/{quote(session, safe='')}/waits")
    assert response.status_code == 200, response.text
    return response.json()["waits"]


def wait_path(wait: dict[str, Any]) -> str:
    """Return where a wait is answered."""
    return f"/v1/sessions/{quote(wait['session_id'], safe='')}/waits/{wait['id']}"


async def give(
    client: httpx.AsyncClient, wait: dict[str, Any], answer: dict[str, Any], **headers: str
) -> list[ReceivedEvent]:
    """Answer a wait, and read the turn that continues with it to its end."""
    async with client.stream("POST", wait_path(wait), json=answer, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        return [event async for event in events_of(response)]


async def resume(client: httpx.AsyncClient, session: str, after: int | None = None) -> list[ReceivedEvent]:
    """Read the stream of a session from after an event to its end."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/sessions/{session}/stream", headers=headers) as response:
        if response.status_code == 204:
            return []
        return [event async for event in events_of(response)]


async def send_until(
    client: httpx.AsyncClient, session: str, text: str, kind: str = "text_delta"
) -> list[ReceivedEvent]:
    """Send a message, read up to the first event of a kind, and go away."""
    seen: list[ReceivedEvent] = []
    async with client.stream("POST", f"/v1/sessions/{session}/messages", json={"text": text}) as response:
        async for event in events_of(response):
            seen.append(event)
            if event.type == kind:
                break
    return seen


def visible_text(events: Iterable[ReceivedEvent]) -> str:
    """Return the text that a reader sees in the end, without what was withdrawn."""
    shown: list[ReceivedEvent] = []
    for event in events:
        if event.type == "text_delta":
            shown.append(event)
        elif event.type == "text_withdrawn":
            shown = [one for one in shown if one.data["block"] != event.data["block"]]
    return text_of(shown)


def text_of(events: Iterable[ReceivedEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.type == "text_delta")
