"""Store calls of long-running tools until their final results come.

ADK's `LongRunningFunctionTool` starts work that ends later: its function returns nothing, or a first report such as a
ticket. In both cases results come from outside, days later, to any process: updates that announce more, and a final
one. Unlike a client call, such a call stays open when the conversation goes on.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lango.sessions import SessionRecord
from lango.store.codec.ids import call_key
from lango.store.codec.records import NewEvent
from lango.store.engine.database import Operation
from lango.store.sessions.lineage import is_live, live_ranges
from lango.store.sessions.open_calls import message_at
from lango.store.tool_calls.client_calls import PendingCall

_ADD = """
INSERT INTO long_running_calls (session_key, call_id, seq, created_at, app_name, user_id, turn)
SELECT o.session_key, o.call_id, o.seq, CAST($1 AS DOUBLE PRECISION), s.app_name, s.user_id,
    (SELECT turn FROM turns WHERE session_key = $2 AND status = 'running')
FROM open_calls o JOIN sessions s ON s.session_key = o.session_key WHERE o.session_key = $2 AND o.call_id = $3
ON CONFLICT (session_key, call_id) DO UPDATE SET seq = excluded.seq, created_at = excluded.created_at,
    turn = excluded.turn
"""
_LIST = "SELECT call_id, seq FROM long_running_calls WHERE session_key = $1 ORDER BY seq, call_id"
_WAITING = "SELECT call_id, seq FROM long_running_calls WHERE session_key = $1 AND settled = 0 ORDER BY seq, call_id"
_WITHOUT_RESULT = """
SELECT l.call_id, l.seq FROM long_running_calls l
JOIN open_calls o ON o.session_key = l.session_key AND o.call_id = l.call_id AND o.seq = l.seq
WHERE l.session_key = $1 ORDER BY l.seq, l.call_id
"""
_SETTLE = "UPDATE long_running_calls SET settled = 1 WHERE session_key = $1 AND call_id = $2"
_CLOSE = "DELETE FROM long_running_calls WHERE session_key = $1 AND call_id = $2"
_COPY = """
INSERT INTO long_running_calls (session_key, call_id, seq, created_at, settled)
SELECT CAST($1 AS BIGINT), call_id, seq, created_at, settled FROM long_running_calls
WHERE session_key = $2 AND seq <= $3
"""
_STATEMENTS = {"accepting": _LIST, "waiting": _WAITING, "without result": _WITHOUT_RESULT}


class AwaitedResult(Struct, frozen=True):
    """A call of a long-running tool that waits for a result, or for a further one."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    author: str
    called_at: float
    seq: int
    """The message that made the call."""


def read_awaited_results(session: SessionRecord) -> Operation[list[AwaitedResult]]:
    """Read the calls of a session whose results are awaited, in order."""
    return [
        AwaitedResult(
            pending.call.id,
            pending.call.name,
            pending.call.input or {},
            pending.made_by.message.author if pending.made_by.message else "",
            pending.made_by.created_at,
            pending.made_by.seq,
        )
        for pending in (yield from read_long_running_calls(session, "waiting"))
    ]


def await_result(key: int, call_id: str, now: float) -> Operation[None]:
    """Store that results of a call may still come. The message that made it is stored, and has no result yet."""
    yield _ADD, (now, key, call_key(call_id))


Which = Literal["accepting", "waiting", "without result"]
"""The calls that accept results; of these the ones that wait for a further one; of these the ones that have none."""


def read_long_running_calls(session: SessionRecord, which: Which = "accepting") -> Operation[list[PendingCall]]:
    """Read the calls of long-running tools in a session whose results may still come."""
    live = list(live_ranges(session.last_seq, session.rewinds))
    found: list[PendingCall] = []
    for call_id, seq in (yield _STATEMENTS[which], (session.key,)):
        stored = (yield from message_at(session.key, seq)) if is_live(seq, live) else None
        if stored and stored.message:
            own = stored.client_call_ids
            calls = stored.message.tool_calls
            found += [
                PendingCall(call, stored) for call in calls if call_key(call.id) == call_id and call.id not in own
            ]
    return found


def copy_to_fork(key: int, source_key: int, point: int) -> Operation[None]:
    """Let a fork accept results of the calls up to a message that its source still accepts: each on its own."""
    yield _COPY, (key, source_key, point)


def close_finished(key: int, entry: NewEvent) -> Operation[None]:
    """Close the calls whose final results an input brought; settle those whose results may be the last."""
    for call_id, result in entry.client_results.items():
        if not result.will_continue:
            yield (_SETTLE if result.will_continue is None else _CLOSE), (key, call_key(call_id))
