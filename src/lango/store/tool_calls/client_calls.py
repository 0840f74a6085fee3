"""Store calls of tools that the client runs until their results come.

Such a call is long-running: it stays open when its turn ends, and any process accepts its result. The next message of
the user closes it with an error as its result, in the same transaction.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from lango.json_output import printable_text
from lango.messages import RESERVED_PREFIX, ToolCall
from lango.sessions import NO_RESULT, SessionId, SessionRecord, StoredEvent
from lango.store.codec.ids import call_key
from lango.store.codec.records import ClientResult, NewEvent
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, live_ranges, read_live_ranges
from lango.store.sessions.open_calls import closing_event, message_at

_OPEN = """
SELECT call_id, seq FROM open_calls
WHERE session_key = $1 AND long_running = 1 AND approves_call_id IS NULL AND input_request = 0 ORDER BY seq
"""
_LONG_RUNNING = "SELECT call_id FROM long_running_calls WHERE session_key = $1"
_STORE_FULL_RESULT = """
INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at, finished_at, whole)
VALUES ($1, $2, $3, '', 'once', 'finished', '', $4, $4, $5)
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""


class PendingCall(Struct, frozen=True):
    """A call whose result comes from outside, and the message that made it."""

    call: ToolCall
    made_by: StoredEvent


def read_client_calls(session: SessionRecord) -> Operation[list[PendingCall]]:
    """Read the open calls of the client's tools, in order."""
    return (yield from _open_calls(session.key, list(live_ranges(session.last_seq, session.rewinds))))


def are_open(key: int, call_ids: Collection[str]) -> Operation[bool]:
    """Whether all of these calls are open: those of the client, and of long-running tools."""
    clients = yield _OPEN, (key,)
    long_running = yield _LONG_RUNNING, (key,)
    return {call_key(call_id) for call_id in call_ids} <= {row[0] for row in (*clients, *long_running)}


def close_unanswered(
    key: int, name: SessionId, revision: int, now: float, results: Mapping[str, ClientResult]
) -> Operation[int]:
    """Close the calls that wait for the client, with its results or without; return the new revision."""
    if not (yield _OPEN, (key,)):
        return revision
    found = yield from _open_calls(key, (yield from read_live_ranges(key)))
    by_message: dict[int, list[PendingCall]] = {}
    for call in found:
        by_message.setdefault(call.made_by.seq, []).append(call)
    for calls in by_message.values():
        revision = (yield from append(key, name, revision, _closing_event(calls, results, revision, now))).revision
    return revision


def store_full_results(key: int, epoch: int, results: Mapping[str, ClientResult], now: float) -> Operation[None]:
    """Store the full texts of results that the model sees clipped."""
    for call_id, result in results.items():
        if result.full_text is not None:
            yield _STORE_FULL_RESULT, (key, call_key(call_id), epoch, now, printable_text(result.full_text))


def _open_calls(key: int, live: list[tuple[int, int]]) -> Operation[list[PendingCall]]:
    by_seq: dict[int, set[str]] = {}
    for call_id, seq in (yield _OPEN, (key,)):
        by_seq.setdefault(seq, set()).add(call_id)
    found: list[PendingCall] = []
    for seq, open_ids in by_seq.items():
        if not is_live(seq, live):
            continue  # removed by a rewind
        stored = yield from message_at(key, seq)
        if stored and stored.message:
            own, calls = stored.client_call_ids, stored.message.tool_calls
            found += [
                PendingCall(call, stored)
                for call in calls
                if call.id in own and call_key(call.id) in open_ids and not call.name.startswith(RESERVED_PREFIX)
            ]
    return found


def _closing_event(
    calls: list[PendingCall], results_by_id: Mapping[str, ClientResult], revision: int, now: float
) -> NewEvent:
    """Build the message that closes calls, with the given results, else without."""
    made_by = calls[0].made_by
    none = ClientResult(NO_RESULT)
    results = tuple(
        ToolCall(call.call.id, call.call.name, output=results_by_id.get(call.call.id, none).output) for call in calls
    )
    return closing_event("client", made_by, results, revision, now)
