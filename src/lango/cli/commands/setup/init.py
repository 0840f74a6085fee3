"""Run `lango init` and `lango db`: write a configuration file, and upgrade the schema."""

from pathlib import Path
from typing import Annotated

import typer

from lango.cli.options import StoreOptions, with_shared_options
from lango.cli.process_setup import run_async
from lango.errors import UsageError

TEMPLATE = """\
# Lango's configuration. Every key is also an environment variable: LANGO_SECTION__KEY, such as LANGO_AGENT__MODEL.

[agent]
# name = "lango"                  # letters, digits and _; without one, an ADK agent of yours gives its own name
# model = "openai/gpt-5-mini"     # provider/name; without one, a small model that runs in this process
instruction = "You are a helpful assistant."
# max_turns = 50                  # model calls in one turn
# when_busy = "wait"              # for a message to a busy session: wait, refuse, interrupt, steer or rollback
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

[history]                         # what a request to the model holds: the model does not see older messages
# max_message_token_budget = 32000
# max_messages = 100              # while memory is off

[memory]
# enabled = true                  # the model reads notes of older messages, instead of nothing

[tools]
# read_file, list_files, search_files, write_file, edit_file, shell, web_fetch, current_time, schedule
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
    print(
        f"wrote {path}; `{'lango doctor' if path == Path('lango.toml') else f'lango doctor --config {path}'}` checks it"
    )


db = typer.Typer(help="The database: upgrade its schema.", no_args_is_help=True)


Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if an upgrade is due.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print the SQL statements that would run.")]
Contract = Annotated[
    bool,
    typer.Option(
        "--contract", help="Also drop what only older versions use: run it when none of them runs any longer."
    ),
]


@db.command()
@with_shared_options
def upgrade(chosen: StoreOptions, check: Check = False, dry_run: DryRun = False, contract: Contract = False) -> None:
    """Upgrade the schema of the store, and print its version. Other commands also do this, without --contract."""
    if not (check or dry_run):
        print(f"schema {chosen.run(lambda data: data.schema_version(), contract=contract)}")
        return
    from lango.runtime.stored_data import due_migrations

    due = run_async(due_migrations(chosen.url, contract=contract))
    if dry_run:
        for name, statements in due.items():
            print("\n".join([f"-- {name}", *(f"{sql};" for sql in statements)]))
    else:
        print(f"due: {', '.join(due)}" if due else "the schema is up to date")
    if check and due:
        raise typer.Exit(1)
