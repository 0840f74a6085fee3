"""Show the state of a session, a user and the app, at any message, and what each event changed.

Each event is stored with its change. The state of the session at a message follows from these exactly. The state of
users and apps is also changed by other sessions: at a message it is what the events of this session had set by then.
"""

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.errors import MessageNotFound, StaleSession
from lango.sessions import SessionId, SessionInfo, check_client_state
from lango.store import NewEvent, Store
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import get_session
from lango.store.sessions.state import StateEvent, read_state_events, split_scopes
from lango.store.turns.queue import read_open_turns
from lango.threads import run_in_thread

MAX_CHANGES = 500
"""How many of the newest changes are shown."""
Scope = Literal["session", "user", "app"]


class ValueChange(Struct, frozen=True):
    """What an event did to one value. `before` is what the events of this session had set, or None."""

    scope: Scope
    name: str
    before: Any
    after: Any


class StateChange(Struct, frozen=True):
    """What one event changed."""

    seq: int
    """The message; of an event that only changes state, the newest message before it. 0: when the session began."""
    is_message: bool
    created_at: float
    author: str
    values: Sequence[ValueChange]


class SessionState(Struct, frozen=True):
    """The state now or at a message, and the changes up to there, the newest last."""

    at: int | None
    """The message, or None for now."""
    session: Mapping[str, Any]
    user: Mapping[str, Any]
    app: Mapping[str, Any]
    changes: Sequence[StateChange]
    all_changes: int
    """How many changes there are; `changes` has the newest of them."""


def apply_changes(events: Sequence[StateEvent]) -> tuple[dict[Scope, dict[str, Any]], list[StateChange]]:
    """Apply the changes of events in order; return the state after the last, and what each of them changed."""
    state: dict[Scope, dict[str, Any]] = {"session": {}, "user": {}, "app": {}}
    changes: list[StateChange] = []
    for event in events:
        own, of_user, of_app = split_scopes(event.delta)
        deltas: tuple[tuple[Scope, dict[str, Any]], ...] = (("session", own), ("user", of_user), ("app", of_app))
        values: list[ValueChange] = []
        for scope, delta in deltas:
            values += [ValueChange(scope, name, state[scope].get(name), value) for name, value in delta.items()]
            state[scope].update(delta)
        changes.append(StateChange(event.seq, event.is_message, event.created_at, event.author, values))
    return state, changes


async def session_state(store: Store, name: SessionId, at: int | None = None) -> SessionState:
    """Read the state of a session now, or at a message. Raise `SessionNotFound` or `MessageNotFound`."""

    def read() -> Operation[tuple[SessionInfo, list[StateEvent]]]:
        session = yield from get_session(name)
        if at is not None and at > session.last_seq:
            raise MessageNotFound(f"session {name.id!r} has no message {at}: its newest is {session.last_seq}")
        return session, (yield from read_state_events(session.key, session.last_seq if at is None else at))

    session, events = await store.read(read)
    state, changes = await run_in_thread(apply_changes, events)
    if at is None:
        scopes = split_scopes(session.state)
        state = {"session": scopes[0], "user": scopes[1], "app": scopes[2]}
    return SessionState(at, state["session"], state["user"], state["app"], changes[-MAX_CHANGES:], len(changes))


async def change_state(
    store: Store,
    name: SessionId,
    delta: Mapping[str, Any],
    credential_names: Collection[str],
    *,
    with_answer: bool = False,
) -> None:
    """Change the state of a session between its turns; a user made the change.

    Raise `StateRefused` for names and values that clients may not write, `SessionNotFound`, or `StaleSession` while a
    turn runs: its agent works with the state that it has read. A change `with_answer` comes with the answer to a wait,
    which may be a question of a running tool.
    """
    check_client_state(delta, credential_names)

    def read() -> Operation[tuple[SessionInfo, bool]]:
        session = yield from get_session(name)
        # not only the newest turn: a message that was withdrawn may be newer than the turn that runs
        return session, bool((yield from read_open_turns(session.key)))

    session, is_busy = await store.read(read)  # a turn that starts later makes the write below stale
    if is_busy and not with_answer:
        raise StaleSession(f"a turn of session {name.id!r} runs: wait until it ends before you change its state")
    await store.append(session.key, session.name, session.revision, state_event(delta))


def state_event(delta: Mapping[str, Any]) -> NewEvent:
    """Return the event by which a user changes the state."""
    invocation_id = f"p-{uuid.uuid4()}"
    author = {"author": "user"}
    return NewEvent(str(uuid.uuid4()), time.time(), invocation_id=invocation_id, state_delta=delta, extra=author)
