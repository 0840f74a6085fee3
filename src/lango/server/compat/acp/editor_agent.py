"""Answer the requests of an editor: sessions, their prompts, and their history. Imports `acp`."""

import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.interfaces import Client

from lango import __version__
from lango.errors import LangoError, SessionNotFound
from lango.server.compat.acp.prompt_turn import ContentBlock, PromptTurn, read_prompt
from lango.server.compat.acp.session_updates import ToolCalls, stored_updates
from lango.server.context import AgentUser
from lango.server.errors import ApiError, to_api_error
from lango.sessions import SessionInfo, as_datetime

FOLDER = "cwd"
"""The key in a session's state with the folder that the editor has open; the agent's instruction may use it."""
_LISTED = 50
_NOT_FOUND, _INVALID, _FAILED = -32002, -32602, -32603


class EditorAgent:
    """An agent as the editor on the other side of a connection sees it."""

    def __init__(self, user: AgentUser) -> None:
        self._user = user
        self._client: Client | None = None
        self._prompts: dict[str, PromptTurn] = {}

    def on_connect(self, conn: Client) -> None:
        """Take the connection to the editor."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        """Return the version of the protocol, and what this agent can do."""
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_info=schema.Implementation(name="lango", title=self._user.runtime.app_name, version=__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        """Create a session for the editor's folder."""
        with _protocol_errors():
            session_id = _new_id()
            await self._user.sessions.create(session_id, user_id=self._user.id, state={FOLDER: cwd})
            return schema.NewSessionResponse(session_id=session_id)

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        """Send the history of a session again; the next prompt continues it."""
        with _protocol_errors():
            session = await self._user.get_session(session_id)
            calls = ToolCalls("stored")
            for stored in await self._user.messages(session):
                for update in stored_updates(stored, calls):
                    await self._editor.session_update(session_id, update)
            return schema.LoadSessionResponse()

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        """Let the next prompt continue a session, without its history."""
        with _protocol_errors():
            await self._user.get_session(session_id)
            return schema.ResumeSessionResponse()

    async def fork_session(self, session_id: str, cwd: str, **_: Any) -> schema.ForkSessionResponse:
        """Create a session with the same messages for the editor's folder."""
        with _protocol_errors():
            forked = _new_id()
            await self._user.sessions.fork(session_id, user_id=self._user.id, new_id=forked)
            await self._user.sessions.change_state(forked, {FOLDER: cwd}, user_id=self._user.id)
            return schema.ForkSessionResponse(session_id=forked)

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """Stop the prompt of a session, which stays stored."""
        with _protocol_errors():
            await self._user.get_session(session_id)
            await self.cancel(session_id)
            return schema.CloseSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """List the newest sessions with a message, of one folder or of all; there is one page."""
        del cursor
        with _protocol_errors():
            found = await self._user.sessions.list(user_id=self._user.id, limit=_LISTED)
            listed = [await self._listed(session) for session in found if session.last_seq]
            return schema.ListSessionsResponse(sessions=[one for one in listed if cwd in (None, one.cwd)])

    async def prompt(self, session_id: str, prompt: Sequence[ContentBlock], **_: Any) -> schema.PromptResponse:
        """Submit a message, and show its turn until it ends."""
        with _protocol_errors():
            await self._user.get_session(session_id)
            turn = PromptTurn(self._user, self._editor, session_id)
            self._prompts[session_id] = turn
            try:
                return await turn.run(read_prompt(prompt))
            finally:
                if self._prompts.get(session_id) is turn:
                    del self._prompts[session_id]

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the prompt of a session."""
        if (prompt := self._prompts.get(session_id)) is not None:
            await prompt.cancel()

    @property
    def _editor(self) -> Client:
        assert self._client is not None, "the connection is there before its first request"
        return self._client

    async def _listed(self, session: SessionInfo) -> schema.SessionInfo:
        found = await self._user.find_session(session.name.id)
        folder = found.state.get(FOLDER) if found else None
        return schema.SessionInfo(
            session_id=session.name.id,
            cwd=folder if isinstance(folder, str) else str(Path.cwd()),  # sessions of other clients have no folder
            title=session.display_title or None,
            updated_at=as_datetime(session.updated_at).isoformat(),
        )


def _new_id() -> str:
    return f"acp-{uuid.uuid4().hex}"


@contextmanager
def _protocol_errors() -> Generator[None]:
    """Turn errors into those of the protocol."""
    try:
        yield
    except (LangoError, ApiError) as error:
        described = to_api_error(error)
        refused = _INVALID if described.status < 500 else _FAILED
        code = _NOT_FOUND if isinstance(error, SessionNotFound) else refused
        raise RequestError(code, str(error), {"error": described.type}) from error
