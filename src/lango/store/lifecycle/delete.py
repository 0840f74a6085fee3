"""Delete a session; rows that forks share stay until the last of them is deleted."""

from collections import Counter

from msgspec.structs import astuple

from lango.sessions import SessionId
from lango.store.artifacts.session_artifacts import delete_artifacts
from lango.store.codec.records import call_key
from lango.store.codec.rows import calls_from_json
from lango.store.contents import delete_of_messages, delete_of_turns, release
from lango.store.engine.database import Operation
from lango.store.search.index import LOCK_PROGRESS
from lango.store.search.memory_entries import delete_memories_of_session
from lango.store.sessions.lineage import read_lineages

_DELETE = "DELETE FROM sessions WHERE app_name = $1 AND user_id = $2 AND id = $3 RETURNING session_key, forked_from"
_DELETE_OWN_ROWS = [
    f"DELETE FROM {table} WHERE session_key = $1"  # noqa: S608 - constants
    for table in (
        "open_calls",
        "waits",
        "answered_events",
        "approval_grants",
        "session_states",
        "session_options",
        "turns",
        "event_log",
        "model_requests",
        "failures",
        "session_lineage",
        "observation_batches",
        "observations",
        "observer_leases",
        "user_facts",
        "webhooks",
        "webhook_deliveries",
    )
]
_DELETE_SHAREABLE_ROWS = [
    f"DELETE FROM {table} WHERE session_key = $1"  # noqa: S608 - constants
    for table in ("messages", "state_events", "tool_journal", "search_messages", "search_progress", "shared_sessions")
]
# These lock the row of the shared session, so that of two deletions at once the second sees the first.
_MARK_DELETED = "UPDATE shared_sessions SET deleted = 1 WHERE session_key = $1 RETURNING forks"
_RELEASE_FORK = "UPDATE shared_sessions SET forks = forks - 1 WHERE session_key = $1 RETURNING forks, deleted"
_DELETE_UNSHARED = "DELETE FROM shared_sessions WHERE session_key = $1 AND forks = 0 AND deleted = 0"

_LAST_SHARED = "SELECT MAX(last_seq), MAX(last_revision), MAX(last_epoch) FROM session_lineage WHERE source_key = $1"
_CALLS_AFTER = """
SELECT tool_calls FROM messages WHERE session_key = $1 AND seq > $2 AND tool_calls IS NOT NULL AND role <> 'tool'
"""
_TRIM_CALL = "DELETE FROM tool_journal WHERE session_key = $1 AND call_id = $2"
_TRIM_JOURNAL = "DELETE FROM tool_journal WHERE session_key = $1 AND epoch > $2"
_TRIM_INDEX = "DELETE FROM search_messages WHERE session_key = $1 AND (seq > $2 OR seq = 0)"
_TRIM_MESSAGES = "DELETE FROM messages WHERE session_key = $1 AND seq > $2"
_TRIM_STATES = "DELETE FROM state_events WHERE session_key = $1 AND (seq > $2 OR revision > $3)"


def delete_session(name: SessionId) -> Operation[bool]:
    """Delete a session and its unshared rows; return whether it existed."""
    rows = yield _DELETE, astuple(name)
    unused = (yield from delete_artifacts(name)) if rows else Counter[str]()
    if rows:
        yield from delete_memories_of_session(*astuple(name))
    for key, forked_from in rows:
        lineages = (yield from read_lineages([key])) if forked_from else {}
        unused += yield from delete_of_turns(key)
        for statement in _DELETE_OWN_ROWS:
            yield statement, (key,)
        # in one order, so that no two deletions deadlock
        for session_key in sorted({key, *(shared.source_key for shared in lineages.get(key, ()))}):
            unused += yield from (_delete_own(session_key) if session_key == key else _release_source(session_key))
    yield from release(unused)
    return bool(rows)


def _delete_own(key: int) -> Operation[Counter[str]]:
    """Delete the rows of a deleted session that no fork shares; return the uses of contents that they had."""
    rows = yield _MARK_DELETED, (key,)
    return (yield from (_delete_unshared_rows(key) if rows and rows[0][0] else _delete_rows(key)))


def _release_source(key: int) -> Operation[Counter[str]]:
    """Delete the rows of a source session if it is deleted and this was its last fork; return their uses."""
    for forks, deleted in (yield _RELEASE_FORK, (key,)):
        if not deleted:
            yield _DELETE_UNSHARED, (key,)
        elif forks:
            return (yield from _delete_unshared_rows(key))
        else:
            return (yield from _delete_rows(key))
    return Counter()


def _delete_rows(key: int) -> Operation[Counter[str]]:
    yield LOCK_PROGRESS, (key,)  # so that these rows are not indexed at the same time
    unused = yield from delete_of_messages(key)
    for statement in _DELETE_SHAREABLE_ROWS:
        yield statement, (key,)
    return unused


def _delete_unshared_rows(key: int) -> Operation[Counter[str]]:
    """Delete the rows of a deleted session that are newer than its last fork."""
    yield LOCK_PROGRESS, (key,)
    [[seq, revision, epoch]] = yield _LAST_SHARED, (key,)
    yield _TRIM_INDEX, (key, seq)
    for [calls] in (yield _CALLS_AFTER, (key, seq)):
        for call in calls_from_json(calls):
            yield _TRIM_CALL, (key, call_key(call.id))
    yield _TRIM_JOURNAL, (key, epoch)
    unused = yield from delete_of_messages(key, seq + 1)
    yield _TRIM_MESSAGES, (key, seq)
    yield _TRIM_STATES, (key, seq, revision)
    return unused
