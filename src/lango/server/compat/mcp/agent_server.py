"""Answer the requests of MCP clients: agents are tools, sessions and artifacts resources. Imports `mcp`."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestId,
    TextContent,
    Tool,
)

from lango import __version__
from lango.errors import LangoError, Stopping
from lango.server.compat.mcp.agent_call import INPUT_SCHEMA, AgentCall
from lango.server.compat.mcp.call_view import OUTPUT_SCHEMA
from lango.server.compat.mcp.resources import list_resources, list_templates, read_resource
from lango.server.context import AgentUser, ServedAgents
from lango.server.errors import ApiError, to_api_error
from lango.server.security.auth import Caller

_log = logging.getLogger("lango.server")

CLIENT_LEFT = "mcp_client_left"
"""Key in the state of an HTTP request: whether its client closed the connection."""
_INSTRUCTIONS = (
    "Each tool is an agent. Send it a message; its result names the session, which continues the conversation. If an "
    "agent waits for an answer, ask the user for it. Conversations and the files of agents are resources."
)
_SESSION_HEADER = "mcp-session-id"
_CANCELLATION_S = 5.0
"""How long a call that ended unfinished is known, for the notification that cancelled it and may come later."""

Context = ServerRequestContext[Any, Any]
_CallKey = tuple[str, RequestId]


class AgentServer:
    """The MCP server of all agents."""

    def __init__(self, agents: ServedAgents, caller_of: Callable[[Context], Caller]) -> None:
        """`caller_of` returns who sent a request."""
        self._agents = agents
        self._caller_of = caller_of
        self._calls: dict[_CallKey, tuple[AgentUser, AgentCall]] = {}
        self.sdk: Server[Any] = Server(
            "lango",
            version=__version__,
            instructions=_INSTRUCTIONS,
            get_tool_input_schema=lambda _: INPUT_SCHEMA,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        self.sdk.add_notification_handler("notifications/cancelled", CancelledNotificationParams, self._on_cancelled)

    def _user(self, context: Context, agent: str) -> AgentUser:
        """Return the caller of a request as a user of an agent."""
        return AgentUser(self._agents.named(agent), self._caller_of(context))

    # -- tools --------------------------------------------------------------------------------------------------------

    async def _list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        tools = [
            Tool(
                name=name,
                description=served.runtime.description or f"The agent {name}.",
                input_schema=INPUT_SCHEMA,
                output_schema=OUTPUT_SCHEMA,
            )
            for name, served in self._agents.contexts.items()
        ]
        return ListToolsResult(tools=tools)

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        with _protocol_errors():
            user = self._user(context, params.name)
        call = AgentCall(user, context, params)
        key = _call_key(context, context.request_id or 0)
        self._calls[key] = user, call
        try:
            result = await call.run()
        except asyncio.CancelledError:
            if context.request is not None and getattr(context.request.state, CLIENT_LEFT, False):
                with anyio.CancelScope(shield=True):
                    await _stop(user, call)
            asyncio.get_running_loop().call_later(_CANCELLATION_S, self._calls.pop, key, None)
            raise
        except (LangoError, ApiError) as error:
            result = _failed(call, error)
        self._calls.pop(key, None)
        return result

    async def _on_cancelled(self, context: Context, params: CancelledNotificationParams) -> None:
        """Stop the turn of a call that the client cancelled."""
        if params.request_id is not None and (found := self._calls.pop(_call_key(context, params.request_id), None)):
            await _stop(*found)

    # -- resources ----------------------------------------------------------------------------------------------------

    async def _list_resources(self, context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        with _protocol_errors():
            users = [self._user(context, name) for name in self._agents.contexts]
            return await list_resources(users, params.cursor if params else None)

    async def _list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        del context, params
        return list_templates()

    async def _read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        with _protocol_errors():
            return await read_resource(lambda agent: self._user(context, agent), params.uri)

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def _list_prompts(self, context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        del context, params
        prompts = [
            Prompt(
                name=name,
                description=prompt.description or None,
                arguments=[
                    PromptArgument(name=argument, description=about, required=True)
                    for argument, about in prompt.arguments.items()
                ],
            )
            for name, prompt in self._agents.default.settings.server.mcp.prompts.items()
        ]
        return ListPromptsResult(prompts=prompts)

    async def _get_prompt(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        del context
        prompt = self._agents.default.settings.server.mcp.prompts.get(params.name)
        if prompt is None:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name!r}")
        given = params.arguments or {}
        if given.keys() != prompt.arguments.keys():
            raise MCPError(INVALID_PARAMS, f"arguments: send {', '.join(prompt.arguments) or 'none'}")
        text = TextContent(text=prompt.fill(given))
        return GetPromptResult(
            description=prompt.description or None, messages=[PromptMessage(role="user", content=text)]
        )


def _call_key(context: Context, request_id: RequestId) -> _CallKey:
    """Return what identifies a request among those of all connections."""
    connection = context.request.headers.get(_SESSION_HEADER, "") if context.request is not None else ""
    return connection, request_id


async def _stop(user: AgentUser, call: AgentCall) -> None:
    if call.turn is not None:
        await user.stop(call.turn)


def _failed(call: AgentCall, error: LangoError | ApiError) -> CallToolResult:
    """Return the result of a call that failed here; its turn may continue."""
    text = str(error)
    if isinstance(error, Stopping) and call.turn is not None:
        text += f"; the turn continues: call again with session = {call.turn.session.name.id!r} alone"
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


@contextmanager
def _protocol_errors() -> Generator[None]:
    """Raise Lango's errors as those of MCP."""
    try:
        yield
    except MCPError:
        raise
    except Exception as error:  # the SDK would send the text of any other one to older clients
        refused = to_api_error(error)
        if refused.status == 500:
            _log.exception("a request of an MCP client failed")
        code = INVALID_PARAMS if refused.status < 500 and refused.status != 429 else INTERNAL_ERROR
        raise MCPError(code, str(refused), {"error": refused.type}) from error
