"""Run `lango chat`."""

import os

import typer

from lango.cli.agent_choice import choose_agent
from lango.cli.options import AgentName, AgentPath, Config, Continue, Model, Resume, StoreUrl, settings_from_options
from lango.cli.process_setup import fast_imports, run_async


def chat(
    path: AgentPath = None,
    agent: AgentName = None,
    resume: Resume = None,
    continue_newest: Continue = False,
    model: Model = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Chat with the agent. Ctrl-C stops an answer, Ctrl-D ends, /help lists the commands."""
    settings = choose_agent(settings_from_options(config, store, model), path, agent)
    with fast_imports():
        from lango.cli.chat.loop import run_chat

    try:
        run_async(run_chat(settings, resume, continue_newest))
    except BrokenPipeError:  # the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(141) from None
