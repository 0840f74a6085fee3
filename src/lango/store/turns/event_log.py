"""Append and read the events of turns, so that `Last-Event-ID` is exact in every process.

The final event of a turn closes its log: later events, as of a process that was taken for dead, are refused. The events
of an ended turn that the log no longer has are rebuilt from its messages (`lango.store.turns.rebuilt_events`).
"""

from collections.abc import Sequence
from typing import Any, Self

from msgspec import Struct, to_builtins

from lango import event_ids
from lango.errors import EventsGone
from lango.events import TextDelta, ThoughtDelta, TurnEvent, from_json, is_final, to_json
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import LARGEST, Dialect, LockingRead, Operation
from lango.store.turns import rebuilt_events, turns

KEPT_TURNS = 50
"""How many ended turns of a session keep their events; those of older turns are rebuilt from messages."""
PAGE = 500

_LOCK_TURN = LockingRead("SELECT status, owner FROM turns WHERE session_key = $1 AND turn = $2", "UPDATE")
_LAST_EVENT = """
SELECT s.session_key, e.id, e.final FROM sessions s LEFT JOIN event_log e ON e.session_key = s.session_key AND e.id =
    (SELECT MAX(id) FROM event_log WHERE session_key = $1 AND id >= $2 AND id < $3)
WHERE s.session_key = $1
"""
_INSERT = """
INSERT INTO event_log (session_key, id, turn, type, data, final) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (session_key, id) DO NOTHING RETURNING id
"""
# before the first open turn: many may be queued, each with its first event
_DROP_OLD = """
DELETE FROM event_log WHERE session_key = $1 AND id < $2 * (COALESCE(
    (SELECT MIN(turn) FROM turns WHERE session_key = $1 AND turn < $3 AND status IN ('queued', 'running')), $3) - $4)
"""
_APPEND_MANY = """
WITH given AS ({given}) INSERT INTO event_log (session_key, id, turn, type, data, final)
SELECT session_key, id, turn, type, data, final FROM given WHERE EXISTS (
    SELECT 1 FROM event_log last WHERE last.session_key = given.session_key AND last.final = 0 AND last.id < given.id
    AND last.id = (SELECT MAX(id) FROM event_log e WHERE e.session_key = given.session_key
                   AND e.id >= given.first_id AND e.id < given.end_id))
    AND EXISTS (SELECT 1 FROM turns t WHERE t.session_key = given.session_key AND t.turn = given.turn
                AND t.status <> 'interrupted' AND (given.owner IS NULL OR t.owner = given.owner))
RETURNING session_key, id
"""
_NEW_EVENTS: dict[Dialect, str] = {
    "sqlite": """
        SELECT value ->> 0 AS session_key, value ->> 1 AS id, value ->> 2 AS turn, value ->> 3 AS type,
               value ->> 4 AS data, value ->> 5 AS final, value ->> 6 AS first_id, value ->> 7 AS end_id,
               value ->> 8 AS owner
        FROM json_each($1)""",
    "postgres": """
        SELECT (value ->> 0)::bigint AS session_key, (value ->> 1)::bigint AS id, (value ->> 2)::bigint AS turn,
               value ->> 3 AS type, value ->> 4 AS data, (value ->> 5)::bigint AS final,
               (value ->> 6)::bigint AS first_id, (value ->> 7)::bigint AS end_id, value ->> 8 AS owner
        FROM json_array_elements($1::text::json)""",
}
# as `_LOCK_TURN`, for all of them
_LOCK_TURNS = f"""
SELECT t.turn FROM turns t
JOIN ({_NEW_EVENTS["postgres"]}) given ON t.session_key = given.session_key AND t.turn = given.turn
ORDER BY t.session_key, t.turn FOR UPDATE OF t
"""  # noqa: S608 - constants
_EVENTS_AFTER = """
SELECT data FROM event_log WHERE session_key = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4
"""


class LoggedEvent(Struct, frozen=True):
    """An event and its JSON text, which is encoded once for the event log and for every reader."""

    event: TurnEvent
    data: str

    @classmethod
    def of(cls, event: TurnEvent) -> Self:
        """Encode an event."""
        if isinstance(event, TextDelta | ThoughtDelta):  # most events are, and hold no other types
            return cls(event, dumps(to_builtins(event)))
        return cls(event, dumps(to_json(event, unchanged=(bytes, bytearray))))

    @classmethod
    def decode(cls, data: str) -> Self:
        """Read an event back from its JSON text."""
        return cls(from_json(loads(data)), data)

    @property
    def id(self) -> int:
        """The id of the event."""
        return self.event.id

    @property
    def final(self) -> bool:
        """Whether no event of the turn follows this one."""
        return is_final(self.event)


class LogPage(Struct, frozen=True):
    """Events of a turn after an id, and the record of the turn."""

    events: list[LoggedEvent]
    turn: turns.TurnRecord | None
    closed: bool = False
    """No event follows these."""


def append_log_events(key: int, turn: int, events: Sequence[LoggedEvent], owner: str | None = None) -> Operation[bool]:
    """Append events to the log of their turn; False: it is closed, was taken over, or its session was deleted."""
    for status, held_by in (yield _LOCK_TURN, (key, turn)):
        if status == "interrupted" or owner not in (None, held_by):
            return False
    return (yield from _append_locked(key, turn, events))


def _append_locked(key: int, turn: int, events: Sequence[LoggedEvent]) -> Operation[bool]:
    rows = yield _LAST_EVENT, (key, *event_ids.id_range(turn))
    if not rows or rows[0][2]:
        return False
    last = rows[0][1]
    if last is None and turn > KEPT_TURNS:
        yield _DROP_OLD, (key, event_ids.IDS_PER_TURN, turn, KEPT_TURNS)
    for event in events:
        if last is None or event.id > last:  # a repeated write finds its rows there already
            yield _INSERT, (key, event.id, turn, event.event.type, event.data, int(event.final))
    return True


class EventBatch(Struct, frozen=True):
    """Events to store at the end of a turn."""

    session_key: int
    turn: int
    events: Sequence[LoggedEvent]
    owner: str | None = None
    """The process that runs the turn: if another one has taken it over, the events are refused."""


def append_log_batches(batches: Sequence[EventBatch], dialect: Dialect) -> Operation[list[bool]]:
    """Append events of many turns: those of running turns with one statement, the others one by one.

    After each statement the writer's thread waits for the interpreter lock, up to a millisecond.
    """
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        bounds = event_ids.id_range(batch.turn)
        rows += [
            (
                batch.session_key,
                event.id,
                batch.turn,
                event.event.type,
                event.data,
                int(event.final),
                *bounds,
                batch.owner,
            )
            for event in batch.events
            if event.id > event_ids.event_id(batch.turn, 1)  # the first event of a turn also drops old ones
        ]
    stored = set[tuple[int, int]]()
    if rows:
        given = (dumps(rows),)
        if dialect == "postgres":
            yield _LOCK_TURNS, given
        stored = {(key, id_) for key, id_ in (yield _APPEND_MANY.format(given=_NEW_EVENTS[dialect]), given)}
    added: list[bool] = []
    for batch in batches:
        done = all((batch.session_key, event.id) in stored for event in batch.events)
        added.append(done or (yield from append_log_events(batch.session_key, batch.turn, batch.events, batch.owner)))
    return added


def read_event_log(key: int, turn: int, after_id: int = 0) -> Operation[LogPage]:
    """Read a page of a turn's events after an id, and the record of the turn.

    Events of an ended turn that are not logged are rebuilt. Raise `EventsGone` for an id that only the log knew.
    """
    record = yield from turns.read_turn(key, turn)  # before its events: those of an ended turn are then all stored
    first, end = event_ids.id_range(turn)
    rows = yield _EVENTS_AFTER, (key, max(after_id, first), end, PAGE)
    events = [LoggedEvent.decode(data) for (data,) in rows]
    if events:
        return LogPage(events, record, events[-1].final)
    last = yield _LAST_EVENT, (key, first, end)
    is_logged = bool(last) and last[0][1] is not None and not event_ids.is_rebuilt(max(after_id, first))
    if is_logged or record is None or record.status in ("queued", "running"):
        return LogPage([], record, bool(last and last[0][2]))
    if event_ids.is_known_only_to_log(turn, after_id):
        raise EventsGone(events_gone_message(after_id))
    if after_id >= end - 1:
        return LogPage([], record, closed=True)
    made = yield from rebuilt_events.rebuild_events(key, turn, record)
    return LogPage([LoggedEvent.of(event) for event in made if event.id > after_id], record, closed=True)


def events_gone_message(after_id: int) -> str:
    """Return the message of `EventsGone`."""
    return (
        f"the events after {after_id} are not kept any more: read the messages of the session, then follow it anew, "
        "without an id"
    )


def append_final_events(key: int, turn: int) -> Operation[None]:
    """Append the final events of a turn whose process died: the rest of its text, and how it ended.

    A turn without logged events is left alone: its events are rebuilt when they are read.
    """
    yield _LOCK_TURN, (key, turn)
    record = yield from turns.read_turn(key, turn)
    if record is None or record.status in ("queued", "running"):
        return
    rows: list[Any] = yield _EVENTS_AFTER, (key, *event_ids.id_range(turn), LARGEST)
    logged = [LoggedEvent.decode(data).event for (data,) in rows]
    if not logged or is_final(logged[-1]):
        return
    logged_text = "".join(event.text for event in logged if isinstance(event, TextDelta))
    rest = yield from _unlogged_text(key, turn, logged_text)
    last = logged[-1].id
    missing: list[TurnEvent] = []
    if rest:
        last += 1
        missing.append(TextDelta(last, rest))
    missing.append(rebuilt_events.final_event(turn, record, last + 1))
    yield from _append_locked(key, turn, [LoggedEvent.of(event) for event in missing])


def _unlogged_text(key: int, turn: int, logged_text: str) -> Operation[str]:
    """Return the stored text of a turn after its logged text; empty if the one does not continue the other."""
    messages = yield from turns.read_turn_texts(key, turn)
    stored_text = "".join(event.message.content for event in messages if event.message)
    return stored_text.removeprefix(logged_text) if stored_text.startswith(logged_text) else ""
