"""Find the turns of a session that continue in this process because theirs died, and say how its last turn ended."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.sessions import SessionRecord, Status
from lango.store import Store
from lango.store.turns.queue import find_newest_turn, read_open_turns, read_queued_messages
from lango.store.turns.turns import TurnRecord, read_turn
from lango.turns.liveness import LivenessMonitor
from lango.turns.running_turn import RunningTurn

_POLL_S = 0.05
_OPEN = ("running", "queued")


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


class ResumedTurns:
    """The turns of dead processes that continue in this one."""

    def __init__(self, store: Store, turns: TurnSupervisor) -> None:
        self._store = store
        self._turns = turns
        self._liveness = LivenessMonitor(back_at=lambda: store.outages.recovered_at)

    async def last_turn(self, session: SessionRecord) -> LastTurn | None:
        """Return how the last turn of a session stands, or None if it has none."""
        newest = await self._store.read(find_newest_turn, session)
        record = await self._store.read(read_turn, session.key, newest) if newest else None
        if record is None:
            return None
        failed = record.result.error
        return LastTurn(record.status, self._continues_here(record), failed.message if failed else "")

    async def wait(self, session: SessionRecord) -> Sequence[ResumedTurn]:
        """Wait until the open turns of dead processes are taken over here, and return them in order."""
        queued = await self._store.read(read_queued_messages, session.key)
        texts = {one.turn: one.message.message for one in queued}
        found: list[ResumedTurn] = []
        for open_turn in await self._store.read(read_open_turns, session.key):
            record = await self._store.read(read_turn, session.key, open_turn.turn)
            running = await self._wait_for(session, open_turn.turn, record)
            if record and running:
                message = texts.get(open_turn.turn)
                found.append(ResumedTurn(running, record.first_seq, message.content if message else ""))
        return found

    async def _wait_for(self, session: SessionRecord, turn: int, record: TurnRecord | None) -> RunningTurn | None:
        """Wait until this process has taken over a turn; return None if it ended, or another process has it."""
        while record and self._continues_here(record):
            if running := self._turns.find_turn(session.key, turn):
                return running
            await asyncio.sleep(_POLL_S)
            record = await self._store.read(read_turn, session.key, turn)
        return None

    def _continues_here(self, record: TurnRecord) -> bool:
        is_own = record.owner == self._turns.owner.name  # this process may have taken it over already
        return record.status in _OPEN and (is_own or self._liveness.is_gone(record.owner, record.heartbeat))
