"""The WebSocket of a real server."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.support.servers.server_process import TIMEOUT_S, Server, resume, serving, waits_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ws")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
async def socket(server: Server) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as opened:
        yield opened


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def send_command(socket: ClientConnection, **fields: Any) -> None:
    await socket.send(json.dumps(fields))


async def receive_events(socket: ClientConnection, *kinds: str) -> list[dict[str, Any]]:
    """Read up to the first event of a kind, or to the end of a turn."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not events or (events[-1]["type"] not in (kinds or ("done", "turn_error"))):
            events.append(json.loads(await socket.recv()))
    return events


async def test_a_message_and_its_events_are_those_of_the_stream(
    server: Server, socket: ClientConnection, session: str
) -> None:
    await send_command(socket, type="message", session=session, text="note")
    events = await receive_events(socket)
    assert [event["type"] for event in events] == [
        "accepted",
        "tool_start",
        "tool_end",
        "text_delta",
        "text_end",
        "done",
    ]
    assert {event.pop("session") for event in events} == {session}
    async with server.client() as client:
        assert [event.data for event in await resume(client, session)] == events


async def test_an_idempotency_key_belongs_to_one_message(socket: ClientConnection, session: str) -> None:
    await send_command(socket, type="message", session=session, text="hello", idempotency_key="k")
    events = await receive_events(socket)
    await send_command(socket, type="message", session=session, text="good-bye", idempotency_key="k")
    [refused] = await receive_events(socket)
    assert (refused["error"], refused["fatal"]) == ("IdempotencyKeyReused", False)
    assert "use another key" in refused["message"]
    await send_command(socket, type="message", session=session, text="hello", idempotency_key="k")
    assert await receive_events(socket) == events


async def test_sessions_share_a_socket(socket: ClientConnection, session: str) -> None:
    for number in range(5):
        await send_command(socket, type="message", session=f"{session}-{number}", text="words 5 0.02")
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while sum(event["type"] == "done" for event in events) < 5:
            events.append(json.loads(await socket.recv()))
    for number in range(5):
        own = [event for event in events if event["session"] == f"{session}-{number}"]
        assert "".join(event.get("text", "") for event in own) == "w0 w1 w2 w3 w4 "
        assert [event["id"] for event in own] == sorted({event["id"] for event in own})


async def test_a_lost_socket_goes_on_with_another(server: Server, session: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with connect(url) as first:
        await send_command(first, type="message", session=session, text="words 20 0.03")
        events = await receive_events(first, "text_delta")
    async with connect(url) as second:
        await send_command(second, type="resume", session=session, after=events[-1]["id"])
        events += await receive_events(second)
    assert "".join(event.get("text", "") for event in events) == "".join(f"w{number} " for number in range(20))
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})


async def ask(server: Server, socket: ClientConnection, session: str) -> dict[str, Any]:
    """Let a tool ask for an approval; return the message that answers it, without the answer."""
    await send_command(socket, type="message", session=session, text="ask")
    assert (await receive_events(socket))[-1]["status"] == "waiting"
    async with server.client() as client:
        [wait] = await waits_of(client, session)
    return {"type": "answer", "session": session, "wait_id": wait["id"]}


async def test_cancel_and_answers(server: Server, socket: ClientConnection, session: str, tmp_path: Path) -> None:
    await send_command(socket, type="message", session=session, text=f"hold {tmp_path / 'never'}")
    await receive_events(socket, "text_delta")
    await send_command(socket, type="cancel", session=session)
    assert (await receive_events(socket))[-1]["error"] == "TurnCancelled"
    late = await ask(server, socket, session)
    await send_command(socket, type="cancel", session=session)
    await send_command(socket, **late, answer={"type": "approve"})
    assert (await receive_events(socket))[-1]["error"] == "WaitNotOpen"
    await send_command(socket, **await ask(server, socket, session), answer={"type": "approve"})
    answered = await receive_events(socket)
    assert any(event.get("result") == {"noted": "this"} for event in answered)
    refusal = {"type": "refuse", "reason": "not today"}
    await send_command(socket, **await ask(server, socket, session), answer=refusal)
    answered = await receive_events(socket)
    assert "Their reason: not today" in str(answered), "the model read it"


async def test_nothing_to_resume_or_cancel_is_an_error_event(
    server: Server, socket: ClientConnection, session: str
) -> None:
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
    await send_command(socket, type="resume", session=session)
    nothing = {"type": "turn_error", "error": "NothingToResume", "fatal": False, "session": session}
    message = f"there was no turn in session '{session}', and no turn is running"
    assert await receive_events(socket) == [nothing | {"message": message}]
    await send_command(socket, type="cancel", session=session)
    [idle] = await receive_events(socket)
    assert (idle["error"], idle["fatal"], idle["session"]) == ("NothingRuns", False, session)

    await send_command(socket, type="message", session=session, text="hello")
    events = await receive_events(socket)
    await send_command(socket, type="resume", session=session, after=events[-1]["id"])
    message = f"there is no event after {events[-1]['id']} in session '{session}', and no turn is running"
    assert await receive_events(socket) == [nothing | {"message": message}]
    await send_command(socket, type="cancel", session=session)
    assert [event["error"] for event in await receive_events(socket)] == ["NothingRuns"], "the turn has ended"
    await send_command(socket, type="resume", session=session, after=2**50)
    assert [event["error"] for event in await receive_events(socket)] == ["NothingToResume"]
    await send_command(socket, type="resume", session=session, after=events[-2]["id"])
    assert await receive_events(socket) == events[-1:], "only the events after that one"
    await send_command(socket, type="cancel", session=session)
    assert [event["error"] for event in await receive_events(socket)] == ["NothingRuns"]


async def test_a_client_that_disconnects_at_once_leaves_no_traceback(server: Server, session: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
    for _ in range(20):
        gone = await connect(url)
        for kind in ("cancel", "resume") * 10:
            await send_command(gone, type=kind, session=session)
        gone.transport.abort()
    async with connect(url) as other:
        await send_command(other, type="cancel", session=session)
        await receive_events(other)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "send JSON"),
        ("{}", "message, cancel, answer or resume"),
        ("[]", "message, cancel, answer or resume"),
        ('{"type": "tool_end"}', "message, cancel, answer or resume"),
        ('{"type": "message", "session": "s"}', "needs a text"),
        ('{"type": "message", "text": "x"}', "session: Field required"),
        ('{"type": "message", "session": "s", "text": "x", "user_id": "bob"}', "user_id: is not allowed here"),
        ('{"type": "message", "session": "a/b", "text": "x"}', "session: "),
        (
            '{"type": "answer", "session": "nobody", "wait_id": "w", "answer": {"type": "approve"}}',
            "no session 'nobody'",
        ),
        (
            '{"type": "answer", "session": "s", "wait_id": "w", "answer": 1}',
            "approve, refuse, value, decline, credential",
        ),
        ('{"type": "resume", "session": "nobody"}', "no session 'nobody'"),
        ('{"type": "resume", "session": "nobody", "after": -1}', "after: "),
    ],
)
async def test_an_invalid_command_is_an_error_event_and_the_socket_stays_open(
    socket: ClientConnection, text: str, message: str
) -> None:
    await socket.send(text)
    [error] = await receive_events(socket)
    assert error["type"] == "turn_error"
    assert message in error["message"]
    assert "id" not in error
    await socket.send(text.encode())
    [binary] = await receive_events(socket)
    assert binary["type"] == "turn_error"
    await send_command(socket, type="message", session=uuid.uuid4().hex, text="hello")
    assert (await receive_events(socket))[-1]["type"] == "done"


async def test_a_socket_that_does_not_read_is_closed_and_others_are_not_slowed(
    tmp_path: Path, sqlite_url: str, session: str
) -> None:
    with serving(tmp_path, sqlite_url, server="write_timeout_s = 2") as server:
        url = f"ws://127.0.0.1:{server.port}/v1/ws"
        # pieces of text are joined on a busy machine: the client would refuse an event over its default of 1 MiB
        silent = connect(url, max_queue=1, max_size=None, close_timeout=1, ping_interval=None)
        async with silent as silent_client, connect(url) as other, asyncio.timeout(TIMEOUT_S):
            await send_command(silent_client, type="message", session=session, text="much 200")
            await send_command(other, type="message", session=f"{session}-2", text="words 10 0.02")
            assert (await receive_events(other))[-1]["type"] == "done"
            while "a client that does not read" not in server.log.read_text():
                await asyncio.sleep(0.05)
            async with server.client() as client:
                assert (await resume(client, session))[-1].type == "done"


async def test_results_of_a_long_running_tool_come_over_the_socket(socket: ClientConnection, session: str) -> None:
    await send_command(socket, type="message", session=session, text="call order")
    events = await receive_events(socket)
    assert events[-1]["status"] == "waiting"
    message = {"type": "answer", "session": session, "wait_id": events[1]["call_id"]}
    result = {"type": "result", "result": {"n": 1}}
    for will_continue in (True, False):
        await send_command(socket, **message, answer=result | {"will_continue": will_continue})
        assert (await receive_events(socket))[-3]["text"] == "the tool said {'n': 1}"
    await send_command(socket, **message, answer=result)
    assert (await receive_events(socket))[-1]["error"] == "WaitNotOpen"
