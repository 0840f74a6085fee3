"""Keep beside a loaded ADK session which version of the stored one it shows."""

from functools import cache
from typing import NamedTuple

from google.adk.events import Event
from google.adk.sessions import Session
from pydantic import PrivateAttr

from lango.adk.services.fast_models import copy_with
from lango.adk.services.unpaired_results import events_for_requests
from lango.store import SessionId, SessionRecord
from lango.store.codec.records import TEMP_PREFIX, without_temporary_state
from lango.store.memory.observations import SessionMemory


class SessionVersion(NamedTuple):
    """What an object shows of the store: a session by its key and its name, its revision, its newest message."""

    key: int
    name: SessionId
    revision: int
    last_seq: int


class StoredSession(Session):
    """A session that remembers what it has seen of the store."""

    _version: SessionVersion | None = PrivateAttr(default=None)
    _is_as_stored: bool = PrivateAttr(default=False)
    """It shows what was loaded, as it is stored; until a run begins with it."""
    _recalled: SessionMemory = PrivateAttr(default_factory=SessionMemory)

    @property
    def recalled(self) -> SessionMemory:
        """What is remembered of the messages before those that this object shows."""
        return self._recalled

    def set_recalled(self, recalled: SessionMemory) -> None:
        """Note what is remembered."""
        self._recalled = recalled


@cache
def _session_template() -> StoredSession:
    return StoredSession(id="", app_name="", user_id="")


def version_of_record(record: SessionRecord) -> SessionVersion:
    """Return the version of a session that a record holds."""
    return SessionVersion(record.key, record.name, record.revision, record.last_seq)


def known_version(session: Session) -> SessionVersion | None:
    """Return what the object shows, if it is of our kind, past pydantic's search for attributes: that takes longer."""
    private = session.__pydantic_private__
    return private.get("_version") if private else None


def set_version(session: Session, version: SessionVersion) -> None:
    """Note what the object shows now, if it is of our kind."""
    if (private := session.__pydantic_private__) and "_version" in private:
        private["_version"] = version


def prepare_for_requests(session: Session) -> None:
    """Let a session that was loaded show its events as ADK keeps them all in its requests, once."""
    if (private := session.__pydantic_private__) and private.get("_is_loaded"):
        private["_is_loaded"] = False
        session.events[:] = events_for_requests(session.events)


def show_event(session: Session, event: Event, *, as_event: bool) -> None:
    """Let the object in memory show what is stored now; `temp:` state lives only there."""
    delta = event.actions.state_delta
    if delta:
        session.state.update(delta)
        if any(key.startswith(TEMP_PREFIX) for key in delta):
            event.actions.state_delta = without_temporary_state(delta)
    vars(session)["last_update_time"] = event.timestamp  # its validation would take as long as all the rest
    if as_event:
        session.events.append(event)


def session_from_record(record: SessionRecord, events: list[Event]) -> StoredSession:
    """Build the ADK session of a stored record and its events."""
    # a copy of a template: what comes from the store needs no validation, and a list may have 50,000 of them
    session = copy_with(
        _session_template(),
        {
            "app_name": record.name.app_name,
            "user_id": record.name.user_id,
            "id": record.name.id,
            "state": dict(record.state),
            "events": events,
            "last_update_time": record.updated_at,
        },
    )
    set_version(session, version_of_record(record))
    if events and (private := session.__pydantic_private__):
        private["_is_loaded"] = True
    return session
