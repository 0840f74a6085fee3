"""The socket that a server listens on."""

import asyncio
import socket

import pytest

from lango.config import ServerSettings
from lango.server.startup import bind_port


@pytest.mark.parametrize("inherited", [False, True], ids=["own socket", "socket of the parent process"])
async def test_a_small_response_is_sent_at_once(inherited: bool) -> None:
    """A server that waits for acknowledgements of what it sent before adds 40 ms to each response."""
    listener = bind_port(ServerSettings(port=0))
    if inherited:
        listener = socket.socket(fileno=listener.detach())
    sends_at_once: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        sends_at_once.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(answer, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await sends_at_once
        writer.close()
