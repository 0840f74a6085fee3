"""Operations that read a page at a time: sessions of a user, messages of a session."""

from collections.abc import Sequence

from lango.store.codec.records import MESSAGE_COLUMNS, SessionRecord, Stored, from_message_row
from lango.store.engine.database import Operation, Row
from lango.store.sessions.lineage import all_places, key_of
from lango.store.sessions.sessions import SESSION_COLUMNS, from_session_row, readable_rows, with_pasts
from lango.store.sessions.titles import FIRST_WORDS, shown, with_first_words
from lango.store.sessions.window import is_live, live_ranges

_SESSIONS = f"""
SELECT {SESSION_COLUMNS}, {FIRST_WORDS}
FROM sessions s WHERE app_name = $1 AND user_id = $2 AND (updated_at < $3 OR (updated_at = $3 AND session_key < $4))
ORDER BY updated_at DESC, session_key DESC LIMIT $5
"""  # noqa: S608 - constants
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND role <> 'event'
ORDER BY seq DESC LIMIT $4
"""  # noqa: S608 - constants

_FIRST = (float("inf"), 0)


def sessions(
    app_name: str, user_id: str, after: tuple[float, int] | None, limit: int
) -> Operation[Sequence[SessionRecord]]:
    """Read sessions without their state, the newest update first, after one's (updated_at, key)."""
    updated_at, key = after or _FIRST
    rows = yield _SESSIONS, (app_name, user_id, updated_at, key, limit)
    records = yield from with_pasts(
        readable_rows(rows, lambda row: from_session_row(row[:-1], first_words=shown(row[-1])))
    )
    for place, record in enumerate(records):
        if record.forked_from or record.rewinds:
            records[place] = yield from with_first_words(record)
    return records


def message(session: SessionRecord, seq: int) -> Operation[Stored | None]:
    """Read one message, unless a rewind took it back."""
    live = is_live(seq, live_ranges(session.last_seq, session.rewinds))
    rows = (yield _MESSAGES, (key_of(session, seq), seq, seq, 1)) if live else []
    return from_message_row(rows[0]) if rows else None


def messages(session: SessionRecord, before: int | None, limit: int) -> Operation[list[Stored]]:
    """Read the newest messages before a sequence number, in order; what a rewind took back is left out."""
    end = session.last_seq if before is None else min(before - 1, session.last_seq)
    rows: list[Row] = []
    for key, first, last in all_places(session, live_ranges(session.last_seq, session.rewinds)):
        if len(rows) < limit and first <= end:
            rows += yield _MESSAGES, (key, first, min(last, end), limit - len(rows))
    return [from_message_row(row) for row in reversed(rows)]
