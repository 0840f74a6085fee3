"""Run `lango acp`: serve an agent to the editor that starts this command."""

from typing import Annotated

import typer

from lango.cli.options import AgentName, AgentPath, StoreOptions, load_settings, with_shared_options
from lango.cli.process_setup import fast_imports, quiet_logging, run_async, stdout_for_answers
from lango.cli.session_target import LOCAL_USER

User = Annotated[str, typer.Option("--user", metavar="NAME", help="The user whose sessions they are.")]


@with_shared_options
def acp(chosen: StoreOptions, path: AgentPath = None, agent: AgentName = None, user: User = LOCAL_USER) -> None:
    """Serve an agent to an editor, by the Agent Client Protocol, over standard input and output."""
    from lango.config.agent_files import find_agents

    quiet_logging()
    agent_paths = find_agents(path) if path is not None else []
    settings = load_settings(chosen.config)
    if chosen.store:
        settings = settings.model_copy(update={"store": settings.store.model_copy(update={"url": chosen.store})})
    with fast_imports():
        from lango.server.compat.acp.stdio import serve_stdio
    with stdout_for_answers() as output:
        run_async(serve_stdio(settings, agent_paths, agent, user, output))
