"""Replace the message of a turn by what the app's own code made of it, before anything else of the turn is stored."""

from collections.abc import Mapping
from typing import Any

from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import NewEvent, Turn
from lango.store.codec.rows import event_to_row
from lango.store.contents import add_to_messages, delete_of_messages, release
from lango.store.engine.database import Operation
from lango.store.search.index import LOCK_PROGRESS
from lango.store.sessions.sessions import check_epoch, lock_session

_CHANGED = "changed_input"
_TURN = "SELECT first_seq, request FROM turns WHERE session_key = $1 AND turn = $2"
_SET_REQUEST = "UPDATE turns SET request = $1 WHERE session_key = $2 AND turn = $3"
# the newest message, and no fork shares it: else totals of later messages and of forks would be wrong
_REPLACEABLE = """
SELECT m.tokens FROM messages m JOIN sessions s ON s.session_key = m.session_key AND s.last_seq = m.seq
WHERE m.session_key = $1 AND m.seq = $2
    AND NOT EXISTS (SELECT 1 FROM session_lineage l WHERE l.source_key = m.session_key AND l.last_seq >= m.seq)
"""
_REPLACE = """
UPDATE messages SET content = $1, tokens = $2, total_tokens = total_tokens + $3, extra = $4
WHERE session_key = $5 AND seq = $6
"""
_ADD_TOKENS = "UPDATE sessions SET total_tokens = total_tokens + $1 WHERE session_key = $2"
_DELETE_INDEXED = "DELETE FROM search_messages WHERE session_key = $1 AND seq = $2"
_INDEX_AGAIN = "UPDATE search_progress SET indexed_seq = $1 WHERE session_key = $2 AND indexed_seq > $3"


def replace_input(turn: Turn, entry: NewEvent, state: Mapping[str, Any]) -> Operation[bool]:
    """Replace the message of a turn that has stored nothing else; return False if it has, or a fork shares the message.

    `state` is what the code left for later callbacks of the turn: a second run of the turn gets it from here. Raise
    `FencedWrite` if the turn lost its lease.
    """
    key = turn.session_key
    yield from lock_session(key)
    yield from check_epoch(key, turn.epoch)
    [[seq, request]] = yield _TURN, (key, turn.turn)
    for [tokens] in (yield _REPLACEABLE, (key, seq)):
        row = event_to_row(entry)
        yield _REPLACE, (row.content, row.tokens, row.tokens - tokens, row.extra, key, seq)
        yield _ADD_TOKENS, (row.tokens - tokens, key)
        yield _SET_REQUEST, (dumps((loads(request) if request else {}) | {_CHANGED: dict(state)}), key, turn.turn)
        yield LOCK_PROGRESS, (key,)
        yield _DELETE_INDEXED, (key, seq)
        yield _INDEX_AGAIN, (seq - 1, key, seq - 1)
        unused = yield from delete_of_messages(key, seq, seq)
        yield from add_to_messages(key, {seq: entry.contents})
        yield from release(unused)
        return True
    return False


def read_changed_input(turn: Turn) -> Operation[Mapping[str, Any] | None]:
    """Return what the code that replaced a turn's message left for later callbacks, or None if it was not replaced."""
    [[_, request]] = yield _TURN, (turn.session_key, turn.turn)
    return loads(request).get(_CHANGED) if request else None
