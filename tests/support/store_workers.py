"""What the other processes of a test do.

They are forked from a server that has everything imported already, so that a test can start and kill many. Each talks
to its test through a pipe; `Worker.recv` never waits for longer than a test may take.
"""

import asyncio
import functools
import math
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from google.genai import types

from lango.adk.services.session_service import SqlSessionService
from lango.errors import LangoError
from lango.messages import Message, ToolCall
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine.sqlite import writer as sqlite_writer
from lango.store.sessions.sessions import find_session
from tests.support.fork_server import context

NAME = SessionId("app", "user", "shared")
TIMEOUT_S = 120.0


class Worker:
    """A process, and the pipe to it."""

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()

    def recv(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the next message of the process."""
        assert self.pipe.poll(timeout_s), "the other process sends nothing"
        return self.pipe.recv()

    def send(self, what: object) -> None:
        """Send a message to the process."""
        self.pipe.send(what)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode in (-signal.SIGKILL, 0, 1)

    def suspend(self, url: str = "") -> None:
        """Stop the process, as a debugger or a frozen container does.

        With the `url` of a SQLite file, it stops outside of a write: within one, no other process could write.
        """
        assert self.process.pid
        while True:
            os.kill(self.process.pid, signal.SIGSTOP)
            state = Path(f"/proc/{self.process.pid}/stat")
            while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)  # there is no event for it: the process is a child of the fork server
            if not (url.startswith("sqlite") and _is_locked(url.partition("///")[2])):
                return
            self.resume()
            time.sleep(0.01)

    def resume(self) -> None:
        """Let a suspended process run again."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGCONT)

    def drain(self) -> list[Any]:
        """Return what the process sent before it died."""
        messages: list[Any] = []
        try:
            while self.pipe.poll(0):
                messages.append(self.pipe.recv())
        except (EOFError, OSError):  # it died while it spoke
            pass
        return messages

    def join(self) -> None:
        """Wait for the process to end by itself."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode == 0


def _is_locked(path: str) -> bool:
    """Whether another process is writing to a SQLite file."""
    connection: Any = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return True
    finally:
        connection.close()
    return False


def entry(worker: str, number: int) -> NewEvent:
    """An event that names its writer, and changes the state of session, user and app with it."""
    delta = {"newest": number, f"{worker}{number}": number, f"user:{worker}": number, "app:n": number}
    return NewEvent(f"{worker}-{number}", 0.0, Message("user", f"{worker}:{number}"), tokens=3, state_delta=delta)


def append_for_ever(pipe: Connection, url: str) -> None:
    """Append numbered events until killed; send each number once its append has returned."""
    asyncio.run(_append_for_ever(pipe, url, functools.partial(entry, "w")))


def ordinary(number: int) -> NewEvent:
    """An event that one statement stores: a question, a call, its result, an answer, and so on."""
    call = ToolCall(f"c{number // 4}", "look", {"n": 1})
    made = [
        Message("assistant", "found"),
        Message("user", "look"),
        Message("assistant", "", (call,)),
        Message("tool", "{}", (ToolCall(f"c{number // 4}", "look", output={"found": True}),)),
    ]
    return NewEvent(f"w-{number}", 0.0, made[number % 4], tokens=3)


def append_ordinary_for_ever(pipe: Connection, url: str) -> None:
    """Do the same, each event by one statement."""
    sqlite_writer._FAST_COMMIT_S, sqlite_writer._FAST_COMMITS_NEEDED = math.inf, 0  # pyright: ignore[reportPrivateUsage] - of this process
    asyncio.run(_append_for_ever(pipe, url, ordinary))


async def _append_for_ever(pipe: Connection, url: str, make: Callable[[int], NewEvent]) -> None:
    async with Store(url) as store:
        session = await store.read(find_session, NAME)
        assert session
        revision = session.revision
        for number in range(session.last_seq + 1, 1_000_000):
            appended = await store.append(session.key, NAME, revision, make(number), last_seq=number - 1)
            revision = appended.revision
            pipe.send(number)


def open_on_request(pipe: Connection) -> None:
    """Open a store for each URL that is sent, close it, and send the outcome; None ends."""
    pipe.send("ready")
    while (url := pipe.recv()) is not None:
        pipe.send(asyncio.run(_open(url)))


async def _open(url: str) -> str:
    try:
        async with Store(url) as store:
            return f"schema {await store.schema_version()}"
    except LangoError as error:
        return f"{type(error).__name__}: {error}"


def write_with_reload(pipe: Connection, url: str, worker: str, count: int) -> None:
    """Append through ADK's service; after a conflict, load the session again and try again."""

    async def run() -> None:
        accepted: list[tuple[int, int]] = []
        stale = 0
        async with SqlSessionService(url) as service:
            session = await load(service)  # before any write: the second writer has a stale session
            pipe.send("ready")
            pipe.recv()
            for number in range(count):
                while True:
                    session = session or await load(service)
                    seen = len(session.events)
                    try:
                        await service.append_event(session, numbered_event(worker, number))
                    except StaleSessionError:
                        stale, session = stale + 1, None
                        continue
                    accepted.append((number, seen))
                    break
        pipe.send((accepted, stale))

    asyncio.run(run())


def hold_a_session(pipe: Connection, url: str) -> None:
    """Load the session, report it, wait, then append to the loaded session; send the outcome."""

    async def run() -> None:
        async with SqlSessionService(url) as service:
            session = await load(service)
            pipe.send(len(session.events))
            pipe.recv()
            try:
                await service.append_event(session, numbered_event("held", 1))
            except StaleSessionError as error:
                pipe.send(f"StaleSessionError: {error}")
            else:
                pipe.send("accepted")
            session = await load(service)
            await service.append_event(session, numbered_event("held", 2))
            pipe.send(len(session.events))

    asyncio.run(run())


async def load(service: SqlSessionService) -> Any:
    """Load the session that all processes write to."""
    session = await service.get_session(app_name=NAME.app_name, user_id=NAME.user_id, session_id=NAME.id)
    assert session
    return session


def numbered_event(worker: str, number: int) -> Event:
    """An event with a state key of its own."""
    return Event(
        author="user",
        content=types.Content(role="user", parts=[types.Part(text=f"{worker}:{number}")]),
        actions=EventActions(state_delta={f"{worker}{number}": number, f"user:{worker}{number}": number}),
    )
