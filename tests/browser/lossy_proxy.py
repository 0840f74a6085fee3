"""A way to a server that can be cut: what a train's tunnel does to a page."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Lossy:
    """Passes bytes on until it is cut, and again when it is mended."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut = False
        self.refused = asyncio.Event()
        self.url = ""

    def cut(self) -> None:
        """Break every connection, and take no new one."""
        self._cut = True
        self.refused.clear()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Take connections again."""
        self._cut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            self.refused.set()
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, to_writer}
        await asyncio.gather(_pass(reader, to_writer), _pass(to_reader, writer))
        self._writers -= {writer, to_writer}


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def lossy(url: str) -> AsyncGenerator[Lossy]:
    """Stand before a server until the block ends."""
    between = Lossy(url)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield between
    finally:
        between.cut()
        server.close()
        await server.wait_closed()
