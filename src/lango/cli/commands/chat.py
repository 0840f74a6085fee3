"""Run `lango chat`."""

import asyncio
import os

import typer

from lango.cli.options import Config, Continue, Model, Resume, StoreUrl, settings_from_options
from lango.cli.process_setup import fast_imports


def chat(
    resume: Resume = None,
    continue_newest: Continue = False,
    model: Model = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Chat with the agent. Ctrl-C stops an answer, Ctrl-D ends, /help lists the commands."""
    settings = settings_from_options(config, store, model)
    with fast_imports():
        from lango.cli.chat.loop import run_chat

    try:
        asyncio.run(run_chat(settings, resume, continue_newest))
    except BrokenPipeError:  # the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(141) from None
