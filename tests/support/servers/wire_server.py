"""A loopback server that answers with whatever bytes a test wants, for faults that no good server makes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Answer = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request as the server got it, and the way to answer it."""

    def __init__(self, head: str, body: bytes, writer: asyncio.StreamWriter, closed: asyncio.Event) -> None:
        self.head = head
        self.body: dict[str, Any] = json.loads(body or b"{}")
        self._writer = writer
        self._closed = closed

    async def send(self, data: bytes | str) -> None:
        self._writer.write(data if isinstance(data, bytes) else data.encode())
        await self._writer.drain()

    async def status(self, status: int, body: Any = "", headers: dict[str, str] | None = None) -> None:
        """Answer with a status and a JSON body, and close."""
        text = body if isinstance(body, str) else json.dumps(body)
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(text.encode())}", "connection: close"]
        lines += ["content-type: application/json", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        await self.send("\r\n".join(lines) + "\r\n\r\n" + text)

    async def events(self, *events: Any, named: bool = False) -> None:
        """Begin a stream of server-sent events, without an end: `end` ends it well, a return cuts it."""
        await self.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        await self.send("transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        for event in events:
            await self.event(event, named=named)

    async def event(self, event: Any, *, named: bool = False) -> None:
        name = f"event: {event['type']}\n" if named else ""
        await self.chunk(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")

    async def chunk(self, text: str) -> None:
        data = text.encode()
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.send("0\r\n\r\n")

    async def until_closed(self) -> None:
        """Wait until the client has gone."""
        await self._closed.wait()


class WireServer:
    """The requests that the server received, and whether clients closed their connections."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Exchange] = []
        self.closed_by_client = asyncio.Event()


@asynccontextmanager
async def wire_server(*answers: Answer) -> AsyncGenerator[WireServer, None]:
    """Serve the answers in turn, the last one again and again."""
    ours: list[WireServer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = ours[0]
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0]) if lengths else 0)
            exchange = Exchange(head, body, writer, server.closed_by_client)
            server.requests.append(exchange)
            answer = answers[min(len(server.requests), len(answers)) - 1]
            watch = asyncio.create_task(_watch(reader, server.closed_by_client))
            try:
                await answer(exchange)
            finally:
                watch.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ours.append(WireServer(f"http://127.0.0.1:{port}"))
    try:
        yield ours[0]
    finally:
        server.close()
        await server.wait_closed()


async def _watch(reader: asyncio.StreamReader, closed: asyncio.Event) -> None:
    try:
        while await reader.read(1024):
            pass
    except ConnectionError:
        pass
    closed.set()


def chat_for_key(key: str, text: str) -> Answer:
    """Answer OpenAI's chat API with a text, and refuse any key but one, which the refusal repeats."""

    async def answer(exchange: Exchange) -> None:
        [given] = [line.split()[-1] for line in exchange.head.splitlines() if line.lower().startswith("authorization:")]
        if given != key:
            message = f"Incorrect API key provided: {given}"
            await exchange.status(401, {"error": {"message": message, "code": "invalid_api_key"}})
            return
        about = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": exchange.body["model"]}
        deltas: list[dict[str, Any]] = [{"delta": {"content": text}}, {"delta": {}, "finish_reason": "stop"}]
        await exchange.events(*(about | {"choices": [{"index": 0, **delta}]} for delta in deltas), "[DONE]")
        await exchange.end()

    return answer
