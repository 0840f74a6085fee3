"""A server whose event loop is watched, hostile input for it, and the check that nothing held the loop."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers.served import PATIENCE_S, Server, serving

AGENT = Path(__file__).with_name("servers") / "watched_agent.py"
BOUNDS_MS = {"callback": 50.0, "held": 50.0}
"""Of the loop's own CPU time; and of the time in which it waits while other threads work."""
RUNS = 3

Attack = Callable[[httpx.AsyncClient, Server], Awaitable[Any]]


class Watched:
    """A server under test, and what its watchdog wrote."""

    def __init__(self, server: Server, log: Path) -> None:
        self.server = server
        self._log = log
        self._read = 0

    def worst(self) -> dict[str, Any]:
        """Return the worst that was seen since the last call: its `share` of the bound, on a usual machine."""
        text = self._log.read_text()
        lines = [json.loads(line) for line in text[self._read :].splitlines()]
        self._read = len(text)
        for line in lines:
            line["share"] = line["ms"] / line["slower"] / BOUNDS_MS[line["kind"]]
        return max(lines, key=lambda line: line["share"], default={"share": 0.0})


@contextmanager
def watching(folder: Path, rest: str = "") -> Generator[Watched]:
    """Serve the watched agent until the block ends."""
    log = folder / "watched.jsonl"
    agent = f"module = {json.dumps(str(AGENT))}"
    url = f"sqlite:///{folder}/lango.db"
    with serving(folder, url, agent=agent, rest=rest, env={"LANGO_WATCHED": str(log)}) as server:
        first = httpx.post(  # what is loaded late is loaded now: that is no input's doing
            f"{server.url}/v1/chat/completions", json=chat("hello"), timeout=PATIENCE_S
        )
        assert first.status_code == 200, first.text
        yield Watched(server, log)


async def check_loop_stays_free(watched: Watched, attack: Attack) -> None:
    """Run an attack, up to three times, and raise unless the loop stayed free in one of them."""
    found: list[dict[str, Any]] = []
    for _ in range(RUNS):
        watched.worst()
        async with watched.server.client() as client:
            await attack(client, watched.server)
            await asyncio.sleep(0)
            assert (await client.get("/healthz")).status_code == 200
        found.append(watched.worst())
        if found[-1]["share"] <= 1:
            break
    least = min(found, key=lambda one: one["share"])
    assert least["share"] <= 1, least


def chat(*said: Any, **more: Any) -> dict[str, Any]:
    messages: list[Any] = [one if isinstance(one, dict) else {"role": "user", "content": one} for one in said]
    return {"model": "m", "messages": messages} | more


async def posted(
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


async def asked(client: httpx.AsyncClient, what: dict[str, Any]) -> str:
    """Let the model do something in a session of its own."""
    return await posted(client, f"/v1/sessions/s-{os.urandom(6).hex()}/messages", {"text": json.dumps(what)})
