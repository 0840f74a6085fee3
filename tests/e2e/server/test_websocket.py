"""The WebSocket of a real server: the same events both ways."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.support.servers.served import PATIENCE_S, Server, resume, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ws")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="write_timeout_s = 10") as running:
        yield running


@pytest.fixture
async def socket(server: Server) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as opened:
        yield opened


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def say(socket: ClientConnection, **asked: Any) -> None:
    await socket.send(json.dumps(asked))


async def hear(socket: ClientConnection, *kinds: str) -> list[dict[str, Any]]:
    """Read up to the first event of a kind, or to the end of a turn."""
    heard: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while not heard or (heard[-1]["type"] not in (kinds or ("done", "error"))):
            heard.append(json.loads(await socket.recv()))
    return heard


async def test_a_message_and_its_events_are_those_of_the_stream(
    server: Server, socket: ClientConnection, session: str
) -> None:
    await say(socket, type="message", session=session, text="note")
    heard = await hear(socket)
    assert [event["type"] for event in heard] == ["accepted", "tool_start", "tool_end", "text_delta", "done"]
    assert {event.pop("session") for event in heard} == {session}
    async with server.client() as client:
        assert [event.data for event in await resume(client, session)] == heard


async def test_a_key_is_that_of_one_message(socket: ClientConnection, session: str) -> None:
    await say(socket, type="message", session=session, text="hello", idempotency_key="k")
    heard = await hear(socket)
    await say(socket, type="message", session=session, text="good-bye", idempotency_key="k")
    [refused] = await hear(socket)
    assert (refused["error"], refused["fatal"]) == ("IdempotencyKeyReused", False)
    assert "use another key" in refused["message"]
    await say(socket, type="message", session=session, text="hello", idempotency_key="k")
    assert await hear(socket) == heard


async def test_sessions_share_a_socket(socket: ClientConnection, session: str) -> None:
    for number in range(5):
        await say(socket, type="message", session=f"{session}-{number}", text="words 5 0.02")
    heard: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while sum(event["type"] == "done" for event in heard) < 5:
            heard.append(json.loads(await socket.recv()))
    for number in range(5):
        own = [event for event in heard if event["session"] == f"{session}-{number}"]
        assert "".join(event.get("text", "") for event in own) == "w0 w1 w2 w3 w4 "
        assert [event["id"] for event in own] == sorted({event["id"] for event in own})


async def test_a_lost_socket_goes_on_with_another(server: Server, session: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with connect(url) as first:
        await say(first, type="message", session=session, text="words 20 0.03")
        heard = await hear(first, "text_delta")
    async with connect(url) as second:
        await say(second, type="resume", session=session, after=heard[-1]["id"])
        heard += await hear(second)
    assert "".join(event.get("text", "") for event in heard) == "".join(f"w{number} " for number in range(20))
    assert [event["id"] for event in heard] == sorted({event["id"] for event in heard})


async def test_cancel_and_approval(socket: ClientConnection, session: str, tmp_path: Path) -> None:
    await say(socket, type="message", session=session, text=f"hold {tmp_path / 'never'}")
    await hear(socket, "text_delta")
    await say(socket, type="cancel", session=session)
    assert (await hear(socket))[-1]["error"] == "TurnCancelled"
    await say(socket, type="message", session=session, text="ask")
    question = (await hear(socket, "approval"))[-1]
    assert (await hear(socket))[-1]["status"] == "waiting_for_approval"
    await say(socket, type="approval", session=session, call_id=question["call_id"], approved=True)
    answered = await hear(socket)
    assert any(event.get("result") == {"noted": "this"} for event in answered)


async def test_where_there_is_nothing_to_resume_or_cancel_that_is_said(
    server: Server, socket: ClientConnection, session: str
) -> None:
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
    await say(socket, type="resume", session=session)
    nothing = {"type": "error", "error": "NothingToResume", "fatal": False, "session": session}
    message = f"there was no turn in session '{session}', and nothing runs"
    assert await hear(socket) == [nothing | {"message": message}]
    await say(socket, type="cancel", session=session)
    [idle] = await hear(socket)
    assert (idle["error"], idle["fatal"], idle["session"]) == ("NothingRuns", False, session)

    await say(socket, type="message", session=session, text="hello")
    heard = await hear(socket)
    await say(socket, type="resume", session=session, after=heard[-1]["id"])
    message = f"nothing comes after event {heard[-1]['id']} in session '{session}', and nothing runs"
    assert await hear(socket) == [nothing | {"message": message}]
    await say(socket, type="cancel", session=session)
    assert [event["error"] for event in await hear(socket)] == ["NothingRuns"], "the turn is over"
    await say(socket, type="resume", session=session, after=2**60)
    assert [event["error"] for event in await hear(socket)] == ["NothingToResume"]
    await say(socket, type="resume", session=session, after=heard[-2]["id"])
    assert await hear(socket) == heard[-1:], "what comes after that event, and no word more"
    await say(socket, type="cancel", session=session)
    assert [event["error"] for event in await hear(socket)] == ["NothingRuns"]


async def test_a_client_that_asks_and_goes_leaves_no_traceback(server: Server, session: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
    for _ in range(20):
        gone = await connect(url)
        for kind in ("cancel", "resume") * 10:
            await say(gone, type=kind, session=session)
        gone.transport.abort()
    async with connect(url) as other:
        await say(other, type="cancel", session=session)
        await hear(other)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "send JSON"),
        ("{}", "message, cancel, approval or resume"),
        ("[]", "message, cancel, approval or resume"),
        ('{"type": "tool_end"}', "message, cancel, approval or resume"),
        ('{"type": "message", "session": "s"}', "needs a text"),
        ('{"type": "message", "text": "x"}', "session: Field required"),
        ('{"type": "message", "session": "s", "text": "x", "user_id": "bob"}', "user_id: is not allowed here"),
        ('{"type": "message", "session": "a/b", "text": "x"}', "session: "),
        ('{"type": "approval", "session": "nobody", "call_id": "c", "approved": true}', "no session 'nobody'"),
        ('{"type": "resume", "session": "nobody"}', "no session 'nobody'"),
        ('{"type": "resume", "session": "nobody", "after": -1}', "after: "),
    ],
)
async def test_what_is_not_understood_is_said_and_the_socket_stays(
    socket: ClientConnection, text: str, says: str
) -> None:
    await socket.send(text)
    [error] = await hear(socket)
    assert error["type"] == "error"
    assert says in error["message"]
    assert "id" not in error
    await socket.send(text.encode())
    [binary] = await hear(socket)
    assert binary["type"] == "error"
    await say(socket, type="message", session=uuid.uuid4().hex, text="hello")
    assert (await hear(socket))[-1]["type"] == "done"


async def test_a_socket_that_does_not_read_is_closed_and_others_are_not_slowed(server: Server, session: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with connect(url, max_queue=1, close_timeout=1, ping_interval=None) as deaf, connect(url) as other:
        await say(deaf, type="message", session=session, text="much 200")
        await say(other, type="message", session=f"{session}-2", text="words 10 0.02")
        assert (await hear(other))[-1]["type"] == "done"
        async with server.client() as client, asyncio.timeout(PATIENCE_S):
            whole = await resume(client, session)
            assert whole[-1].type == "done"
            while "a client that does not read" not in server.log.read_text():
                await asyncio.sleep(0.05)
