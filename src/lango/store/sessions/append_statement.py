"""Append an ordinary event with a single statement: a text, one call, or the result of the call before it.

Most events are ordinary, and a single statement needs neither BEGIN nor COMMIT. It writes nothing if one of its
conditions fails; then `lango.store.sessions.append` stores the event, or raises the error.
"""

from msgspec.structs import astuple

from lango.store.codec.records import AppendResult, NewEvent, call_key
from lango.store.codec.rows import MESSAGE_COLUMNS, event_to_row
from lango.store.codec.wait_rows import opened_wait
from lango.store.engine.database import LARGE_VALUE, SingleStatement, SingleStatementWrite
from lango.store.sessions.append import ADVANCE, ID_IS_FREE

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
