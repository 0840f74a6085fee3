"""The store: every operation as a coroutine, on SQLite or PostgreSQL alike."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Self, TypeVar

from lango.errors import StoreUnavailable, Unstorable
from lango.store.api_keys import KeyStore
from lango.store.codec.records import AppendResult, NewEvent, SessionId, SessionRecord, StoredEvent
from lango.store.engine.database import Operation
from lango.store.engine.outages import DEFAULT_WAIT_S, Outages
from lango.store.engine.urls import open_database
from lango.store.lifecycle import delete, integrity
from lango.store.memory.memory_store import MemoryStore
from lango.store.search import index, query
from lango.store.sessions import sessions, state, window
from lango.store.sessions.append import append
from lango.store.sessions.append_statement import append_statement
from lango.store.turns import approvals, client_calls, event_log, lease, queue, submit, tool_journal, turns

T = TypeVar("T")

_log = logging.getLogger("lango.store")


class Store:
    """Sessions, messages, state and turns in SQL. Safe from any task, thread and event loop."""

    def __init__(self, url: str, *, wait_s: float = DEFAULT_WAIT_S) -> None:
        """`wait_s`: how long a turn waits for a database that is away; see `lango.store.engine.outages`."""
        self._database = open_database(url, wait_s=wait_s)
        self._memory = MemoryStore(self._database)
        self._keys = KeyStore(self._database)

    async def __aenter__(self) -> Self:
        """Open the database now, so that what is wrong with it is known now."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def open(self) -> None:
        """Open the database and bring its schema up to date; done by the first use anyway."""
        await self._database.write(_schema_version)

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        await self._database.close()

    @property
    def outages(self) -> Outages:
        """How long operations wait for a database that is away, and when it came back."""
        return self._database.outages

    @property
    def keys(self) -> KeyStore:
        """The API keys, and what each has spent."""
        return self._keys

    @property
    def memory(self) -> MemoryStore:
        """What was observed of sessions, and learned of users."""
        return self._memory

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return await self._database.write(_schema_version)

    async def write(self, operation: Callable[[], Operation[T]], *, long: bool = False) -> T:
        """Run an operation of this package in one transaction; `long`: it takes more than a moment."""
        return await self._database.write(operation, long=long)

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation of this package that only reads, on one snapshot."""
        return await self._database.read(operation)

    async def create_session(
        self, name: SessionId, state: Mapping[str, Any] | None = None, *, now: float | None = None
    ) -> SessionRecord:
        """Make a session. Raise `SessionExists` where there is one of that name."""
        at = time.time() if now is None else now
        return await self._database.write(lambda: sessions.create_session(name, state or {}, at))

    async def session(self, name: SessionId) -> SessionRecord | None:
        """Read a session without its messages."""
        if not _storable(name):
            return None
        return await self._database.read(lambda: sessions.find_session(name))

    async def sessions(self, app_name: str | None = None, user_id: str | None = None) -> list[SessionRecord]:
        """Read every session, or those of an app, or those of one of its users, oldest update first."""
        if not _storable(SessionId(app_name or "", user_id or "", "")):
            return []
        return await self._database.read(lambda: sessions.list_sessions(app_name, user_id))

    async def delete_session(self, name: SessionId) -> bool:
        """Delete a session and all that belongs to it; say whether there was one."""
        if not _storable(name):
            return False
        deleted = await self._database.write(lambda: delete.delete_session(name), long=True)
        if deleted:
            await self.purge()
        return deleted

    async def purge(self) -> None:
        """Remove the remains of deleted text: from the search index, and from the log beside a SQLite file."""
        await index.purge_index(self._database)
        await self._database.purge()

    async def probe(self) -> None:
        """Raise `StoreError` where the database cannot be used: it does not answer, or its file is gone or replaced."""
        await self._database.probe()

    async def search(
        self, app_name: str, user_id: str, words: str, *, limit: int = 20, indexing: index.IndexProgress | None = None
    ) -> list[query.Hit]:
        """Find messages and titles of a user's sessions that hold every word; see `lango.store.search.query`.

        `indexing` is told how many messages that are new to the index are in it, and of how many.
        """
        if not _storable(SessionId(app_name, user_id, "")):
            return []
        try:
            await index.update_index(self._database, app_name, user_id, indexing)
        except StoreUnavailable as error:  # a file that cannot be written: what is in the index is found all the same
            _log.warning("the index of the search is not up to date: %s", error)
        dialect = self._database.dialect
        return await self._database.read(lambda: query.search(dialect, app_name, user_id, words, limit))

    async def check(self, name: SessionId) -> list[integrity.Problem]:
        """Return what is wrong with a session, if anything is; see `lango.store.lifecycle.integrity`."""
        return await self._database.read(lambda: integrity.check_session(name))

    async def check_database(self) -> list[integrity.Problem]:
        """Return what is wrong with the database as a whole, as far as it can tell."""
        dialect = self._database.dialect
        return await self._database.read(lambda: integrity.check_database(dialect))

    async def user_state(self, app_name: str, user_id: str) -> dict[str, Any]:
        """Read the state of a user, without prefixes."""
        if not _storable(SessionId(app_name, user_id, "")):
            return {}
        return await self._database.read(lambda: state.read_user_state(app_name, user_id))

    async def state_at(self, key: int, seq: int) -> dict[str, Any]:
        """Return the session's own state as it was when message `seq` was the newest."""
        return await self._database.read(lambda: state.read_state_at(key, seq))

    async def state_before(self, key: int, invocation_id: str) -> dict[str, Any]:
        """Return the session's own state as it was before an invocation."""
        return await self._database.read(lambda: state.read_state_before(key, invocation_id))

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
        """Store an event at the end of its session; see `lango.store.sessions.append`.

        Who knows the session's newest message, `last_seq`, is served faster.
        """
        return self._database.write(
            lambda: append(key, name, revision, entry, epoch, ends_turn=ends_turn),
            shortcut=lambda: append_statement(key, revision, last_seq, entry, epoch, ends_turn=ends_turn),
        )

    async def events(
        self, name: SessionId, newest: int | None = None, since: float | None = None
    ) -> tuple[SessionRecord, list[StoredEvent]] | None:
        """Read a session with every event in order, or the `newest`, or those not older than `since`."""
        if not _storable(name):
            return None
        return await self._database.read(lambda: _with_session(name, lambda s: window.read_events(s, newest, since)))

    async def window(
        self, name: SessionId, budget_tokens: int, max_messages: int | None = None
    ) -> tuple[SessionRecord, list[StoredEvent]] | None:
        """Read a session with the newest messages that fit a token budget, and at most so many."""
        if not _storable(name):
            return None
        return await self._database.read(
            lambda: _with_session(name, lambda s: window.read_window(s, budget_tokens, max_messages))
        )

    # -- turns ----------------------------------------------------------------------------------------------------

    async def submit_turn(
        self,
        session: SessionRecord,
        entry: NewEvent,
        owner: str,
        *,
        idempotency_key: str | None = None,
        wait: bool = True,
        answer: approvals.ApprovalAnswer | None = None,
        at_revision: int | None = None,
    ) -> turns.Turn:
        """Store a turn with the user's message, or an answer of theirs; it runs at once, or waits for those ahead.

        With `at_revision`, raise `StaleSession` unless the session is at just that revision, and nothing is ahead.
        """
        what = (session.key, session.name, entry, owner, time.time(), idempotency_key)
        return await self._database.write(
            lambda: submit.submit(*what, queue=wait, answer=answer, at_revision=at_revision), long=bool(entry.preceding)
        )

    async def claim_turn(self, name: SessionId, turn: turns.Turn) -> turns.Turn | list[turns.QueuedTurn]:
        """Run a queued turn, if nothing is ahead of it any more; else return what is."""
        now = time.time()
        return await self._database.write(lambda: lease.lease_turn(turn.session_key, name, turn.turn, now))

    async def open_turns(self, session: SessionRecord, *, before: int) -> list[turns.QueuedTurn]:
        """Read the turns before one that run or are queued, in order."""
        return await self._database.read(lambda: queue.read_open_turns(session.key, before))

    @asynccontextmanager
    async def watch_queue(self, turn: turns.Turn) -> AsyncGenerator[Callable[[float], Awaitable[None]]]:
        """Watch the queue of a session; what is yielded waits until nothing is ahead of the turn, so long at most."""
        async with self._database.subscribe(turn.session_key) as changes:

            async def comes_up(timeout_s: float) -> None:
                deadline = time.monotonic() + timeout_s
                while (left_s := deadline - time.monotonic()) > 0 and await changes.wait(left_s):
                    if await self._database.read(lambda: queue.is_next(turn.session_key, turn.turn)):
                        return

            yield comes_up

    async def interrupt_turn(self, session: SessionRecord, abandoned: turns.QueuedTurn) -> bool:
        """End the first open turn of a session, whose process is gone; False: it is not the first, or it moved on."""
        now = time.time()
        interrupted = await self._database.write(
            lambda: lease.interrupt_turn(session.key, session.name, abandoned, now)
        )
        self._database.notify_changed(session.key, elsewhere=interrupted)
        return interrupted

    async def beat_turn(self, turn: turns.Turn) -> Literal["alive", "cancelled", "lost"]:
        """Say that the turn's process lives; hear whether the turn was cancelled or lost."""
        return await self._database.write(lambda: lease.renew_lease(turn))

    async def end_turn(
        self, name: SessionId, turn: turns.Turn, outcome: turns.Outcome, extra: Mapping[str, Any] | None = None
    ) -> bool:
        """End a running turn, closing the calls that it left open; False: it was lost before."""
        now = time.time()
        ended = await self._database.write(lambda: turns.end_turn(turn, name, outcome, now, extra))
        self._database.notify_changed(turn.session_key, elsewhere=ended.others_are_queued)
        return ended.ended

    async def withdraw_turn(self, turn: turns.Turn) -> bool:
        """Take back a turn that still waits; False: it runs already."""
        now = time.time()
        withdrawn = await self._database.write(lambda: queue.withdraw_turn(turn, now))
        self._database.notify_changed(turn.session_key, elsewhere=withdrawn)
        return withdrawn

    async def turn(self, turn: turns.Turn) -> turns.TurnRecord | None:
        """Read what became of a turn."""
        return await self._database.read(lambda: turns.read_turn(turn.session_key, turn.turn))

    async def said_in_turn(self, turn: turns.Turn) -> list[StoredEvent]:
        """Read what the agents said in a turn, and nothing else of its session."""
        return await self._database.read(lambda: turns.read_turn_texts(turn.session_key, turn.turn))

    async def cancel_turn(self, session: SessionRecord, *, before: int | None = None) -> bool:
        """Ask the running turn of a session to stop, wherever it runs; False: none runs, or none before that turn."""
        return await self._database.write(lambda: turns.request_cancel(session.key, before))

    async def client_calls(self, session: SessionRecord) -> list[client_calls.ClientCall]:
        """Read the calls that wait for the client to make them."""
        return await self._database.read(lambda: client_calls.read_client_calls(session))

    # -- questions for approval -------------------------------------------------------------------------------------

    async def open_questions(self, session: SessionRecord) -> list[approvals.ApprovalRequest]:
        """Read the questions for approval that an answer is still taken for."""
        return await self._database.read(lambda: approvals.read_approval_requests(session))

    async def expire_questions(self, key: int) -> bool:
        """Close the questions of a session whose time is over; False: a turn runs there, try again after it."""
        now = time.time()
        return await self._database.write(lambda: approvals.expire_approvals(key, now))

    # -- the journal of effects -------------------------------------------------------------------------------------

    async def intend_effect(
        self,
        turn: turns.Turn,
        call_id: str,
        name: str,
        effect: tool_journal.Effect,
        arguments: str,
        approval: tool_journal.ApprovalDecision | None = None,
    ) -> None:
        """Note that a call is about to be made."""
        now, epoch = time.time(), turn.epoch or 0
        await self._database.write(
            lambda: tool_journal.record_intent(turn.session_key, epoch, call_id, name, effect, arguments, now, approval)
        )

    async def start_effect(self, turn: turns.Turn, call_id: str) -> bool:
        """Note that a tool begins; False: it began before, and must not begin again."""
        now, epoch = time.time(), turn.epoch or 0
        return await self._database.write(lambda: tool_journal.record_start(turn.session_key, epoch, call_id, now))

    async def check_lease(self, turn: turns.Turn) -> None:
        """Raise `FencedWrite` where another process took a running turn over."""
        epoch = turn.epoch or 0
        await self._database.write(lambda: sessions.check_epoch(turn.session_key, epoch))

    async def finish_effect(
        self,
        turn: turns.Turn,
        call_id: str,
        result: Mapping[str, Any] | None,
        status: tool_journal.JournalStatus = "finished",
    ) -> None:
        """Note how a tool ended, and its result."""
        now, epoch = time.time(), turn.epoch or 0
        await self._database.write(
            lambda: tool_journal.record_result(turn.session_key, epoch, call_id, status, result, now)
        )

    async def keep_whole(self, turn: turns.Turn, call_id: str, text: str) -> None:
        """Keep the whole text of a result that the model is shown clipped."""
        epoch = turn.epoch or 0
        await self._database.write(lambda: tool_journal.store_full_result(turn.session_key, epoch, call_id, text))

    async def read_whole(self, key: int, call_id: str, offset: int, limit: int) -> str | None:
        """Read a piece of a result that was clipped."""
        return await self._database.read(lambda: tool_journal.read_full_result(key, call_id, offset, limit))

    async def effect(self, key: int, call_id: str) -> tool_journal.JournalEntry | None:
        """Read what the journal says of a call."""
        return await self._database.read(lambda: tool_journal.read_journal_entry(key, call_id))

    async def effects_of(self, key: int, messages: Sequence[StoredEvent]) -> tool_journal.JournalByCall:
        """Read what the journal says of the calls in messages, without their results."""
        return await self._database.read(lambda: tool_journal.read_journal_entries(key, messages))

    # -- what a server keeps --------------------------------------------------------------------------------------

    async def sessions_page(
        self, app_name: str, user_id: str, *, after: tuple[float, int] | None = None, limit: int = 50
    ) -> Sequence[SessionRecord]:
        """Read some sessions of a user without their state, the newest first, after one's (updated_at, key)."""
        return await self._database.read(lambda: sessions.list_session_page(app_name, user_id, after, limit))

    async def messages_page(
        self, session: SessionRecord, *, before: int | None = None, limit: int = 50
    ) -> list[StoredEvent]:
        """Read the newest messages before a sequence number, in order."""
        return await self._database.read(lambda: window.read_message_page(session, before, limit))

    async def message(self, session: SessionRecord, seq: int) -> StoredEvent | None:
        """Read one message; None: there is none of that number, or a rewind took it back."""
        return await self._database.read(lambda: window.read_message(session, seq))

    async def add_told(self, key: int, turn: int, told: Sequence[event_log.LoggedEvent]) -> bool:
        """Store what clients are told of a turn; False: somebody else closed it, or the session is gone."""
        return await self._database.write(lambda: event_log.append_log_events(key, turn, told))

    async def add_told_of_many(self, batches: Sequence[event_log.EventBatch]) -> list[bool]:
        """Store what clients are told of many turns, as `add_told` does for one; in one transaction."""
        return await self._database.write(lambda: event_log.append_log_batches(batches, self._database.dialect))

    async def told(self, key: int, turn: int, after_id: int = 0) -> event_log.LogPage:
        """Read what clients were told of a turn after an id, and what became of the turn."""
        return await self._database.read(lambda: event_log.read_event_log(key, turn, after_id))

    async def close_told(self, key: int, turn: int) -> None:
        """Tell the end of a turn that is over and that nobody tells any more."""
        await self._database.write(lambda: event_log.append_final_events(key, turn))

    async def newest_turn(self, session: SessionRecord) -> int | None:
        """Return the newest turn of a session that no rewind took back."""
        return await self._database.read(lambda: queue.find_newest_turn(session))

    async def next_turn(self, session: SessionRecord, turn: int) -> int | None:
        """Return the turn after one, of those that no rewind took back."""
        return await self._database.read(lambda: queue.find_next_turn(session, turn))


def _schema_version() -> Operation[int]:
    [[version]] = yield "SELECT MAX(version) FROM lango_schema", ()
    return version


def _with_session(
    name: SessionId, read: Callable[[SessionRecord], Operation[list[StoredEvent]]]
) -> Operation[tuple[SessionRecord, list[StoredEvent]] | None]:
    session = yield from sessions.find_session(name)
    if session is None:
        return None
    return session, (yield from read(session))


def _storable(name: SessionId) -> bool:
    try:
        name.check()
    except Unstorable:
        return False
    return True
