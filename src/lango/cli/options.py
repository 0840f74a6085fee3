"""Options that several commands share."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.process_setup import quiet_logging

if TYPE_CHECKING:
    from lango.config import Settings


Config = Annotated[str | None, typer.Option("--config", help="The configuration file; ./lango.toml if there is one.")]
StoreUrl = Annotated[str | None, typer.Option("--store", help="The store's URL; else the setting store.url.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]

Resume = Annotated[
    str | None, typer.Option("-r", "--resume", metavar="ID", help="Go on with this session; its first characters do.")
]
Continue = Annotated[bool, typer.Option("-c", "--continue", help="Go on with the newest session.")]
Model = Annotated[str | None, typer.Option("-m", "--model", help="provider/name, instead of the setting agent.model.")]

SessionIdArgument = Annotated[str, typer.Argument(help="The session's id.")]
AppFilter = Annotated[str | None, typer.Option("--app", help="Of this app only.")]
UserFilter = Annotated[str | None, typer.Option("--user", help="Of this user only.")]


def load_settings(config: str | None) -> "Settings":
    """Read the settings."""
    from lango.config import Settings

    return Settings.load(config)


def store_url(config: str | None, url: str | None) -> str:
    """Return the store to work on."""
    return url or load_settings(config).store.url


def settings_from_options(config: str | None, store: str | None, model: str | None) -> "Settings":
    """Read the settings, with what the command line says instead."""
    quiet_logging()
    settings = load_settings(config)
    update: dict[str, Any] = {}
    if model:
        update["agent"] = settings.agent.model_copy(update={"model": model})
    if store:
        update["store"] = settings.store.model_copy(update={"url": store})
    return settings.model_copy(update=update)
