"""`lango db`: the database itself."""

from typing import TYPE_CHECKING

import typer

from lango.cli.options import Config, StoreUrl, store_url
from lango.cli.stores import run

if TYPE_CHECKING:
    from lango.store import Store

app = typer.Typer(help="The database: bring its schema up to date.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The database: bring its schema up to date."""


@app.command()
def upgrade(config: Config = None, store: StoreUrl = None) -> None:
    """Open the store, bring its schema up to date, and say its version. Starting anything does the same."""

    async def read(opened: "Store") -> int:
        return await opened.schema_version()

    print(f"schema {run(store_url(config, store), read)}")
