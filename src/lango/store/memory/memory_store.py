"""The memory of sessions and users, as coroutines: `store.memory`."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from lango.history import count_tokens
from lango.store.codec.records import SessionId, SessionRecord, Stored, is_id
from lango.store.engine.database import Database, Operation
from lango.store.memory import observations, user_facts
from lango.store.memory.observations import Batch, Claim, Recalled, Unobserved
from lango.store.memory.user_facts import Fact
from lango.store.sessions import sessions, window

QUOTE_TOKENS = 150
"""What a request pays for the words around observations and facts."""

_NO_FACT = 2**63

RecalledWindow = tuple[SessionRecord, list[Stored], Recalled]


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
        return await self._database.read(lambda: _unobserved(name))

    async def floor(self, session: SessionRecord, last_seq: int, turns: int, max_tokens: int) -> int:
        """Return where the last turns up to a message begin."""
        return await self._database.read(lambda: observations.floor_of(session, last_seq, turns, max_tokens))

    async def claim(self, session: SessionRecord, owner: str) -> Claim | None:
        """Take the right to observe a session, or say who has it; None: the session is gone."""
        return await self._database.write(lambda: observations.claim(session.key, owner))

    async def take_over(self, gone: Claim, owner: str) -> Claim | None:
        """Take the right from somebody who is gone; None: they moved on."""
        return await self._database.write(lambda: observations.take_over(gone, owner))

    async def beat(self, held: Claim) -> bool:
        """Say that the observer lives; False: it lost its claim."""
        return await self._database.write(lambda: observations.beat(held))

    async def release(self, held: Claim) -> None:
        """Give the right back."""
        await self._database.write(lambda: observations.release(held))

    async def add(self, held: Claim, name: SessionId, batch: Batch, learned: Sequence[Fact] = ()) -> int | None:
        """Store a batch and the facts in it, under a claim; None: the claim was lost, and nothing is stored."""
        now = time.time()
        return await self._database.write(lambda: _add(held, name, replace(batch, created_at=now), learned, now))

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


def recalled_window(name: SessionId, budget_tokens: int, *, with_facts: bool) -> Operation[RecalledWindow | None]:
    """Read a session, what was observed of it, and the messages after that which fit beside it."""
    session = yield from sessions.get(name)
    if session is None:
        return None
    recalled = yield from observations.recall(session)
    if with_facts:
        known = (yield from user_facts.of_user(name.app_name, name.user_id))[-user_facts.MOST_FACTS :]
        recalled = replace(recalled, facts=tuple(f"{fact.name}: {fact.text}" for fact in known))
    spent = recalled.tokens + sum(count_tokens(fact) + 4 for fact in recalled.facts)
    if spent:
        spent = min(spent + QUOTE_TOKENS, budget_tokens // 2)
    stored = yield from window.window(session, budget_tokens - spent, first_seq=recalled.floor_seq)
    return session, stored, recalled


def _unobserved(name: SessionId) -> Operation[tuple[SessionRecord, Unobserved] | None]:
    session = yield from sessions.get(name)
    return None if session is None else (session, (yield from observations.unobserved(session)))


def _add(held: Claim, name: SessionId, batch: Batch, learned: Sequence[Fact], now: float) -> Operation[int | None]:
    number = yield from observations.add_batch(held, batch)
    # what a rewind took back while it was observed teaches nothing
    if number is not None and (yield from observations.holds(held.session_key, batch)):
        yield from user_facts.add(name.app_name, name.user_id, held.session_key, learned, now)
    return number
