"""Serve agents to the MCP client that started this process, over its standard input and output."""

from collections.abc import Sequence
from typing import TextIO

from lango.config import Settings
from lango.errors import ConfigError
from lango.runtime.opening import open_runtimes
from lango.server.context import ServedAgents
from lango.server.security.auth import Caller


async def serve_stdio(settings: Settings, agent_paths: Sequence[str], user_id: str, output: TextIO) -> None:
    """Serve the agents at some paths, or the configured one, until the client closes the input.

    Turns under way are handed over then: the next process that opens the store continues them.
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server

        from lango.server.compat.mcp.agent_server import AgentServer
    except ImportError as error:
        raise ConfigError('the MCP server needs packages: pip install "lango-adk[mcp]" "mcp>=2.3"') from error
    async with open_runtimes(settings, agent_paths) as opened:
        agents = ServedAgents(settings, opened.runtimes, opened)
        server = AgentServer(agents, lambda _: Caller(user_id)).sdk
        async with stdio_server(stdout=anyio.wrap_file(output)) as (requests, responses):
            try:
                await server.run(requests, responses, server.create_initialization_options())
            finally:
                await agents.drain(settings.server.drain_s)
