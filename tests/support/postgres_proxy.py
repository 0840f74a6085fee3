"""A proxy in front of PostgreSQL that loses a chosen commit, or the answer to it, or all connections."""

import asyncio
import contextlib
import struct
import tempfile
import time
from collections.abc import AsyncGenerator
from typing import Literal, Self
from urllib.parse import parse_qs, urlencode, urlsplit

Loss = Literal["answer", "commit", "late"]
"""What is lost: the answer of a server that has committed, or the commit itself; `late`: it arrives after the cut."""

_LATE_S = 0.2
_TIMEOUT_S = 120.0
_WRITES = (b"INSERT", b"UPDATE", b"DELETE", b"WITH")
_PORT = "5432"


class Proxy:
    """Listens on a Unix socket, as the server does; `url` leads through it."""

    def __init__(self, url: str, folder: str) -> None:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self._server = f"{query['host']}/.s.PGSQL.{_PORT}"
        self._here = f"{folder}/.s.PGSQL.{_PORT}"
        self.url = parts._replace(query=urlencode(query | {"host": folder})).geturl()
        self.lost = 0
        """How many commits were lost since `lose` was called."""
        self._how: Loss = "answer"
        self.refused = 0
        """How many connections were refused since the proxy went away."""
        self._next: int = 0
        self._every: int = 0
        self._then_away = False
        self._count = 0
        self._each = False
        self._retries = False
        self._away = False
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, url: str) -> AsyncGenerator[Self]:
        """Open a proxy in front of a server."""
        with tempfile.TemporaryDirectory(prefix="lango-proxy-") as folder:
            proxy = cls(url, folder)
            listener = await asyncio.start_unix_server(proxy._accept, proxy._here)
            try:
                yield proxy
            finally:
                listener.close()
                await proxy.cut()
                await listener.wait_closed()

    def lose(self, number: int, how: Loss, *, every: int = 0, then_away: bool = False) -> None:
        """Lose the commit of that number, counted from now on, or, with `every`, one in so many from there on.

        `then_away`: after it, no connection is accepted until `come_back`.
        """
        self._how, self._next, self._every, self._then_away = how, number, every, then_away
        self.lost = self._count = 0
        self._each = self._retries = False

    def lose_each(self, how: Loss) -> None:
        """Lose the first attempt of each commit from now on; one that comes while another is retried may pass."""
        self.lose(0, how)
        self._each = True

    @property
    def commits(self) -> int:
        """How many commits were sent since `lose` was called, those that were lost and their retries too."""
        return self._count

    def completed(self, tag: bytes) -> None:
        """Notice that a commit, or a statement that commits, has passed; one without rows is no end of a retry."""
        self._retries &= tag.endswith(b" 0")

    async def cut(self) -> None:
        """Cut every connection."""
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def go_away(self) -> None:
        """Cut every connection and refuse new ones until `come_back`."""
        self._away, self.refused = True, 0
        await self.cut()

    def come_back(self) -> None:
        """Accept connections again."""
        self._away = False

    async def has_refused(self, more: int = 1) -> None:
        """Wait until that many more connections were refused."""
        enough, until = self.refused + more, time.monotonic() + _TIMEOUT_S
        while self.refused < enough:
            assert time.monotonic() < until, "no client tries to connect"
            await asyncio.sleep(0.01)

    def takes(self, batch: "Batch") -> Loss | None:
        """Count a batch that commits; return how it is lost, if it is."""
        if not batch.commits:
            return None
        self._count += 1
        if self._each:
            if self._retries:
                return None
            # who finds the number of a transaction does not commit it again
            self._retries = not (self._how == "answer" and batch.is_transaction)
        elif self._count != self._next:
            return None
        else:
            self._next += self._every
        self.lost += 1
        if self._then_away:
            self._away, self.refused = True, 0
        return self._how

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        if self._away:
            self.refused += 1
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            server = await asyncio.open_unix_connection(self._server)
            try:
                await _Connection(self, (reader, writer), server).run()
            finally:
                server[1].transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            for other in self._connections if self._away else ():
                other.cancel()
            writer.transport.abort()


class Session:
    """What is known of a connection: its statements by name, and whether it is in a transaction, and in which."""

    def __init__(self) -> None:
        self.statements: dict[bytes, bytes] = {}
        self.in_transaction = False
        self.reads_only = False


class Batch:
    """What a client sends before it waits for an answer."""

    def __init__(self, session: Session) -> None:
        self.data = b""
        self.commits = False
        self.is_transaction = False
        """Whether it commits a transaction of several statements."""
        self._session = session

    def add(self, kind: bytes, body: bytes) -> bool:
        """Add a message; True: it is the last one."""
        self.data += kind + struct.pack("!i", len(body) + 4) + body
        session = self._session
        match kind:
            case b"P":
                name, statement, _ = body.split(b"\0", 2)
                session.statements[name] = statement.strip()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self.commits |= session.statements[name].startswith(_WRITES) and not session.in_transaction
            case b"Q" if body.strip().startswith(b"BEGIN"):
                session.reads_only = b"READ ONLY" in body
            case b"Q":
                self.commits |= body.strip(b"\0; ") == b"COMMIT" and not session.reads_only
                self.is_transaction = self.commits
            case _:
                pass
        return kind in b"SHQXp"


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._session = Session()
        self._swallow = False
        self._commits = False

    async def run(self) -> None:
        [length] = struct.unpack("!i", head := await self._from_client.readexactly(4))
        self._to_server.write(head + await self._from_client.readexactly(length - 4))
        answers = asyncio.create_task(self._answers())
        asks = asyncio.create_task(self._asks())
        try:
            done, _ = await asyncio.wait([answers, asks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (answers, asks):
                task.cancel()
            await asyncio.wait([answers, asks])

    async def _asks(self) -> None:
        while True:
            batch = Batch(self._session)
            while not batch.add(*await _message(self._from_client)):
                pass
            match self._proxy.takes(batch):
                case "commit":
                    return
                case "late":
                    self._to_client.transport.abort()
                    await asyncio.sleep(_LATE_S)
                    self._to_server.write(batch.data)
                    await asyncio.sleep(_LATE_S)
                    return
                case "answer":
                    self._swallow = True
                case None:
                    self._commits = batch.commits
            self._to_server.write(batch.data)
            await self._to_server.drain()

    async def _answers(self) -> None:
        while True:
            kind, body = await _message(self._from_server)
            if kind == b"Z":
                self._session.in_transaction = body != b"I"
            if kind == b"C" and self._commits:
                self._proxy.completed(body.rstrip(b"\0"))
            if self._swallow:
                if kind == b"Z":
                    return
                continue
            self._to_client.write(kind + struct.pack("!i", len(body) + 4) + body)
            if kind == b"Z":
                with contextlib.suppress(ConnectionError):
                    await self._to_client.drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("!ci", await reader.readexactly(5))
    return kind, await reader.readexactly(length - 4)
