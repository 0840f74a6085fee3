"""Read the turns of sessions as they are stored: how they stand, what their clients sent, and what is queued."""

from collections.abc import Sequence

from lango.sessions import SessionRecord, StoredEvent
from lango.store import Store
from lango.store.sessions.client_history import find_by_input
from lango.store.tool_calls.client_calls import read_client_calls
from lango.store.turns import client_requests, queue, turns
from lango.store.turns.client_requests import StoredKey
from lango.store.turns.event_log import LoggedEvent, LogPage, read_event_log
from lango.store.turns.lease import count_leases
from lango.store.turns.queue import QueuedMessage
from lango.store.turns.turns import TurnRecord

__all__ = ["LogPage", "LoggedEvent", "QueuedMessage", "StoredKey", "StoredTurns", "TurnRecord"]


class StoredTurns:
    """The turns of the sessions of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def read(self, session: SessionRecord, turn: int) -> TurnRecord | None:
        """Read a turn, or None if there is none of that number."""
        return await self._store.read(turns.read_turn, session.key, turn)

    async def newest(self, session: SessionRecord) -> int | None:
        """Return the newest turn of a session that no rewind removed."""
        return await self._store.read(queue.find_newest_turn, session)

    async def current(self, session: SessionRecord) -> int | None:
        """Return the running turn, else the first queued one, else the newest that no user withdrew or rewound."""
        return await self._store.read(queue.find_current_turn, session)

    async def next(self, session: SessionRecord, turn: int) -> int | None:
        """Return the next turn of a session that no rewind removed."""
        return await self._store.read(queue.find_next_turn, session, turn)

    async def queued(self, session: SessionRecord) -> Sequence[QueuedMessage]:
        """Read the messages of a session's queued turns, in order."""
        return await self._store.read(queue.read_queued_messages, session.key)

    async def is_busy(self, session: SessionRecord) -> bool:
        """Whether a turn of a session runs or is queued."""
        return bool(await self._store.read(queue.read_open_turns, session.key))

    async def count_open(self) -> tuple[int, int]:
        """Return how many turns run, and how many are queued behind others, in the whole store."""
        counts = await self._store.read(count_leases)
        return sum(counts.running_by_owner.values()), counts.queued

    async def find_by_key(self, session: SessionRecord, idempotency_key: str) -> StoredKey | None:
        """Find the turn of an idempotency key in a session."""
        return await self._store.read(client_requests.find_key_of_session, session.key, idempotency_key)

    async def find_by_key_of_user(self, user_id: str, idempotency_key: str) -> StoredKey | None:
        """Find the turn of an idempotency key that holds in all sessions of a user."""
        return await self._store.read(client_requests.find_key_of_user, self._app_name, user_id, idempotency_key)

    async def message_of_key(self, session: SessionRecord, prefix: str) -> int | None:
        """Return the message of the newest recent turn whose idempotency key begins with this, or None."""
        return await self._store.read(client_requests.find_message_of_key, session.key, prefix)

    async def sessions_with_input(self, user_id: str, text: str, id_prefix: str, limit: int) -> Sequence[SessionRecord]:
        """Read a user's idle sessions, with ids that begin like this, whose newest turn had this input."""
        return await self._store.read(find_by_input, self._app_name, user_id, text, id_prefix, limit)

    async def client_calls(self, session: SessionRecord) -> set[str]:
        """Return the ids of the open calls of the client's tools."""
        return {waiting.call.id for waiting in await self._store.read(read_client_calls, session)}

    async def last_message(self, session: SessionRecord, turn: int, record: TurnRecord) -> int | None:
        """Return the last message of a turn, before what the next turn's input brought; None: it has not started."""
        return await self._store.read(client_requests.last_message_of_turn, session.key, turn, record)

    async def input_messages(self, session: SessionRecord, turn: int, record: TurnRecord) -> Sequence[StoredEvent]:
        """Read what the client sent for a turn: its message or results, after the history before them."""
        messages = await self._store.read(client_requests.read_input_messages, session, turn, record)
        await self._store.load_files(messages)
        return messages

    async def mark_deleted(self, session: SessionRecord, turn: int) -> bool:
        """Mark a turn as deleted for its client; return whether all turns of the session are."""
        return await self._store.write(client_requests.mark_request_deleted, session.key, turn)

    async def events(self, session: SessionRecord, turn: int, after_id: int = 0) -> LogPage:
        """Read a page of a turn's events after an id, and the record of the turn."""
        return await self._store.read(read_event_log, session.key, turn, after_id)
