"""Offer the tools of MCP servers through ADK's toolset, with the same approvals and limits as other tools."""

import asyncio
import functools
import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.tools.base_tool import BaseTool
from typing_extensions import override

from lango.adk.agents.adk_internals import declaration_of
from lango.adk.agents.tools.adk_tool import AdkTool, tool_from_adk
from lango.adk.agents.tools.mcp.questions import ServerCallbacks
from lango.adk.agents.tools.mcp.results import read_mcp_result
from lango.adk.turn.turn_run import current_turn
from lango.config import McpSettings
from lango.errors import ConfigError, MissingCredentials, MissingDependency
from lango.tools import DEFAULT_TIMEOUT_S
from lango.tools.results import error_text
from lango.tools.schema_checker import has_patterns, measure_schema

if importlib.util.find_spec("mcp") is None:
    raise MissingDependency('MCP servers need another package: pip install "lango-adk[mcp]"')

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters

_log = logging.getLogger("lango.runtime")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOOL_LIST_TTL_S = 60.0  # ADK lists the tools before every model call
_TOOLS_CHANGED = "notifications/tools/list_changed"


class LangoMcpToolset(McpToolset):
    """ADK's toolset of one MCP server, whose tools are `AdkTool`s."""

    @property
    def tools_are_static(self) -> bool:
        """Whether every turn has the same tools: with OAuth, they are those of each user."""
        return self.auth_scheme is None

    def __init__(
        self,
        server: str,
        callbacks: ServerCallbacks,
        list_timeout_s: float,
        wanted: Sequence[str] | None,
        *,
        taken: Collection[str],
        earlier: "Sequence[LangoMcpToolset]",
        **options: Any,
    ) -> None:
        """`wanted` are the names of the tools to use, or None for all; `taken`, those of the agent's other tools.

        `earlier` are the servers whose tools come first, where two have the same name.
        """
        options |= {"tool_filter": None if wanted is None else list(wanted)}
        super().__init__(tool_list_cache_ttl_seconds=_TOOL_LIST_TTL_S, **callbacks.options, **options)
        self._wanted = wanted
        self.server = server
        self._callbacks = callbacks
        self._list_timeout_s = list_timeout_s
        self.unusable: dict[str, str] = {}
        """Why each tool of the server that cannot be offered cannot, by its name."""
        self._taken = taken
        self._listed: frozenset[str] = frozenset()
        self.names: frozenset[str] | None = None
        """The names of the tools that are offered, or None if they were not listed yet."""
        self._earlier = earlier
        self._was_reported = False
        self._wrapped: dict[str, BaseTool] = {}

    @override
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the server's tools. Raise `ConfigError`, which names the server, if it does not answer.

        ADK catches the error and runs the agent without them. The turn notes it, so that the model reads which tools
        it lacks, and the server is not asked again in the same turn.
        """
        turn = current_turn.get()
        if turn is not None and (known := turn.failed_servers.get(self.server)) is not None:
            raise ConfigError(str(known))
        try:
            async with asyncio.timeout(self._list_timeout_s):
                tools = await super().get_tools(readonly_context)
        except Exception as error:
            failure = ConfigError(
                f"the MCP server {self.server} did not answer ({error_text(error)}): check [mcp.{self.server}]"
            )
            if not self._was_reported:
                _log.warning("%s; its agents run without its tools until it answers", failure)
            self._was_reported = True
            if turn is not None:
                turn.note_failed_server(self.server, failure)
            raise failure from error
        self._was_reported = False
        for name in self._listed & set(self._wanted or self._listed) - {tool.name for tool in tools}:
            self._refuse(name, "ADK reserves this name")
        for server in self._earlier:
            if server.names is None:
                with suppress(ConfigError):  # reported where it is listed itself
                    await server.get_tools(readonly_context)
        # in a thread: a server's declarations may be large
        ours = await asyncio.to_thread(lambda: [tool for found in tools if (tool := self._to_lango_tool(found))])
        self.names = frozenset(tool.name for tool in ours)
        return ours

    @override
    async def _execute_with_session(self, coroutine_func: Callable[[Any], Any], *args: Any, **options: Any) -> Any:
        """Run a request in a session of the server that reports when the server's tools change."""

        def run(session: Any) -> Any:
            session._message_handler = self._on_message  # ADK has no option for it  # noqa: SLF001
            return coroutine_func(session)

        return await super()._execute_with_session(run, *args, **options)

    async def _on_message(self, message: Any) -> None:
        """List the tools again before the next model call when the server says that they changed."""
        if getattr(getattr(message, "root", message), "method", "") == _TOOLS_CHANGED:
            self._tool_list_cache.clear()
            self._cached_prefixed_tools = None

    @override
    def _write_tool_list_cache(self, cache_key: str | None, mcp_tools: list[Any]) -> None:
        """Note the tools of the server, some of which ADK leaves out."""
        super()._write_tool_list_cache(cache_key, mcp_tools)
        self._listed = frozenset(tool.name for tool in mcp_tools)

    def _refuse(self, name: str, reason: str) -> None:
        text = f"MCP server {self.server}, tool {name}: {reason}"
        if self.unusable.get(name) != text:
            _log.warning("a tool cannot be offered: %s", text)
        self.unusable[name] = text

    def _to_lango_tool(self, tool: BaseTool) -> BaseTool | None:
        if owner := self._owner_of_name(tool.name):
            return self._refuse(tool.name, f"{owner} has a tool of this name; leave it out with `tools`")
        try:
            _check_schemas(tool)
            declared = declaration_of(tool)
            key = json.dumps(declared.model_dump(mode="json", exclude_none=True) if declared else tool.name)
            if key not in self._wrapped:
                read_result = functools.partial(read_mcp_result, tool.name)
                self._wrapped[key] = AdkTool(tool_from_adk(tool, read_result, self._callbacks.during_call))
            return self._wrapped[key]
        except ConfigError as error:
            self._refuse(tool.name, str(error).removeprefix(f"tool {tool.name}: "))
            return None

    def _owner_of_name(self, name: str) -> str:
        """Return what else has a tool of this name, or "": a model's API refuses two of one name."""
        if name in self._taken:
            return "the agent"
        return next((f"the MCP server {one.server}" for one in self._earlier if name in (one.names or ())), "")


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
    timeout_s: float = DEFAULT_TIMEOUT_S,
    callback_url: str = "",
    taken: Collection[str] = (),
) -> list[LangoMcpToolset]:
    """Make a toolset per server of `[mcp.<name>]`; a server is started when its tools are first listed.

    `callback_url` is where users are sent back to after allowing an access.
    `taken` are names that other tools of the agent have. Close each toolset when done.
    """
    toolsets: list[LangoMcpToolset] = []
    for name, server in settings.items():
        toolset = LangoMcpToolset(
            name,
            ServerCallbacks(name, server.input_timeout_s, over_http=bool(server.url)),
            timeout_s,
            server.tools,
            taken=taken,
            earlier=tuple(toolsets),
            # a call may take longer than its time limit: that does not run while the user is asked
            connection_params=_connection(name, server, timeout_s + server.input_timeout_s),
            **_authentication(name, server, callback_url),
        )
        toolsets.append(toolset)
    return toolsets


def _authentication(name: str, server: McpSettings, callback_url: str) -> dict[str, Any]:
    """Return the options of ADK's toolset with which each user allows the access to a server."""
    oauth = server.oauth
    if oauth is None:
        return {}
    if not server.url:
        raise ConfigError(f"[mcp.{name}.oauth] needs a server with a url: pass secrets to a command with env")
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl=oauth.authorization_url, tokenUrl=oauth.token_url, scopes=dict.fromkeys(oauth.scopes, "")
    )
    client = OAuth2Auth(
        client_id=oauth.client_id,
        client_secret=_variable(name, oauth.client_secret_env) if oauth.client_secret_env else None,
        redirect_uri=oauth.redirect_url or callback_url or None,
        code_challenge_method="S256",
    )
    return {
        "auth_scheme": OAuth2(flows=OAuthFlows(authorizationCode=flow), description=f"the MCP server {name}"),
        # ADK's tool reads the name of the credential from here, and the toolset, too
        "auth_credential": AuthCredential.model_validate(
            {"auth_type": AuthCredentialTypes.OAUTH2, "oauth2": client, "credential_key": f"mcp:{name}"}
        ),
    }


def _variable(server: str, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise MissingCredentials(f"[mcp.{server}] needs the environment variable {variable}, which is not set")
    return value


def _connection(
    name: str, server: McpSettings, timeout_s: float
) -> StdioConnectionParams | StreamableHTTPConnectionParams:
    if bool(server.command) == bool(server.url):
        raise ConfigError(f"[mcp.{name}] needs a command or a url, and not both")
    if server.url:
        headers = {
            header: _REFERENCE.sub(lambda found: _variable(name, found[1]), value)
            for header, value in server.headers.items()
        }
        return StreamableHTTPConnectionParams(
            url=server.url, headers=headers or None, timeout=timeout_s, sse_read_timeout=timeout_s
        )
    if server.headers:
        raise ConfigError(f"[mcp.{name}] headers need a server with a url: pass secrets to a command with env")
    # in addition to `env`, the mcp library passes PATH, HOME and the like to the process, and none of our keys
    parameters = StdioServerParameters(command=server.command, args=list(server.args), env=dict(server.env))
    return StdioConnectionParams(server_params=parameters, timeout=timeout_s)
