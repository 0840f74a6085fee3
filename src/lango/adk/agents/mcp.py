"""Offer the tools of MCP servers through ADK's toolset, with the same approvals and limits as other tools."""

import asyncio
import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from typing_extensions import override

from lango.adk.agents.adk_internals import declaration_of
from lango.adk.agents.adk_tool import AdkTool, tool_from_adk
from lango.config import McpSettings
from lango.errors import ConfigError, MissingDependency
from lango.tools import DEFAULT_TIMEOUT_S, Tool
from lango.tools.schema_checker import has_patterns, measure_schema

if importlib.util.find_spec("mcp") is None:
    raise MissingDependency('MCP servers need another package: pip install "lango-adk[mcp]"')

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters

OnFailure = Callable[[ConfigError], None]

_log = logging.getLogger("lango.runtime")
_TOOL_LIST_TTL_S = 60.0  # ADK lists the tools before every model call


class LangoMcpToolset(McpToolset):
    """ADK's toolset of one MCP server, whose tools are `AdkTool`s."""

    tools_are_static = True
    """See `lango.adk.agents.tool_names.StaticToolset`."""

    def __init__(
        self, server: str, wrap: Callable[[Tool], BaseTool], on_failure: OnFailure | None = None, **options: Any
    ) -> None:
        super().__init__(tool_list_cache_ttl_seconds=_TOOL_LIST_TTL_S, **options)
        self._server = server
        self._wrap = wrap
        self._on_failure = on_failure
        self._wrapped: dict[str, BaseTool] = {}

    @override
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the server's tools. Raise `ConfigError`, which names the server, if it does not answer.

        ADK catches the error and runs without the tools. `on_failure` gets it first, so that the turn can end instead.
        """
        try:
            tools = await super().get_tools(readonly_context)
        except Exception as error:
            failure = ConfigError(
                f"the MCP server {self._server} does not answer ({error}): check [mcp.{self._server}]"
            )
            if self._on_failure is not None:
                self._on_failure(failure)
            raise failure from error
        # in a thread: a server's declarations may be large
        return await asyncio.to_thread(lambda: [ours for tool in tools if (ours := self._to_lango_tool(tool))])

    def _to_lango_tool(self, tool: BaseTool) -> BaseTool | None:
        try:
            _check_schemas(tool)
            declared = declaration_of(tool)
            key = json.dumps(declared.model_dump(mode="json", exclude_none=True) if declared else tool.name)
            if key not in self._wrapped:
                self._wrapped[key] = self._wrap(tool_from_adk(tool))
            return self._wrapped[key]
        except ConfigError as error:
            _log.warning("a tool of the MCP server %s cannot be used: %s", self._server, error)
            return None


def _check_schemas(tool: BaseTool) -> None:
    """Raise `ConfigError` if a schema of a tool is too large, or if checking its results could take too long.

    The MCP library checks results on the event loop, with regular expressions that can backtrack without end.
    """
    raw: Any = getattr(tool, "raw_mcp_tool", None)
    for name in ("inputSchema", "input_schema", "outputSchema", "output_schema"):
        schema: Mapping[str, Any] = getattr(raw, name, None) or {}
        try:
            measure_schema(schema)
        except ConfigError as error:
            raise ConfigError(f"tool {tool.name}: its schema cannot be used: {error}") from error
        if name.startswith("output") and has_patterns(schema):
            raise ConfigError(f"tool {tool.name}: the schema of its results has a pattern")


def mcp_toolsets(
    settings: Mapping[str, McpSettings],
    *,
    wrap: Callable[[Tool], BaseTool] = AdkTool,
    on_failure: OnFailure | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[McpToolset]:
    """Make a toolset per server of `[mcp.<name>]`; a server is started when its tools are first listed.

    `wrap` makes the ADK tool of each tool. `on_failure` is called when a server does not answer. Close each toolset
    when done.
    """
    return [
        LangoMcpToolset(
            name,
            wrap,
            on_failure,
            connection_params=_connection(name, server, timeout_s),
            tool_filter=None if server.tools is None else list(server.tools),
        )
        for name, server in settings.items()
    ]


def _connection(
    name: str, server: McpSettings, timeout_s: float
) -> StdioConnectionParams | StreamableHTTPConnectionParams:
    if bool(server.command) == bool(server.url):
        raise ConfigError(f"[mcp.{name}] needs a command or a url, and not both")
    if server.url:
        return StreamableHTTPConnectionParams(url=server.url, timeout=timeout_s, sse_read_timeout=timeout_s)
    # besides `env`, the mcp library passes PATH, HOME and the like to the process, and none of our keys
    parameters = StdioServerParameters(command=server.command, args=list(server.args), env=dict(server.env))
    return StdioConnectionParams(server_params=parameters, timeout=timeout_s)
