"""Append and read the events of turns, so that `Last-Event-ID` is exact in every process.

The log of a turn begins in the transaction that stores the turn, and is closed by the final event in the one that ends
it: later events, as of a process that was taken for dead, are refused. It is kept as long as the session. Of turns that
are long over, it keeps whole texts instead of their pieces. Imported turns have no log: readers get their texts.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Self

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.errors import EventsGone, SchemaError
from lango.events import (
    Accepted,
    NodeProgress,
    Queued,
    TextDelta,
    TextEnd,
    TextWithdrawn,
    ThoughtDelta,
    TurnError,
    TurnEvent,
    event_id,
    from_json,
    id_range,
    is_final,
    to_json,
)
from lango.events.text import join_text_deltas, remove_withdrawn
from lango.sessions import SessionInfo
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn
from lango.store.engine.database import LARGEST, Dialect, LockingRead, Operation, Row
from lango.store.sessions.lineage import read_lineages, row_ranges
from lango.store.turns import turns
from lango.store.turns.turns import TurnFailure, TurnResult

KEPT_TURNS = 50
"""How many turns of a session keep their texts in pieces, as they were sent; those of older turns are joined."""
PAGE = 500
_BETWEEN_JOINED = 3
_TEXT_EVENTS = (TextDelta, ThoughtDelta, TextWithdrawn)

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
_EVENTS_FROM = """
SELECT id, data, final FROM event_log WHERE session_key = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4
"""
_ENDED = "SELECT status, extra, epoch FROM turns WHERE session_key = $1 AND turn = $2"
_TEXTS = """
SELECT id, final, CASE WHEN type IN ('text_delta', 'thought_delta', 'text_end', 'text_withdrawn') THEN data END
FROM event_log
WHERE session_key = $1 AND id > $2 AND id < $3 ORDER BY id
"""
_DROP_TEXTS = """
DELETE FROM event_log WHERE session_key = $1 AND id > $2 AND id < $3
    AND type IN ('text_delta', 'thought_delta', 'text_withdrawn')
"""
_SET_JOINED = "UPDATE event_log SET final = 2 WHERE session_key = $1 AND id = $2"
# no reader continues after an event that lies between the pieces of a joined text
_END_PLACES = "UPDATE event_log SET final = 3 WHERE session_key = $1 AND id > $2 AND id < $3 AND type <> 'accepted'"
_IS_JOINED = "SELECT 1 FROM event_log WHERE session_key = $1 AND id > $2 AND id < $3 AND final = 2"
_HAS_LOG = "SELECT 1 FROM event_log WHERE session_key = $1 AND id > $2 AND id < $3 LIMIT 1"
_NODES = """
SELECT t.first_seq, e.data FROM turns t
JOIN event_log e ON e.session_key = t.session_key AND e.turn = t.turn AND e.type = 'node'
WHERE t.session_key = $1 AND t.first_seq >= $2 AND t.first_seq <= $3 ORDER BY e.id
"""
_NODES_OF_INVOCATION = """
SELECT e.data FROM turns t JOIN event_log e ON e.session_key = t.session_key AND e.turn = t.turn AND e.type = 'node'
WHERE t.session_key = $1 AND t.first_seq <= $2 AND t.turn < $3 AND t.invocation_id = $4 ORDER BY e.id
"""
_WITHOUT_ANSWER = """
SELECT first_seq, status, extra FROM turns WHERE session_key = $1 AND first_seq >= $2 AND first_seq <= $3
    AND status IN ('failed', 'cancelled', 'interrupted')
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

    @classmethod
    def decode_known(cls, rows: Iterable[Row]) -> list[Self]:
        """Read events back from rows of the log, without those that only a newer Lango knows."""
        known: list[Self] = []
        for _, data, _ in rows:
            with suppress(SchemaError):
                known.append(cls.decode(data))
        return known

    @property
    def id(self) -> int:
        """The id of the event."""
        return self.event.id

    @property
    def final(self) -> bool:
        """Whether no event of the turn follows this one."""
        return is_final(self.event)

    def row(self, key: int, turn: int) -> tuple[int, int, int, str, str, int]:
        """Return the columns of its row."""
        return key, self.event.id, turn, self.event.type, self.data, int(self.final)


class LogPage(Struct, frozen=True):
    """Events of a turn after an id, and the turn as it is stored."""

    events: list[LoggedEvent]
    turn: turns.StoredTurn | None
    closed: bool = False
    """No event follows these."""
    last_id: int = 0
    """The id after which the next page begins."""


def append_log_events(key: int, turn: int, events: Sequence[LoggedEvent], owner: str | None = None) -> Operation[bool]:
    """Append events to the log of their turn; return False if it is closed, or the turn was taken over or deleted."""
    for status, held_by in (yield _LOCK_TURN, (key, turn)):
        if status == "interrupted" or owner not in (None, held_by):
            return False
    return (yield from _append_locked(key, turn, events))


def _append_locked(key: int, turn: int, events: Sequence[LoggedEvent]) -> Operation[bool]:
    rows = yield _LAST_EVENT, (key, *id_range(turn))
    if not rows or rows[0][2]:
        return False
    last = rows[0][1]
    for event in events:
        if last is None or event.id > last:  # a repeated write finds its rows there already
            yield _INSERT, event.row(key, turn)
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
        bounds = id_range(batch.turn)
        rows += [(*event.row(batch.session_key, batch.turn), *bounds, batch.owner) for event in batch.events]
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


def accepted_event(turn: turns.Turn, invocation_id: str) -> LoggedEvent:
    """Return the first event of a turn."""
    return LoggedEvent.of(Accepted(event_id(turn.turn, 1), turn.turn, turn.status == "queued", invocation_id))


def begin_log(turn: turns.Turn, invocation_id: str) -> Operation[None]:
    """Begin the log of a turn that is being stored: it is accepted."""
    yield _INSERT, accepted_event(turn, invocation_id).row(turn.session_key, turn.turn)


def close_log(
    key: int, turn: int, events: Sequence[LoggedEvent] = (), failure: TurnFailure | None = None
) -> Operation[None]:
    """Append the last events of a turn that ended in this transaction.

    If none of them is final, its owner could not store them: append the rest of its stored text, and the final event
    that follows from its row, or from `failure`.
    """
    if events:
        yield from _append_locked(key, turn, events)
    if not (events and events[-1].final):
        rows: list[Any] = yield _EVENTS_FROM, (key, *id_range(turn), LARGEST)
        logged = [one.event for one in LoggedEvent.decode_known(rows)]
        if not logged or is_final(logged[-1]):
            return
        newest = rows[-1][0]
        missing: list[TurnEvent] = list((yield from _unlogged_texts(key, turn, logged, newest)))
        [[status, extra, epoch]] = yield _ENDED, (key, turn)
        result = TurnResult(failure) if failure else TurnResult.decode(extra)
        last_id = newest + len(missing) + 1
        missing.append(result.final_event(last_id, turn, "failed" if failure else status, has_run=epoch is not None))
        yield from _append_locked(key, turn, [LoggedEvent.of(event) for event in missing])
    if turn > KEPT_TURNS:
        yield from _join_texts(key, turn - KEPT_TURNS)


def close_log_with(key: int, turn: int, last: Callable[[int], Sequence[TurnEvent]]) -> Operation[None]:
    """Append the last events of a turn that did not run; `last` makes them from the newest id of its log."""
    for _, newest, final in (yield _LAST_EVENT, (key, *id_range(turn))):
        if newest is not None and not final:
            yield from _append_locked(key, turn, [LoggedEvent.of(event) for event in last(newest)])


def _unlogged_texts(
    key: int, turn: int, logged: Sequence[TurnEvent], newest: int
) -> Operation[list[TextDelta | TextEnd]]:
    """Return the stored texts of a turn that the log does not have, with ids after the newest one."""
    texts: dict[int, TextDelta] = {}
    for event in join_text_deltas(remove_withdrawn([one for one in logged if isinstance(one, _TEXT_EVENTS)])):
        if isinstance(event, TextDelta):
            before = texts.get(event.block)
            texts[event.block] = replace(event, text=before.text + event.text) if before else event
    ended = {event.block for event in logged if isinstance(event, TextEnd)}
    last_block = max(texts, default=0)
    missing: list[TextDelta | TextEnd] = []
    for stored in (yield from turns.read_turn_texts(key, turn)):
        if stored.message is None:
            continue
        text, author = stored.message.content, stored.message.author
        own = [block for block, one in texts.items() if one.author in (author, "")]
        same = [block for block in own if text.startswith(texts[block].text)]
        if own and not same:
            continue  # a callback changed what was streamed
        last_block += not same
        block, shown = (same[0], texts.pop(same[0]).text) if same else (last_block, "")
        if rest := text[len(shown) :]:
            missing.append(TextDelta(newest + len(missing) + 1, rest, author, block))
        if block not in ended:
            missing.append(TextEnd(newest + len(missing) + 1, block, author))
    return missing


def _join_texts(key: int, turn: int) -> Operation[None]:
    """Replace the pieces of a turn's texts with whole ones, under the ids of the last pieces."""
    bounds = id_range(turn)
    rows: list[Any] = yield _TEXTS, (key, *bounds)
    if not rows or not rows[-1][1]:
        return  # it is still open
    # of the other events, which may be large, only their places count
    logged: list[TurnEvent] = [
        Queued(id_, 0) if data is None else LoggedEvent.decode(data).event for id_, _, data in rows
    ]
    whole = join_text_deltas(remove_withdrawn(logged))
    if len(whole) == len(logged):
        return
    yield _DROP_TEXTS, (key, *bounds)
    yield _SET_JOINED, (key, logged[-1].id)
    for event in whole:
        if isinstance(event, TextDelta | ThoughtDelta):
            yield _INSERT, LoggedEvent.of(event).row(key, turn)
    if _are_mixed(logged):
        yield _END_PLACES, (key, bounds[0], logged[-1].id)


def _are_mixed(logged: Iterable[TurnEvent]) -> bool:
    """Whether pieces of several texts alternate: an event between them comes before a part of a joined text only."""
    blocks = [event.block for event in logged if isinstance(event, TextDelta | ThoughtDelta)]
    return len(list(groupby(blocks))) > len(set(blocks))


def has_joined_texts(key: int, turn: int) -> Operation[bool]:
    """Whether the log has whole texts of a turn instead of their pieces."""
    return bool((yield _IS_JOINED, (key, *id_range(turn))))


def read_event_log(key: int, turn: int, after_id: int = 0) -> Operation[LogPage]:
    """Read a page of a turn's events after an id, and the turn as it is stored.

    Events that only a newer version of Lango knows are left out. Raise `EventsGone` if events follow, and the log does
    not have the one of that id, or has it between texts that were joined.
    """
    stored = yield from turns.read_turn(key, turn)  # before its events: those of an ended turn are then all stored
    first, end = id_range(turn)
    rows: list[Any] = yield _EVENTS_FROM, (key, max(after_id, first), end, PAGE + 1)
    if after_id > first and rows and (rows[0][0] != after_id or rows[0][2] == _BETWEEN_JOINED):
        raise EventsGone(
            f"the events after {after_id} are no longer kept: read the messages of the session, then follow it again, "
            "without an id"
        )
    if rows:
        after = [row for row in rows if row[0] > after_id][:PAGE]
        known = LoggedEvent.decode_known(after or rows[-1:])  # without new ones, the one of `after_id` may be final
        closed = bool(known) and known[-1].final
        return LogPage(known if after else [], stored, closed, (after or rows)[-1][0])
    if stored is None or stored.status in ("queued", "running") or (yield _HAS_LOG, (key, first, end)):
        return LogPage([], stored, closed=stored is not None and stored.status not in ("queued", "running"))
    events = yield from _imported_events(key, turn, stored)
    return LogPage([event for event in events if event.id > after_id], stored, closed=True)


def _imported_events(key: int, turn: int, row: turns.StoredTurn) -> Operation[list[LoggedEvent]]:
    """Return what readers get of a turn that came with an import: its texts, and how it ended."""
    events: list[TurnEvent] = [Accepted(event_id(turn, 1), turn, invocation_id=row.invocation_id)]
    for stored in (yield from turns.read_turn_texts(key, turn)):
        if stored.message:
            text, author, block = stored.message.content, stored.message.author, len(events) // 2 + 1
            events.append(TextDelta(events[-1].id + 1, text, author, block))
            events.append(TextEnd(events[-1].id + 1, block, author))
    final = row.result.final_event(events[-1].id + 1, turn, row.status, has_run=row.epoch is not None)
    return [LoggedEvent.of(event) for event in (*events, final)]


def read_turn_errors(session: SessionInfo, first_seq: int, last_seq: int) -> Operation[dict[int, TurnError]]:
    """Read why turns between two messages ended without an answer, by the message that started each."""
    errors: dict[int, TurnError] = {}
    for key, first, last in row_ranges(session, first_seq, last_seq):
        for seq, status, extra in (yield _WITHOUT_ANSWER, (key, first, last)):
            event = TurnResult.decode(extra).final_event(0, 0, status, has_run=True)
            if isinstance(event, TurnError):
                errors[seq] = event
    return errors


def read_nodes(session: SessionInfo, first_seq: int, last_seq: int) -> Operation[dict[int, list[NodeProgress]]]:
    """Read the progress of workflows' nodes in turns between two messages, by the message that started each turn."""
    nodes: dict[int, list[NodeProgress]] = {}
    for place in row_ranges(session, first_seq, last_seq):
        for seq, data in (yield _NODES, place):
            nodes.setdefault(seq, []).append(_to_node(data))
    return nodes


def read_earlier_nodes(turn: Turn, invocation_id: str) -> Operation[dict[str, str]]:
    """Read the nodes that ran in an invocation before this turn continued it: their status, by path."""
    lineages = yield from read_lineages([turn.session_key])
    places = [(shared.source_key, shared.last_seq, LARGEST) for shared in lineages.get(turn.session_key, ())]
    statuses: dict[str, str] = {}
    for place in (*places, (turn.session_key, LARGEST, turn.turn)):
        nodes = [_to_node(data) for [data] in (yield _NODES_OF_INVOCATION, (*place, invocation_id))]
        statuses |= {node.path: node.status for node in nodes}
    return statuses


def _to_node(data: str) -> NodeProgress:
    event = LoggedEvent.decode(data).event
    assert isinstance(event, NodeProgress)
    return event
