"""Show and end the turns of all apps of a store, without running an agent."""

import time
from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from lango.sessions import SessionRecord
from lango.store import Store, Turn
from lango.store.turns.queue import read_open_turns
from lango.store.turns.recovery import stop_waiting
from lango.store.turns.turns import request_cancel
from lango.store.turns.unfinished import UnfinishedTurn, list_unfinished
from lango.turns.liveness import place_of_owner, standing_of_owner

State = Literal["queued", "running", "paused", "released", "stranded"]
"""`released`: a process that runs its app goes on with it; `stranded`: its app is not configured, so none will."""


class ListedTurn(Struct, frozen=True):
    """An unfinished turn, and what becomes of it."""

    turn: UnfinishedTurn
    state: State
    owner: str
    """The process that runs it, for people; empty: none does."""


async def list_turns(store: Store, apps: Collection[str] | None) -> list[ListedTurn]:
    """List the unfinished turns of a store, the oldest first. `apps` are those that are configured, or None for any."""
    return [_listed(turn, apps) for turn in await store.read(list_unfinished)]


def _listed(turn: UnfinishedTurn, apps: Collection[str] | None) -> ListedTurn:
    if turn.owner and standing_of_owner(turn.owner) != "gone":
        return ListedTurn(turn, turn.status, place_of_owner(turn.owner))
    if apps is not None and turn.session.app_name not in apps:
        return ListedTurn(turn, "stranded", "")
    return ListedTurn(turn, "paused" if turn.status == "paused" else "released", "")


async def cancel_turns(store: Store, session: SessionRecord, only: int | None = None) -> int:
    """Stop the open turns of a session, or one of them; return how many.

    A queued turn is withdrawn, its process stops a running one soon, and one without a process ends here. If no turn is
    open, the requests of a paused one are closed.
    """
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
