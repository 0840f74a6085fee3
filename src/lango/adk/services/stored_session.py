"""Keep for each loaded ADK session which version of the stored one it shows."""

from functools import cache

from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types
from msgspec import Struct
from pydantic import PrivateAttr

from lango.adk.events.fast_models import copy_with, private_value, set_private, set_unvalidated
from lango.adk.events.unpaired_results import events_for_requests
from lango.sessions import TEMP_PREFIX, SessionId, SessionInfo
from lango.store.codec.records import without_temporary_state
from lango.store.memory.observations import SessionMemory


class SessionVersion(Struct, frozen=True):
    """Which version of a stored session an ADK session shows: its key and name, revision and newest message."""

    key: int
    name: SessionId
    revision: int
    last_seq: int


class StoredSession(Session):
    """An ADK session that knows which version of the stored session it shows."""

    _version: SessionVersion | None = PrivateAttr(default=None)
    _is_as_stored: bool = PrivateAttr(default=False)
    """True until a run starts: the events are those that were loaded, unchanged."""
    _recalled: SessionMemory = PrivateAttr(default_factory=SessionMemory)

    @property
    def recalled(self) -> SessionMemory:
        """The memory of the messages before those that this session shows."""
        return self._recalled


@cache
def _session_template() -> StoredSession:
    return StoredSession(id="", app_name="", user_id="")


def version_of_info(info: SessionInfo) -> SessionVersion:
    """Return the version of a session that is stored."""
    return SessionVersion(info.key, info.name, info.revision, info.last_seq)


def known_version(session: Session) -> SessionVersion | None:
    """Return the version that a session shows; None if it was not loaded from our store."""
    return private_value(session, "_version")


def set_version(session: Session, version: SessionVersion) -> None:
    """Set the version that a session shows, if it was loaded from our store."""
    set_private(session, "_version", version)


def prepare_for_requests(session: Session) -> None:
    """Change the loaded events of a session once, so that ADK drops none of them from its requests."""
    if private_value(session, "_is_as_stored"):
        set_private(session, "_is_as_stored", False)
        session.events[:] = events_for_requests(session.events)


class SteeringContent(types.Content):
    """A message that was taken into the running turn. `ProviderLlm` recognises the type: it begins no turn."""


def show_steering(session: Session, event: Event) -> None:
    """Show a stored message that was taken into the running turn in the session in memory."""
    if event.content is not None:
        event.content = SteeringContent(role="user", parts=event.content.parts)
    show_event(session, event, as_event=True)


def shows_event(session: Session, event: Event) -> bool:
    """Whether a session in memory has an event."""
    return any(shown.id == event.id for shown in session.events)


def show_event(session: Session, event: Event, *, as_event: bool) -> None:
    """Apply a stored event to the session in memory. State with the prefix `temp:` exists only there."""
    delta = event.actions.state_delta
    if delta:
        session.state.update(delta)
        if any(key.startswith(TEMP_PREFIX) for key in delta):
            event.actions.state_delta = without_temporary_state(delta)
    set_unvalidated(session, "last_update_time", event.timestamp)
    if as_event:
        session.events.append(event)


def session_from_info(info: SessionInfo, events: list[Event], recalled: SessionMemory | None = None) -> StoredSession:
    """Build the ADK session of a stored session, its events and the memory of earlier ones."""
    # a copy of a template: stored values need no validation, and a list may have 50,000 sessions
    session = copy_with(
        _session_template(),
        {
            "app_name": info.name.app_name,
            "user_id": info.name.user_id,
            "id": info.name.id,
            "state": dict(info.state),
            "events": events,
            "last_update_time": info.updated_at,
        },
    )
    set_version(session, version_of_info(info))
    set_private(session, "_is_as_stored", bool(events))
    if recalled is not None:
        set_private(session, "_recalled", recalled)
    return session
