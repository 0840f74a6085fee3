"""Read, follow and end the turns of a store: those of one app, and the unfinished ones of all apps."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.errors import UsageError
from lango.events import TurnEvent
from lango.messages import Attachment, Message
from lango.runtime.execution.event_log import EventLogReader
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.sessions import SessionId, SessionInfo, Status, StoredEvent
from lango.store import Store, Turn
from lango.store.sessions.client_history import find_by_input
from lango.store.sessions.sessions import get_session
from lango.store.turns import client_requests, event_log, queue
from lango.store.turns.client_requests import KeyedTurn, StoredKey
from lango.store.turns.continuing import retry_turn
from lango.store.turns.event_log import LoggedEvent, LogPage
from lango.store.turns.lease import count_open_turns
from lango.store.turns.queue import QueuedMessage
from lango.store.turns.turns import (
    FailedTurn,
    StoredTurn,
    UnfinishedTurn,
    list_failed,
    list_unfinished,
    read_turn,
    request_cancel,
)
from lango.store.waits.recovery import stop_waiting
from lango.store.waits.waits import list_unclosed, read_waits
from lango.submissions import SubmittedMessage, TurnRequest
from lango.turns.liveness import place_of_owner, standing_of_owner
from lango.turns.running_turn import RunningTurn
from lango.waits import ClientResultWait, Wait

__all__ = [
    "FailedTurn",
    "KeyedTurn",
    "ListedTurn",
    "LogPage",
    "LoggedEvent",
    "QueuedMessage",
    "StoredKey",
    "StoredTurn",
    "Turns",
    "UnfinishedTurn",
]

_POLL_S = 0.05


class ResumedTurn(Struct, frozen=True):
    """A turn whose process died, and that continues in this one."""

    running: RunningTurn
    first_seq: int | None
    """Its message in the conversation, or None if it is queued."""
    queued_text: str = ""


class LastTurn(Struct, frozen=True):
    """How the last turn of a session stands."""

    status: Status
    is_resumed: bool
    """It is open, and continues in this process because its own died."""
    error: str = ""
    """Why it failed."""


class Turns:
    """The turns of the sessions of one app."""

    def __init__(
        self,
        store: Store,
        app_name: str,
        supervisor: TurnSupervisor,
        store_queued: Callable[[SessionId, SubmittedMessage], Awaitable[int]],
        store_history: Callable[
            [SessionId, Sequence[Message], Mapping[str, Any], int | None, Mapping[str, Any] | None], Awaitable[int]
        ],
    ) -> None:
        """`store_queued` stores a message as a queued turn that this process does not run."""
        self._store = store
        self._app_name = app_name
        self._supervisor = supervisor
        self._store_queued = store_queued
        self._store_history = store_history

    async def add_history(
        self,
        session_id: str,
        history: Sequence[Message],
        *,
        user_id: str = "user",
        state_delta: Mapping[str, Any] | None = None,
        at_revision: int | None = None,
        first_state: Mapping[str, Any] | None = None,
    ) -> int:
        """Store messages of the client without starting a turn; return the number of the message before them.

        They are marked as the client's, as a history that comes with a message; `state_delta` changes the state with
        them, and `first_state` creates the session with them. Raise `SessionNotFound` or `SessionExists`,
        `TurnRunning` while the session has an open turn, or waits for an answer, or `StaleSession` if it has changed
        since `at_revision`.
        """
        name = SessionId(self._app_name, user_id, session_id)
        return await self._store_history(name, history, state_delta or {}, at_revision, first_state)

    async def leave(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Store a message as a queued turn that this process does not run, and return the turn.

        A process that runs turns of every session, such as a server, takes it; until one does, it waits.
        """
        message = SubmittedMessage(text, attachments, request=TurnRequest(idempotency_key))
        return await self._store_queued(SessionId(self._app_name, user_id, session_id), message)

    async def retry(self, session_id: str, turn: int, *, user_id: str = "user") -> None:
        """Run a turn again that failed for good, from what is stored; `lango turns follow` and readers see it continue.

        Raise `Conflict` if it did not fail, or if the conversation has continued.
        """
        session = await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))
        await self._store.write(retry_turn, session.key, turn)

    # -- as they are stored ---------------------------------------------------------------------------------------

    async def read(self, session: SessionInfo, turn: int) -> StoredTurn | None:
        """Read a turn, or None if there is none of that number."""
        return await self._store.read(read_turn, session.key, turn)

    async def newest(self, session: SessionInfo) -> int | None:
        """Return the newest turn of a session that no rewind removed."""
        return await self._store.read(queue.find_newest_turn, session)

    async def current(self, session: SessionInfo) -> int | None:
        """Return the running turn, else the first queued one, else the newest that no user withdrew or rewound."""
        return await self._store.read(queue.find_current_turn, session)

    async def next(self, session: SessionInfo, turn: int, invocation_id: str | None = None) -> int | None:
        """Return the next turn that no rewind removed; with an invocation, the next one that continues it."""
        return await self._store.read(queue.find_next_turn, session, turn, invocation_id)

    async def queued(self, session: SessionInfo) -> Sequence[QueuedMessage]:
        """Read the messages of a session's queued turns, in order."""
        return await self._store.read(queue.read_queued_messages, session.key)

    async def is_busy(self, session: SessionInfo) -> bool:
        """Whether a turn of a session runs or is queued."""
        return bool(await self._store.read(queue.read_open_turns, session.key))

    async def count_open(self) -> tuple[int, int]:
        """Return how many turns run, and how many are queued behind others, in the whole store."""
        return await self._store.read(count_open_turns)

    async def failed(self, user_id: str | None = None, limit: int = 100) -> Sequence[FailedTurn]:
        """List the turns that failed for good, the newest first, of one user or of all; see `retry`."""
        return await self._store.read(list_failed, self._app_name, user_id, limit)

    async def unfinished(self, user_id: str | None = None) -> Sequence[UnfinishedTurn]:
        """List the queued, running and paused turns, the oldest first, of one user or of all."""
        return [
            turn
            for turn in await self._store.read(list_unfinished)
            if turn.session.app_name == self._app_name and user_id in (None, turn.session.user_id)
        ]

    # -- by what their clients sent -------------------------------------------------------------------------------

    async def find_by_key(self, session: SessionInfo, idempotency_key: str) -> StoredKey | None:
        """Find the turn of an idempotency key in a session."""
        return await self._store.read(client_requests.find_key_of_session, session.key, idempotency_key)

    async def find_by_key_of_user(self, user_id: str, idempotency_key: str) -> StoredKey | None:
        """Find the turn of an idempotency key that holds in all sessions of a user."""
        return await self._store.read(client_requests.find_key_of_user, self._app_name, user_id, idempotency_key)

    async def list_by_key_prefix(self, user_id: str, prefix: str, session_id: str = "") -> Sequence[KeyedTurn]:
        """List the turns of a user, or of one session, whose idempotency keys begin with this, the newest first."""
        return await self._store.read(client_requests.list_by_key_prefix, self._app_name, user_id, prefix, session_id)

    async def message_of_key(self, session: SessionInfo, prefix: str) -> int | None:
        """Return the message of the newest recent turn whose idempotency key begins with this, or None."""
        return await self._store.read(client_requests.find_message_of_key, session.key, prefix)

    async def sessions_with_input(self, user_id: str, text: str, id_prefix: str, limit: int) -> Sequence[SessionInfo]:
        """Read a user's idle sessions, with ids that begin like this, whose newest turn had this input."""
        return await self._store.read(find_by_input, self._app_name, user_id, text, id_prefix, limit)

    async def client_calls(self, session: SessionInfo) -> set[str]:
        """Return the ids of the open calls of the client's tools."""
        waits = await self._store.read(read_waits, session.key, session.name)
        return {wait.call_id for wait in waits if isinstance(wait, ClientResultWait)}

    async def unclosed_waits(self, session: SessionInfo) -> Sequence[Wait]:
        """Return what a session waits for, with the waits that were answered and whose turns have not begun."""
        return [stored.wait for stored in await self._store.read(list_unclosed, session.key, session.name)]

    async def last_message(self, session: SessionInfo, turn: int, row: StoredTurn) -> int | None:
        """Return the last message of a turn, before the next turn's input, or None if it has not started."""
        return await self._store.read(client_requests.last_message_of_turn, session.key, turn, row)

    async def input_messages(self, session: SessionInfo, turn: int, row: StoredTurn) -> Sequence[StoredEvent]:
        """Read what the client sent for a turn: its message or results, after the history before them."""
        messages = await self._store.read(client_requests.read_input_messages, session, turn, row)
        await self._store.load_files(messages)
        return messages

    async def mark_deleted(self, session: SessionInfo, turn: int) -> bool:
        """Mark a turn as deleted for its client; return whether all turns of the session are."""
        return await self._store.write(client_requests.mark_request_deleted, session.key, turn)

    # -- their events ---------------------------------------------------------------------------------------------

    async def events(self, session: SessionInfo, turn: int, after_id: int = 0) -> LogPage:
        """Read a page of a turn's events after an id, and the turn as it is stored."""
        return await self._store.read(event_log.read_event_log, session.key, turn, after_id)

    async def all_events(self, session: SessionInfo, turn: int) -> list[TurnEvent]:
        """Read all events of a turn so far."""
        found, page = list[TurnEvent](), LogPage([], None)
        while not page.closed:
            after_id = page.last_id
            page = await self.events(session, turn, after_id)
            found += [logged.event for logged in page.events]
            if page.last_id <= after_id:
                break
        return found

    async def has_joined_texts(self, session: SessionInfo, turn: int) -> bool:
        """Whether the event log has whole texts of a turn instead of the pieces that were streamed."""
        return await self._store.read(event_log.has_joined_texts, session.key, turn)

    def follow(
        self, session: SessionInfo, turn: int, after_id: int = 0, heartbeat_s: float = float("inf")
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn after an id to its end, whichever process runs it.

        Yield None whenever no event came for `heartbeat_s`. Raise `SessionNotFound` if the session is deleted,
        `EventsGone` if the id is no longer known, `Stopping` after `stop_readers`.
        """
        return self._supervisor.reader.follow(session.key, turn, after_id, heartbeat_s)

    def stop_readers(self) -> None:
        """End all readers of turns that run elsewhere: this process stops."""
        self._supervisor.reader.stop()

    # -- of processes that died -----------------------------------------------------------------------------------

    def call_for_resumed(self, callback: Callable[[RunningTurn], None]) -> None:
        """Call a function for each turn that was or will be taken over from another process."""
        self._supervisor.call_for_resumed(callback)

    async def last(self, session: SessionInfo) -> LastTurn | None:
        """Return how the last turn of a session stands, or None if it has none."""
        newest = await self.newest(session)
        row = await self.read(session, newest) if newest else None
        if row is None:
            return None
        failed = row.result.error
        return LastTurn(row.status, self._continues_here(row), failed.message if failed else "")

    async def wait_for_resumed(self, session: SessionInfo) -> Sequence[ResumedTurn]:
        """Wait until the open turns of dead processes are taken over here, and return them in order."""
        texts = {one.turn: one.message.message for one in await self.queued(session)}
        found: list[ResumedTurn] = []
        for open_turn in await self._store.read(queue.read_open_turns, session.key):
            row = await self.read(session, open_turn.turn)
            running: RunningTurn | None = None
            while row and self._continues_here(row):
                if running := self._supervisor.find_turn(session.key, open_turn.turn):
                    break
                await asyncio.sleep(_POLL_S)
                row = await self.read(session, open_turn.turn)
            if row and running:
                message = texts.get(open_turn.turn)
                found.append(ResumedTurn(running, row.first_seq, message.content if message else ""))
        return found

    def _continues_here(self, row: StoredTurn) -> bool:
        is_own = row.owner == self._supervisor.owner.name  # this process may have taken it over already
        is_open = row.status in ("running", "queued")
        return is_open and (is_own or self._supervisor.liveness.is_gone(row.owner, row.heartbeat))


class ListedTurn(Struct, frozen=True):
    """An unfinished turn, and what becomes of it."""

    turn: UnfinishedTurn
    state: Literal["queued", "running", "paused", "released", "stranded"]
    """`released`: a process that runs its app continues it; `stranded`: its app is not configured, so none will."""
    owner: str
    """The process that runs it, for people; empty if none does."""


class UnfinishedTurns:
    """The turns of all apps of a store that have not ended, whichever process runs them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, apps: Collection[str] | None) -> list[ListedTurn]:
        """List the unfinished turns, the oldest first. `apps` are those that are configured, or None for any."""
        return [_listed(turn, apps) for turn in await self._store.read(list_unfinished)]

    async def failed(self, limit: int = 1_000) -> Sequence[FailedTurn]:
        """List the turns that failed for good, the newest first; `retry` runs one of them again."""
        return await self._store.read(list_failed, None, None, limit)

    async def follow(self, session: SessionInfo, turn: int | None = None) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of a turn, by default the current one, to its end. Raise `UsageError` if there is none."""
        number = await self._store.read(queue.find_current_turn, session) if turn is None else turn
        if number is None or await self._store.read(read_turn, session.key, number) is None:
            raise UsageError(f"session {session.name.id!r} has no such turn; `lango turns list` lists them")
        async for logged in EventLogReader(self._store).follow(session.key, number):
            if logged is not None:
                yield logged.event

    async def retry(self, session: SessionInfo, turn: int | None = None) -> int:
        """Let a turn run again that failed for good, by default the newest; return its number.

        A process that runs its app takes it over. Raise `Conflict` if it did not fail, or another turn followed it.
        """
        number = await self._store.read(queue.find_newest_turn, session) if turn is None else turn
        await self._store.write(retry_turn, session.key, number or 0)
        return number or 0

    async def cancel(self, session: SessionInfo, only: int | None = None) -> int:
        """Stop the open turns of a session, or one of them; return how many.

        A queued turn is withdrawn, its process stops a running one soon, and one without a process ends here. If no
        turn is open, the waits of a paused one are closed.
        """
        store = self._store
        open_turns = [
            turn for turn in await store.read(queue.read_open_turns, session.key) if only in (None, turn.turn)
        ]
        stopped = 0
        for turn in reversed(open_turns):  # the queue first: none of it starts when the running turn ends
            if turn.status == "queued":
                stopped += await store.withdraw_turn(Turn(session.key, turn.turn))
            elif standing_of_owner(turn.owner) == "gone":
                stopped += await store.interrupt_turn(session, turn)
            else:
                stopped += await store.write(request_cancel, session.key, only=turn.turn)
        if not open_turns and only is None:
            stopped += await store.write(stop_waiting, session.key, time.time())
        return stopped


def _listed(turn: UnfinishedTurn, apps: Collection[str] | None) -> ListedTurn:
    if turn.owner and standing_of_owner(turn.owner) != "gone":
        return ListedTurn(turn, turn.status, place_of_owner(turn.owner))
    if apps is not None and turn.session.app_name not in apps:
        return ListedTurn(turn, "stranded", "")
    return ListedTurn(turn, "paused" if turn.status == "paused" else "released", "")
