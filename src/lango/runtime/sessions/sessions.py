"""List, read, trace, rename, fork, rewind, export, import and delete the sessions of an app.

Each session belongs to a user; to other users it does not exist.
"""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lango.development.failures import Failure
from lango.development.test_cases import Exchange
from lango.errors import SessionExists, StaleSession, TurnRunning
from lango.events import NodeProgress
from lango.history import WindowRules
from lango.messages import StoredBytes
from lango.runtime.sessions.eval_sets import session_cases
from lango.runtime.sessions.session_document import DocumentFormat, session_document
from lango.runtime.sessions.session_messages import MessagePage, read_messages
from lango.runtime.sessions.session_state import SessionState, change_state, session_state
from lango.runtime.sessions.session_transfer import export_session, import_session
from lango.runtime.sessions.session_usage import DEFAULT_TURNS, SessionUsage, UsageByDay, read_usage, usage_by_day
from lango.runtime.sessions.session_watch import SessionWatch
from lango.runtime.trace.prices import Prices
from lango.runtime.trace.session_trace import DEFAULT_TURNS as DEFAULT_TRACED_TURNS
from lango.runtime.trace.session_trace import (
    ReadableRequest,
    RunningCalls,
    SessionTrace,
    no_running_calls,
    readable_request,
    session_trace,
    traced_event,
)
from lango.sessions import SessionId, SessionInfo, StoredEvent, check_client_state
from lango.store import Store
from lango.store.contents import read_pieces
from lango.store.lifecycle import fork as forks
from lango.store.lifecycle import rewind as rewinds
from lango.store.lifecycle.integrity import Problem, check_session
from lango.store.search.index import IndexProgress
from lango.store.search.query import Hit
from lango.store.sessions import titles
from lango.store.sessions.developer_log import ModelRequest, read_failures, read_request
from lango.store.sessions.sessions import (
    create_session,
    find_apps,
    find_session,
    find_session_by_key,
    get_session,
    get_titled_session,
    list_session_page,
)
from lango.store.sessions.window import read_message, read_message_page
from lango.store.turns.event_log import read_nodes
from lango.store.turns.queue import read_open_turns
from lango.store.turns.turns import read_resumptions
from lango.turns.liveness import standing_of_owner

if TYPE_CHECKING:
    from lango.store.transfer.import_check import Lines


class Sessions:
    """The sessions of one app."""

    def __init__(
        self,
        store: Store,
        app_name: str,
        rules: Callable[[], WindowRules] = WindowRules,
        credential_names: Callable[[], Collection[str]] = frozenset,
        running_calls: RunningCalls = no_running_calls,
        prices: Prices | None = None,
    ) -> None:
        """`rules` returns the limits of the agent's next request, `credential_names` what no client may write."""
        self._credential_names = credential_names
        self._running_calls = running_calls
        self._prices = prices or {}
        self._store = store
        self._app_name = app_name
        self._rules = rules
        self.changes = SessionWatch(store, app_name)
        """Notifies readers of changes to the sessions of users."""

    async def list(
        self, *, user_id: str = "user", after: SessionInfo | tuple[float, int] | None = None, limit: int = 50
    ) -> Sequence[SessionInfo]:
        """Read sessions without their state, the newest first, or those that follow `after`.

        `after` is a session, or its `updated_at` and `key`.
        """
        place = (after.updated_at, after.key) if isinstance(after, SessionInfo) else after
        return await self._store.read(list_session_page, self._app_name, user_id, after=place, limit=limit)

    async def read(self, session_id: str, *, user_id: str = "user") -> SessionInfo:
        """Read a session with its state and title. Raise `SessionNotFound`."""
        return await self._store.read(get_titled_session, self._name(session_id, user_id))

    async def find(self, session_id: str, *, user_id: str = "user") -> SessionInfo | None:
        """Find a session with its state; it has a title only if it was given one."""
        return await self._store.read(find_session, self._name(session_id, user_id))

    async def find_by_key(self, key: int) -> SessionInfo | None:
        """Find a session by its `key`, of any app and user."""
        return await self._store.read(find_session_by_key, key)

    async def find_apps(self, session_id: str, apps: Iterable[str], *, user_id: str = "user") -> Sequence[str]:
        """Return which of the apps have a session of a user with that id."""
        return await self._store.read(find_apps, apps, user_id, session_id)

    async def page(self, session: SessionInfo, *, before: int | None = None, limit: int = 50) -> Sequence[StoredEvent]:
        """Read the newest messages of a session that was found, or the newest before a sequence number, in order."""
        return await self._store.read(read_message_page, session, before=before, limit=limit)

    async def page_with_details(self, session: SessionInfo, *, before: int | None, limit: int) -> MessagePage:
        """Read messages as `page` does, with their tool runs, the progress of workflows, and errors of turns."""
        return await self._store.read(read_messages, session, before, limit)

    async def message(self, session: SessionInfo, seq: int) -> StoredEvent | None:
        """Read a message of a session that was found, unless a rewind removed it."""
        return await self._store.read(read_message, session, seq)

    async def load_files(self, messages: Iterable[StoredEvent]) -> None:
        """Load the bytes of the files of messages into these messages."""
        await self._store.load_files(messages)

    async def read_file(self, data: StoredBytes, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield a part of a file of a message or an artifact, in pieces; stop early if it was deleted."""
        for read_piece in read_pieces(data, start, end):
            piece = await self._store.read(read_piece)
            if piece is None:
                return
            yield piece

    async def state(self, session_id: str, *, user_id: str = "user", at: int | None = None) -> SessionState:
        """Read the state of a session now, or at a message. Raise `SessionNotFound` or `MessageNotFound`."""
        return await session_state(self._store, self._name(session_id, user_id), at)

    def check_state(self, delta: Mapping[str, Any]) -> None:
        """Raise `StateRefused` if a change of the state has names or values that clients may not write."""
        check_client_state(delta, self._credential_names())

    async def change_state(
        self, session_id: str, delta: Mapping[str, Any], *, user_id: str = "user", with_answer: bool = False
    ) -> None:
        """Change the state of a session between its turns, or `with_answer` to a wait.

        Raise `StateRefused` for names and values that clients may not write, `SessionNotFound`, or `StaleSession`
        while a turn runs: its agent works with the state that it has read.
        """
        name = self._name(session_id, user_id)
        await change_state(self._store, name, delta, self._credential_names(), with_answer=with_answer)

    async def messages(
        self, session_id: str, *, user_id: str = "user", before: int | None = None, limit: int = 50
    ) -> Sequence[StoredEvent]:
        """Read the newest messages, or the newest before a sequence number, in order."""
        session = await self.read(session_id, user_id=user_id)
        return await self._store.read(read_message_page, session, before=before, limit=limit)

    async def nodes(self, session: SessionInfo, first_seq: int) -> Mapping[int, Sequence[NodeProgress]]:
        """Read the progress of the nodes of workflows from a message on, by the message that started their turn."""
        return await self._store.read(read_nodes, session, first_seq, session.last_seq)

    async def usage(
        self, session_id: str, *, user_id: str = "user", before: int | None = None, limit: int = DEFAULT_TURNS
    ) -> SessionUsage:
        """Read what the newest turns used, or the newest before a turn, and what the next request would keep."""
        name = self._name(session_id, user_id)
        return await self._store.read(read_usage, name, self._rules(), before=before, limit=limit)

    async def usage_by_day(self, since: float, *, user_id: str | None = "user") -> UsageByDay:
        """Read what the turns since a time used, in all sessions of a user, or of all users: by day and model."""
        return await usage_by_day(self._store, self._app_name, user_id, since, self._prices)

    async def failures(self, session_id: str, *, user_id: str = "user") -> Sequence[Failure]:
        """Read the newest failures of the user's own code in the turns of a session, the oldest first.

        Raise `SessionNotFound`. Tracebacks are for developers: show them to operators only.
        """
        return await self._store.read(read_failures, self._name(session_id, user_id))

    async def trace(
        self,
        session_id: str,
        *,
        user_id: str = "user",
        turn: int | None = None,
        before: int | None = None,
        limit: int = DEFAULT_TRACED_TURNS,
    ) -> SessionTrace:
        """Read what happened in the newest turns, in those before a turn, or in one: agents, model calls, tools.

        It may be called while a turn runs. Raise `SessionNotFound`, or `TraceNotFound` if there is no such turn.
        """
        name, calls = self._name(session_id, user_id), self._running_calls
        return await session_trace(
            self._store, name, turn=turn, before=before, limit=limit, running_calls=calls, prices=self._prices
        )

    async def traced_request(self, session_id: str, request_id: str, *, user_id: str = "user") -> ModelRequest:
        """Read a request to a model and its response, as they went over the wire. Raise `TraceNotFound`.

        They are kept with the setting `trace.requests`.
        """
        name = self._name(session_id, user_id)
        return (await self._store.read(read_request, name, request_id))[0]

    async def readable_request(self, session_id: str, request_id: str, *, user_id: str = "user") -> ReadableRequest:
        """Read a request to a model as people read it, with its merged answer and what differs from the one before.

        Raise `TraceNotFound`.
        """
        return await readable_request(self._store, self._name(session_id, user_id), request_id)

    async def traced_event(self, session_id: str, seq: int, *, user_id: str = "user") -> dict[str, Any]:
        """Read a message as it is stored, even if it was rewound. Raise `MessageNotFound` if there is none."""
        return await traced_event(self._store, self._name(session_id, user_id), seq)

    async def create(
        self,
        session_id: str | None = None,
        *,
        user_id: str = "user",
        state: Mapping[str, Any] | None = None,
        title: str | None = None,
    ) -> SessionInfo:
        """Create a session. Raise `SessionExists` if there is one of that id.

        Raise `StateRefused` if `state` has a credential, or a name that ADK reserves.
        """
        self.check_state(state or {})
        name = self._new_session_id(session_id, user_id)
        cleaned_title = titles.clean_title(title)
        created = await self._store.write(create_session, name, state, time.time())
        return await self.rename(created.name.id, cleaned_title, user_id=user_id) if cleaned_title else created

    async def rename(self, session_id: str, title: str | None, *, user_id: str = "user") -> SessionInfo:
        """Set the title of a session; without one, its first words are the title again."""
        name = self._name(session_id, user_id)
        await self._store.write(titles.rename_session, name, title)
        return await self.read(session_id, user_id=user_id)

    async def fork(
        self,
        session_id: str,
        *,
        user_id: str = "user",
        at: int | None = None,
        new_id: str | None = None,
        title: str | None = None,
    ) -> SessionInfo:
        """Create a session with the same messages up to message `at`, and the state at that message.

        None is all messages, 0 only the first state. The messages are shared, not copied: it takes as long for 100,000
        as for ten.
        """
        name, new, now = self._name(session_id, user_id), self._new_session_id(new_id, user_id), time.time()
        return await self._store.write_long(forks.fork_session, name, new, at, title, now)

    async def rewind(self, session_id: str, *, before: int, user_id: str = "user") -> SessionInfo:
        """Rewind the turn that holds message `before`, and all later turns; the state is that before the turn.

        Nothing is deleted, as in ADK's own rewind. Raise `TurnRunning` while a turn runs or is queued.
        """
        name, now = self._name(session_id, user_id), time.time()
        try:
            return await self._store.write_long(rewinds.rewind_session, name, before, now)
        except TurnRunning:
            if not await self._interrupt_dead_turns(name):
                raise
        return await self._store.write_long(rewinds.rewind_session, name, before, now)

    async def delete(self, session_id: str, *, user_id: str = "user") -> bool:
        """Delete a session with all its data; return False if there is none. Forks keep the messages they share."""
        return await self._store.delete_session(self._name(session_id, user_id))

    async def check(self, session_id: str, *, user_id: str = "user") -> Sequence[Problem]:
        """Check the stored data of a session, and return the problems; see `lango.store.lifecycle.integrity`."""
        return await self._store.read(check_session, self._name(session_id, user_id))

    async def search(
        self, words: str, *, user_id: str = "user", limit: int = 20, indexing: IndexProgress | None = None
    ) -> Sequence[Hit]:
        """Find messages and titles with all words, the best matches first; the last word may be incomplete.

        `indexing` is called with the number of new messages that are indexed so far, and of all new ones.
        """
        return await self._store.search(self._app_name, user_id, words, limit=limit, indexing=indexing)

    async def resumptions(self, session_id: str, *, user_id: str = "user") -> Mapping[int, Sequence[Mapping[str, Any]]]:
        """Read when and why turns were resumed, by the message that started each."""
        session = await self._store.read(get_session, self._name(session_id, user_id))
        return await self._store.read(read_resumptions, session.key)

    async def export_lines(
        self, session_id: str, *, user_id: str = "user", with_app_state: bool = True
    ) -> AsyncGenerator[str, None]:
        """Export a session as lines of JSON; see `lango.store.transfer.export_format`.

        Without `with_app_state`, what its events changed in the state that all users share is left out.

        A fork is exported with the messages that it shares. Turns that run or begin during the export are left out.
        """
        name = self._name(session_id, user_id)
        async with aclosing(export_session(self._store, name, with_app_state=with_app_state)) as lines:
            async for line in lines:
                yield line

    async def export_document(
        self, session_id: str, document_format: DocumentFormat, *, user_id: str = "user"
    ) -> AsyncGenerator[str, None]:
        """Write a conversation as a document that people read; see `lango.runtime.sessions.session_document`."""
        session = await self.read(session_id, user_id=user_id)
        async with aclosing(session_document(self._store, session, document_format)) as parts:
            async for part in parts:
                yield part

    async def exchanges(self, session_id: str, *, user_id: str = "user") -> Sequence[Exchange]:
        """Read what was said and called in a session, message by message, as a test case expects it."""
        return await (await session_cases()).session_exchanges(self._store, self._name(session_id, user_id))

    async def eval_set(self, session_id: str, *, user_id: str = "user") -> dict[str, Any]:
        """Return a session as an eval set of ADK with one case. Raise `UsageError` if it has no message yet."""
        return await (await session_cases()).session_eval_set(self._store, self._name(session_id, user_id))

    async def save_case(self, session_id: str, path: Path, case_id: str, *, user_id: str = "user") -> int:
        """Add a session as a test case to a file in ADK's eval-set format; return how many cases the file has.

        Raise `UsageError` if the session has no message yet, or the file has a case of that id.
        """
        return await (await session_cases()).save_case(self._store, self._name(session_id, user_id), case_id, path)

    async def import_lines(
        self, lines: "Lines | AsyncIterable[str | bytes]", *, user_id: str = "user", session_id: str | None = None
    ) -> SessionInfo:
        """Create a session from the lines of an export, with the same id or another one, completely or not at all.

        It does not change the state of users and apps. Raise `InvalidExport`, which names the line, or `SessionExists`.
        """
        names = self._credential_names()
        return await import_session(self._store, lines, self._app_name, user_id, session_id, credential_names=names)

    async def _interrupt_dead_turns(self, name: SessionId) -> bool:
        """Interrupt the turns of a session whose owner is gone; return False if some are still alive."""
        session = await self._store.read(get_session, name)
        for turn in await self._store.read(read_open_turns, session.key):
            if standing_of_owner(turn.owner) != "gone" or not await self._store.interrupt_turn(session, turn):
                return False
        return True

    def _name(self, session_id: str, user_id: str) -> SessionId:
        return SessionId(self._app_name, user_id, session_id)

    def _new_session_id(self, session_id: str | None, user_id: str) -> SessionId:
        return SessionId(self._app_name, user_id, (session_id or "").strip() or uuid.uuid4().hex)


async def get_or_create_session(store: Store, name: SessionId) -> SessionInfo:
    """Return a session; create it if it does not exist."""
    session = await store.read(find_session, name)
    while session is None:
        try:
            session = await store.write(create_session, name, None, time.time())
        except SessionExists:  # another process created it just now
            session = await store.read(find_session, name)
    return session


async def require_session(store: Store, name: SessionId) -> SessionInfo:
    """Return a session that was read before. Raise `StaleSession` if it was deleted since."""
    session = await store.read(find_session, name)
    if session is None:
        raise StaleSession(f"session {name.id!r} was deleted since it was read")
    return session
