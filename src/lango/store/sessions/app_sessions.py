"""Find the app that a session or an agent belongs to."""

from collections.abc import Iterable
from typing import Any

from lango.store.codec.records import SessionId
from lango.store.engine.database import Operation

_ANSWERED = """
SELECT 1 FROM (SELECT session_key FROM sessions WHERE app_name = $1 ORDER BY updated_at DESC LIMIT 50) s
JOIN messages m ON m.session_key = s.session_key WHERE m.author = $2 LIMIT 1
"""
_HAS_SESSION = "SELECT 1 FROM sessions WHERE app_name = $1 LIMIT 1"
_EXISTS = "SELECT 1 FROM sessions WHERE app_name = $1 AND user_id = $2 AND id = $3"


def has_answers_of(app_name: str, author: str) -> Operation[bool]:
    """Whether an agent wrote messages in an app's newest sessions, and no session belongs to an app of its own name."""
    if author == app_name or (yield _HAS_SESSION, (author,)):
        return False
    return bool((yield _ANSWERED, (app_name, author)))


def find_apps(apps: Iterable[str], user_id: str, session_id: str) -> Operation[list[str]]:
    """Return which of the apps have a session of a user with that id."""
    rows: dict[str, Any] = {}
    for app in apps:
        if SessionId(app, user_id, session_id).is_storable:
            rows[app] = yield _EXISTS, (app, user_id, session_id)
    return [app for app, found in rows.items() if found]
