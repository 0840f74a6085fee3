"""Run `lango deploy`: check how new code would continue the turns of the version that serves."""

from typing import Annotated

import typer
from msgspec.structs import asdict

from lango.cli.options import AgentPath, Json, StoreOptions, with_shared_options
from lango.cli.process_setup import quiet_logging, run_async
from lango.cli.tables import print_values

app = typer.Typer(help="Check a new version of the agent against the turns that are open.", no_args_is_help=True)

Sessions = Annotated[int, typer.Option("--sessions", min=0, help="How many of the newest sessions are checked, too.")]


@app.callback()
def deploy() -> None:
    """Check a new version of the agent against the turns that are open."""


@app.command()
@with_shared_options
def check(chosen: StoreOptions, path: AgentPath = None, sessions: Sessions = 20, as_json: Json = False) -> None:
    """Say for each open turn and wait how this code would continue it; exit with 1 if a turn cannot continue.

    Nothing runs and nothing is written: check while the old version serves. If this version needs another schema of the
    store, run `lango db upgrade` first, beside the old version.
    """
    quiet_logging()
    from lango.runtime.checks import check_deploy

    settings = chosen.load_settings()
    if path is not None:
        settings = settings.with_agent(path)
    report = run_async(check_deploy(settings, sessions))

    print_values(report.turns, asdict, as_json=as_json, empty="no turn is open", cut=("why",))
    if not as_json:
        kinds = [one.verdict for one in report.turns]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        print(f"version {report.version} of {report.app}: {counted or 'nothing to continue'}")
    if report.lost:
        raise typer.Exit(1)
