"""Store the events of a running turn, grouped, before any client sees them."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from itertools import groupby
from typing import cast

from msgspec.structs import astuple, replace

from lango.errors import StoreError
from lango.events import TextDelta, ThoughtDelta, TurnEvent
from lango.json_input import is_larger_than
from lango.store import Store
from lango.store.engine.database import LARGE_VALUE
from lango.store.turns.event_log import EventBatch, LoggedEvent, append_log_batches
from lango.turns.running_turn import RunningTurn
from lango.turns.synchronization import Notifier

_log = logging.getLogger("lango.server")

GROUP_INTERVAL_S = 0.1
_RETRY_S = 0.1


class EventLogWriter:
    """Appends the events of all turns of a server; events that arrive during a write go into the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queued: list[tuple[EventBatch, asyncio.Future[bool]]] = []
        self._write_task: asyncio.Task[None] | None = None

    @property
    def max_outage_s(self) -> float:
        """How long to wait for a store that is not available."""
        return self._store.outages.wait_s

    async def append(self, batch: EventBatch) -> bool:
        """Append events to their turn; False: the turn was closed before, or its session is deleted."""
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queued.append((batch, stored))
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write())
        return await stored

    async def _write(self) -> None:
        try:
            while self._queued:
                queued, self._queued = self._queued, []
                await self._write_together(queued)
        finally:
            self._write_task = None

    async def _write_together(self, queued: list[tuple[EventBatch, asyncio.Future[bool]]]) -> None:
        try:
            batches = [batch for batch, _ in queued]
            is_large = sum(len(event.data) for batch in batches for event in batch.events) > LARGE_VALUE
            write = self._store.write_long if is_large else self._store.write
            stored = await write(append_log_batches, batches, self._store.dialect)
        except Exception as error:  # noqa: BLE001 - raised by `append`
            for _, future in queued:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), is_stored in zip(queued, stored, strict=True):
                if not future.done():
                    future.set_result(is_stored)


class Recorder:
    """Records one running turn to its end.

    A reader holds only its position in `logged`: a slow one delays no other reader and keeps nothing in memory.
    """

    def __init__(self, log: EventLogWriter, running: RunningTurn, owner: str) -> None:
        """`owner` is this process: if another one takes the turn over, its events are no longer stored."""
        self.running = running
        self._owner = owner
        self.logged = [LoggedEvent.of(event) for event in running.events[: running.logged]]
        self.closed = False
        """No more events are added; any that are missing at the end are in the store."""
        self.started_at = time.monotonic()
        self.first_text_at: float | None = None
        self._log_writer = log
        self._changed = Notifier()

    async def run(self) -> None:
        """Record the turn; return when its final event is stored."""
        try:
            await self._write()
        finally:
            self.closed = True
            self._changed.notify()

    async def _write(self) -> None:
        running, loop = self.running, asyncio.get_running_loop()
        read, text_sent_at = running.logged, 0.0  # the first text is sent at once
        while True:
            while read == len(running.events) and not running.finished:
                await running.changed.wait()
            while (pause_s := _next_text_at(text_sent_at) - loop.time()) > 0 and not running.has_urgent_after(read):
                await running.urgent_changed.wait(pause_s)
            over = running.finished
            batch = running.events[read:]
            read += len(batch)
            self._note_first_text(batch)
            logged = await encode_events(join_text_deltas(batch))
            if not await self._store(logged):
                return
            self.logged += logged
            self._changed.notify()
            if over or (logged and logged[-1].final):
                return
            if isinstance(batch[-1], TextDelta | ThoughtDelta):
                text_sent_at = loop.time()

    def _note_first_text(self, batch: list[TurnEvent]) -> None:
        if self.first_text_at is None and any(isinstance(event, TextDelta) for event in batch):
            self.first_text_at = time.monotonic()

    async def _store(self, logged: list[LoggedEvent]) -> bool:
        """Store events, waiting while the store is not available; False: the turn takes no more, or time is up."""
        loop = asyncio.get_running_loop()
        deadline, wait_s = loop.time() + self._log_writer.max_outage_s, _RETRY_S
        while True:
            try:
                return await self._log_writer.append(
                    EventBatch(self.running.session.key, self.running.turn.turn, logged, self._owner)
                )
            except StoreError as error:
                if loop.time() > deadline:
                    _log.error("the events of turn %s could not be stored: %s", self.running.turn.turn, error)
                    return False
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 2.0)

    async def follow(self, after_id: int, heartbeat_s: float) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events after an id, old and new; None whenever no event came for `heartbeat_s`."""
        read = 0
        while True:
            while read < len(self.logged):
                logged = self.logged[read]
                read += 1
                if logged.id > after_id:
                    yield logged
            if self.closed:
                return
            if not await self._changed.wait(heartbeat_s):
                yield None


def _next_text_at(text_sent_at: float) -> float:
    """Return when to send the next text: at the same moments for all turns, so that one commit serves many."""
    return (text_sent_at // GROUP_INTERVAL_S + 1) * GROUP_INTERVAL_S


async def encode_events(events: Iterable[TurnEvent]) -> list[LoggedEvent]:
    """Encode events; in a thread, if one of them is large."""

    def encode() -> list[LoggedEvent]:
        return [LoggedEvent.of(event) for event in events]

    if any(is_larger_than(astuple(event), LARGE_VALUE) for event in events):
        return await asyncio.to_thread(encode)
    return encode()


def join_text_deltas(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """Join text deltas that follow each other into one, under the id of the last."""
    joined: list[TurnEvent] = []
    for _, alike in groupby(events, _join_key):
        group = list(alike)
        last = group[-1]
        if len(group) > 1 and isinstance(last, TextDelta | ThoughtDelta):
            joined.append(replace(last, text="".join(event.text for event in cast("list[TextDelta]", group))))
        else:
            joined += group
    return joined


def _join_key(event: TurnEvent) -> tuple[object, str]:
    """Return a key that text deltas to be joined share, and no two other events do."""
    return (type(event), event.author) if isinstance(event, TextDelta | ThoughtDelta) else (event.id, "")
