"""Close the tool calls that a turn left without a result, by what the tool journal knows.

This happens in the transaction that ends a turn or starts the next one. The result that the model sees is the real one,
or that the tool never ran, or that its outcome is unknown.
"""

from collections.abc import Mapping
from typing import Any

from lango.messages import ToolCall
from lango.store.codec.ids import call_key
from lango.store.codec.records import SessionId, StoredEvent
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, read_live_ranges
from lango.store.sessions.open_calls import closing_event, message_at
from lango.store.turns.approvals import decline_open
from lango.store.turns.tool_journal import JournalEntry, read_journal_entry

NOT_RUN_RESULT = "not run: the turn ended before this call was made"
SAFE_TO_REPEAT_RESULT = (
    "interrupted: the turn ended while the tool ran, its result is lost; it is safe to call it again"
)
UNKNOWN_RESULT = (
    "interrupted: the turn ended while the tool ran, and its outcome is unknown. It may or may not have taken effect: "
    "find out before you call it again"
)
FORKED_RESULT = (
    "the conversation was forked before this call had a result, and its outcome is unknown here. It may or may not "
    "have taken effect: find out before you call it again"
)

_OPEN = """
SELECT seq, MIN(long_running), COUNT(approves_call_id) FROM open_calls WHERE session_key = $1 GROUP BY seq ORDER BY seq
"""
_NEWEST_TURN = "SELECT COALESCE(MAX(first_epoch), 0) FROM turns WHERE session_key = $1"
_OPEN_IDS = "SELECT call_id FROM open_calls WHERE session_key = $1 AND seq = $2 AND long_running = 0"


def close_open_calls(
    key: int,
    name: SessionId,
    revision: int,
    now: float,
    *,
    forked: bool = False,
    close_approvals: bool = False,
) -> Operation[int]:
    """Append a result for every open call; return the new revision.

    Long-running calls stay open: their results may still come. `forked`: the calls were made in the source session,
    where they may still run. With `close_approvals`, open approval requests are declined.
    """
    rows = yield _OPEN, (key,)
    ranges = (yield from read_live_ranges(key)) if rows else []
    # the journal may have an older call of the same id
    [[epoch]] = (yield _NEWEST_TURN, (key,)) if rows and not forked else [[0]]
    for seq in [seq for seq, long_running, _ in rows if not long_running]:
        if not is_live(seq, ranges):
            continue  # removed by a rewind: the result would have no call
        open_ids = {call_id for [call_id] in (yield _OPEN_IDS, (key, seq))}
        stored = yield from message_at(key, seq)
        if stored is not None:
            results = yield from _results(key, stored, open_ids, epoch, forked)
            entry = closing_event("closed", stored, results, revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
    if close_approvals and any(approval_count for _, _, approval_count in rows):
        revision = yield from decline_open(key, name, revision, now)
    return revision


def _results(
    key: int, stored: StoredEvent, open_ids: set[str], epoch: int, forked: bool
) -> Operation[tuple[ToolCall, ...]]:
    results: list[ToolCall] = []
    for call in stored.message.tool_calls if stored.message else ():
        if call_key(call.id) in open_ids:
            record = yield from read_journal_entry(key, call.id, epoch)
            if record is None:  # approved and not started: only the turn that requested approval has journaled it
                earlier = yield from read_journal_entry(key, call.id)
                record = earlier if earlier and earlier.status == "intended" and earlier.approved is not None else None
            results.append(ToolCall(call.id, call.name, output=_outcome(record, forked)))
    return tuple(results)


def _outcome(record: JournalEntry | None, forked: bool) -> Mapping[str, Any]:
    match record:
        case JournalEntry(status="finished", result=result) if result is not None:
            return result
        case JournalEntry(status="intended") if not forked:
            return {"error": NOT_RUN_RESULT, "outcome": "not run"}
        case JournalEntry(effect="none" | "idempotent"):
            return {"error": SAFE_TO_REPEAT_RESULT, "outcome": "unknown"}
        case _:
            return {"error": FORKED_RESULT if forked else UNKNOWN_RESULT, "outcome": "unknown"}
