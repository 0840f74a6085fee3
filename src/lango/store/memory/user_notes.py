"""Read the newest notes about all sessions of a user."""

from msgspec import Struct

from lango.store.codec.records import SessionId
from lango.store.engine.database import Operation
from lango.store.memory.observations import read_memory
from lango.store.sessions.sessions import find_session

_SESSIONS = """
SELECT s.id FROM sessions s
WHERE s.app_name = $1 AND s.user_id = $2
    AND EXISTS (SELECT 1 FROM observation_batches b WHERE b.session_key = s.session_key)
ORDER BY s.updated_at DESC LIMIT $3
"""


class UserNote(Struct, frozen=True):
    """A current note, and the session that it is about."""

    session_id: str
    id: str
    """The number of its batch, and its number in there: `3.1`."""
    text: str
    created_at: float


def read_user_notes(app_name: str, user_id: str, most_sessions: int) -> Operation[list[UserNote]]:
    """Read the current notes about the sessions of a user that changed last."""
    notes: list[UserNote] = []
    for [session_id] in (yield _SESSIONS, (app_name, user_id, most_sessions)):
        session = yield from find_session(SessionId(app_name, user_id, session_id))
        recalled = (yield from read_memory(session)) if session else None
        notes += [
            UserNote(session_id, f"{batch.batch}.{note.number}", note.text, batch.created_at)
            for batch in (recalled.batches if recalled else ())
            for note in batch.observations
        ]
    return notes
