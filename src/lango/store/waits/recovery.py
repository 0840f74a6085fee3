"""Close the tool calls that a turn left without a result, by what the tool journal knows.

This happens in the transaction that ends a turn or starts the next one. The result that the model sees is the real one,
or that the tool never ran, or that its outcome is unknown.
"""

from collections.abc import Mapping
from typing import Any

from lango.messages import ToolCall
from lango.sessions import SessionId, StoredEvent
from lango.store.codec.records import call_key
from lango.store.codec.rows import MESSAGE_COLUMNS, row_to_event
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, read_live_ranges
from lango.store.sessions.open_calls import closing_event, message_at
from lango.store.sessions.sessions import find_running_turn, lock_session
from lango.store.tool_calls.tool_journal import JournalEntry, read_journal_entry
from lango.store.waits import waits

NOT_RUN_RESULT = "not run: the turn ended before this call was made"
_NOT_RUN: Mapping[str, Any] = {"error": NOT_RUN_RESULT, "outcome": "not run"}
SAFE_TO_REPEAT_RESULT = (
    "interrupted: the turn ended while the tool ran, its result is lost; it is safe to call it again"
)
UNKNOWN_RESULT = (
    "interrupted: the turn ended while the tool ran, and its outcome is unknown. It may or may not have taken effect: "
    "find out before you call it again"
)
ASKED_RESULT = (
    "not finished: the task asked the user instead of ending with finish_task, and was closed. Call it again with the "
    "user's answer"
)
FORKED_RESULT = (
    "the conversation was forked before this call had a result, and its outcome is unknown here. It may or may not "
    "have taken effect: find out before you call it again"
)

_OPEN = """
SELECT seq, MIN(long_running), MAX(long_running) FROM open_calls WHERE session_key = $1 GROUP BY seq ORDER BY seq
"""
_NEWEST_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 ORDER BY seq DESC LIMIT 1"  # noqa: S608 - constants
_NEWEST_TURN = "SELECT COALESCE(MAX(first_epoch), 0), MAX(first_seq) FROM turns WHERE session_key = $1"
_WAITING = "SELECT DISTINCT seq FROM open_calls WHERE session_key = $1 AND long_running = 1"
_OPEN_IDS = "SELECT call_id FROM open_calls WHERE session_key = $1 AND seq = $2 AND long_running = 0"


def close_open_calls(
    key: int,
    name: SessionId,
    revision: int,
    now: float,
    *,
    forked: bool = False,
    close_requests: waits.Reason | None = None,
) -> Operation[int]:
    """Append a result for every open call; return the new revision.

    Long-running calls stay open: their results may still come. So do calls of workflows and agents in which something
    waits, for a person or for a result. `forked`: the calls were made in the source session, where they may still run.
    With `close_requests`, open requests to a person are closed without an answer, for this reason.
    """
    rows = yield _OPEN, (key,)
    ranges = (yield from read_live_ranges(key)) if rows else []
    # the journal may have an older call of the same id
    newest: list[Any] = (yield _NEWEST_TURN, (key,)) if rows and not forked else [[0, None]]
    [[epoch, first_seq]] = newest
    waiting_places = (yield from _waiting_places(key)) if rows and not (close_requests or forked) else []
    for seq in [seq for seq, long_running, _ in rows if not long_running]:
        if not is_live(seq, ranges):
            continue  # removed by a rewind: the result would have no call
        open_ids = {call_id for [call_id] in (yield _OPEN_IDS, (key, seq))}
        stored = yield from message_at(key, seq)
        if stored is not None and stored.message is not None:
            for call in stored.message.tool_calls:
                if any(f"@{call.id}{end}" in place + end for place, end in waiting_places):
                    open_ids.discard(call_key(call.id))
        if stored is not None and open_ids:
            # a turn journals each call before it runs, but not those that the user's own code makes
            is_journaled = first_seq is not None and seq > first_seq and not (stored.extra or {}).get("from_code")
            results = yield from _results(key, stored, open_ids, epoch, forked, is_journaled)
            entry = closing_event("closed", stored, results, revision, now)
            revision = (yield from append(key, name, revision, entry)).revision
    if close_requests and any(may_wait for _, _, may_wait in rows):
        revision = yield from waits.close_requests(key, name, revision, now, close_requests)
    return revision


def stop_waiting(key: int, now: float) -> Operation[bool]:
    """Close what a paused turn asks of a person: the user stops it; return False if a turn runs or none waits."""
    locked = yield from lock_session(key)
    if locked is None or not (yield from waits.list_requests(key, locked.name)):
        return False
    if (yield from find_running_turn(key)) is not None:
        return False
    yield from close_open_calls(key, locked.name, locked.revision, now, close_requests="cancelled")
    return True


def _waiting_places(key: int) -> Operation[list[tuple[str, str]]]:
    """Read the paths and branches of the nodes and agents that wait, and what separates the names in them.

    What a call started has its id in one of them: a workflow or a task in the path, a single-turn agent in the branch.
    """
    places: list[tuple[str, str]] = []
    for [seq] in (yield _WAITING, (key,)):
        stored = yield from message_at(key, seq)
        extra: Mapping[str, Any] = (stored.extra if stored else None) or {}
        node: Mapping[str, Any] = extra.get("node_info") or {}
        places += [(node.get("path", ""), "/"), (extra.get("branch") or "", ".")]
    return places


def _results(
    key: int, stored: StoredEvent, open_ids: set[str], epoch: int, forked: bool, is_journaled: bool
) -> Operation[tuple[ToolCall, ...]]:
    results: list[ToolCall] = []
    asked_in, question = (yield from _last_question(key)) if not forked else ("", "")
    for call in stored.message.tool_calls if stored.message else ():
        if call_key(call.id) not in open_ids:
            continue
        if call.id == asked_in:
            results.append(ToolCall(call.id, call.name, output={"status": ASKED_RESULT, "asked": question}))
        else:
            entry = yield from read_journal_entry(key, call.id, epoch)
            if entry is None:  # answered and not started: only the turn that requested approval has journaled it
                earlier = yield from read_journal_entry(key, call.id)
                entry = earlier if earlier and earlier.is_not_run and earlier.approved is not None else None
            never_started = entry is None and is_journaled
            output = _NOT_RUN if never_started else _outcome(entry, forked)
            results.append(ToolCall(call.id, call.name, output=output))
    return tuple(results)


def _last_question(key: int) -> Operation[tuple[str, str]]:
    """Return the call of the task whose text ends the conversation, and this text: a task that asks the user."""
    for row in (yield _NEWEST_MESSAGE, (key,)):
        newest = row_to_event(row)
        if newest.message is not None and newest.message.role == "assistant" and not newest.message.tool_calls:
            return (newest.extra or {}).get("isolation_scope") or "", newest.message.content
    return "", ""


def _outcome(entry: JournalEntry | None, forked: bool) -> Mapping[str, Any]:
    match entry:
        case JournalEntry(status="finished", result=result) if result is not None:
            return result
        case JournalEntry(is_not_run=True) if not forked:
            return _NOT_RUN
        case JournalEntry(effect="none" | "idempotent"):
            return {"error": SAFE_TO_REPEAT_RESULT, "outcome": "unknown"}
        case _:
            return {"error": FORKED_RESULT if forked else UNKNOWN_RESULT, "outcome": "unknown"}
