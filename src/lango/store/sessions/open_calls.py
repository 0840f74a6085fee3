"""Track tool calls that have no result yet, and build the events that close them."""

import re
from typing import Final, Literal

from lango.history import count_tokens
from lango.messages import Message, ToolCall
from lango.sessions import CREDENTIAL_CALL, INPUT_CALL, StoredEvent
from lango.store.codec.ids import call_key, shorten
from lango.store.codec.json_text import dumps
from lango.store.codec.records import NewEvent
from lango.store.codec.rows import MESSAGE_COLUMNS, approval_subject, calls_from_json, row_to_event
from lango.store.engine.database import Operation, ReturningWrite

INPUT_REQUEST: Final = 1
CREDENTIAL_REQUEST: Final = 2
"""What `input_request` is for the two kinds of requests to a person that are no approval requests."""

_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND seq = $2"  # noqa: S608 - constants
_BY_EVENT_ID = f"SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND event_id = $2"  # noqa: S608
_COPIED_EXTRA = ("branch", "isolation_scope")
_CLOSING_ID = re.compile(r"(closed|client|no)-\d+-\d+")

OPEN_CALL = """
INSERT INTO open_calls (session_key, call_id, seq, long_running) VALUES ($1, $2, $3, $4)
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, long_running = excluded.long_running
"""
# requests to a person are found by user: see store/tool_calls/inbox.py
_ASKED_COLUMNS = "app_name, user_id, turn"
_ASKED_VALUES = """
    (SELECT app_name FROM sessions WHERE session_key = $1), (SELECT user_id FROM sessions WHERE session_key = $1),
    (SELECT turn FROM turns WHERE session_key = $1 AND status = 'running')"""
_OPEN_APPROVAL = f"""
INSERT INTO open_calls (session_key, call_id, seq, long_running, approves_call_id, approves_call_seq, expires_at,
    asked_at, {_ASKED_COLUMNS})
VALUES ($1, $2, $3, 1, $4, $5, (SELECT now FROM database_clock) + $6, $7, {_ASKED_VALUES})
ON CONFLICT (session_key, call_id) DO NOTHING
"""  # noqa: S608 - constants
# a workflow may request input again with the same id
_OPEN_REQUEST = f"""
INSERT INTO open_calls (session_key, call_id, seq, long_running, input_request, expires_at, asked_at, {_ASKED_COLUMNS})
VALUES ($1, $2, $3, 1, $4, (SELECT now FROM database_clock) + $5, $6, {_ASKED_VALUES})
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, long_running = 1,
    input_request = excluded.input_request, expires_at = excluded.expires_at, answered_at = NULL,
    asked_at = excluded.asked_at, turn = excluded.turn
"""  # noqa: S608 - constants
_KEEP_REQUEST = """
INSERT INTO credential_requests (session_key, call_id, seq, state_hash, secret) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, state_hash = excluded.state_hash,
    secret = excluded.secret, answer = NULL
"""
_SEQ_OF_OPEN_CALL = "SELECT seq FROM open_calls WHERE session_key = $1 AND call_id = $2"
_SEQ_OF_LONG_RUNNING_CALL = "SELECT seq FROM long_running_calls WHERE session_key = $1 AND call_id = $2"
_CALLS_BEFORE = """
SELECT seq, tool_calls FROM messages_with_lineage
WHERE session_key = $1 AND seq >= $2 AND seq < $3 AND role = 'assistant' AND tool_calls IS NOT NULL ORDER BY seq DESC
"""
_MESSAGES_SEARCHED = 50  # messages: an approval is requested right after its call, beside those of parallel agents
_CLOSE_CALL = ReturningWrite(
    "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2",
    returning="seq, approves_call_id, approves_call_seq",
    read="FROM open_calls WHERE session_key = $1 AND call_id = $2",
)


def message_at(key: int, seq: int) -> Operation[StoredEvent | None]:
    """Read a message of a session or of its lineage."""
    rows = yield _MESSAGE, (key, seq)
    return row_to_event(rows[0]) if rows else None


def find_event(key: int, event_id: str) -> Operation[StoredEvent | None]:
    """Find a message of a session or of its lineage by the id of its event."""
    rows = yield _BY_EVENT_ID, (key, shorten(event_id))
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
    """Store new calls as open and delete those that have results; return the earliest call that got one.

    None: that is the message before. A call whose result was that it needs approval is open again once its approval
    request is answered.
    """
    farthest: int | None = None
    for call in message.tool_calls:
        if call.output is not None or message.role == "tool":
            rows = yield _CLOSE_CALL, (key, call_key(call.id))
            if not rows:  # a later result of a long-running tool
                rows = [(seq, None, None) for [seq] in (yield _SEQ_OF_LONG_RUNNING_CALL, (key, call_key(call.id)))]
            if not rows and (subject_seq := (yield from seq_of_call(key, call_key(call.id), seq))) is not None:
                rows = [(subject_seq, None, None)]  # a tool that ran again, with the credential that it requested
            for made_at, subject_id, subject_seq in rows:
                farthest = made_at if farthest is None else min(farthest, made_at)
                if subject_id is not None and subject_seq is not None:
                    yield OPEN_CALL, (key, subject_id, subject_seq, 0)
        elif subject := approval_subject(call):
            subject_id = call_key(subject["id"])
            subject_seq = yield from seq_of_call(key, subject_id, seq)
            about = subject_id, subject_seq, entry.approval_timeout_s
            yield _OPEN_APPROVAL, (key, call_key(call.id), seq, *about, entry.created_at)
        elif call.name in (INPUT_CALL, CREDENTIAL_CALL):
            yield from _open_request(key, seq, call, entry)
        else:
            yield OPEN_CALL, (key, call_key(call.id), seq, 1 if call.id in entry.long_running else 0)
    return farthest if farthest != seq - 1 else None


def _open_request(key: int, seq: int, call: ToolCall, entry: NewEvent) -> Operation[None]:
    """Open a request for a person's input or credential."""
    if call.name == INPUT_CALL:
        yield _OPEN_REQUEST, (key, call_key(call.id), seq, INPUT_REQUEST, entry.input_timeout_s, entry.created_at)
        return
    yield _OPEN_REQUEST, (key, call_key(call.id), seq, CREDENTIAL_REQUEST, entry.credential_timeout_s, entry.created_at)
    if (kept := entry.request_secrets.get(call.id)) is not None:
        yield _KEEP_REQUEST, (key, call_key(call.id), seq, kept.state_hash, kept.secret)


def seq_of_call(key: int, call: str, before: int) -> Operation[int | None]:
    """Return which message made the call that an approval request is about, shortly before a message.

    It is still open, unless another call beside it was done at once: then ADK stores both results before the request.
    """
    for [seq] in (yield _SEQ_OF_OPEN_CALL, (key, call)):
        return seq
    for seq, calls in (yield _CALLS_BEFORE, (key, before - _MESSAGES_SEARCHED, before)):
        if any(call_key(made.id) == call for made in calls_from_json(calls)):
            return seq
    return None
