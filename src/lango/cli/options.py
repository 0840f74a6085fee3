"""Options that several commands share."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lango.config import Settings

Config = Annotated[str | None, typer.Option("--config", help="The configuration file; ./lango.toml if there is one.")]
StoreUrl = Annotated[str | None, typer.Option("--store", help="The store's URL; else the setting store.url.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def settings(config: str | None) -> "Settings":
    """Read the settings."""
    from lango.config import Settings

    return Settings.load(config)


def store_url(config: str | None, url: str | None) -> str:
    """Return the store to work on."""
    return url or settings(config).store.url
