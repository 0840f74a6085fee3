"""Track tool calls that have no result yet and what they wait for, and build the events that close them."""

import re
from collections.abc import Collection, Mapping
from typing import Literal

from lango.history import count_tokens
from lango.json_values import storable_text
from lango.messages import Message, ToolCall
from lango.sessions import EARLIEST_TIME, LATEST_TIME, StoredEvent
from lango.store.codec.json_text import dumps
from lango.store.codec.records import NewEvent, call_key, wait_id
from lango.store.codec.rows import MESSAGE_COLUMNS, calls_from_json, row_to_event
from lango.store.codec.wait_rows import RESULT_KINDS, OpenedWait, opened_wait
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sent_events import answer_from_sent_events
from lango.waits.pauses import AwaitedEvent, Pause

_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND seq = $2"  # noqa: S608 - constants
_BY_EVENT_ID = f"SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND event_id = $2"  # noqa: S608
_CALLS_OF_RESULTS = "SELECT COALESCE(call_seq, seq - 1) FROM messages WHERE session_key = $1 AND seq = $2"
_COPIED_EXTRA = ("branch", "isolation_scope")
_CLOSING_ID = re.compile(r"(closed|client|no)-\d+-\d+")

OPEN_CALL = """
INSERT INTO open_calls (session_key, call_id, seq, long_running) VALUES ($1, $2, $3, $4)
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, long_running = excluded.long_running
"""
OPEN_WAIT = """
INSERT INTO waits (session_key, id, kind, seq, invocation_id, about_id, about_seq, opened_at, expires_at, data,
    app_name, user_id, turn, epoch, state_hash, secret, event_name)
SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT), CAST($5 AS TEXT), CAST($6 AS TEXT),
    CAST($7 AS BIGINT), CAST($8 AS DOUBLE PRECISION),
    COALESCE(CAST($9 AS DOUBLE PRECISION), (SELECT now FROM database_clock) + CAST($10 AS DOUBLE PRECISION)),
    CAST($11 AS TEXT), CASE WHEN CAST($3 AS TEXT) <> 'client_result' THEN s.app_name END,
    CASE WHEN CAST($3 AS TEXT) <> 'client_result' THEN s.user_id END,
    (SELECT turn FROM turns WHERE session_key = $1 AND status = 'running'), CAST($12 AS BIGINT), CAST($13 AS TEXT),
    CAST($14 AS TEXT), CAST($15 AS TEXT)
FROM sessions s WHERE s.session_key = $1
ON CONFLICT (session_key, id) DO UPDATE SET kind = excluded.kind, seq = excluded.seq,
    invocation_id = excluded.invocation_id, about_id = excluded.about_id, about_seq = excluded.about_seq,
    opened_at = excluded.opened_at, expires_at = excluded.expires_at, data = excluded.data,
    app_name = excluded.app_name, user_id = excluded.user_id, turn = excluded.turn, epoch = excluded.epoch,
    state_hash = excluded.state_hash, secret = excluded.secret, event_name = excluded.event_name, answer = NULL,
    answered_at = NULL, answered_by = NULL, closed = NULL, closed_at = NULL
"""
"""Opens a wait, or opens it again: a workflow, and a provider, may use an id of a call again."""
# the user has seen a newer message, which no turn of ours started: then the answer came too late
_CLOSE_ANSWERED = """
UPDATE waits SET closed_at = (SELECT now FROM database_clock), state_hash = NULL,
    closed = CASE WHEN kind <> 'client_result' AND seq <= (SELECT user_seq FROM sessions s WHERE s.session_key = $1)
        THEN 'superseded' ELSE 'answered' END
WHERE session_key = $1 AND id = $2 AND closed IS NULL
    AND kind NOT IN ('long_running_result', 'timer', 'event') RETURNING about_id, about_seq
"""
_OPEN_CALLS = "SELECT call_id, seq FROM open_calls WHERE session_key = $1"
_SEQ_OF_OPEN_CALL = "SELECT seq FROM open_calls WHERE session_key = $1 AND call_id = $2"
_SEQ_OF_WAIT = "SELECT seq FROM waits WHERE session_key = $1 AND id = $2 AND closed IS NULL"
_OPENED_BEFORE = """
SELECT seq, kind FROM waits WHERE session_key = $1 AND id = $2 AND closed IS NULL AND kind IN ('timer', 'event')
"""
_CALLS_BEFORE = """
SELECT seq, tool_calls FROM messages_with_lineage
WHERE session_key = $1 AND seq >= $2 AND seq < $3 AND role = 'assistant' AND tool_calls IS NOT NULL ORDER BY seq DESC
"""
_MESSAGES_SEARCHED = 50  # messages: an approval is requested right after its call, among those of parallel agents
_CLOSE_CALL = "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2 RETURNING seq, long_running"


def message_at(key: int, seq: int) -> Operation[StoredEvent | None]:
    """Read a message of a session or of its lineage."""
    rows = yield _MESSAGE, (key, seq)
    return row_to_event(rows[0]) if rows else None


def find_event(key: int, event_id: str) -> Operation[StoredEvent | None]:
    """Find a message of a session or of its lineage by the id of its event."""
    rows = yield _BY_EVENT_ID, (key, event_id)
    return row_to_event(rows[0]) if rows else None


def closing_event(
    kind: Literal["closed", "client", "no"],
    made_by: StoredEvent,
    results: tuple[ToolCall, ...],
    revision: int,
    now: float,
) -> NewEvent:
    """Build the message that closes calls, on the branch and in the scope of the agent that made them.

    `kind`: the turn ended, the client gave or owed the results, or an approval was not given.
    """
    author = made_by.message.author if made_by.message else ""
    message = Message("tool", "\n".join(dumps(result.output) for result in results), results, author)
    return NewEvent(
        event_id=f"{kind}-{made_by.seq}-{revision}",
        created_at=now,
        message=message,
        tokens=count_tokens(message),
        invocation_id=made_by.invocation_id,
        extra={name: value for name, value in (made_by.extra or {}).items() if name in _COPIED_EXTRA},
    )


def is_closing_event(stored: StoredEvent) -> bool:
    """Whether a message was made by `closing_event`."""
    return _CLOSING_ID.fullmatch(stored.event_id) is not None


def track_calls(key: int, seq: int, message: Message, entry: NewEvent) -> Operation[int | None]:
    """Store new calls as open, with what they wait for, and close those that have results.

    Return the earliest call that got one, or None if that is the message before. A call whose result was that it needs
    approval is open again once its approval request is answered.
    """
    farthest: int | None = None
    for call in message.tool_calls:
        if call.output is not None or message.role == "tool":
            made_at = yield from _close_call(key, seq, call.id)
            if made_at is not None:
                farthest = made_at if farthest is None else min(farthest, made_at)
            continue
        opened = opened_wait(call, message, entry.extra)
        long_running = opened is not None or call.id in entry.long_running
        yield OPEN_CALL, (key, call_key(call.id), seq, 1 if long_running else 0)
        if opened is not None:
            yield from _open_wait(key, seq, call.id, opened, entry)
    return farthest if farthest != seq - 1 else None


def _close_call(key: int, seq: int, call_id: str) -> Operation[int | None]:
    """Close a call that has a result, and its wait; return the message that made it, if it is known."""
    rows = yield _CLOSE_CALL, (key, call_key(call_id))
    made_at: int | None = rows[0][0] if rows else None
    if rows and not rows[0][1]:
        return made_at
    for about_id, about_seq in (yield _CLOSE_ANSWERED, (key, wait_id(call_id))):
        if about_id is not None and about_seq is not None:
            yield OPEN_CALL, (key, about_id, about_seq, 0)
    if made_at is None:  # a later result of a long-running tool
        for [made_at] in (yield _SEQ_OF_WAIT, (key, wait_id(call_id))):
            return made_at
    if made_at is None:  # a tool that ran again, with the credential that it requested
        made_at = yield from seq_of_call(key, call_key(call_id), seq)
    return made_at


def _open_wait(key: int, seq: int, call_id: str, opened: OpenedWait, entry: NewEvent) -> Operation[None]:
    about_seq = (yield from seq_of_call(key, opened.about_id, seq)) if opened.about_id is not None else None
    kept, pause = entry.request_secrets.get(call_id), opened.pause
    is_answerable = opened.kind != "credential" or kept is not None
    opened_at = entry.created_at if EARLIEST_TIME <= entry.created_at <= LATEST_TIME else 0.0
    yield (
        OPEN_WAIT,
        (
            key,
            wait_id(call_id),
            opened.kind,
            seq,
            storable_text(entry.invocation_id),
            opened.about_id,
            about_seq,
            opened_at,
            pause and pause.at,
            pause.seconds if pause else entry.expires_s.get(opened.kind),
            opened.data if is_answerable else None,
            None,
            kept and kept.state_hash,
            kept and kept.secret,
            pause and pause.event,
        ),
    )
    if isinstance(pause, AwaitedEvent):
        yield from answer_from_sent_events(key, wait_id(call_id), pause)


def await_result(key: int, call_id: str, now: float, pause: Pause | None = None) -> Operation[str | None]:
    """Open the wait of a long-running call for results from outside, or for the end of a `pause`; return its kind.

    The message that made the call is stored.
    """
    for [seq] in (yield _SEQ_OF_OPEN_CALL, (key, call_key(call_id))):
        for known, kind in (yield _OPENED_BEFORE, (key, wait_id(call_id))):
            if known == seq:
                return kind  # by an earlier run of this turn: the time has begun
        stored = yield from message_at(key, seq)
        for call in stored.message.tool_calls if stored and stored.message else ():
            if stored and stored.message and call_key(call.id) == call_key(call_id):
                opened = opened_wait(call, stored.message, stored.extra, long_running=True, pause=pause)
                if opened is not None and opened.kind in RESULT_KINDS:
                    entry = NewEvent(stored.event_id, now, invocation_id=stored.invocation_id)
                    yield from _open_wait(key, seq, call.id, opened, entry)
                    return opened.kind
    return None


def open_stored_waits(key: int, calls: Mapping[int, Collection[str]], now: float | None = None) -> Operation[None]:
    """Open the waits of calls in stored messages, given by the numbers of the messages and the `call_key`s.

    A call that slept, or waited for an event, does not do so again.

    None: they were opened when the messages were stored.
    """
    for seq, call_keys in calls.items():
        stored = yield from message_at(key, seq)
        if stored is None or stored.message is None:
            continue
        opened_at = stored.created_at if now is None else now
        entry = NewEvent(stored.event_id, opened_at, invocation_id=stored.invocation_id)
        for call in stored.message.tool_calls:
            if call_key(call.id) in call_keys:
                opened = opened_wait(call, stored.message, stored.extra)
                if opened is not None and opened.pause is None:
                    yield from _open_wait(key, seq, call.id, opened, entry)


def read_open_calls(key: int) -> Operation[dict[str, int]]:
    """Read the calls of a session that have no result: the message that made each, by its `call_key`."""
    rows: list[Row] = yield _OPEN_CALLS, (key,)
    return {row[0]: row[1] for row in rows}


def seq_of_call(key: int, call: str, before: int) -> Operation[int | None]:
    """Return which message made the call that an approval request is about, shortly before a message.

    It is still open, unless another call of the same response was done at once: then ADK stores both results before the
    request.
    """
    for [seq] in (yield _SEQ_OF_OPEN_CALL, (key, call)):
        return seq
    for seq, calls in (yield _CALLS_BEFORE, (key, before - _MESSAGES_SEARCHED, before)):
        if any(call_key(made.id) == call for made in calls_from_json(calls)):
            return seq
    return None


def message_of_calls(key: int, results_seq: int) -> Operation[StoredEvent | None]:
    """Read the message that made the calls whose results another message has."""
    for [seq] in (yield _CALLS_OF_RESULTS, (key, results_seq)):
        return (yield from message_at(key, seq))
    return None
