"""`lango db`: the database itself."""

import asyncio

import typer

from lango.cli.options import Config, StoreUrl, store_url

app = typer.Typer(help="The database: bring its schema up to date.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The database: bring its schema up to date."""


@app.command()
def upgrade(config: Config = None, store: StoreUrl = None) -> None:
    """Open the store, bring its schema up to date, and say its version. Starting anything does the same."""
    from lango.store import Store

    async def run() -> int:
        async with Store(store_url(config, store)) as opened:
            return await opened.schema_version()

    print(f"schema {asyncio.run(run())}")
