"""Define the command `lango`, and turn errors into one sentence and an exit code.

Each command imports its modules itself, so that `lango --help` answers at once.
"""

import sys
from typing import Annotated, Any

import typer

from lango import __version__
from lango.cli.commands.agent import evaluate, playground, run, serve, stdio
from lango.cli.commands.data import (
    artifacts,
    credentials,
    inbox,
    memory,
    schedules,
    sessions,
    sessions_trace,
    sessions_transfer,
    turns,
    webhooks,
)
from lango.cli.commands.setup import deploy, doctor, init, keys, models
from lango.cli.options import complete_hints
from lango.cli.process_setup import reopen_closed_streams
from lango.cli.terminal_text import printable
from lango.errors import LangoError, StoreError, UsageError

app = typer.Typer(
    name="lango",
    help="A durable agent runtime on Google ADK.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve.serve)
app.command()(serve.chat)
app.command()(run.run)
app.command()(stdio.mcp)
app.command()(stdio.acp)
app.command()(init.init)
app.command()(doctor.doctor)
sessions.app.command("trace")(sessions_trace.trace)
sessions.app.command("export")(sessions_transfer.export)
sessions.app.command("import")(sessions_transfer.import_)
app.add_typer(sessions.app, name="sessions")
app.add_typer(turns.app, name="turns")
app.command()(turns.replicas)
app.add_typer(schedules.app, name="schedules")
app.add_typer(inbox.app, name="inbox")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(memory.app, name="memory")
app.add_typer(credentials.app, name="credentials")
app.add_typer(evaluate.app, name="eval")
app.add_typer(playground.app, name="playground")
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")
app.add_typer(init.db, name="db")
app.add_typer(deploy.app, name="deploy")


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
]


@app.callback()
def root(version: Version = False) -> None:
    """A durable agent runtime on Google ADK."""
    del version


def exit_code(error: LangoError) -> int:
    """Return the exit code: 2 for errors that the caller can fix and for an unusable store, else 1."""
    return 2 if isinstance(error, UsageError | StoreError) else 1


def main() -> None:
    """Run the command line; an error is one sentence on stderr, never a traceback."""
    reopen_closed_streams()
    try:
        code: Any = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except LangoError as error:
        print(f"lango: {printable(complete_hints(str(error)))}", file=sys.stderr)
        sys.exit(exit_code(error))
    except _CommandLineError as error:
        print(_usage_message(error), file=sys.stderr)
        sys.exit(2)
    except typer.Abort:  # a command read past the end of its input
        print("lango: unexpected end of input", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


_CommandLineError: Any = typer.BadParameter.__base__  # any mistake in a command line


def _usage_message(error: Any) -> str:
    message: str = error.format_message()
    if error.ctx and message == error.ctx.get_help():  # a command without its subcommand
        return message
    command = error.ctx.command_path if error.ctx else "lango"
    return f"lango: {printable(message).rstrip('.')}; see `{command} --help`"
