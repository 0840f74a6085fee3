"""What a running server holds, for every route."""

import time
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from lango.config import Settings
from lango.runtime.runtime import Runtime
from lango.server.errors import session_not_found
from lango.server.security.auth import Caller, Principal
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.sse import EventStreamResponse
from lango.server.streaming.turn_streams import TurnStreams
from lango.store import SessionId, SessionRecord
from lango.store.sessions.sessions import find_session
from lango.store.turns import approvals
from lango.store.turns.approvals import expire_approvals
from lango.store.turns.event_log import LoggedEvent


class ServerContext:
    """A runtime and what the server keeps beside it."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.settings = settings
        self.runtime = runtime
        self.store = runtime.store
        self.sessions = runtime.sessions
        self.metrics = Metrics()
        self.turns = TurnStreams(runtime, self.metrics, settings.server.heartbeat_s)
        self.principal = Principal(settings.server, runtime.store)

    async def get_session(self, caller: Caller, session_id: str) -> SessionRecord:
        """Read a session of the caller; one of somebody else is not there."""
        session = await self.store.read(find_session, SessionId(self.runtime.app_name, caller.user_id, session_id))
        if session is None:
            raise session_not_found(session_id)
        return session

    async def get_session_without_expired_approvals(self, caller: Caller, session_id: str) -> SessionRecord:
        """Read a session of the caller as it stands now: a question whose time is over is closed first."""
        session = await self.get_session(caller, session_id)
        if await self.store.read(approvals.has_expired_approvals, session.key):
            await self.store.write(expire_approvals, session.key, time.time())
            session = await self.get_session(caller, session_id)
        return session

    async def check_may_write(self, caller: Caller, session_id: str) -> None:
        """Raise unless the caller may send a message there now.

        With one user, a message to a new id begins a session, as in Python. With more, ids that are somebody else's
        and ids that are nobody's must answer alike.
        """
        await self.principal.check_token_quota(caller)
        if not self.principal.is_single_user:
            await self.get_session(caller, session_id)

    def event_response(self, events: AsyncGenerator[LoggedEvent | None, None]) -> EventStreamResponse:
        """Answer with events."""
        return EventStreamResponse(events, self.settings.server.write_timeout_s)


def get_context(connection: HTTPConnection) -> ServerContext:
    """Return what the app of a request holds."""
    return connection.app.state.served


Context = Annotated[ServerContext, Depends(get_context)]
