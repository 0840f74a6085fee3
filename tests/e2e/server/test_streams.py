"""Streams of a real server: a turn does not depend on its connection."""

import asyncio
import os
import random
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.servers.server_process import (
    TIMEOUT_S,
    ReceivedEvent,
    Server,
    events_of,
    resume,
    send,
    send_until,
    serving,
    text_of,
    visible_text,
)

WORDS = 30
ANSWER = "".join(f"w{number} " for number in range(WORDS))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.5") as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def is_whole(events: list[ReceivedEvent]) -> bool:
    ids = [event.id for event in events]
    ends = [event for event in events if event.type == "done" or event.data.get("fatal")]
    return events[0].type == "accepted" and ids == sorted(set(ids)) and len(ends) == 1 and events[-1] is ends[0]


async def test_a_turn_streams_from_accepted_to_done(server: Server, session: str) -> None:
    async with server.client() as client:
        events = await send(client, session, "note")
        assert is_whole(events)
        assert [event.type for event in events] == [
            "accepted",
            "tool_start",
            "tool_end",
            "text_delta",
            "text_end",
            "done",
        ]
        assert events[1].data["arguments"] == {"text": "this"}
        assert events[2].data["result"] == {"noted": "this"}
        assert events[-1].data["usage"]["output_tokens"] == 10
        assert await resume(client, session) == events, "a late reader gets it whole"
        for number, event in enumerate(events):
            assert await resume(client, session, event.id) == events[number + 1 :]


async def test_text_is_grouped(server: Server, session: str) -> None:
    async with server.client() as client:
        events = await send(client, session, "words 1500 0")
        assert is_whole(events)
        assert text_of(events) == "".join(f"w{number} " for number in range(1500))
        assert len(events) < 750, "thousands of pieces are not thousands of rows"


async def test_a_reader_that_comes_and_goes_reads_the_same_events_once(server: Server, session: str) -> None:
    dice = random.Random(7)
    async with server.client() as client:
        sending = asyncio.create_task(send(client, session, f"words {WORDS} 0.03"))
        while await resume_briefly(client, session, 0, 1) == []:
            await asyncio.sleep(0.01)  # the message is on its way
        seen: list[ReceivedEvent] = []
        while not seen or seen[-1].type != "done":
            seen += await resume_briefly(client, session, seen[-1].id if seen else 0, dice.randint(1, 3))
        assert seen == await sending
        assert is_whole(seen)
        assert text_of(seen) == ANSWER


async def resume_briefly(client: httpx.AsyncClient, session: str, after: int, count: int) -> list[ReceivedEvent]:
    seen: list[ReceivedEvent] = []
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/sessions/{session}/stream", headers=headers) as response:
        if response.status_code in (204, 404):
            return seen
        async for event in events_of(response):
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def test_the_turn_goes_on_without_its_client(server: Server, session: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with server.client() as client:
        seen = await send_until(client, session, f"hold {gate}")
    gate.touch()
    async with server.client() as client:
        rest = await resume(client, session, seen[-1].id)
        assert text_of(seen + rest) == "begun ended"
        assert is_whole(seen + rest)


async def test_a_silent_stream_sends_heartbeats(server: Server, session: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with server.client() as client:
        request = client.stream("POST", f"/v1/sessions/{session}/messages", json={"text": f"hold {gate}"})
        async with request as response:
            async for line in response.aiter_lines():
                if line.startswith(":"):
                    gate.touch()
        assert text_of(await resume(client, session)) == "begun ended"


async def test_resuming_after_the_end_is_204(server: Server, session: str) -> None:
    async with server.client() as client:
        events = await send(client, session, "hello")
        path = f"/v1/sessions/{session}/stream"
        for after in (events[-1].id, events[-1].id + 5_000_000, 10**17):
            assert (await client.get(path, headers={"Last-Event-ID": str(after)})).status_code == 204
        for wrong in ("x", "-1", "1.5", "9" * 30, "1; DROP TABLE event_log"):
            assert (await client.get(path, headers={"Last-Event-ID": wrong})).status_code == 400
        assert (await client.get("/v1/sessions/nobody/stream")).status_code == 404
        await client.post("/v1/sessions", json={"id": f"{session}-new"})
        assert (await client.get(f"/v1/sessions/{session}-new/stream")).status_code == 204


async def test_a_reader_goes_on_into_the_next_turns(server: Server, session: str) -> None:
    async with server.client() as client:
        turns = [await send(client, session, text) for text in ("one", "two", "three")]
        assert await resume(client, session, turns[0][1].id) == [*turns[0][2:], *turns[1], *turns[2]]
        assert await resume(client, session) == turns[2]
        assert await resume(client, session, 0) == [*turns[0], *turns[1], *turns[2]]


async def test_two_messages_at_once_are_both_answered_one_after_the_other(
    server: Server, session: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with server.client() as client, asyncio.timeout(TIMEOUT_S):
        await client.post("/v1/sessions", json={"id": session})
        sending = [asyncio.create_task(send(client, session, f"hold {gate}")) for _ in range(2)]
        while not (await client.get(f"/v1/sessions/{session}/waiting")).json()["waiting"]:
            await asyncio.sleep(0.01)
        gate.touch()
        first, second = sorted([await task for task in sending], key=lambda events: events[0].id)
        assert is_whole(first)
        assert is_whole(second)
        assert second[0].data["waiting"] is True
        assert text_of(first) == text_of(second) == "begun ended"
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert [message["role"] for message in shown] == ["user", "assistant"] * 2


async def test_the_same_request_again_is_the_same_turn(server: Server, session: str) -> None:
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
        key = {"Idempotency-Key": "k 1"}
        at_once = await asyncio.gather(*(send(client, session, "words 10 0.02", **key) for _ in range(3)))
        assert at_once[0] == at_once[1] == at_once[2]
        assert await send(client, session, "words 10 0.02", **key) == at_once[0]
        assert is_whole(at_once[0])
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert [message["role"] for message in shown] == ["user", "assistant"]
        again = await client.post(
            f"/v1/sessions/{session}/messages", json={"text": "x"}, headers={"Idempotency-Key": "k" * 201}
        )
        assert again.status_code == 400


async def test_the_same_key_with_another_message_is_422_and_nothing_runs(server: Server, session: str) -> None:
    key = {"Idempotency-Key": "k"}
    async with server.client() as client:
        first = await send(client, session, "hello", **key)
        other = await client.post(f"/v1/sessions/{session}/messages", json={"text": "good-bye"}, headers=key)
        assert other.status_code == 422
        assert other.json()["error"]["type"] == "IdempotencyKeyReused"
        assert "use another key" in other.json()["error"]["message"]
        file = {"name": "a.txt", "mime_type": "text/plain", "data": "YQ=="}
        with_file = {"text": "hello", "attachments": [file]}
        assert (await client.post(f"/v1/sessions/{session}/messages", json=with_file, headers=key)).status_code == 422
        assert await send(client, session, "hello", **key) == first
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert [message["role"] for message in shown] == ["user", "assistant"]


async def test_unicode_line_separators_do_not_split_an_event(server: Server, session: str) -> None:
    odd = "a\u2028b\u2029c\x85d\x0ce\u00e9\U0001f600"
    async with server.client() as client:
        assert text_of(await send(client, session, f"x{odd}x")).split() == f"x{odd}x".split()


async def test_a_failed_turn_ends_with_an_error_and_the_next_one_works(server: Server, session: str) -> None:
    async with server.client() as client:
        events = await send(client, session, "fail")
        assert is_whole(events)
        assert events[-1].data["error"] == "ProviderRejected"
        assert await resume(client, session) == events
        assert text_of(await send(client, session, "hello")) == "hello"


async def test_a_client_that_does_not_read_slows_no_other(tmp_path: Path, sqlite_url: str, session: str) -> None:
    """The server disconnects it after a while; the turn ends, and the client can come back."""
    with serving(tmp_path, sqlite_url, server="write_timeout_s = 2") as server, socket.socket() as silent_client:
        silent_client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent_client.connect(("127.0.0.1", server.port))
        body = b'{"text": "much 100"}'
        head = f"POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        silent_client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert silent_client.recv(15) == b"HTTP/1.1 200 OK"
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            others = await asyncio.gather(
                *(send(client, f"{session}-{number}", "words 10 0.02") for number in range(5))
            )
            assert all(is_whole(events) for events in others)
            while "disconnected a client" not in server.log.read_text():
                await asyncio.sleep(0.05)
            assert len(text_of(await resume(client, session))) == 10_000_000


async def test_another_process_follows_a_turn_as_it_runs(tmp_path: Path, store_url: str, session: str) -> None:
    with serving(tmp_path / "a", store_url) as first_server, serving(tmp_path / "b", store_url) as second_server:
        async with first_server.client() as here, second_server.client() as there:
            await here.post("/v1/sessions", json={"id": session})
            sending = asyncio.create_task(send(here, session, f"words {WORDS} 0.03"))
            while not (followed := await resume(there, session)):
                await asyncio.sleep(0.01)
            sent = await sending
            assert followed == sent
            assert is_whole(sent)
            for number in range(0, len(sent), 5):
                assert await resume(there, session, sent[number].id) == sent[number + 1 :]
            key = {"Idempotency-Key": "both"}
            first = asyncio.create_task(send(here, session, "words 10 0.05", **key))
            second = asyncio.create_task(send(there, session, "words 10 0.05", **key))
            assert await first == await second
            for client in (here, there):
                other = await client.post(f"/v1/sessions/{session}/messages", json={"text": "hello"}, headers=key)
                assert other.status_code == 422


async def test_the_stream_of_a_server_that_is_killed_goes_on_elsewhere(
    tmp_path: Path, store_url: str, session: str
) -> None:
    """The stored events keep their ids, the text without a stored response is withdrawn, and the answer is whole."""
    text = "words 40 0.05"
    with serving(tmp_path / "a", store_url) as first_server, serving(tmp_path / "b", store_url) as second_server:
        async with first_server.client() as client:
            await client.post("/v1/sessions", json={"id": session})
            request = client.stream("POST", f"/v1/sessions/{session}/messages", json={"text": text})
            seen: list[ReceivedEvent] = []
            async with request as response:
                async for event in events_of(response):
                    seen.append(event)
                    if len(seen) == 6:
                        break
            following = asyncio.create_task(resume_there(second_server, session, seen[2].id))
            first_server.kill()
        async with second_server.client() as client, asyncio.timeout(TIMEOUT_S):
            rest = await resume(client, session, seen[-1].id)
            everything = await resume(client, session)
            assert everything[: len(seen)] == seen
            assert everything[len(seen) :] == rest
            assert await following == everything[3:]
            assert is_whole(everything)
            types = [event.type for event in rest]
            assert (types.count("resumed"), types.count("text_withdrawn"), types[-1]) == (1, 1, "done")
            answer = "".join(f"w{number} " for number in range(40))
            assert visible_text(everything) == answer
            assert text_of(await send(client, session, "hello again")) == "hello again"
            shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
            assert [message["content"] for message in shown] == [text, answer, "hello again", "hello again"]


async def resume_there(server: Server, session: str, after: int) -> list[ReceivedEvent]:
    async with server.client() as client:
        return await resume(client, session, after)


async def test_a_stopped_server_lets_turns_finish(tmp_path: Path, sqlite_url: str) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path / "a", sqlite_url, server="drain_s = 600") as server:
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            quick = asyncio.create_task(send(client, "quick", f"hold {gate}"))
            while not await resume_briefly(client, "quick", 0, 2):
                await asyncio.sleep(0.01)
            os.kill(server.process.pid, signal.SIGTERM)
            while await is_open(server):
                await asyncio.sleep(0.01)
            assert not quick.done(), "it waits for its turn"
            gate.touch()
            assert text_of(await quick) == "begun ended"
        assert await asyncio.to_thread(server.process.wait, TIMEOUT_S) == 0
        assert "Traceback" not in server.log.read_text()


async def is_open(server: Server) -> bool:
    """Whether a server accepts connections."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    except OSError:
        return False
    writer.transport.abort()
    return True


async def test_a_stopped_server_hands_long_turns_over_to_the_next_one(tmp_path: Path, sqlite_url: str) -> None:
    never = tmp_path / "never"
    with serving(tmp_path / "a", sqlite_url, server="drain_s = 0.5") as server:
        async with server.client() as client:
            endless = asyncio.create_task(send(client, "endless", f"hold {never}"))
            await send_until(client, "alone", f"hold {never}")
            while not await resume_briefly(client, "endless", 0, 2):
                await asyncio.sleep(0.01)
            os.kill(server.process.pid, signal.SIGTERM)
            *before, last = await endless
        assert [event.type for event in before] == ["accepted", "text_delta"]
        assert (last.id, last.data["error"]) == (0, "Stopping"), "the end of the stream, and no event of the turn"
        assert "reconnect with Last-Event-ID" in last.data["message"]
        assert await asyncio.to_thread(server.process.wait, TIMEOUT_S) == 0
        assert "Traceback" not in server.log.read_text()
    with serving(tmp_path / "a", sqlite_url) as server:
        async with server.client() as client:
            never.touch()
            after = await resume(client, "endless", before[-1].id)
            assert after[0].type == "resumed"
            assert after[0].data["reason"] == "handover"
            for events in (before + after, await resume(client, "alone")):  # no client followed the second one
                assert visible_text(events) == "begun ended"
                assert events[-1].type == "done"
            assert text_of(await send(client, "endless", "hello")) == "hello"
