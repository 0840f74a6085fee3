"""A TCP proxy whose connections a test can break, like a train in a tunnel."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class LossyProxy:
    """Forward connections to a server while connected."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._writers: set[asyncio.StreamWriter] = set()
        self._connected = True
        self.refused = asyncio.Event()
        self.url = ""

    def disconnect(self) -> None:
        """Break all connections and refuse new ones."""
        self._connected = False
        self.refused.clear()
        for writer in self._writers:
            writer.transport.abort()

    def reconnect(self) -> None:
        """Accept connections again."""
        self._connected = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._connected:
            self.refused.set()
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, server_writer}
        await asyncio.gather(_forward(reader, server_writer), _forward(server_reader, writer))
        self._writers -= {writer, server_writer}


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def lossy_proxy(url: str) -> AsyncGenerator[LossyProxy]:
    """Run a proxy in front of a server until the block ends."""
    proxy = LossyProxy(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        proxy.disconnect()
        server.close()
        await server.wait_closed()
