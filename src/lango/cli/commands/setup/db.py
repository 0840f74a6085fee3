"""Run `lango db`: upgrade the schema."""

import typer

from lango.cli.options import Config, StoreUrl
from lango.cli.store_access import run_on_store

app = typer.Typer(help="The database: upgrade its schema.", no_args_is_help=True)


@app.command()
def upgrade(config: Config = None, store: StoreUrl = None) -> None:
    """Upgrade the schema of the store, and print its version. Other commands do so, too."""
    print(f"schema {run_on_store(config, store, lambda data: data.schema_version())}")
