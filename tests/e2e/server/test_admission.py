"""A full server queues further turns, and every protocol shows the client its place."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers.server_process import AGENT, TIMEOUT_S, Server, send_until, serving

FULL = f"module = {json.dumps(str(AGENT))}\nmax_running_turns = 1"


async def lines_of(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> AsyncIterator[str]:
    async with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            yield line


async def read_queued(lines: AsyncIterator[str], place: str, seen: list[str], queued: asyncio.Event) -> None:
    async for line in lines:
        seen.append(line)
        if place in line:
            queued.set()


async def gauge(server: Server, name: str) -> int:
    async with server.client() as client:
        text = (await client.get("/metrics")).text
    [value] = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return int(float(value))


async def test_every_protocol_shows_a_queued_turn_its_place(tmp_path: Path) -> None:
    may_end = tmp_path / "may-end"
    message = {"id": uuid.uuid4().hex, "role": "user", "content": "hello"}
    agui: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": []}
    chat: dict[str, Any] = {"model": "obedient", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    requests: dict[str, tuple[str, dict[str, Any], str]] = {
        "native": ("/v1/sessions/b/messages", {"text": "hello"}, '"type":"queued"'),
        "openai": ("/v1/chat/completions", chat, ": queued, place 2"),
        "agui": ("/agui", agui | {"state": {}, "forwardedProps": {}}, '"name":"lango.queued"'),
    }
    seen: dict[str, list[str]] = {name: [] for name in requests}
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent=FULL) as server:
        async with server.client() as client, asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            await send_until(client, "a", f"hold {may_end}")
            for name, (path, body, place) in requests.items():  # one after the other: each has its place
                queued = asyncio.Event()
                group.create_task(read_queued(lines_of(client, path, body), place, seen[name], queued))
                await queued.wait()
            assert await gauge(server, "lango_turns_queued") == 3
            assert await gauge(server, "lango_turns_running") == 1
            may_end.touch()
        assert await gauge(server, "lango_turns_queued") == 0
    native = [json.loads(line[6:]) for line in seen["native"] if line.startswith("data: ")]
    kinds = [event["type"] for event in native]
    assert (kinds[0], kinds[1], kinds[-1]) == ("accepted", "queued", "done")
    assert [event["place"] for event in native if event["type"] == "queued"] == [1, 0]
    assert any("hello" in line for line in seen["openai"])
    assert seen["openai"][-2:] == ["data: [DONE]", ""]
    custom = [json.loads(line[6:]) for line in seen["agui"] if '"CUSTOM"' in line]
    assert custom[0]["value"] == {"place": 3}
    assert custom[-1]["value"] == {"place": 0}
