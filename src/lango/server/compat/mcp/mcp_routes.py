"""Serve the agents to MCP clients at `/mcp`, over streamable HTTP.

The official SDK speaks the protocol, in every version; `agent_server` answers. Clients of versions before 2026-07-28
have a connection in this process, which ends with it: they connect again, and their turns continue meanwhile.
"""

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from lango.server.context import CurrentUser, ServedAgents
from lango.server.errors import ApiError
from lango.server.security.auth import AuthenticatedRouter, Caller, run_until_first_ends
from lango.server.streaming.sse import VERIFY_CALLER, wait_until_refused

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from lango.server.compat.mcp.agent_server import Context

router = AuthenticatedRouter(tags=["mcp"])

_LAST_RESULTS_S = 5.0
"""How long the responses of calls may take at a shutdown, once their turns are handed over."""


@router.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def mcp(request: Request, user: CurrentUser) -> Response:
    """Answer a request of an MCP client."""
    if find_spec("mcp_types") is None:
        message = 'the MCP server needs version 2 of a package: pip install "lango-adk[mcp]" "mcp>=2.3"'
        raise ApiError(501, "MissingDependency", message)
    state = request.app.state
    if not hasattr(state, "mcp"):
        state.mcp = McpEndpoint(user.context.agents)
    return _SdkResponse(state.mcp, user.caller)


class McpEndpoint:
    """Runs the SDK's session manager from the first request on, until the server stops."""

    def __init__(self, agents: ServedAgents) -> None:
        self._agents = agents
        self._manager: asyncio.Future[StreamableHTTPSessionManager] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._posts: set[asyncio.Task[Any]] = set()
        self._running = asyncio.create_task(self._run())
        agents.call_when_drained(self.close)

    async def _run(self) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from lango.server.compat.mcp.agent_server import AgentServer

        server = AgentServer(self._agents, _caller_of)
        limits = self._agents.default.settings.server.limits
        manager = StreamableHTTPSessionManager(
            server.sdk, max_request_body_size=limits.max_body_bytes, max_sessions=limits.max_connections
        )
        async with manager.run():
            self._manager.set_result(manager)
            await self._stopping.wait()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request until the end, until its caller loses access, or until the server stops."""
        manager = await asyncio.shield(self._manager)

        async def serve() -> None:
            if scope["method"] == "POST" and (task := asyncio.current_task()):
                self._posts.add(task)
                task.add_done_callback(self._posts.discard)
            await manager.handle_request(scope, receive, send)

        refused = wait_until_refused(scope["state"].get(VERIFY_CALLER))
        serving, *_ = await run_until_first_ends(serve(), refused, self._stopping.wait())
        if not serving.cancelled():
            serving.result()

    async def close(self) -> None:
        """Let the calls send their results, then end every connection."""
        if self._posts:
            await asyncio.wait([*self._posts], timeout=_LAST_RESULTS_S)
        self._stopping.set()
        await asyncio.wait([self._running])


def _caller_of(context: "Context") -> Caller:
    """Return the caller whom the route authenticated."""
    assert context.request is not None
    return context.request.state.caller


class _SdkResponse(Response):
    """A response that the SDK writes."""

    def __init__(self, endpoint: McpEndpoint, caller: Caller) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._caller = caller

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        from lango.server.compat.mcp.agent_server import CLIENT_LEFT

        is_open, was_body_read = False, scope["method"] == "GET"  # by the route, to notice a client that leaves

        async def receive_and_note() -> Message:
            nonlocal was_body_read
            if was_body_read:
                was_body_read = False
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await receive()
            if message["type"] == "http.disconnect":
                scope["state"][CLIENT_LEFT] = True
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal is_open
            await send(message)
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)

        # the SDK gives a connection only to the user who opened it
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=self._caller.user_id, scopes=[]))
        await self._endpoint.handle(scope, receive_and_note, send_and_note)
        if is_open:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
