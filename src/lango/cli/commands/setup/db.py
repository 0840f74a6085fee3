"""Run `lango db`: upgrade the schema, or continue after damage."""

from typing import TYPE_CHECKING

import typer

from lango.cli.options import Config, StoreUrl, store_url
from lango.cli.store_access import run_on_store
from lango.errors import StoreUrlError

if TYPE_CHECKING:
    from lango.store import Store

app = typer.Typer(help="The database: upgrade its schema, or continue after damage.", no_args_is_help=True)


@app.command()
def upgrade(config: Config = None, store: StoreUrl = None) -> None:
    """Upgrade the schema of the store, and print its version. Other commands do so, too.

    Files that an earlier version stored in the rows of messages are moved out of them, at once.
    """

    async def work(opened: "Store") -> tuple[int, int]:
        return await opened.schema_version(), await opened.move_inline_files()

    version, moved = run_on_store(config, store, work)
    print(f"schema {version}" + (f"; moved the files of {moved} messages" if moved else ""))


@app.command("accept-loss")
def accept_loss(config: Config = None, store: StoreUrl = None) -> None:
    """Continue with the readable part of a SQLite store whose log is damaged, and lose the rest for good.

    Stop every process that uses the store first. The damaged log is kept beside it, with the suffix `.damaged`.
    """
    from lango.store.engine import sqlite_log
    from lango.store.engine.sqlite_connection import translated_errors
    from lango.store.engine.urls import store_files

    files = store_files(store_url(config, store))
    if not files or not files[0].exists():
        raise StoreUrlError("there is no SQLite file to repair: only those have such a log")
    with translated_errors(str(files[0])):
        problem = sqlite_log.accept_loss(str(files[0]))
    if problem is None:
        print("the log is not damaged: nothing was changed")
        return
    print(f"{files[0].name}-wal {problem}; it is kept as {files[0].name}-wal.damaged")
    print("the readable part is in the store: check it with `lango sessions check`")
