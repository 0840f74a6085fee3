"""Run `lango mcp`: serve agents to the MCP client that starts this command."""

from typing import Annotated

import typer

from lango.cli.options import AgentPath, StoreOptions, load_settings, with_shared_options
from lango.cli.process_setup import fast_imports, quiet_logging, run_async, stdout_for_answers
from lango.cli.session_target import LOCAL_USER

User = Annotated[str, typer.Option("--user", metavar="NAME", help="The user whose sessions and artifacts they are.")]


@with_shared_options
def mcp(chosen: StoreOptions, path: AgentPath = None, user: User = LOCAL_USER) -> None:
    """Serve one agent or several to an MCP client, over standard input and output, until the client ends."""
    from lango.config.agent_files import find_agents

    quiet_logging()
    agent_paths = find_agents(path) if path is not None else []
    settings = load_settings(chosen.config)
    if chosen.store:
        settings = settings.model_copy(update={"store": settings.store.model_copy(update={"url": chosen.store})})
    with fast_imports():
        from lango.server.compat.mcp.stdio import serve_stdio
    with stdout_for_answers() as output:
        run_async(serve_stdio(settings, agent_paths, user, output))
