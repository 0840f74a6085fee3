"""`lango db`: the database itself."""

from typing import TYPE_CHECKING

import typer

from lango.cli.options import Config, StoreUrl, store_url
from lango.cli.store_access import run_on_store
from lango.errors import StoreUrlError

if TYPE_CHECKING:
    from lango.store import Store

app = typer.Typer(help="The database: bring its schema up to date, or go on after damage.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The database: bring its schema up to date, or go on after damage."""


@app.command()
def upgrade(config: Config = None, store: StoreUrl = None) -> None:
    """Open the store, bring its schema up to date, and say its version. Starting anything does the same."""

    async def read(opened: "Store") -> int:
        return await opened.schema_version()

    print(f"schema {run_on_store(store_url(config, store), read)}")


@app.command("accept-loss")
def accept_loss(config: Config = None, store: StoreUrl = None) -> None:
    """Go on with what can still be read of a SQLite store whose log is damaged, and lose the rest for good.

    Stop every process that uses the store first. The damaged log is kept beside it, with `.damaged` after its name.
    """
    from lango.store.engine import sqlite_log
    from lango.store.engine.sqlite_connection import translated_errors
    from lango.store.engine.urls import store_files

    files = store_files(store_url(config, store))
    if not files or not files[0].exists():
        raise StoreUrlError("there is no SQLite file to mend: only those have a log of this kind")
    with translated_errors(str(files[0])):
        problem = sqlite_log.accept_loss(str(files[0]))
    if problem is None:
        print("nothing is wrong with the log: nothing was changed")
        return
    print(f"{files[0].name}-wal {problem}; it is kept as {files[0].name}-wal.damaged")
    print("what could be read is in the store: look at it with `lango sessions check`")
