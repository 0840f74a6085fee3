"""The memory of sessions and users, as coroutines: `store.memory`."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from lango.store.codec.records import SessionId, SessionRecord, is_id
from lango.store.engine.database import Database
from lango.store.memory import observations, observer_lease, user_facts
from lango.store.memory.observations import (
    Batch,
    SessionMemory,
    UnobservedMessages,
    WindowWithMemory,
    read_unobserved_of,
    read_window_with_memory,
)
from lango.store.memory.observer_lease import ObserverLease, store_batch
from lango.store.memory.user_facts import Fact

_NO_FACT = 2**63


class MemoryStore:
    """Observations of sessions and facts of users, in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def window(self, name: SessionId, budget_tokens: int, *, with_facts: bool = False) -> WindowWithMemory | None:
        """Read a session with what was observed of it, and the messages after that which fit the budget."""
        return await self._database.read(lambda: read_window_with_memory(name, budget_tokens, with_facts=with_facts))

    async def recall(self, session: SessionRecord) -> SessionMemory:
        """Read the observations that hold now."""
        return await self._database.read(lambda: observations.read_memory(session))

    async def history(self, session: SessionRecord) -> list[Batch]:
        """Read every batch of observations there ever was, and how it stands now."""
        return await self._database.read(lambda: observations.read_all_batches(session))

    async def unobserved(self, name: SessionId) -> tuple[SessionRecord, UnobservedMessages] | None:
        """Read a session and what was not observed of it yet."""
        return await self._database.read(lambda: read_unobserved_of(name))

    async def floor(self, session: SessionRecord, last_seq: int, turns: int, max_tokens: int) -> int:
        """Return where the last turns up to a message begin."""
        return await self._database.read(lambda: observations.find_floor(session, last_seq, turns, max_tokens))

    async def claim(self, session: SessionRecord, owner: str) -> ObserverLease | None:
        """Take the right to observe a session, or say who has it; None: the session is gone."""
        return await self._database.write(lambda: observer_lease.acquire_observer_lease(session.key, owner))

    async def take_over(self, gone: ObserverLease, owner: str) -> ObserverLease | None:
        """Take the right from somebody who is gone; None: they moved on."""
        return await self._database.write(lambda: observer_lease.take_over_observer_lease(gone, owner))

    async def beat(self, held: ObserverLease) -> bool:
        """Say that the observer lives; False: it lost its claim."""
        return await self._database.write(lambda: observer_lease.renew_observer_lease(held))

    async def release(self, held: ObserverLease) -> None:
        """Give the right back."""
        await self._database.write(lambda: observer_lease.release_observer_lease(held))

    async def add(self, held: ObserverLease, name: SessionId, batch: Batch, learned: Sequence[Fact] = ()) -> int | None:
        """Store a batch and the facts in it, under a claim; None: the claim was lost, and nothing is stored."""
        now = time.time()
        return await self._database.write(lambda: store_batch(held, name, replace(batch, created_at=now), learned, now))

    async def facts(self, app_name: str, user_id: str, *, replaced: bool = False) -> list[Fact]:
        """Read the facts that hold for a user; or those that were replaced too."""
        if not is_id(app_name) or not is_id(user_id):
            return []
        return await self._database.read(lambda: user_facts.read_facts(app_name, user_id, replaced=replaced))

    async def forget(self, app_name: str, user_id: str, fact_id: int) -> bool:
        """Delete a fact and all that was known under its name before; False: there is none."""
        if not is_id(app_name) or not is_id(user_id) or not 0 < fact_id < _NO_FACT:
            return False
        return await self._database.write(lambda: user_facts.delete_fact(app_name, user_id, fact_id))
