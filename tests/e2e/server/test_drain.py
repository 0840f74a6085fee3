"""A server that stops sends its readers to another replica, which continues the turns."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.servers.server_process import (
    TIMEOUT_S,
    ReceivedEvent,
    Server,
    events_of,
    lango,
    resume,
    serving,
    visible_text,
)


async def read_until(server: Server, session: str, text: str, started: asyncio.Event) -> list[ReceivedEvent]:
    """Send a message and read its stream to the end; `started` is set at its first text."""
    seen: list[ReceivedEvent] = []
    async with (
        server.client() as client,
        client.stream("POST", f"/v1/sessions/{session}/messages", json={"text": text}) as response,
    ):
        async for event in events_of(response):
            seen.append(event)
            if event.type == "text_delta":
                started.set()
    return seen


async def test_readers_move_to_another_replica_while_the_step_under_way_goes_on(tmp_path: Path, store_url: str) -> None:
    gate, started = tmp_path / "gate", asyncio.Event()
    with serving(tmp_path / "a", store_url, "--drain-s", "600") as old, serving(tmp_path / "b", store_url) as new:
        async with new.client() as client, asyncio.timeout(TIMEOUT_S):
            reading = asyncio.create_task(read_until(old, "one", f"hold {gate}", started))
            await started.wait()
            os.kill(old.process.pid, signal.SIGTERM)
            *before, last = await reading
            assert (last.id, last.data["error"]) == (0, "Stopping"), "the end of the stream, and no event of the turn"
            assert old.process.poll() is None, "the step under way goes on there"
            following = asyncio.create_task(resume(client, "one", before[-1].id))
            gate.touch()
            after = await following
            assert visible_text(before + after) == "begun ended"
            assert [event.type for event in (*before, *after)].count("accepted") == 1
            assert await resume(client, "one") == before + after, "nothing is missed, and nothing is repeated"
        assert await asyncio.to_thread(old.process.wait, TIMEOUT_S) == 0
        assert "Traceback" not in old.log.read_text()


async def receive_all(socket: ClientConnection, events: list[dict[str, Any]]) -> None:
    """Append what a socket receives until it is closed."""
    while True:
        events.append(json.loads(await socket.recv()))


async def receive_to(socket: ClientConnection, events: list[dict[str, Any]], kind: str) -> None:
    """Append what a socket receives up to an event of a kind."""
    while not events or events[-1]["type"] != kind:
        events.append(json.loads(await socket.recv()))


async def test_a_socket_is_closed_with_the_last_event_and_resumes_elsewhere(tmp_path: Path, sqlite_url: str) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path / "a", sqlite_url) as old, serving(tmp_path / "b", sqlite_url) as new:
        async with asyncio.timeout(TIMEOUT_S):
            before: list[dict[str, Any]] = []
            async with connect(f"ws://127.0.0.1:{old.port}/v1/ws") as socket:
                await socket.send(json.dumps({"type": "message", "session": "one", "text": f"hold {gate}"}))
                await receive_to(socket, before, "text_delta")
                os.kill(old.process.pid, signal.SIGTERM)
                with pytest.raises(ConnectionClosed) as closed:
                    await receive_all(socket, before)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
                1012,
                f"reconnect; last event {before[-1]['id']}",
            )
            gate.touch()
            async with connect(f"ws://127.0.0.1:{new.port}/v1/ws") as socket:
                await socket.send(json.dumps({"type": "resume", "session": "one", "after": before[-1]["id"]}))
                after: list[dict[str, Any]] = []
                await receive_to(socket, after, "done")
            async with new.client() as client:
                log = await resume(client, "one")
        assert [(event["id"], event["type"]) for event in before + after] == [(event.id, event.type) for event in log]


async def test_readers_follow_a_turn_whose_step_is_not_waited_for(tmp_path: Path, store_url: str) -> None:
    gate, started = tmp_path / "gate", asyncio.Event()
    with serving(tmp_path / "a", store_url, "--drain-s", "0") as old, serving(tmp_path / "b", store_url) as new:
        async with new.client() as client, asyncio.timeout(TIMEOUT_S):
            stream = asyncio.create_task(read_until(old, "one", f"hold {gate}", started))
            await started.wait()
            received: list[dict[str, Any]] = []
            async with connect(f"ws://127.0.0.1:{old.port}/v1/ws") as socket:
                await socket.send(json.dumps({"type": "resume", "session": "one"}))
                await receive_to(socket, received, "text_delta")
                os.kill(old.process.pid, signal.SIGTERM)
                with pytest.raises(ConnectionClosed) as closed:
                    await receive_all(socket, received)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            *seen, _ = await stream
            assert await asyncio.to_thread(old.process.wait, TIMEOUT_S) == 0
            async with connect(f"ws://127.0.0.1:{new.port}/v1/ws") as socket:
                await socket.send(json.dumps({"type": "resume", "session": "one", "after": received[-1]["id"]}))
                received.append(json.loads(await socket.recv()))
                gate.touch()
                await receive_to(socket, received, "done")
            seen += await resume(client, "one", seen[-1].id)
            log = await resume(client, "one")
        assert [event.type for event in log].count("resumed") == 1
        assert visible_text(log) == "begun ended"
        assert seen == log, "nothing is missed, and nothing is repeated"
        assert [(event["id"], event["type"]) for event in received] == [(event.id, event.type) for event in log]


async def test_replicas_are_listed_until_they_stop(tmp_path: Path, store_url: str) -> None:
    with serving(tmp_path / "a", store_url) as first:
        with serving(tmp_path / "b", store_url) as second:
            async with first.client() as client, asyncio.timeout(TIMEOUT_S):
                found = await replicas(client)
                while len(found) < 2:
                    found = await replicas(client)
                assert [one["is_this"] for one in found] == [True, False]
                assert {one["place"].rpartition(" ")[2] for one in found} == {
                    str(first.process.pid),
                    str(second.process.pid),
                }
                ready = (await client.get("/readyz")).json()
                assert ready["version"] == found[0]["version"]
                listed = await asyncio.to_thread(lango, "replicas", "--json", cwd=tmp_path / "a")
                assert len(listed.stdout.splitlines()) == 2
            assert second.terminate() == 0
        async with first.client() as client:
            assert [one["is_this"] for one in await replicas(client)] == [True]


async def replicas(client: Any) -> list[dict[str, Any]]:
    return (await client.get("/v1/replicas")).json()["replicas"]
