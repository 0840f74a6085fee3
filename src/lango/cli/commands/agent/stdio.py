"""Run `lango mcp` and `lango acp`: serve agents to the program that starts this command, over its standard streams."""

from typing import Annotated

import typer

from lango.cli.options import AgentName, AgentPath, StoreOptions, with_shared_options
from lango.cli.process_setup import fast_imports, quiet_logging, run_async, stdout_for_answers
from lango.cli.session_target import LOCAL_USER

User = Annotated[str, typer.Option("--user", metavar="NAME", help="The user whose sessions and artifacts they are.")]


@with_shared_options
def mcp(chosen: StoreOptions, path: AgentPath = None, user: User = LOCAL_USER) -> None:
    """Serve one agent or several to an MCP client, over standard input and output, until the client ends."""
    from lango.config.agent_files import find_agents

    quiet_logging()
    agent_paths, settings = find_agents(path), chosen.load_settings()
    with fast_imports():
        from lango.server.compat.mcp.stdio import serve_stdio
    with stdout_for_answers() as output:
        run_async(serve_stdio(settings, agent_paths, user, output))


@with_shared_options
def acp(chosen: StoreOptions, path: AgentPath = None, agent: AgentName = None, user: User = LOCAL_USER) -> None:
    """Serve an agent to an editor, by the Agent Client Protocol, over standard input and output."""
    from lango.config.agent_files import find_agents

    quiet_logging()
    agent_paths, settings = find_agents(path), chosen.load_settings()
    with fast_imports():
        from lango.server.compat.acp.stdio import serve_stdio
    with stdout_for_answers() as output:
        run_async(serve_stdio(settings, agent_paths, agent, user, output))
