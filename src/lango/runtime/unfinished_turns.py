"""List, follow and end the turns of all apps of a store, without running an agent."""

import time
from collections.abc import AsyncGenerator, Collection
from typing import Literal

from msgspec import Struct

from lango.errors import UsageError
from lango.events import TurnEvent
from lango.runtime.execution.event_log_reader import EventLogReader
from lango.sessions import SessionRecord
from lango.store import Store, Turn
from lango.store.turns.queue import find_current_turn, read_open_turns
from lango.store.turns.recovery import stop_waiting
from lango.store.turns.turns import read_turn, request_cancel
from lango.store.turns.unfinished import UnfinishedTurn, list_unfinished
from lango.turns.liveness import place_of_owner, standing_of_owner

State = Literal["queued", "running", "paused", "released", "stranded"]
"""`released`: a process that runs its app continues it; `stranded`: its app is not configured, so none will."""


class ListedTurn(Struct, frozen=True):
    """An unfinished turn, and what becomes of it."""

    turn: UnfinishedTurn
    state: State
    owner: str
    """The process that runs it, for people; empty if none does."""


class UnfinishedTurns:
    """The turns of all apps of a store that have not ended, whichever process runs them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, apps: Collection[str] | None) -> list[ListedTurn]:
        """List the unfinished turns, the oldest first. `apps` are those that are configured, or None for any."""
        return [_listed(turn, apps) for turn in await self._store.read(list_unfinished)]

    async def follow(self, session: SessionRecord, turn: int | None = None) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of a turn, by default the current one, to its end. Raise `UsageError` if there is none."""
        number = await self._store.read(find_current_turn, session) if turn is None else turn
        if number is None or await self._store.read(read_turn, session.key, number) is None:
            raise UsageError(f"session {session.name.id!r} has no such turn; `lango turns list` lists them")
        async for logged in EventLogReader(self._store).follow(session.key, number):
            if logged is not None:
                yield logged.event

    async def cancel(self, session: SessionRecord, only: int | None = None) -> int:
        """Stop the open turns of a session, or one of them; return how many.

        A queued turn is withdrawn, its process stops a running one soon, and one without a process ends here. If no
        turn is open, the requests of a paused one are closed.
        """
        store = self._store
        open_turns = [turn for turn in await store.read(read_open_turns, session.key) if only in (None, turn.turn)]
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
