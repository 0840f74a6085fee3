"""A server whose event loop is monitored, hostile input for it, and the check that nothing blocked the loop."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers.server_process import TIMEOUT_S, Server, serving

AGENT = Path(__file__).with_name("servers") / "monitored_agent.py"
BOUNDS_MS = {"callback": 50.0, "held": 50.0}
"""Of the loop's own CPU time; and of the time in which it waits while other threads work."""
RUNS = 4

Attack = Callable[[httpx.AsyncClient, Server], Awaitable[Any]]


class MonitoredServer:
    """A server under test, and what its watchdog wrote."""

    def __init__(self, server: Server, log: Path) -> None:
        self.server = server
        self._log = log
        self._read = 0

    def worst(self) -> dict[str, Any]:
        """Return the longest delay since the last call: its `share` of the bound, on a usual machine."""
        text = self._log.read_text()
        lines = [json.loads(line) for line in text[self._read :].splitlines()]
        self._read = len(text)
        for line in lines:
            line["share"] = line["ms"] / line["slower"] / BOUNDS_MS[line["kind"]]
        return max(lines, key=lambda line: line["share"], default={"share": 0.0})


@contextmanager
def monitored_server(folder: Path, rest: str = "") -> Generator[MonitoredServer]:
    """Run a server with the monitored agent until the block ends."""
    log = folder / "monitored.jsonl"
    agent = f"module = {json.dumps(str(AGENT))}"
    url = f"sqlite:///{folder}/lango.db"
    with serving(folder, url, agent=agent, rest=rest, env={"LANGO_LOOP_LOG": str(log)}) as server:
        first = httpx.post(  # what is loaded late is loaded now: that is no input's doing
            f"{server.url}/v1/chat/completions", json=chat("hello"), timeout=TIMEOUT_S
        )
        assert first.status_code == 200, first.text
        yield MonitoredServer(server, log)


async def check_loop_stays_free(monitored: MonitoredServer, attack: Attack) -> None:
    """Run an attack, up to four times, and raise unless the loop stayed free in one of them."""
    found: list[dict[str, Any]] = []
    for _ in range(RUNS):
        monitored.worst()
        async with monitored.server.client() as client:
            await attack(client, monitored.server)
            await asyncio.sleep(0)
            assert (await client.get("/healthz")).status_code == 200
        found.append(monitored.worst())
        if found[-1]["share"] <= 1:
            break
    least = min(found, key=lambda one: one["share"])
    assert least["share"] <= 1, least


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    messages: list[Any] = [one if isinstance(one, dict) else {"role": "user", "content": one} for one in contents]
    return {"model": "m", "messages": messages} | more


async def post(
    client: httpx.AsyncClient,
    path: str,
    body: Any,
    *statuses: int,
    kind: str = "application/json",
    named: bool = True,
) -> str:
    """Send a body; with `named`, as a session of its own where OpenAI's clients name one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    session = {"X-Session-Id": f"s-{os.urandom(6).hex()}"} if named else {}
    answer = await client.post(path, content=content, headers={"Content-Type": kind} | session)
    assert answer.status_code in (statuses or (200, 201)), f"{answer.status_code} {answer.text[:300]}"
    return answer.text


async def ask_model(client: httpx.AsyncClient, what: dict[str, Any]) -> str:
    """Let the model do something in a session of its own."""
    return await post(client, f"/v1/sessions/s-{os.urandom(6).hex()}/messages", {"text": json.dumps(what)})
