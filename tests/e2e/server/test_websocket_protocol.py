"""What a WebSocket client may do wrong: every message gets an event, and every broken frame its close code."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.support.json_strategies import json_values
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

MESSAGES: list[dict[str, Any]] = [
    {"type": "message", "session": "s", "text": "hello", "attachments": [], "idempotency_key": "k"},
    {"type": "message", "session": "s", "attachments": [{"name": "a", "mime_type": "text/plain", "data": "eA=="}]},
    {"type": "message", "session": "s", "attachments": [{"artifact": "a", "version": 0}]},
    {"type": "cancel", "session": "s"},
    {"type": "answer", "session": "s", "wait_id": "w", "answer": {"type": "approve", "grant": {"expires_in_s": 1}}},
    {"type": "answer", "session": "s", "wait_id": "w", "answer": {"type": "value", "value": 1}, "idempotency_key": "k"},
    {"type": "answer", "session": "s", "wait_id": "w", "answer": {"type": "result", "result": {}}},
    {"type": "resume", "session": "s", "after": 1},
]
_HANDSHAKE = (
    "GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: {}\r\n\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ws")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="limits.max_body_bytes = 10000") as running:
        yield running
        assert "Traceback" not in running.log.read_text()


@pytest.fixture(scope="module")
def socket(server: Server) -> Iterator[Connection]:
    with connect(f"ws://127.0.0.1:{server.port}/v1/ws", ping_interval=None) as opened:
        yield opened


def answers(socket: Connection, text: str) -> list[dict[str, Any]]:
    """Send a message and read its events up to the last."""
    socket.send(text)
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in ("done", "turn_error"):
        events.append(json.loads(socket.recv(TIMEOUT_S)))
    return events


@given(message=st.sampled_from(MESSAGES), data=st.data())
def test_any_value_of_any_field_gets_an_event(socket: Connection, message: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(message)))
    inner: Any = message[name]
    value: Any = data.draw(json_values)
    if isinstance(inner, list) and inner and data.draw(st.booleans()):  # a field of a file
        file = cast("dict[str, Any]", inner[0])
        value = [file | {data.draw(st.sampled_from(sorted(file))): value}]
    if isinstance(inner, dict) and data.draw(st.booleans()):  # a field of an answer
        answer = cast("dict[str, Any]", inner)
        value = answer | {data.draw(st.sampled_from(sorted(answer))): value}
    *events, last = answers(socket, json.dumps(message | {name: value}))
    assert last["type"] == "done" or (last["error"] and last["message"] and not last["fatal"])
    assert not events or events[0]["type"] == "accepted"


@given(json_values)
def test_any_json_gets_an_event(socket: Connection, value: Any) -> None:
    [event] = answers(socket, json.dumps(value))
    assert event["error"] == "BadRequest"


@pytest.mark.parametrize("after", [True, False, 1.5, 1.0, -1, 2**53, 10**30, "1", [], {}])
def test_after_is_a_number(socket: Connection, after: object) -> None:
    [event] = answers(socket, json.dumps({"type": "resume", "session": "s", "after": after}))
    assert (event["error"], event["message"].partition(":")[0]) == ("BadRequest", "after")


@pytest.mark.parametrize("value", [1, 0, "true", "yes"])
def test_a_decision_is_true_or_false(socket: Connection, value: object) -> None:
    answer: dict[str, object] = {"type": "result", "result": {}, "will_continue": value}
    [event] = answers(socket, json.dumps({"type": "answer", "session": "s", "wait_id": "w", "answer": answer}))
    assert (event["error"], "will_continue" in event["message"]) == ("BadRequest", True)


# -- frames -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(server: Server, version: str = "13") -> AsyncGenerator[tuple[str, "_Frames"]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(_HANDSHAKE.format(version).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        yield head, _Frames(reader, writer)
    finally:
        writer.transport.abort()  # what the server has not read yet would keep it open


class _Frames:
    """Reads and writes single frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, *frames: Frame | bytes) -> None:
        for frame in frames:
            self._writer.write(frame if isinstance(frame, bytes) else frame.serialize(mask=True))

    async def read(self) -> tuple[Opcode, bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            first, second = await self._reader.readexactly(2)
            length = second & 127
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2), "big")
            return Opcode(first & 15), await self._reader.readexactly(length)

    async def read_rest(self) -> bytes:
        """Read until the server closes the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._reader.read()


@pytest.mark.parametrize("version", ["12", "8", "14", "x", ""])
async def test_another_version_is_answered_with_the_one_to_use(server: Server, version: str) -> None:
    async with opened(server, version) as (head, frames):
        assert head.startswith("HTTP/1.1 426 ")
        assert "\r\nsec-websocket-version: 13\r\n" in head.lower()
        assert b"Sec-WebSocket-Version: 13" in await frames.read_rest()


_PLAIN = b'{"type": "cancel", "session": "none"}'


def text(data: bytes, *, fin: bool = True) -> Frame:
    return Frame(Opcode.TEXT, data, fin)


def rest(data: bytes, *, fin: bool = True) -> Frame:
    return Frame(Opcode.CONT, data, fin)


@pytest.mark.parametrize(
    ("frames", "pings"),
    [
        ([text(_PLAIN)], 0),
        ([text(_PLAIN[:9], fin=False), rest(_PLAIN[9:])], 0),
        ([text(_PLAIN[:9], fin=False), Frame(Opcode.PING, b"p"), rest(b"", fin=False), rest(_PLAIN[9:])], 1),
        ([text(b"", fin=False), *(rest(_PLAIN[at : at + 1], fin=False) for at in range(len(_PLAIN))), rest(b"")], 0),
        ([Frame(Opcode.PONG, b"nothing asked for it"), text(_PLAIN)], 0),
        ([text('{"type": "é'.encode()[:-1], fin=False), rest("é".encode()[1:] + b'"}')], 0),
    ],
)
async def test_fragments_and_pings_are_read(server: Server, frames: list[Frame], pings: int) -> None:
    async with opened(server) as (_, connection):
        connection.write(*frames)
        for _ in range(pings):
            assert await connection.read() == (Opcode.PONG, b"p")
        kind, data = await connection.read()
        assert (kind, json.loads(data)["type"]) == (Opcode.TEXT, "turn_error")


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([text(b"\xff\xfe")], 1007),
        ([text(b'{"type": "\xc3')], 1007),
        ([text(b"\xed\xa0\x80")], 1007),  # a surrogate
        ([text(b"\xc3", fin=False), rest(b"(")], 1007),
        ([rest(b"nothing began")], 1002),
        ([text(b"a", fin=False), text(b"b")], 1002),
        ([bytes([0xC1, 0x80, 0, 0, 0, 0])], 1002),  # a reserved bit
        ([bytes([0x83, 0x80, 0, 0, 0, 0])], 1002),  # a reserved opcode
        ([bytes([0x81, 0x01]) + b"x"], 1002),  # not masked
        ([bytes([0x09, 0x80, 0, 0, 0, 0])], 1002),  # a ping in pieces
        ([bytes([0x89, 0xFE, 0x00, 0x7E, 0, 0, 0, 0]) + b"x" * 126], 1002),  # a long ping
        ([bytes([0x81, 0xFF]) + (2**40).to_bytes(8, "big") + bytes(4)], 1009),
        ([Frame(Opcode.CLOSE, (1000).to_bytes(2, "big"))], 1000),
        ([Frame(Opcode.CLOSE, (3000).to_bytes(2, "big") + b"bye")], 3000),
        ([bytes([0x88, 0x82, 0, 0, 0, 0]) + (1005).to_bytes(2, "big")], 1002),  # a code that is never sent
        ([bytes([0x88, 0x81, 0, 0, 0, 0]) + b"x"], 1002),  # half a code
        ([bytes([0x88, 0x84, 0, 0, 0, 0]) + (1000).to_bytes(2, "big") + b"\xff\xfe"], 1007),
    ],
)
async def test_broken_frames_are_closed_with_their_code(server: Server, frames: list[Frame | bytes], code: int) -> None:
    async with opened(server) as (_, connection):
        connection.write(*frames)
        kind, data = await connection.read()
        assert (kind, int.from_bytes(data[:2], "big")) == (Opcode.CLOSE, code)
        assert not await connection.read_rest()


async def test_a_message_above_the_limit_is_closed_with_1009(server: Server) -> None:
    async with opened(server) as (_, connection):
        piece = bytes(8_000_000)
        connection.write(text(piece, fin=False), rest(piece, fin=False))
        assert (await connection.read())[1][:2] == (1009).to_bytes(2, "big")


def test_a_client_that_broke_off_left_nothing_behind(server: Server, socket: Connection) -> None:
    assert answers(socket, json.dumps({"type": "message", "session": "s", "text": "hello"}))[-1]["type"] == "done"
    assert "Traceback" not in server.log.read_text()
