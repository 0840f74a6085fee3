"""Read the events of turns from the event log, whichever process runs them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from lango.errors import SessionNotFound, Stopping, TurnFailed, error_type
from lango.events import TurnDone, TurnError
from lango.store import Store, Turn
from lango.store.turns.event_log import LoggedEvent, read_event_log
from lango.store.turns.turns import read_turn_texts
from lango.turns.running_turn import RunningTurn, answer_text
from lango.turns.turn_log import TurnLog

_POLL_S, _MAX_POLL_S = 0.05, 0.5


class EventLogReader:
    """Reads the events of turns: those of this process as they are stored, the others from the store."""

    def __init__(self, store: Store, find_log: Callable[[int, int], TurnLog | None] | None = None) -> None:
        """`find_log` returns the events of a turn that runs in this process, if any runs here."""
        self._store = store
        self._find_log = find_log
        self._stopping = asyncio.Event()

    async def follow(
        self, session_key: int, turn: int, after_id: int = 0, heartbeat_s: float = float("inf")
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn after an id, to its end; None whenever no event came for `heartbeat_s`.

        Raise `SessionNotFound` if the session is deleted, `EventsGone` if the id is no longer known, `Stopping` if this
        process stops.
        """
        clock = asyncio.get_running_loop().time
        wait_s, last_event_at = _POLL_S, clock()
        while True:
            # each time: this process may have taken the turn over
            log = self._find_log(session_key, turn) if self._find_log else None
            if log is not None and not log.is_closed:
                async with aclosing(log.follow_stored(after_id, heartbeat_s)) as events:
                    async for logged in events:
                        yield logged
                        after_id, last_event_at = logged.id if logged else after_id, clock()
                        if logged and logged.final:
                            return
            page = await self._store.read(read_event_log, session_key, turn, after_id)
            for logged in page.events:
                yield logged
                last_event_at, wait_s = clock(), _POLL_S
            if page.closed:
                return
            if page.turn is None:
                raise SessionNotFound("the session was deleted")
            if page.last_id > after_id:
                after_id = page.last_id
                continue
            if clock() - last_event_at > heartbeat_s:
                last_event_at = clock()
                yield None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
                    raise Stopping("the server is shutting down")
            wait_s = min(1.5 * wait_s, _MAX_POLL_S)

    def stop(self) -> None:
        """End all readers of turns that run elsewhere: this process stops."""
        self._stopping.set()

    async def resend(self, running: RunningTurn) -> None:
        """Emit the events of a turn that ran before, or runs in another process, to a repeated request."""
        turn = running.turn
        async for logged in self.follow(turn.session_key, turn.turn):
            if logged is None:
                continue
            event = logged.event
            if isinstance(event, TurnError) and event.fatal:
                running.end_with((error_type(event.error) or TurnFailed)(event.message))
            if isinstance(event, TurnDone):
                texts = await self._store.read(read_turn_texts, turn.session_key, turn.turn)
                text = "".join(stored.message.content for stored in texts if stored.message)
                running.end_with(answer_text(text, event.output))
            running.log.emit(event)

    async def read_end(self, running: RunningTurn) -> None:
        """Add the last events of a turn that ended in another one, which wrote them."""
        turn, log = running.turn, running.log
        page = await self._store.read(read_event_log, turn.session_key, turn.turn, log.events[-1].id)
        running.end_with("")
        log.add_from_store(page.events)


async def read_log(store: Store, turn: Turn, on_event: Callable[[TurnLog], None]) -> TurnLog:
    """Read the log of a turn that another process began; `on_event` is called for each new event."""
    events: list[LoggedEvent] = []
    last_id = -1
    page = await store.read(read_event_log, turn.session_key, turn.turn)
    while page.last_id > last_id:
        events, last_id = [*events, *page.events], page.last_id
        page = await store.read(read_event_log, turn.session_key, turn.turn, last_id)
    return TurnLog(turn, events, on_event, last_id, is_taken_over=True)
