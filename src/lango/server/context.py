"""What a running server holds, for every route."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from lango.config import Settings
from lango.runtime.runtime import Runtime
from lango.server.errors import no_session
from lango.server.security.auth import Caller, Door
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.sse import EventStream
from lango.server.streaming.turn_streams import TurnStreams
from lango.store import SessionId, SessionRecord
from lango.store.turns import approvals
from lango.store.turns.event_log import ToldEvent


class Served:
    """A runtime and what the server keeps beside it."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.settings = settings
        self.runtime = runtime
        self.store = runtime.store
        self.sessions = runtime.sessions
        self.metrics = Metrics()
        self.turns = TurnStreams(runtime, self.metrics, settings.server.heartbeat_s)
        self.door = Door(settings.server, runtime.store)

    async def session(self, caller: Caller, session_id: str) -> SessionRecord:
        """Read a session of the caller; one of somebody else is not there."""
        session = await self.store.session(SessionId(self.runtime.app_name, caller.user_id, session_id))
        if session is None:
            raise no_session(session_id)
        return session

    async def current(self, caller: Caller, session_id: str) -> SessionRecord:
        """Read a session of the caller as it stands now: a question whose time is over is closed first."""
        session = await self.session(caller, session_id)
        if await self.store.read(lambda: approvals.is_due(session.key)):
            await self.store.expire_questions(session.key)
            session = await self.session(caller, session_id)
        return session

    async def may_write(self, caller: Caller, session_id: str) -> None:
        """Raise unless the caller may send a message there now.

        With one user, a message to a new id begins a session, as in Python. With more, ids that are somebody else's
        and ids that are nobody's must answer alike.
        """
        await self.door.check_tokens(caller)
        if not self.door.one_user:
            await self.session(caller, session_id)

    def stream(self, events: AsyncGenerator[ToldEvent | None, None]) -> EventStream:
        """Answer with events."""
        return EventStream(events, self.settings.server.write_timeout_s)


def served_by(connection: HTTPConnection) -> Served:
    """Return what the app of a request holds."""
    return connection.app.state.served


Here = Annotated[Served, Depends(served_by)]
