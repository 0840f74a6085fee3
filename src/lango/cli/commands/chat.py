"""`lango chat`: the agent in the terminal.

`conversation` is the loop; `screen`, `view` and `blocks` write, `entry` and `keyboard` read, `commands` are what begins
with a slash. None of it is imported before the command runs.
"""

import asyncio
import os

import typer

from lango.cli.options import Config, Continue, Model, Resume, StoreUrl, chosen_settings
from lango.cli.process_setup import only_what_is_used


def chat(
    resume: Resume = None, go_on: Continue = False, model: Model = None, config: Config = None, store: StoreUrl = None
) -> None:
    """Talk with the agent. Ctrl-C stops an answer, Ctrl-D ends, /help says what else there is."""
    chosen = chosen_settings(config, store, model)
    with only_what_is_used():
        from lango.cli.chat.loop import talk

    try:
        asyncio.run(talk(chosen, resume, go_on))
    except BrokenPipeError:  # nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(141) from None
