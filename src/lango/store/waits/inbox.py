"""Read what waits for a user in all sessions: one small index, for any number and length of the sessions."""

from typing import Any

from lango.sessions import SessionId, SessionInfo
from lango.store.codec.wait_rows import WAIT_COLUMNS, row_to_wait
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import SESSION_COLUMNS, row_to_session, with_lineage
from lango.store.sessions.titles import FIRST_WORDS_COLUMN, shorten_title, with_first_words_of_forks
from lango.store.waits.waits import IS_OPEN
from lango.waits import InboxItem

Place = tuple[float, int, str]
"""The position of an item in the inbox: since when it waits, the key of its session, and its id."""

_FIRST_PLACE: Place = (float("inf"), 0, "")
_PAGE = f"""
FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.app_name = $1 AND w.user_id = $2 AND (w.opened_at, w.session_key, w.id) < ($3, $4, $5) AND {IS_OPEN}
ORDER BY w.opened_at DESC, w.session_key DESC, w.id DESC LIMIT $6
"""
_PLACES = f"SELECT w.opened_at, w.session_key, w.id {_PAGE}"
_ITEMS = f"SELECT w.opened_at, {WAIT_COLUMNS}, {SESSION_COLUMNS}, {FIRST_WORDS_COLUMN} {_PAGE}"
_COLUMNS_BEFORE_SESSION = 1 + len(WAIT_COLUMNS.split(","))


def read_inbox(
    app_name: str, user_id: str, *, after: Place | None = None, limit: int = 50
) -> Operation[list[InboxItem]]:
    """Read what waits for a user, the newest first, after a place."""
    if not SessionId(app_name, user_id, "").is_storable:
        return []
    rows = yield _ITEMS, (app_name, user_id, *(after or _FIRST_PLACE), limit)
    sessions: dict[int, SessionInfo] = {}
    found: list[tuple[int, Any]] = []
    for row in rows:
        *columns, first_words = row[_COLUMNS_BEFORE_SESSION:]
        session = row_to_session(columns, first_words=shorten_title(first_words))
        sessions[session.key] = session
        found.append((session.key, row))
    known = yield from with_lineage(list(sessions.values()))
    sessions = {session.key: session for session in (yield from with_first_words_of_forks(known))}
    items: list[InboxItem] = []
    for key, row in found:
        wait = row_to_wait(sessions[key].name.id, row[1:_COLUMNS_BEFORE_SESSION]).wait
        items.append(InboxItem(wait, sessions[key].display_title, (row[0], key, wait.id)))
    return items


def read_inbox_places(app_name: str, user_id: str, limit: int) -> Operation[tuple[Place, ...]]:
    """Read where the newest items stand: they differ when something starts or stops waiting."""
    if not SessionId(app_name, user_id, "").is_storable:
        return ()
    rows = yield _PLACES, (app_name, user_id, *_FIRST_PLACE, limit)
    return tuple((since, key, id_) for since, key, id_ in rows)
