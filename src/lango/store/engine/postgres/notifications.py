"""Notify other processes of changed sessions with LISTEN and coalesced NOTIFY.

A commit that notifies takes a lock of the whole server, so that a notification in every transaction would serialize all
commits. So one statement at a time notifies of all sessions that changed while the last one ran. A lost notification
only delays its listeners until they poll.
"""

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from lango.errors import StoreError
from lango.store.engine.changes import Subscription, Subscriptions

_log = logging.getLogger("lango.store")

_LISTEN_TIMEOUT_S = 2.0
_LONGEST_KEY = 19  # digits
_MAX_KEYS = 300  # a payload has 8,000 bytes
# need not be durable, and should not wait for the disk while it holds the lock
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"


def channel_name(schema: str) -> str:
    """Return the channel of a schema: a hash, because channel names are short and shared by the database."""
    return f"lango_{zlib.crc32(schema.encode()):08x}"


class Notifications:
    """The notifications of a database in an event loop."""

    def __init__(
        self,
        channel: str,
        wakeups: Subscriptions,
        connect: Callable[[], Awaitable[Any]],
        execute: Callable[..., Awaitable[None]],
    ) -> None:
        """`connect` opens a connection to listen on, `execute` runs a statement on any connection."""
        self._channel = channel
        self._subscriptions = wakeups
        self._connect = connect
        self._execute = execute
        self._changed_sessions: set[int] = set()
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connection: AsyncGenerator[None] | None = None

    def send(self, key: int) -> None:
        """Notify the subscribers of a session in other processes, soon."""
        self._changed_sessions.add(key)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._changed_sessions:
            keys = [self._changed_sessions.pop() for _ in range(min(len(self._changed_sessions), _MAX_KEYS))]
            try:
                await self._execute(_NOTIFY, self._channel, " ".join(map(str, keys)))
            except StoreError as error:
                _log.warning("other processes were not notified and will notice by polling: %s", error)

    @asynccontextmanager
    async def subscribe(self, key: int, *, listen: bool = True) -> AsyncGenerator[Subscription]:
        """Subscribe to a session until the block ends. Without `listen`, or if it fails, only this process notifies."""
        with self._subscriptions.subscribe(key) as wakeup:
            if listen and self._connection is None and (self._listening is None or self._listening.done()):
                self._listening = asyncio.create_task(self._listen())
            if self._listening is not None:
                await asyncio.wait([self._listening], timeout=_LISTEN_TIMEOUT_S)
            yield wakeup

    async def _listen(self) -> None:
        connection = self._listen_until_closed()
        try:
            await anext(connection)
        except Exception as error:  # noqa: BLE001 - listeners poll, too
            _log.warning("cannot listen to other processes, polling for their changes: %s", error)
        else:
            self._connection = connection

    async def _listen_until_closed(self) -> AsyncGenerator[None]:
        """Listen until closed, or until the event loop ends, which finalizes its generators."""
        connection = await self._connect()
        try:
            connection.add_termination_listener(self._on_connection_lost)
            await connection.add_listener(self._channel, self._on_notification)
            yield
        finally:
            connection.remove_termination_listener(self._on_connection_lost)
            with suppress(Exception):
                await connection.close(timeout=_LISTEN_TIMEOUT_S)

    def _on_notification(self, _connection: object, _pid: int, _channel: str, keys: str) -> None:
        for key in keys.split():
            # any role of the database can notify: ignore everything but session keys
            if key.isascii() and key.isdigit() and len(key) <= _LONGEST_KEY:
                self._subscriptions.notify(int(key))

    def _on_connection_lost(self, _connection: object) -> None:
        """Forget a lost connection: the next subscription listens again."""
        self._connection = None

    async def close(self) -> None:
        """Send the pending notifications and stop listening."""
        tasks = [task for task in (self._sending, self._listening) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        if self._connection is not None:
            await self._connection.aclose()
            self._connection = None
