"""ADK's memory service on the Lango store: recall stored conversations, notes, facts and memories that were added."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types
from typing_extensions import override

from lango.adk.services.stored_service import StoredService
from lango.adk.turn.step import current_step
from lango.adk.turn.turn_run import current_turn
from lango.sessions import SessionId, as_datetime, check_id
from lango.store import Store
from lango.store.codec.json_text import dumps, loads
from lango.store.memory.observations import read_user_notes
from lango.store.memory.user_facts import delete_fact, read_facts
from lango.store.search import memory_entries
from lango.store.search.memory_entries import Memory
from lango.store.search.recall import find_messages, parse_question, rank
from lango.store.search.terms import Term
from lango.store.sessions.open_calls import find_event
from lango.store.sessions.sessions import find_session
from lango.threads import run_in_thread

if TYPE_CHECKING:
    from google.adk.events import Event
    from google.adk.sessions import Session

MOST_RESULTS = 10
_MOST_SESSIONS_WITH_NOTES = 50
_FACT = "fact:"


class SqlMemoryService(StoredService, BaseMemoryService):
    """Stores memories of users in SQL, for any ADK `Runner`.

    A search returns what contains the most words of the question, at most `max_results` memories: of the events and
    memories that were added, and of the facts about the user. With `stored_sessions`, every conversation of the user in
    this store is memory, with its notes: nothing has to be added, and what is rewound or deleted is forgotten. A Lango
    runtime has it on.
    """

    def __init__(
        self,
        url: str,
        *,
        stored_sessions: bool = False,
        max_results: int = MOST_RESULTS,
        store: Store | None = None,
    ) -> None:
        self._store = store or Store(url)
        self._stored_sessions = stored_sessions
        self._max_results = max_results

    @override
    async def add_session_to_memory(self, session: "Session") -> None:
        """Add the events of a session; those that were added before stay as they are."""
        name = SessionId(session.app_name, session.user_id, session.id)
        if self._stored_sessions and await self._store.read(find_session, name):
            return  # it is memory already
        found = [_to_memory(event, event.timestamp, session.id) for event in session.events]
        await self._add(session.app_name, session.user_id, found)

    @override
    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: "Sequence[Event]",
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add events to those that were added before."""
        new = list(events)
        if self._stored_sessions and session_id:
            session = await self._store.read(find_session, SessionId(app_name, user_id, session_id))
            if session is not None:  # its own events are memory already
                new = [event for event in events if not await self._store.read(find_event, session.key, event.id)]
        found = [_to_memory(event, event.timestamp, session_id or "", custom_metadata) for event in new]
        await self._add(app_name, user_id, found)

    @override
    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        found = [
            _to_memory(entry, _parse_time(entry.timestamp), "", {**(custom_metadata or {}), **entry.custom_metadata})
            for entry in memories
        ]
        await self._add(app_name, user_id, found)

    async def _add(self, app_name: str, user_id: str, memories: Sequence[Memory | None]) -> None:
        check_id("app_name", app_name)
        check_id("user_id", user_id)
        found = [memory for memory in memories if memory is not None]
        for start in range(0, len(found), memory_entries.BATCH):  # other writers come in between
            batch = found[start : start + memory_entries.BATCH]
            await self._store.write_long(memory_entries.add_memories, app_name, user_id, batch)

    @override
    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories with the most words of a question, of these the newest first.

        In a turn of a runtime, what the model is shown of the current session anyway is left out.
        """
        found = await self.find(app_name, user_id, query)
        return SearchMemoryResponse(memories=[_memory_to_entry(memory) for memory in found])

    async def find(self, app_name: str, user_id: str, query: str) -> list[Memory]:
        """Return what `search_memory` returns, with the session and the number of each message."""
        wanted = parse_question(query)
        if not wanted or not SessionId(app_name, user_id, "").is_storable:
            return []
        forgotten = await self._store.read(memory_entries.read_forgotten, app_name, user_id)
        found = await self._find(app_name, user_id, wanted)
        kept = [memory for memory in found if memory.id not in forgotten and not _is_shown(memory)]
        return await run_in_thread(rank, kept, wanted, self._max_results)

    async def _find(self, app_name: str, user_id: str, wanted: Sequence[Term]) -> list[Memory]:
        read = self._store.read
        facts = await read(read_facts, app_name, user_id)
        found = [Memory(f"{_FACT}{fact.id}", "memory", f"{fact.name}: {fact.text}", fact.created_at) for fact in facts]
        found += await read(memory_entries.find_memories, app_name, user_id, wanted)
        if self._stored_sessions:
            found += await read(read_user_notes, app_name, user_id, _MOST_SESSIONS_WITH_NOTES)
            await self._store.update_search_index(app_name, user_id)
            found += await read(find_messages, self._store.dialect, app_name, user_id, wanted)
        return found

    @override
    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory. A message stays in its conversation, but is no longer recalled."""
        if not memory_id or not SessionId(app_name, user_id, "").is_storable:
            return
        fact_id = memory_id.removeprefix(_FACT)
        if memory_id.startswith(_FACT) and fact_id.isdecimal():
            await self._store.write(delete_fact, app_name, user_id, int(fact_id))
        else:
            await self._store.write(memory_entries.delete_memory, app_name, user_id, memory_id)
        await self._store.purge()


def _is_shown(memory: Memory) -> bool:
    """Whether the model is shown a memory anyway: recent messages of the session of the current turn."""
    turn = current_turn.get()
    if turn is None or not memory.session_id or memory.session_id != turn.session.id:
        return False
    return memory.seq > 0 and memory.seq >= current_step().load.first_seq  # 0: a note, which may not be shown


def _to_memory(
    found: "Event | MemoryEntry",
    created_at: float | None,
    session_id: str,
    metadata: Mapping[str, object] | None = None,
) -> Memory | None:
    """Return the memory of an event or an entry; None if it has no text."""
    text = " ".join(part.text for part in (found.content and found.content.parts) or () if part.text)
    if not text or found.content is None:
        return None
    # without an id: the same one for the same memory
    unique = f"{found.author}\0{found.timestamp}\0{text}".encode("utf-8", "surrogatepass")
    return Memory(
        found.id or hashlib.sha256(unique).hexdigest()[:32],
        found.author or "",
        text,
        created_at,
        session_id,
        content=dumps(found.content.model_dump(exclude_none=True)),
        metadata=dumps(metadata) if metadata else None,
    )


def _memory_to_entry(memory: Memory) -> MemoryEntry:
    if memory.content is None:
        role = "user" if memory.author == "user" else "model"
        content = types.Content(role=role, parts=[types.Part(text=memory.text)])
    else:
        content = types.Content.model_validate(loads(memory.content))
    return MemoryEntry(
        content=content,
        custom_metadata=loads(memory.metadata) if memory.metadata else {},
        id=memory.id,
        author=memory.author or None,
        timestamp=None if memory.created_at is None else as_datetime(memory.created_at).isoformat(),
    )


def _parse_time(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
