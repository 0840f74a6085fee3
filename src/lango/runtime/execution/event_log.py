"""Write the events of running turns to the event log, grouped, and read those of turns that run anywhere.

Pieces of text are joined, and written at most ten times a second, those of all turns at the same moments: one commit
serves many turns. Events that a reader in this process waits for are not delayed: the first text, and everything that
is no text. Nor are those of a turn whose readers are at other replicas, which are notified. The last events of a turn
are written by the transaction that ends it, so a short turn without such readers costs no extra commit.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager

from msgspec.structs import astuple

from lango.errors import SessionNotFound, Stopping, StoreError, TurnFailed, error_type
from lango.events import TextDelta, TextEnd, ThoughtDelta, TurnDone, TurnError, TurnEvent
from lango.events.text import join_text_deltas
from lango.json_values import is_larger_than
from lango.store import Store, Turn
from lango.store.engine.database import LARGE_VALUE
from lango.store.turns.event_log import EventBatch, LoggedEvent, append_log_batches, read_event_log
from lango.store.turns.turns import read_turn_texts
from lango.turns.running_turn import RunningTurn, answer_text
from lango.turns.synchronization import Notifier
from lango.turns.turn_log import TurnLog

GROUP_INTERVAL_S = 0.1
UNREAD_INTERVAL_S = 0.5
"""How often the events of turns are written that began here and that no reader in this process waits for."""
_RETRY_S = 0.5
_log = logging.getLogger("lango.runtime")
_NEVER = float("inf")


class EventLogWriter:
    """Writes the events of all turns of a runtime; those that arrive during a write go into the next one."""

    def __init__(self, store: Store, owner: str) -> None:
        """`owner` is this process: if another one takes a turn over, its events are no longer stored."""
        self._store = store
        self._owner = owner
        self._due_at: dict[TurnLog, float] = {}
        self._writing: set[TurnLog] = set()
        self._written = Notifier()
        self._changed = Notifier()
        self._wakes_at = 0.0

    def note_event(self, log: TurnLog) -> None:
        """Note that a turn has a new event, or a new reader."""
        due_at = self._due_at.get(log)
        is_text = isinstance(log.events[-1], TextDelta | ThoughtDelta | TextEnd)
        is_read = log.readers or log.is_read_elsewhere
        if log.is_closed or (due_at is not None and (not is_read or not due_at)):
            return
        if not is_read:
            due_at = _next_moment(asyncio.get_running_loop().time(), UNREAD_INTERVAL_S)
        else:
            due_at = _next_moment(log.text_stored_at) if is_text else 0.0
        self._due_at[log] = due_at
        if due_at < self._wakes_at:
            self._changed.notify()

    async def run(self) -> None:
        """Write until this task is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            if due := [log for log, at in self._due_at.items() if at <= now]:
                await self._write(due)
                continue
            self._wakes_at = min(self._due_at.values(), default=_NEVER)
            await self._changed.wait(None if self._wakes_at == _NEVER else self._wakes_at - now)
            self._wakes_at = 0.0  # events that come during a write are seen after it

    async def _write(self, due: Iterable[TurnLog]) -> None:
        taken: list[tuple[TurnLog, int, list[LoggedEvent]]] = []
        try:
            for log in due:
                # while another log was encoded, its turn may have ended, which stores the rest of its events
                is_due = self._due_at.pop(log, None) is not None
                if is_due and not log.is_closed and (new := log.events[log.stored_count :]):
                    self._writing.add(log)
                    taken.append((log, len(log.events), await _encode(log, new)))
            batches = [EventBatch(log.session_key, log.turn, events, self._owner) for log, _, events in taken]
            is_large = sum(len(event.data) for batch in batches for event in batch.events) > LARGE_VALUE
            write = self._store.write_long if is_large else self._store.write
            stored = await write(append_log_batches, batches, self._store.dialect) if batches else []
        except StoreError as error:
            self._store.outages.warn(f"the events of {len(taken)} turns could not be stored yet: {error}")
            later = asyncio.get_running_loop().time() + _RETRY_S
            self._due_at |= {log: later for log, _, _ in taken}
        except Exception:  # noqa: BLE001 - the other turns are still written
            _log.exception("the events of %d turns could not be stored", len(taken))
            for log, _, _ in taken:
                log.close()
        else:
            for (log, count, events), is_stored in zip(taken, stored, strict=True):
                if is_stored:
                    log.add_stored(events, count)
                    self.notify_elsewhere(log)
                else:  # another process has the turn, or its session is deleted
                    log.close()
        finally:
            self._writing.clear()
            self._written.notify()

    async def take_rest(self, log: TurnLog) -> list[LoggedEvent]:
        """Return the events of a turn that are not stored yet: the transaction that ends the turn stores them."""
        while log in self._writing:
            await self._written.wait()
        self._due_at.pop(log, None)
        return await _encode(log, log.events[log.stored_count :])

    async def flush(self, log: TurnLog) -> None:
        """Store the events of a turn that is left to another process. Raise `StoreError`."""
        if not log.is_closed and (rest := await self.take_rest(log)):
            batch = EventBatch(log.session_key, log.turn, rest, self._owner)
            await self._store.write(append_log_batches, [batch], self._store.dialect)
            self.notify_elsewhere(log)

    def notify_elsewhere(self, log: TurnLog) -> None:
        """Notify readers in other processes, if any are there, that a turn has new events."""
        if log.is_read_elsewhere:
            self._store.notify_readers(log.session_key)


def _next_moment(after: float, interval_s: float = GROUP_INTERVAL_S) -> float:
    """Return the next moment at which texts are written: the same for all turns, so that one commit serves many."""
    return (after // interval_s + 1) * interval_s


async def _encode(log: TurnLog, events: Iterable[TurnEvent]) -> list[LoggedEvent]:
    """Encode events, with pieces of text joined; in a thread, if one of them is large."""
    joined = join_text_deltas(events)

    def encode() -> list[LoggedEvent]:
        return [LoggedEvent.of(event) for event in joined]

    try:
        if any(is_larger_than(astuple(event), LARGE_VALUE) for event in joined):
            return await asyncio.to_thread(encode)
        return encode()
    except Exception:  # noqa: BLE001 - readers get the stored messages of the turn instead
        _log.exception("the events of turn %s could not be encoded", log.turn)
        log.close()
        return []


# -- read --------------------------------------------------------------------------------------------------------------

_POLL_S, _MAX_POLL_S = 0.05, 0.5


class EventLogReader:
    """Reads the events of turns: those of this process as they are stored, the others from the store."""

    def __init__(self, store: Store, find_log: Callable[[int, int], TurnLog | None] | None = None) -> None:
        """`find_log` returns the events of a turn that runs in this process, if any runs here."""
        self._store = store
        self._find_log = find_log
        self._followed: Counter[int] = Counter()
        """How many readers follow turns of a session that run elsewhere."""
        self._is_stopping = False

    async def follow(
        self, session_key: int, turn: int, after_id: int = 0, heartbeat_s: float = float("inf")
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn after an id, to its end; None whenever no event came for `heartbeat_s`.

        Raise `SessionNotFound` if the session is deleted, `EventsGone` if the id is no longer known, `Stopping` if this
        process stops.
        """
        while True:
            if log := self._open_log(session_key, turn):
                async with aclosing(log.follow_stored(after_id, heartbeat_s)) as events:
                    async for logged in events:
                        yield logged
                        after_id = logged.id if logged else after_id
                        if logged and logged.final:
                            return
            async with aclosing(self._follow_elsewhere(session_key, turn, after_id, heartbeat_s)) as events:
                async for logged in events:
                    yield logged
                    after_id = logged.id if logged else after_id
            if not self._open_log(session_key, turn):
                return

    def _open_log(self, session_key: int, turn: int) -> TurnLog | None:
        log = self._find_log(session_key, turn) if self._find_log else None
        return None if log is None or log.is_closed else log

    async def _follow_elsewhere(
        self, session_key: int, turn: int, after_id: int, heartbeat_s: float
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the stored events of a turn after an id, to its end, or until this process takes the turn over."""
        clock = asyncio.get_running_loop().time
        wait_s, last_event_at = _POLL_S, clock()
        async with self._watched(session_key) as wait_for_event:
            while True:
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
                if self._open_log(session_key, turn):
                    return
                if clock() - last_event_at > heartbeat_s:
                    last_event_at = clock()
                    yield None
                await wait_for_event(wait_s)
                if self._is_stopping:
                    raise Stopping("the server is shutting down")
                wait_s = min(1.5 * wait_s, _MAX_POLL_S)

    @asynccontextmanager
    async def _watched(self, session_key: int) -> AsyncGenerator[Callable[[float], Awaitable[bool]]]:
        self._followed[session_key] += 1
        try:
            async with self._store.watch_events(session_key) as wait_for_event:
                yield wait_for_event
        finally:
            self._followed -= Counter([session_key])

    def stop(self) -> None:
        """End all readers of turns that run elsewhere: this process stops."""
        self._is_stopping = True
        for session_key in self._followed:
            self._store.notify_readers(session_key)

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
    return TurnLog(turn, events, on_event, last_id, is_read_elsewhere=True)
