"""Open a database and run the store's operations on it."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

from lango.config import Language
from lango.errors import SchemaError, StoreDamaged, StoreUnavailable
from lango.json_values import is_larger_than
from lango.messages import StoredBytes
from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store.codec.records import AppendResult, NewEvent
from lango.store.contents import blobs_of_event, read_content
from lango.store.engine.changes import Subscriptions
from lango.store.engine.database import LARGE_VALUE, Dialect, Operation
from lango.store.engine.outages import DEFAULT_WAIT_S, Outages
from lango.store.engine.schema import APPLIED, Applied, Migration, Migrations, load_migrations
from lango.store.engine.urls import open_database
from lango.store.lifecycle.delete import delete_session
from lango.store.search import index, query
from lango.store.sessions.append import append, append_statement
from lango.store.turns import ending, lease, queue, steering, submit, turns
from lango.store.turns.event_log import LoggedEvent
from lango.store.turns.turns import TurnResult
from lango.store.waits.waits import answer_question

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("lango.store")
_RELEASES = 0
"""What subscribers of released turns subscribe to: no session has this key."""
_DUE = 0


class Store:
    """A database of sessions, messages, state and turns. Safe from any task, thread and event loop.

    `read` and `write` run any operation of this package: `await store.read(find_session, name)`. An operation is run
    again after a lost connection, so its arguments are values that it does not change, and the caller takes the time.
    """

    def __init__(
        self,
        url: str,
        *,
        wait_s: float = DEFAULT_WAIT_S,
        migrations: Migrations | None = None,
        language: Language = "english",
    ) -> None:
        """`wait_s`: how long a turn waits for a database that is away; see `lango.store.engine.outages`.

        `language`: of words in Latin letters, whose stems are indexed.

        `migrations`: others than those of this version, or its contract steps, too.
        """
        self.language: Language = language
        self._migrations = migrations or load_migrations()
        self._due = Subscriptions()
        self._database = open_database(url, wait_s=wait_s, migrations=self._migrations)

    async def __aenter__(self) -> Self:
        """Open the database."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the database."""
        await self.close()

    async def open(self) -> None:
        """Open the database and upgrade its schema now, so that an error is raised here and not at the first use."""
        await self._database.write(_schema_version)

    async def require_schema(self) -> None:
        """Raise `SchemaError` if opening the store would change its schema, without opening it."""
        if due := await self.due_migrations():
            raise SchemaError(
                f"the store does not have the schema of this version ({', '.join(step.file_name for step in due)}) and "
                "is not changed here: run `lango db upgrade` first; older versions continue to work on the store"
            )

    async def close(self) -> None:
        """Finish the operations under way and close the database."""
        await self._database.close()

    @property
    def outages(self) -> Outages:
        """How long operations wait for a database that is away, and when it came back."""
        return self._database.outages

    @property
    def dialect(self) -> Dialect:
        """The kind of database."""
        return self._database.dialect

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return await self._database.write(_schema_version)

    async def due_migrations(self) -> list[Migration]:
        """Return the migrations that opening the store would run, without opening it."""
        return self._migrations.due(await self._database.applied(), "the store")

    async def probe(self) -> None:
        """Raise `StoreError` if the database does not answer, its file is gone, or a newer version has changed it."""
        await self._database.probe()
        await self._database.read(self._refuse_newer)

    def _refuse_newer(self) -> Operation[None]:
        self._migrations.due(Applied.of((yield APPLIED, ())), "the store")

    async def read(self, operation: Callable[P, Operation[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads, on one snapshot."""
        return await self._database.read(partial(operation, *args, **kwargs))

    async def write(self, operation: Callable[P, Operation[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction, which is committed exactly once or not at all."""
        return await self._database.write(partial(operation, *args, **kwargs))

    async def write_long(self, operation: Callable[P, Operation[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation of many statements without blocking the event loop."""
        return await self._database.write(partial(operation, *args, **kwargs), long=True)

    async def load_content(self, stored: StoredBytes) -> bytes:
        """Read bytes that stand apart from their row. Raise `StoreDamaged` if they are missing."""
        data = await self.read(read_content, stored.hash)
        if data is None:
            raise StoreDamaged(f"the file {stored.hash} is missing in the store: see `lango sessions check`")
        return data

    async def load_files(
        self, events: Iterable[StoredEvent], wanted: Callable[[Mapping[str, Any]], bool] = lambda file: True
    ) -> None:
        """Load the bytes of the files of stored messages into these messages, or of the `wanted` ones."""
        loaded: dict[str, bytes] = {}
        for event in events:
            for blob in blobs_of_event(event):
                if isinstance(data := blob.get("data"), StoredBytes) and wanted(blob):
                    if data.hash not in loaded:
                        loaded[data.hash] = await self.load_content(data)
                    blob["data"] = loaded[data.hash]

    async def delete_session(self, name: SessionId) -> bool:
        """Delete a session and purge its text; return whether it existed."""
        if not name.is_storable:
            return False
        deleted = await self.write_long(delete_session, name)
        if deleted:
            await self.purge()
        return deleted

    async def purge(self) -> None:
        """Remove the remains of deleted text from the search index and from the write-ahead log of a SQLite file."""
        await index.purge_index(self._database)
        await self._database.purge()

    async def search(
        self, app_name: str, user_id: str, words: str, *, limit: int = 20, indexing: index.IndexProgress | None = None
    ) -> list[query.Hit]:
        """Search a user's messages and titles for all of some words; see `lango.store.search.query`.

        `indexing` is called with the number of new messages that are indexed so far, and of all new ones.
        """
        if not SessionId(app_name, user_id, "").is_storable:
            return []
        await self.update_search_index(app_name, user_id, indexing)
        return await self.read(query.search, self.dialect, app_name, user_id, words, limit)

    async def update_search_index(
        self, app_name: str, user_id: str, indexing: index.IndexProgress | None = None
    ) -> None:
        """Bring the search index of a user's sessions up to date, unless it cannot be written."""
        try:
            await index.update_index(self._database, app_name, user_id, indexing, self.language)
        except StoreUnavailable as error:  # of a file that cannot be written, the indexed part is searched
            _log.warning("the search index is not up to date: %s", error)

    def append(
        self,
        key: int,
        name: SessionId,
        revision: int,
        entry: NewEvent,
        *,
        epoch: int | None = None,
        ends_turn: bool = False,
        last_seq: int | None = None,
    ) -> Coroutine[Any, Any, AppendResult]:
        """Append an event to its session; `last_seq`, its newest message, makes it faster; see `sessions.append`."""
        return self._database.write(
            lambda: append(key, name, revision, entry, epoch, ends_turn=ends_turn),
            long=entry.is_large,
            single_statement=lambda: append_statement(key, revision, last_seq, entry, epoch, ends_turn=ends_turn),
        )

    async def submit_turn(
        self,
        session: SessionInfo,
        entry: NewEvent,
        owner: str,
        options: submit.SubmitOptions = submit.SubmitOptions(),
    ) -> turns.Turn:
        """Store a turn with its input; it starts, or is queued behind the open turns; see `turns.submit`."""
        is_large = entry.is_large or is_larger_than(options.request.as_json, LARGE_VALUE)
        operation = partial(submit.submit, session.key, session.name, entry, owner, time.time(), options)
        turn = await self._database.write(operation, long=is_large)
        if options.is_left:
            self._database.notify_changed(_RELEASES, elsewhere=True)
        return turn

    async def end_turn(
        self,
        name: SessionId,
        turn: turns.Turn,
        outcome: ending.Outcome,
        result: TurnResult | None = None,
        events: Sequence[LoggedEvent] = (),
    ) -> bool:
        """End a running turn and notify the queued ones; return False if its lease was lost."""
        is_large = sum(len(event.data) for event in events) > LARGE_VALUE
        operation = partial(ending.end_turn, turn, name, outcome, time.time(), result or TurnResult(), events)
        ended = await self._database.write(operation, long=is_large)
        self._database.notify_changed(turn.session_key, elsewhere=ended.others_are_queued)
        if ended.is_reported:
            self.notify_due()
        return ended.ended

    async def withdraw_turn(self, turn: turns.Turn) -> bool:
        """Withdraw a queued turn and notify the others; return False if it runs already."""
        withdrawn = await self.write(ending.withdraw_turn, turn, time.time())
        self._database.notify_changed(turn.session_key, elsewhere=withdrawn)
        return withdrawn

    async def take_messages(
        self, turn: turns.Turn, version: tuple[SessionId, int], invocation_id: str, place: Mapping[str, Any]
    ) -> steering.TakenMessages:
        """Take the messages that steer a running turn into it; `version` is the session's name and revision."""
        taken = await self.write(steering.take_messages, turn, *version, invocation_id, place, time.time())
        self._database.notify_changed(turn.session_key, elsewhere=bool(taken.messages))
        return taken

    async def interrupt_turn(self, session: SessionInfo, abandoned: turns.OpenTurn) -> bool:
        """End a session's first open turn, whose owner is gone; return False if it is not first, or was taken over."""
        interrupted = await self.write(ending.interrupt_turn, session.key, session.name, abandoned, time.time())
        self._database.notify_changed(session.key, elsewhere=interrupted)
        return interrupted

    async def release_turn(self, turn: turns.Turn, owner: str) -> None:
        """Give up an open turn, and notify the processes that may take it over."""
        await self.write(lease.release_turn, turn.session_key, turn.turn, owner)
        self._database.notify_changed(_RELEASES, elsewhere=True)

    async def forget_replica(self, owner: str) -> None:
        """Delete a replica that stops, and notify the others: turns of its version may be theirs now."""
        await self.write(lease.forget_replica, owner)
        self._database.notify_changed(_RELEASES, elsewhere=True)

    def notify_readers(self, key: int) -> None:
        """Notify those who follow the event log of a session, in any process."""
        self._database.notify_changed(key, elsewhere=True)

    async def answer_question(self, key: int, wait_id: str, content: str, answered_by: str) -> bool:
        """Store the answer to a question of a running tool and notify the tool; return False if it is not open."""
        answered = await self.write(answer_question, key, wait_id, content, answered_by)
        self._database.notify_changed(key, elsewhere=answered)
        return answered

    @asynccontextmanager
    async def watch(self, key: int) -> AsyncGenerator[Callable[[float], Awaitable[bool]]]:
        """Watch a session: yield a function that waits until it may have changed, or for some seconds."""
        async with self._database.subscribe(key) as changes:
            yield changes.wait

    @asynccontextmanager
    async def watch_events(self, key: int) -> AsyncGenerator[Callable[[float], Awaitable[bool]]]:
        """Watch the event log of a session: yield a function that waits for a notification, or for some seconds."""
        async with self._database.subscribe(key, every_commit=False) as changes:  # else each would wake every reader
            yield changes.wait

    @asynccontextmanager
    async def watch_releases(self) -> AsyncGenerator[Callable[[float], Awaitable[bool]]]:
        """Watch for turns that processes release: yield a function that waits for one, or for some seconds."""
        async with self._database.subscribe(_RELEASES) as changes:
            yield changes.wait

    def notify_due(self) -> None:
        """Note that this process has stored something that may be due sooner than what is known."""
        self._due.notify(_DUE)

    @contextmanager
    def watch_due(self) -> Generator[Callable[[float], Awaitable[bool]]]:
        """Watch for what this process stores and may be due soon: yield a function that waits for it, or a time."""
        with self._due.subscribe(_DUE) as changes:
            yield changes.wait

    @asynccontextmanager
    async def watch_queue(self, turn: turns.Turn) -> AsyncGenerator[Callable[[float], Awaitable[None]]]:
        """Watch the queue of a session: yield a function that waits until the turn is next, or for some seconds."""
        async with self._database.subscribe(turn.session_key) as changes:

            async def wait_until_next(timeout_s: float) -> None:
                deadline = time.monotonic() + timeout_s
                while (left_s := deadline - time.monotonic()) > 0 and await changes.wait(left_s):
                    if await self.read(queue.is_next, turn.session_key, turn.turn):
                        return

            yield wait_until_next


def _schema_version() -> Operation[int]:
    [[version]] = yield "SELECT MAX(version) FROM lango_schema", ()
    return version
