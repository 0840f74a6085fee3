"""Run `lango init`: write a commented configuration file."""

from pathlib import Path
from typing import Annotated

import typer

from lango.errors import UsageError

TEMPLATE = """\
# Lango's configuration. Every key is also an environment variable: LANGO_SECTION__KEY, such as LANGO_AGENT__MODEL.

[agent]
# name = "lango"                  # letters, digits and _; without one, an ADK agent of yours gives its own name
# model = "openai/gpt-5-mini"     # provider/name; without one, a small model that runs in this process
instruction = "You are a helpful assistant."
# max_turns = 50                  # model calls in one turn
# when_busy = "wait"              # for a message to a busy session: wait, refuse or interrupt
# module = "agents/mine/agent.py" # your own ADK root_agent instead

# [agent.sub_agents.researcher]
# description = "Finds things out."
# instruction = "Search, then report what you found."
# tools = ["web_fetch"]

# [providers.openai]              # only for another key or server than the vendor's
# api_key_env = "OPENAI_API_KEY"
# base_url = "https://..."

[store]
url = "sqlite:///lango.db"        # or postgresql://user@host/database

[history]
# max_message_token_budget = 32000
# max_messages = 100

[tools]
# read_file, list_files, search_files, write_file, edit_file, shell, web_fetch, current_time
enabled = []
approval = "ask"                  # for tools that change something: ask, auto or deny
# approval_expires_s = 86400      # a request that is not answered within this time is denied
workspace = "workspace"           # the only folder that file tools and the shell see

# [mcp.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]

[server]
host = "127.0.0.1"
port = 8787
"""

Target = Annotated[Path, typer.Argument(help="The file to write.")]


def init(path: Target = Path("lango.toml")) -> None:
    """Write a commented lango.toml."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        raise UsageError(f"{path} exists already: remove it first, or name another file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}; `lango doctor` checks it")
