"""Run `lango mcp` and `lango acp`: serve agents to the program that starts this command, over its standard streams."""

from contextlib import asynccontextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from lango.cli.options import AgentName, AgentPath, StoreOptions, with_shared_options
from lango.cli.process_setup import fast_imports, quiet_logging, run_async, stdout_for_answers
from lango.cli.session_target import LOCAL_USER
from lango.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lango.server.context import ServedAgents

User = Annotated[str, typer.Option("--user", metavar="NAME", help="The user whose sessions and artifacts they are.")]


@with_shared_options
def mcp(chosen: StoreOptions, path: AgentPath = None, user: User = LOCAL_USER) -> None:
    """Serve one agent or several to an MCP client, over standard input and output, until the client exits."""
    quiet_logging()
    with stdout_for_answers() as output:
        run_async(_serve_mcp(chosen, path, user, output))


@with_shared_options
def acp(chosen: StoreOptions, path: AgentPath = None, agent: AgentName = None, user: User = LOCAL_USER) -> None:
    """Serve an agent to an editor, by the Agent Client Protocol, over standard input and output."""
    quiet_logging()
    with stdout_for_answers() as output:
        run_async(_serve_acp(chosen, path, agent, user, output))


@asynccontextmanager
async def _open_agents(chosen: StoreOptions, path: str | None) -> "AsyncGenerator[ServedAgents]":
    """Open the agents; at the end, turns under way are handed over: the next process on the store continues them."""
    from lango.config.agent_files import find_agents
    from lango.runtime.opening import open_runtimes
    from lango.server.context import ServedAgents

    agent_paths, settings = find_agents(path), chosen.load_settings()
    async with open_runtimes(settings, agent_paths) as opened:
        agents = ServedAgents(settings, opened.runtimes, opened)
        try:
            yield agents
        finally:
            await agents.drain(settings.server.drain_s)


async def _serve_mcp(chosen: StoreOptions, path: str | None, user_id: str, output: TextIO) -> None:
    with fast_imports():
        try:
            import anyio
            from mcp.server.stdio import stdio_server

            from lango.server.compat.mcp.agent_server import AgentServer
        except ImportError as error:
            raise ConfigError('the MCP server needs packages: pip install "lango-adk[mcp]" "mcp>=2.3"') from error
        from lango.server.security.auth import Caller
    async with _open_agents(chosen, path) as agents:
        server = AgentServer(agents, lambda _: Caller(user_id)).sdk
        async with stdio_server(stdout=anyio.wrap_file(output)) as (requests, responses):
            await server.run(requests, responses, server.create_initialization_options())


async def _serve_acp(chosen: StoreOptions, path: str | None, agent: str | None, user_id: str, output: TextIO) -> None:
    with fast_imports():
        try:
            from acp import run_agent
            from acp.stdio import stdio_streams

            from lango.server.compat.acp.editor_agent import EditorAgent
        except ImportError as error:
            raise ConfigError('the command needs a package: pip install "lango-adk[acp]"') from error
        from lango.server.context import AgentUser
        from lango.server.security.auth import Caller
    async with _open_agents(chosen, path) as agents:
        context = agents.named(agent) if agent else agents.default
        with redirect_stdout(output):  # the SDK takes what `sys.stdout` is
            reader, writer = await stdio_streams(context.settings.server.limits.max_conversation_bytes)
        served = cast("Any", EditorAgent(AgentUser(context, Caller(user_id))))  # it lacks what is optional
        await run_agent(served, writer, reader, use_unstable_protocol=True)  # forks, and ends of sessions
