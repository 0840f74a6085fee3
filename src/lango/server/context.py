"""Hold the objects that every route of a running server shares."""

import time
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from lango.config import Settings
from lango.runtime.runtime import Runtime
from lango.server.errors import session_not_found
from lango.server.security.auth import Authenticator, Caller
from lango.server.streaming.live import LiveEvents
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.sse import EventStreamResponse
from lango.server.streaming.turn_streams import TurnStreams
from lango.store import SessionId, SessionRecord
from lango.store.sessions.sessions import find_session
from lango.store.turns.approvals import expire_approvals, has_expired_approvals


class ServerContext:
    """A runtime, its turn streams, metrics and access checks."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.settings = settings
        self.runtime = runtime
        self.store = runtime.store
        self.sessions = runtime.sessions
        self.metrics = Metrics()
        self.turns = TurnStreams(runtime, self.metrics, settings.server.heartbeat_s)
        self.authenticator = Authenticator(settings.server, runtime.store)

    async def get_session(self, caller: Caller, session_id: str) -> SessionRecord:
        """Return a session of the caller; raise `SessionNotFound` for one of another user, too."""
        session = await self.store.read(find_session, SessionId(self.runtime.app_name, caller.user_id, session_id))
        if session is None:
            raise session_not_found(session_id)
        return session

    async def get_session_without_expired_approvals(self, caller: Caller, session_id: str) -> SessionRecord:
        """Return a session of the caller, after closing its expired approval requests."""
        session = await self.get_session(caller, session_id)
        if await self.store.read(has_expired_approvals, session.key):
            await self.store.write(expire_approvals, session.key, time.time())
            session = await self.get_session(caller, session_id)
        return session

    async def check_may_write(self, caller: Caller, session_id: str) -> None:
        """Raise unless the caller may send a message to a session now.

        With one user, a message to a new id creates a session, as in Python. With more, an id of another user and an
        unused one must get the same response.
        """
        await self.authenticator.check_token_quota(caller)
        if not self.authenticator.is_single_user:
            await self.get_session(caller, session_id)

    def event_response(self, events: LiveEvents) -> EventStreamResponse:
        """Return a response that streams events."""
        return EventStreamResponse(events, self.settings.server.write_timeout_s)


def get_context(connection: HTTPConnection) -> ServerContext:
    """Return the server context of a request's app."""
    return connection.app.state.context


Context = Annotated[ServerContext, Depends(get_context)]
