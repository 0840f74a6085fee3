"""Serve a client over one WebSocket: authenticate it, read its messages, and send within the write timeout."""

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect

from lango.errors import LangoError
from lango.json_values import TooManyValues, read_json
from lango.server.context import AgentUser, ServerContext
from lango.server.errors import ApiError, bad_request
from lango.server.security.auth import read_authorization
from lango.server.streaming.sse import wait_until_refused
from lango.threads import use_share_of

_log = logging.getLogger("lango.server")

_PROTOCOL = "lango"
CONNECTION_ERRORS = (TimeoutError, RuntimeError, WebSocketDisconnect)
"""Raised by sending to a client that does not read, or has disconnected."""


def read_message(text: str) -> Any:
    """Parse a message of the client; raise `ApiError` for one that is not JSON."""
    try:
        return read_json(text)
    except TooManyValues as error:
        raise ApiError(413, "TooLarge", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise bad_request("send JSON in a text message") from error


class SocketConnection(ABC):
    """One socket. What is sent waits for the socket, and the socket for its client: nothing is buffered."""

    def __init__(self, socket: WebSocket, context: ServerContext) -> None:
        self._socket = socket
        self._context = context
        self._authorization: str | None = None
        self._receiver: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Handle the client's messages until it disconnects, is disconnected, or loses access."""
        try:
            self._authorization = read_authorization(self._socket)
            await self._authenticate()
        except (ApiError, LangoError) as refused:
            await self._socket.close(1008, str(refused)[:120])
            return
        await self._socket.accept(_PROTOCOL if _PROTOCOL in self._socket.scope["subprotocols"] else None)
        self._receiver = asyncio.create_task(self._receive_all())
        try:
            await self._wait_closed(self._receiver)
        finally:
            tasks = [self._receiver, *self._tasks()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _authenticate(self) -> AgentUser:
        """Return the user, for each message again: the key may have been revoked."""
        caller = await self._context.authenticator.authenticate(self._authorization)
        use_share_of(caller.user_id)
        return AgentUser(self._context, caller)

    async def _wait_closed(self, receiver: asyncio.Task[None]) -> None:
        check = functools.partial(self._context.authenticator.verify, self._authorization)
        recheck = asyncio.create_task(wait_until_refused(check))
        await asyncio.wait([receiver, recheck], return_when=asyncio.FIRST_COMPLETED)
        recheck.cancel()
        if recheck.done() and not receiver.done():
            await self._socket.close(1008, str(recheck.result())[:120])
        elif not receiver.cancelled():
            receiver.result()

    @abstractmethod
    async def _receive_all(self) -> None:
        """Read and handle messages until the client disconnects."""

    def _tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that end with the connection; the turns continue."""
        return []

    async def _receive(self) -> str | None:
        """Return the next message, or None if the client has disconnected."""
        frame = await self._socket.receive()
        return None if frame["type"] == "websocket.disconnect" else frame.get("text") or ""

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(self._context.settings.server.write_timeout_s):
            await self._socket.send_text(text)

    def _disconnect(self) -> None:
        _log.warning("disconnected a client that does not read")
        if self._receiver is not None:
            self._receiver.cancel()
