"""The memory of sessions and users, as coroutines: `store.memory`."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from lango.store.codec.records import SessionId, SessionRecord, is_id
from lango.store.engine.database import Database
from lango.store.memory import observations, observer_lease, user_facts
from lango.store.memory.observations import (
    Batch,
    Recalled,
    RecalledWindow,
    Unobserved,
    read_unobserved_of,
    recalled_window,
)
from lango.store.memory.observer_lease import Claim, store_batch
from lango.store.memory.user_facts import Fact

_NO_FACT = 2**63


class MemoryStore:
    """Observations of sessions and facts of users, in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def window(self, name: SessionId, budget_tokens: int, *, with_facts: bool = False) -> RecalledWindow | None:
        """Read a session with what was observed of it, and the messages after that which fit the budget."""
        return await self._database.read(lambda: recalled_window(name, budget_tokens, with_facts=with_facts))

    async def recall(self, session: SessionRecord) -> Recalled:
        """Read the observations that hold now."""
        return await self._database.read(lambda: observations.recall(session))

    async def history(self, session: SessionRecord) -> list[Batch]:
        """Read every batch of observations there ever was, and how it stands now."""
        return await self._database.read(lambda: observations.history(session))

    async def unobserved(self, name: SessionId) -> tuple[SessionRecord, Unobserved] | None:
        """Read a session and what was not observed of it yet."""
        return await self._database.read(lambda: read_unobserved_of(name))

    async def floor(self, session: SessionRecord, last_seq: int, turns: int, max_tokens: int) -> int:
        """Return where the last turns up to a message begin."""
        return await self._database.read(lambda: observations.floor_of(session, last_seq, turns, max_tokens))

    async def claim(self, session: SessionRecord, owner: str) -> Claim | None:
        """Take the right to observe a session, or say who has it; None: the session is gone."""
        return await self._database.write(lambda: observer_lease.claim(session.key, owner))

    async def take_over(self, gone: Claim, owner: str) -> Claim | None:
        """Take the right from somebody who is gone; None: they moved on."""
        return await self._database.write(lambda: observer_lease.take_over(gone, owner))

    async def beat(self, held: Claim) -> bool:
        """Say that the observer lives; False: it lost its claim."""
        return await self._database.write(lambda: observer_lease.beat(held))

    async def release(self, held: Claim) -> None:
        """Give the right back."""
        await self._database.write(lambda: observer_lease.release(held))

    async def add(self, held: Claim, name: SessionId, batch: Batch, learned: Sequence[Fact] = ()) -> int | None:
        """Store a batch and the facts in it, under a claim; None: the claim was lost, and nothing is stored."""
        now = time.time()
        return await self._database.write(lambda: store_batch(held, name, replace(batch, created_at=now), learned, now))

    async def facts(self, app_name: str, user_id: str, *, replaced: bool = False) -> list[Fact]:
        """Read the facts that hold for a user; or those that were replaced too."""
        if not is_id(app_name) or not is_id(user_id):
            return []
        return await self._database.read(lambda: user_facts.of_user(app_name, user_id, replaced=replaced))

    async def forget(self, app_name: str, user_id: str, fact_id: int) -> bool:
        """Delete a fact and all that was known under its name before; False: there is none."""
        if not is_id(app_name) or not is_id(user_id) or not 0 < fact_id < _NO_FACT:
            return False
        return await self._database.write(lambda: user_facts.forget(app_name, user_id, fact_id))
