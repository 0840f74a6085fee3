"""Store conversations that a client resends whole, and find the session that one continues.

Every turn stores a hash of its input in its session. The sessions that a resent history may continue are found by the
hash of its last user message, with one index lookup. A new session's history is inserted many rows at a time: all its
calls have results, so none is left open.
"""

import hashlib
from collections.abc import Sequence

from lango.json_values import storable_text
from lango.sessions import SessionInfo
from lango.store.codec.records import NewEvent
from lango.store.codec.rows import MESSAGE_COLUMNS, event_to_row, insert_rows
from lango.store.contents import add_to_messages
from lango.store.engine.database import Operation, Row
from lango.store.sessions.append import ADVANCE, message_values
from lango.store.sessions.sessions import SESSION_COLUMNS, row_to_session, with_lineage

_FIND = f"""
SELECT {SESSION_COLUMNS} FROM sessions s
WHERE s.app_name = $1 AND s.user_id = $2 AND s.input_hash = $3
    AND SUBSTR(s.id, 1, LENGTH(CAST($4 AS TEXT))) = CAST($4 AS TEXT)
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_key = s.session_key AND t.status = 'running')
ORDER BY s.updated_at DESC, s.session_key DESC LIMIT $5
"""  # noqa: S608 - constants
_PARAMETERS = {"tokens": "$2", "created_at": "$3", "user_place": "$4", "session_key": "$5", "revision": "$6"}
_ADVANCE = f"{ADVANCE.format(events='$1', messages='$1', **_PARAMETERS)} RETURNING last_seq, total_tokens"


def input_hash(text: str) -> int:
    """Hash a user's text, without surrounding white space, to a number that both databases can index."""
    digest = hashlib.sha256(storable_text(text).strip().encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def find_by_input(
    app_name: str, user_id: str, text: str, id_prefix: str, limit: int
) -> Operation[Sequence[SessionInfo]]:
    """Read the user's idle sessions whose newest turn had this input, the newest first."""
    rows = yield _FIND, (app_name, user_id, input_hash(text), id_prefix, limit)
    return (yield from with_lineage([row_to_session(row) for row in rows]))


def append_client_history(key: int, revision: int, entries: Sequence[NewEvent]) -> Operation[int]:
    """Append a history that a client resent, in order; return the new revision. The caller has locked the session."""
    if not entries:
        return revision
    users = [place for place, event in enumerate(entries, 1) if event.message and event.message.role == "user"]
    tokens = sum(event.tokens for event in entries)
    newest = entries[-1].created_at
    [[last_seq, total]] = yield _ADVANCE, (len(entries), tokens, newest, users[-1] if users else 0, key, revision)
    seq, total = last_seq - len(entries), total - tokens
    rows: list[Row] = []
    for entry in entries:
        seq, total = seq + 1, total + entry.tokens
        rows.append(message_values(key, seq, total, None, event_to_row(entry)))
    yield from insert_rows("messages", MESSAGE_COLUMNS, rows)
    first = last_seq - len(entries) + 1
    yield from add_to_messages(key, {place: entry.contents for place, entry in enumerate(entries, first)})
    return revision + len(entries)
