"""Write the events of running turns to the event log, grouped: one commit serves many turns.

Pieces of text are joined, and written at most ten times a second, those of all turns at the same moments. Events that a
reader in this process waits for are not delayed: the first text, and everything that is no text. Nor are those of a
turn that was taken over. The last events of a turn are written by the transaction that ends it, so a short turn without
such readers costs no commit of its own.
"""

import asyncio
import logging
from collections.abc import Iterable

from msgspec.structs import astuple

from lango.errors import StoreError
from lango.event_text import join_text_deltas
from lango.events import TextDelta, TextEnd, ThoughtDelta, TurnEvent
from lango.json_values import is_larger_than
from lango.store import Store
from lango.store.engine.database import LARGE_VALUE
from lango.store.turns.event_log import EventBatch, LoggedEvent, append_log_batches
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
        is_read = log.readers or log.is_taken_over
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
