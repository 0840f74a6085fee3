"""A server that counts what its event loop does, hostile input for it, and the check that the loop did only a little.

No clock is read: calls and sizes are the same on any machine. `benchmarks.attacks` measures the delays.
"""

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
BOUNDS = {"calls": 400_000, "json": 2_500_000, "tokens": 250_000}
"""What one callback of the loop may do: calls, of C functions too; characters of JSON that it reads or writes; and
characters whose tokens it counts. Each takes about 50 ms on one slow core."""
_RUNS = 2

Attack = Callable[[httpx.AsyncClient, Server], Awaitable[Any]]


class MonitoredServer:
    """A server under test, and what its event loop did."""

    def __init__(self, server: Server, log: Path) -> None:
        self.server = server
        self._log = log
        self._read = 0

    def excesses(self, share: float = 1.0) -> list[dict[str, Any]]:
        """Return the callbacks since the last call of this that did more than one may, or than a share of that."""
        text = self._log.read_text()
        lines = [json.loads(line) for line in text[self._read :].splitlines()]
        self._read = len(text)
        return [line for line in lines if any(line[kind] > share * most for kind, most in BOUNDS.items())]


@contextmanager
def monitored_server(folder: Path, rest: str = "", store_url: str | None = None) -> Generator[MonitoredServer]:
    """Run a server with the monitored agent until the block ends."""
    log = folder / "monitored.jsonl"
    with hostile_server(folder, {"LANGO_LOOP_LOG": str(log)}, rest, store_url) as server:
        yield MonitoredServer(server, log)


@contextmanager
def hostile_server(
    folder: Path, env: dict[str, str], rest: str = "", store_url: str | None = None
) -> Generator[Server]:
    """Run a server whose model does what a message asks for, and which has imported what a turn needs."""
    agent = f"module = {json.dumps(str(AGENT))}"
    url = store_url or f"sqlite:///{folder}/lango.db"
    with serving(folder, url, agent=agent, rest=rest, env=env) as server:
        first = httpx.post(f"{server.url}/v1/chat/completions", json=chat("hello"), timeout=TIMEOUT_S)
        assert first.status_code == 200, first.text
        yield server


async def check_loop_stays_free(monitored: MonitoredServer, attack: Attack, share: float = 1.0) -> None:
    """Run an attack, during which other requests are answered, and raise if the loop did too much in one callback.

    If so, it is run once more: its first run may import modules and build routes, which is not the input's doing.
    `share`: of the bounds, for an attack that is so much smaller than an input may be.
    """
    found: list[dict[str, Any]] = monitored.excesses(share)
    for _ in range(_RUNS):
        async with monitored.server.client() as client:
            await asyncio.gather(attack(client, monitored.server), _read_beside(client))
            await _read_beside(client)
        if not (found := monitored.excesses(share)):
            return
    raise AssertionError(f"the event loop did too much in one callback: {found}")


async def _read_beside(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/v1/sessions?limit=1"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text


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
