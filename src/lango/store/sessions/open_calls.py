"""Track tool calls that have no result yet, and build the events that close them."""

import re

from lango.history import count_tokens
from lango.messages import Message, ToolCall
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import dumps
from lango.store.codec.records import Entry, Stored
from lango.store.codec.rows import asked_about, calls_from_json
from lango.store.engine.database import Operation, Write

_PLACE = ("branch", "isolation_scope")
_ID = re.compile(r"(closed|client|no)-\d+-\d+")

_OPEN_CALL = """
INSERT INTO open_calls (session_key, call_id, seq, long_running) VALUES ($1, $2, $3, $4)
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, long_running = excluded.long_running
"""
_OPEN_QUESTION = """
INSERT INTO open_calls (session_key, call_id, seq, long_running, asks_about, about_seq, expires_at)
VALUES ($1, $2, $3, 1, $4, $5, (SELECT now FROM database_clock) + $6)
ON CONFLICT (session_key, call_id) DO NOTHING
"""
_OPEN_AT = "SELECT seq FROM open_calls WHERE session_key = $1 AND call_id = $2"
_MADE_BEFORE = """
SELECT seq, tool_calls FROM history
WHERE session_key = $1 AND seq >= $2 AND seq < $3 AND role = 'assistant' AND tool_calls IS NOT NULL ORDER BY seq DESC
"""
_CALL_IS_AMONG = 50  # messages: an approval is requested right after its call, beside those of parallel agents
_CLOSE_CALL = Write(
    "DELETE FROM open_calls WHERE session_key = $1 AND call_id = $2",
    returning="seq, asks_about, about_seq",
    read="FROM open_calls WHERE session_key = $1 AND call_id = $2",
)


def closing(event_id: str, made_by: Stored, results: tuple[ToolCall, ...], now: float) -> Entry:
    """Make the message that closes calls, where the agent that made them finds it: on its branch, in its scope."""
    author = made_by.message.author if made_by.message else ""
    message = Message("tool", "\n".join(dumps(one.output) for one in results), results, author)
    return Entry(
        event_id=event_id,
        created_at=now,
        message=message,
        tokens=count_tokens(message),
        invocation_id=made_by.invocation_id,
        extra={name: value for name, value in (made_by.extra or {}).items() if name in _PLACE},
    )


def is_closing(stored: Stored) -> bool:
    """Whether a message closes calls, and was no event of the turn that made them."""
    return _ID.fullmatch(stored.event_id) is not None


def track_calls(key: int, seq: int, message: Message, entry: Entry) -> Operation[int | None]:
    """Note calls that wait for a result, and strike those that got one; return where a result's call stands.

    A call that was answered by "it waits for approval" is open again once its question is answered.
    """
    farthest: int | None = None
    for call in message.tool_calls:
        if call.output is not None or message.role == "tool":
            rows = yield _CLOSE_CALL, (key, call_key(call.id))
            for made_at, about, about_seq in rows:
                farthest = made_at if farthest is None else min(farthest, made_at)
                if about is not None and about_seq is not None:
                    yield _OPEN_CALL, (key, about, about_seq, 0)
        elif question := asked_about(call):
            about = call_key(question["id"])
            about_seq = yield from place_of_call(key, about, seq)
            yield _OPEN_QUESTION, (key, call_key(call.id), seq, about, about_seq, entry.expires_s)
        else:
            yield _OPEN_CALL, (key, call_key(call.id), seq, 1 if call.id in entry.long_running else 0)
    return farthest if farthest != seq - 1 else None


def place_of_call(key: int, call: str, before: int) -> Operation[int | None]:
    """Return which message made the call that an approval request is about, shortly before a message.

    It is still open, unless another call beside it was done at once: then ADK stores both results before the request.
    """
    for [seq] in (yield _OPEN_AT, (key, call)):
        return seq
    for seq, calls in (yield _MADE_BEFORE, (key, before - _CALL_IS_AMONG, before)):
        if any(call_key(one.id) == call for one in calls_from_json(calls)):
            return seq
    return None
