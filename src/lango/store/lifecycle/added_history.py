"""Add messages of the client to a session without starting a turn."""

from collections.abc import Sequence

from lango.errors import TurnRunning
from lango.sessions import SessionId
from lango.store.codec.records import NewEvent
from lango.store.engine.database import Operation
from lango.store.sessions import sessions
from lango.store.sessions.client_history import append_client_history
from lango.store.turns.queue import read_open_turns
from lango.store.turns.submit import store_full_results
from lango.store.waits import waits


def add_history(name: SessionId, entries: Sequence[NewEvent], now: float) -> Operation[int]:
    """Append messages that the client sent along; return the number of the last message before them.

    Raise `SessionNotFound`, or `TurnRunning` while the session has an open turn, or waits for an answer.
    """
    session = yield from sessions.lock_named_session(name)
    if (yield from read_open_turns(session.key)):
        raise TurnRunning(f"session {name.id!r} is busy: wait for the answer, or cancel the turn, then add messages")
    if (yield from waits.list_unclosed(session.key, name)):
        raise TurnRunning(f"session {name.id!r} waits for an answer: give it, or send a message, then add messages")
    yield from append_client_history(session.key, session.revision, entries)
    for entry in entries:
        yield from store_full_results(session.key, session.epoch, entry.client_results, now)
    return session.last_seq
