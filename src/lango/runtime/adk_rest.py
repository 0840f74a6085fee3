"""Show sessions, events and artifacts in the JSON of ADK's own server, for clients of its REST API."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lango.adk.run.agent_app import AgentApp
from lango.adk.services import adk_server
from lango.adk.services.adk_server import (
    ADK_VERSION,
    dev_ui_folder,
    partial_event,
    read_message,
    without_artifacts,
)
from lango.adk.services.artifact_service import SqlArtifactService
from lango.sessions import SessionInfo, StoredEvent
from lango.store import Store
from lango.store.sessions.sessions import list_sessions
from lango.store.sessions.window import read_session_events
from lango.store.turns.turns import read_turn
from lango.threads import run_in_thread

__all__ = [
    "ADK_VERSION",
    "AdkRest",
    "dev_ui_folder",
    "partial_event",
    "read_message",
    "without_artifacts",
]

_RECENT_EVENTS = 500
"""How many of a session's newest events are searched for those of a turn."""

Json = dict[str, Any]


class AdkRest:
    """The sessions and artifacts of one app, as ADK's server shows them. The state of the app is for operators only."""

    def __init__(self, store: Store, app: AgentApp, artifacts: SqlArtifactService) -> None:
        self._store = store
        self._app = app
        self._app_name = app.name
        self._artifacts = artifacts

    async def app_info(self) -> Json:
        """Describe the app, its agents and their tools. Toolsets are asked for their tools.

        Raise `UsageError` if the root is not an `LlmAgent`.
        """
        return await adk_server.app_info(self._app_name, self._app.root)

    async def sessions(self, user_id: str, *, with_app_state: bool) -> list[Json]:
        """Return all sessions of a user, without their events."""
        records = await self._store.read(list_sessions, self._app_name, user_id)
        return await run_in_thread(lambda: [self.session(record, with_app_state=with_app_state) for record in records])

    def session(self, record: SessionInfo, events: Iterable[StoredEvent] = (), *, with_app_state: bool) -> Json:
        """Return a session with some events."""
        return adk_server.session_to_json(record, events, self._app_name, with_app_state=with_app_state)

    async def session_with_events(
        self, session: SessionInfo, *, with_app_state: bool, temporary_state: Mapping[str, Any] = {}
    ) -> Json:
        """Return a session with all its events, and with state that is not stored."""
        record, events = await self._store.read(read_session_events, session.name) or (session, [])
        await self._store.load_files(events)
        shown = replace(record, state={**record.state, **temporary_state})
        return await run_in_thread(lambda: self.session(shown, events, with_app_state=with_app_state))

    async def recent_events(self, session: SessionInfo) -> Sequence[StoredEvent]:
        """Read the newest events of a session, without the bytes of their files."""
        found = await self._store.read(read_session_events, session.name, _RECENT_EVENTS)
        return found[1] if found else []

    async def events_of_turn(
        self, session: SessionInfo, turn: int, known: Collection[str], *, with_app_state: bool
    ) -> list[Json]:
        """Return the events of a turn whose ids are not known, without the user's message."""
        record = await self._store.read(read_turn, session.key, turn)
        recent = await self.recent_events(session)
        invocations = {record.invocation_id, *record.result.invocations} if record else set[str]()
        new = [event for event in recent if event.invocation_id in invocations and event.event_id not in known]
        await self._store.load_files(new)
        new_ids = {event.event_id for event in new}
        shown = await run_in_thread(adk_server.stored_to_json, recent, self._app_name, with_app_state=with_app_state)
        return [event for event in shown if event["id"] in new_ids and event["author"] != "user"]

    async def save_artifact(
        self, session: SessionInfo, name: str, part: Mapping[str, Any], metadata: dict[str, Any] | None
    ) -> Json:
        """Save a `Part` as the next version of an artifact, and return its metadata. Raise `UsageError`."""
        return await adk_server.save_artifact(self._artifacts, session.name, name, part, metadata)

    async def artifact_metadata(self, session: SessionInfo, name: str) -> list[Json]:
        """Return the metadata of an artifact's versions."""
        return await adk_server.artifact_metadata(self._artifacts, session.name, name)

    async def load_artifact(self, session: SessionInfo, name: str, version: int | None) -> Json | None:
        """Return an artifact as a `Part`, or None if there is none or its reference leads nowhere."""
        return await adk_server.load_artifact(self._artifacts, session.name, name, version)
