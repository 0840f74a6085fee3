"""Rewind a session: remove a turn and all after it from the visible history, and restore the state before it.

Nothing is deleted. A rewind is the event that ADK's own rewind appends, so that ADK reads the same history.
"""

from lango.errors import MessageNotFound, TurnRunning
from lango.sessions import SessionId, SessionInfo
from lango.store.codec.json_text import loads
from lango.store.engine.database import Operation
from lango.store.sessions import sessions
from lango.store.sessions.lineage import is_live, key_of_message, live_ranges
from lango.store.sessions.state import first_seq_of_invocation
from lango.store.turns.queue import read_open_turns
from lango.store.turns.steering import append_rewind

_INVOCATION = "SELECT invocation_id, extra FROM messages WHERE session_key = $1 AND seq = $2"


def rewind_session(name: SessionId, before: int, now: float) -> Operation[SessionInfo]:
    """Remove the turn of message `before`, and all after it, from the visible history.

    Raise `TurnRunning` while the session has an open turn, `MessageNotFound` if the message is not visible.
    """
    session = yield from sessions.lock_named_session(name)
    if (yield from read_open_turns(session.key)):
        raise TurnRunning(f"session {name.id!r} is busy: wait for the answer, or cancel the turn, then rewind")
    invocation_id = yield from _invocation_of_message(session, before)
    first = yield from first_seq_of_invocation(session.key, invocation_id)
    yield from append_rewind(session, invocation_id, first or before, now)
    return (yield from sessions.get_titled_session(name))


def _invocation_of_message(session: SessionInfo, seq: int) -> Operation[str]:
    if not is_live(seq, live_ranges(session.last_seq, session.rewinds)):
        raise MessageNotFound(f"session {session.name.id!r} has no message {seq}, or it was rewound before")
    rows = yield _INVOCATION, (key_of_message(session, seq), seq)
    for stored, extra in rows:
        exact = loads(extra).get("invocation_id") if extra else None
        if exact or stored:
            return exact or stored
    raise MessageNotFound(
        f"message {seq} of session {session.name.id!r} belongs to no turn that can be rewound: fork before it"
    )
