"""Operations on messages that wait for their turn, and on where a session stands among its turns."""

from msgspec import Struct

from lango.store.codec.records import SessionRecord, Stored
from lango.store.engine.database import Operation
from lango.store.sessions.window import is_live, live_ranges
from lango.store.turn_messages import entry_of

MOST = 200
"""Only so many of the newest turns are looked at: whatever is open is among them, however long the session is."""

_WAITING = """
SELECT turn, message FROM turns
WHERE session_key = $1 AND turn > (SELECT MAX(turn) FROM turns WHERE session_key = $1) - $2 AND status = 'waiting'
ORDER BY turn
"""
_RUNNING = "SELECT turn FROM turns WHERE session_key = $1 AND status = 'running'"
# one that was taken back before it began has nothing to tell
_BEGUN = """
SELECT turn, first_seq FROM turns
WHERE session_key = $1 AND turn > (SELECT MAX(turn) FROM turns WHERE session_key = $1) - $2
    AND (epoch IS NOT NULL OR status <> 'cancelled')
ORDER BY turn DESC
"""


class Waiting(Struct, frozen=True):
    """A message that waits: its turn, and the message as it will be stored (without a place yet: `seq` is 0)."""

    turn: int
    stored: Stored


def read(key: int) -> Operation[list[Waiting]]:
    """Read the messages of a session that wait for their turn, in order."""
    rows = yield _WAITING, (key, MOST)
    found: list[Waiting] = []
    for turn, message in rows:
        entry = entry_of(message)
        stored = Stored(
            0, entry.event_id, entry.created_at, entry.message, invocation_id=entry.invocation_id, extra=entry.extra
        )
        found.append(Waiting(turn, stored))
    return found


def current_turn(session: SessionRecord) -> Operation[int | None]:
    """Return the turn that runs; else the first that waits; else the newest that nobody took back."""
    for query, values in ((_RUNNING, (session.key,)), (_WAITING, (session.key, MOST))):
        rows = yield query, values
        if rows:
            return rows[0][0]
    live = list(live_ranges(session.last_seq, session.rewinds))
    for turn, first_seq in (yield _BEGUN, (session.key, MOST)):
        if first_seq is None or first_seq > session.last_seq or is_live(first_seq, live):
            return turn
    return None
