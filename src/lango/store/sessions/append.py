"""Append an event to its session: checked, in order, exactly once, together with its state.

Most events are ordinary: a text, one call, or the result of the call before it. These are appended with a single
statement, which needs neither BEGIN nor COMMIT. It writes nothing if one of its conditions fails; then `append` stores
the event, or raises the error.
"""

from msgspec.structs import astuple

from lango.errors import EventConflict, FencedWrite, SessionNotFound, StaleSession
from lango.sessions import SessionId, is_steering
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import AppendResult, NewEvent, call_key, without_temporary_state
from lango.store.codec.rows import MESSAGE_COLUMNS, MessageRow, event_to_row
from lango.store.codec.wait_rows import opened_wait
from lango.store.contents import add_to_messages
from lango.store.engine.database import LARGE_VALUE, Operation, RollBack, SingleStatement, SingleStatementWrite
from lango.store.sessions.lineage import read_rewinds
from lango.store.sessions.open_calls import track_calls
from lango.store.sessions.state import apply_delta, first_seq_of_invocation

ADVANCE = """
UPDATE sessions SET revision = revision + {events}, last_seq = last_seq + {messages},
    total_tokens = total_tokens + {tokens}, updated_at = {created_at},
    user_seq = CASE WHEN {user_place} > 0 THEN last_seq + {user_place} ELSE user_seq END
WHERE session_key = {session_key} AND revision = {revision}
"""
"""Advances and locks a session, unless another writer has changed its revision.

`user_place` is the place of the newest message of the user among the new ones; 0: there is none.
"""
# An event id is unique in the whole session: nothing is advanced for an id that is in the other table of events.
ID_IS_FREE = """
    AND NOT EXISTS (SELECT 1 FROM {other_events} WHERE session_key = {session_key} AND event_id = {event_id})
"""


def _advance(other_events: str) -> str:
    names = ("messages", "tokens", "created_at", "user_place", "session_key", "revision", "event_id")
    numbers = {name: f"${n}" for n, name in enumerate(names, 1)}
    statement = f"{ADVANCE}{ID_IS_FREE} RETURNING last_seq, total_tokens, epoch, forked_from"
    return statement.format(events=1, other_events=other_events, **numbers)


_ADVANCE_BY_MESSAGE, _ADVANCE_BY_STATE = _advance("state_events"), _advance("messages")

_INSERT_MESSAGE = f"""
INSERT INTO messages (session_key, {MESSAGE_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (session_key, event_id) DO NOTHING RETURNING seq
"""  # noqa: S608 - constants
_INSERT_STATE_EVENT = """
INSERT INTO state_events (session_key, seq, revision, event_id, created_at, state_delta, extra)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (session_key, event_id) DO NOTHING RETURNING seq
"""
_SAME_ID = """
SELECT seq, role, author, content, tool_calls, invocation_id, state_delta, extra
FROM messages_with_lineage WHERE session_key = $1 AND event_id = $2
UNION ALL SELECT seq, NULL, NULL, NULL, NULL, NULL, state_delta, extra
FROM state_events_with_lineage WHERE session_key = $1 AND event_id = $2
"""
_REVISION = "SELECT revision, epoch FROM sessions WHERE session_key = $1"

_SET_ANSWER_STORED = "UPDATE turns SET answer_stored = 1 WHERE session_key = $1 AND epoch = $2 AND status = 'running'"

_REVOKE_GRANTS = """
UPDATE approval_grants SET revoked_at = (SELECT now FROM database_clock), revoked_by = 'rewind'
WHERE session_key = $1 AND seq >= $2 AND revoked_at IS NULL
"""
_CLOSE_WAITS = """
UPDATE waits SET closed = 'rewound', closed_at = (SELECT now FROM database_clock), state_hash = NULL, secret = NULL
WHERE session_key = $1 AND seq >= $2 AND closed IS NULL
"""
_SET_REWINDS = "UPDATE sessions SET rewinds = $1 WHERE session_key = $2"
# learned from messages that the rewind removes
_DELETE_FACTS = "DELETE FROM user_facts WHERE session_key = $1 AND last_seq >= $2"


def append(
    key: int, name: SessionId, revision: int, entry: NewEvent, epoch: int | None = None, *, ends_turn: bool = False
) -> Operation[AppendResult]:
    """Append an event to its session.

    `revision` is the one that the writer has read: if the session has a newer one, raise `StaleSession`, unless this
    event was stored before. The `epoch` of a turn that writes must be the session's. `ends_turn`: this is the last
    event of its turn, which counts as done even if its process dies now.
    """
    row = event_to_row(entry)
    message = entry.message
    only_state = message is None
    place_of_user = 1 if message is not None and message.role == "user" and not is_steering(entry.extra) else 0
    added = 0 if only_state else 1, entry.tokens, row.created_at, place_of_user
    rows = yield _ADVANCE_BY_STATE if only_state else _ADVANCE_BY_MESSAGE, (*added, key, revision, row.event_id)
    if not rows:
        return (yield from _repeated_or_stale(key, name, revision, row, only_state, epoch))
    [[seq, total_tokens, newest_epoch, forked_from]] = rows
    if epoch is not None and epoch != newest_epoch:
        raise FencedWrite(f"session {name.id!r} has a newer turn (epoch {newest_epoch}, this one has {epoch})")
    if forked_from is not None:  # the unique index does not cover the rows that a fork shares
        same = yield from _seq_of_same_event(key, name, row, only_state)
        if same is not None:
            raise RollBack(AppendResult(same, revision, repeated=True))
    if message is None:
        changes = row.state_delta or "{}", _extra_with_invocation(row)
        written = yield _INSERT_STATE_EVENT, (key, seq, revision + 1, row.event_id, row.created_at, *changes)
    else:
        call_seq = (yield from track_calls(key, seq, message, entry)) if message.tool_calls else None
        written = yield _INSERT_MESSAGE, message_values(key, seq, total_tokens, call_seq, row)
    if not written:
        seq = yield from _seq_of_same_event(key, name, row, only_state)
        raise RollBack(AppendResult(seq or 0, revision, repeated=True))  # stored before: undo the advance
    yield from add_to_messages(key, {seq: entry.contents})
    if entry.state_delta and (delta := without_temporary_state(entry.state_delta)):
        yield from apply_delta(key, name, delta)
    if entry.rewind_before:
        yield from _record_rewind(key, seq, entry.rewind_before)
    if ends_turn and epoch is not None:
        yield _SET_ANSWER_STORED, (key, epoch)
    return AppendResult(seq, revision + 1)


def message_values(key: int, seq: int, total_tokens: int, call_seq: int | None, row: MessageRow) -> tuple[object, ...]:
    """Return the values of a message's row, in the order of `MESSAGE_COLUMNS`."""
    role, author, content, calls, tokens, *others = astuple(row)
    return (key, seq, role, author, content, calls, tokens, total_tokens, *others, call_seq)


def _extra_with_invocation(row: MessageRow) -> str | None:
    """Add the invocation to `extra`: state events have no column for it."""
    if not row.invocation_id:
        return row.extra
    return dumps({"invocation_id": row.invocation_id} | (loads(row.extra) if row.extra else {}))


def _repeated_or_stale(
    key: int, name: SessionId, revision: int, row: MessageRow, only_state: bool, epoch: int | None
) -> Operation[AppendResult]:
    """Return the earlier result if this event was stored before, else raise why the writer is refused."""
    rows = yield _REVISION, (key,)
    if not rows:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} does not exist, or was deleted")
    seq = yield from _seq_of_same_event(key, name, row, only_state)
    if seq is not None:
        return AppendResult(seq, revision + 1, repeated=True)
    if epoch is not None and epoch != rows[0][1]:
        raise FencedWrite(f"session {name.id!r} has a newer turn (epoch {rows[0][1]}, this one has {epoch})")
    raise StaleSession(
        f"session {name.id!r} was written by another writer (revision {rows[0][0]}, this writer saw {revision}): "
        "load it again"
    )


def _seq_of_same_event(key: int, name: SessionId, row: MessageRow, only_state: bool) -> Operation[int | None]:
    """Return the sequence number of this event if it is stored; raise `EventConflict` if its id is another event's.

    All columns but the time are compared: a retry may have built the event again.
    """
    rows = yield _SAME_ID, (key, row.event_id)
    if not rows:
        return None
    [seq, *stored] = rows[0]
    if only_state:
        wanted = [None, None, None, None, None, row.state_delta or "{}", _extra_with_invocation(row)]
    else:
        wanted = [row.role, row.author, row.content, row.tool_calls, row.invocation_id, row.state_delta, row.extra]
    if stored != wanted:
        raise EventConflict(
            f"session {name.id!r} already has another event with the id {row.event_id!r}: use a different id"
        )
    return seq


def _record_rewind(key: int, seq: int, invocation_id: str) -> Operation[None]:
    first = yield from first_seq_of_invocation(key, invocation_id)
    if first is None or first >= seq:
        return
    rewinds = yield from read_rewinds(key)
    yield _SET_REWINDS, (dumps([*map(list, rewinds), [seq, first]]), key)
    yield _DELETE_FACTS, (key, first)
    yield _REVOKE_GRANTS, (key, first)
    yield _CLOSE_WAITS, (key, first)


# -- a single statement ------------------------------------------------------------------------------------------------

_MESSAGE_VALUES = {
    "session_key": "bigint",
    "revision": "bigint",
    "last_seq": "bigint",
    "epoch": "bigint",
    "role": "text",
    "author": "text",
    "content": "text",
    "tool_calls": "text",
    "tokens": "bigint",
    "created_at": "double precision",
    "event_id": "text",
    "invocation_id": "text",
    "state_delta": "text",
    "extra": "text",
}
_CALL_VALUES = _MESSAGE_VALUES | {"call_id": "text"}

_ADVANCE = f"""
{ADVANCE}{ID_IS_FREE} AND last_seq = {{last_seq}} AND forked_from IS NULL AND ({{epoch}} IS NULL OR epoch = {{epoch}})
"""
_INSERT = """
INSERT INTO messages (session_key, {columns})
SELECT {session_key}, {last_seq} + 1, {role}, {author}, {content}, {tool_calls}, {tokens}, total_tokens, {created_at},
    {event_id}, {invocation_id}, {state_delta}, {extra}, NULL
"""
_OPEN = """
INSERT INTO open_calls (session_key, call_id, seq, long_running)
SELECT {session_key}, {call_id}, {last_seq} + 1, {long_running}
"""
_IS_OPEN = """
AND EXISTS (SELECT 1 FROM open_calls
    WHERE session_key = {session_key} AND call_id = {call_id} AND seq = {last_seq} AND long_running = 0)
"""
_CLOSE = "DELETE FROM open_calls WHERE session_key = {session_key} AND call_id = {call_id}"


def _single_statement(
    name: str, values: dict[str, str], *, advance: str = _ADVANCE, sqlite: str = "", postgres: str = ""
) -> SingleStatement:
    in_sqlite = f"""
        {advance};
        SELECT RAISE(ABORT, 'not ordinary') WHERE changes() = 0;
        {_INSERT} FROM sessions WHERE session_key = {{session_key}};
        {sqlite}
    """  # noqa: S608 - constants
    in_postgres = f"WITH advanced AS ({advance} RETURNING total_tokens){postgres} {_INSERT} FROM advanced RETURNING seq"
    return SingleStatement(
        name,
        values,
        sqlite=_fill_in(in_sqlite, {name: f"NEW.{name}" for name in values}),
        postgres=_fill_in(in_postgres, {name: f"${n}::{kind}" for n, (name, kind) in enumerate(values.items(), 1)}),
    )


def _fill_in(template: str, values: dict[str, str]) -> str:
    return template.format(
        **values,
        columns=MESSAGE_COLUMNS,
        events=1,
        messages=1,
        user_place=f"(CASE WHEN {values['role']} = 'user' THEN 1 ELSE 0 END)",
        other_events="state_events",
    )


_APPEND_TEXT = _single_statement("append_text", _MESSAGE_VALUES)
_APPEND_CALL = _single_statement(
    "append_call",
    _CALL_VALUES | {"long_running": "bigint"},
    sqlite=f"{_OPEN};",
    postgres=f", opened AS ({_OPEN} FROM advanced)",
)
_APPEND_RESULT = _single_statement(
    "append_result",
    _CALL_VALUES,
    advance=_ADVANCE + _IS_OPEN,
    sqlite=f"{_CLOSE};",
    postgres=f", closed AS ({_CLOSE} AND EXISTS (SELECT 1 FROM advanced))",  # noqa: S608 - constants
)


def append_statement(
    key: int, revision: int, last_seq: int | None, entry: NewEvent, epoch: int | None, *, ends_turn: bool = False
) -> SingleStatementWrite[AppendResult] | None:
    """Return the statement that appends an event to a session whose newest message is `last_seq`, if there is one.

    The other arguments are those of `append`.
    """
    message = entry.message
    if message is None or last_seq is None or len(message.tool_calls) > 1:
        return None
    if ends_turn or entry.state_delta or entry.rewind_before or entry.contents:
        return None
    row = event_to_row(entry)
    if len(row.content) + len(row.tool_calls or "") + len(row.extra or "") > LARGE_VALUE:
        return None  # the event loop should not wait for it
    values = (key, revision, last_seq, epoch, *astuple(row))  # in the order of `_MESSAGE_VALUES`
    appended = AppendResult(last_seq + 1, revision + 1)
    if not message.tool_calls:
        return SingleStatementWrite(_APPEND_TEXT, values, appended)
    call = message.tool_calls[0]
    if call.output is not None or message.role == "tool":
        return SingleStatementWrite(_APPEND_RESULT, (*values, call_key(call.id)), appended)
    if opened_wait(call, message, entry.extra) is not None:
        return None
    long_running = 1 if call.id in entry.long_running else 0
    return SingleStatementWrite(_APPEND_CALL, (*values, call_key(call.id), long_running), appended)
