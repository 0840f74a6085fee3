"""Serve an agent to the editor that started this process, over its standard input and output."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any, TextIO, cast

from lango.config import Settings
from lango.errors import ConfigError
from lango.runtime.opening import open_runtimes
from lango.server.context import AgentUser, ServedAgents
from lango.server.security.auth import Caller


async def serve_stdio(
    settings: Settings, agent_paths: Sequence[str], agent: str | None, user_id: str, output: TextIO
) -> None:
    """Serve one of the agents at some paths, or the configured one, until the editor closes the input.

    Turns under way are handed over then: the next process that opens the store continues them.
    """
    try:
        from acp import run_agent
        from acp.stdio import stdio_streams

        from lango.server.compat.acp.editor_agent import EditorAgent
    except ImportError as error:
        raise ConfigError('the command needs a package: pip install "lango-adk[acp]"') from error
    async with open_runtimes(settings, agent_paths) as opened:
        agents = ServedAgents(settings, opened.runtimes, opened)
        context = agents.named(agent) if agent else agents.default
        with redirect_stdout(output):  # the SDK takes what `sys.stdout` is
            reader, writer = await stdio_streams(settings.server.limits.max_conversation_bytes)
        served = cast("Any", EditorAgent(AgentUser(context, Caller(user_id))))  # it lacks what is optional
        try:
            await run_agent(served, writer, reader, use_unstable_protocol=True)  # forks, and ends of sessions
        finally:
            await agents.drain(settings.server.drain_s)
