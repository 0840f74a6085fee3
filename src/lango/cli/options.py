"""Declare the options that several commands share, and load the settings they select."""

import functools
import inspect
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.process_setup import quiet_logging
from lango.printable_text import printable

if TYPE_CHECKING:
    from lango.config import Settings


Config = Annotated[str | None, typer.Option("--config", help="The configuration file; ./lango.toml if there is one.")]
StoreUrl = Annotated[str | None, typer.Option("--store", help="The store's URL; else the setting store.url.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

AgentPath = Annotated[
    str | None,
    typer.Argument(
        metavar="[PATH]",
        help="An agent's file or folder with ADK's root_agent, or a folder of agents, instead of the configured agent.",
    ),
]
AgentPathOption = Annotated[
    str | None,
    typer.Option("--path", metavar="PATH", help="An agent's file or folder, or a folder of agents."),
]
AgentName = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Which agent of a folder of agents.")]

Resume = Annotated[
    str | None,
    typer.Option("-r", "--resume", metavar="ID", help="Continue this session; a prefix of its id is enough."),
]
Continue = Annotated[bool, typer.Option("-c", "--continue", help="Continue the newest session.")]
Model = Annotated[str | None, typer.Option("-m", "--model", help="provider/name, instead of the setting agent.model.")]

SessionIdArgument = Annotated[str, typer.Argument(help="The session's id.")]
AppFilter = Annotated[str | None, typer.Option("--app", help="Of this app only.")]
UserFilter = Annotated[str | None, typer.Option("--user", help="Of this user only.")]


@dataclass(frozen=True)
class AgentOptions:
    """The options that select an agent and its sessions, for hints that name a command."""

    path: str | None = None
    agent: str | None = None
    config: str | None = None
    store: str | None = None

    def command(self, *words: str) -> str:
        """Return a command for the same agent, as a shell takes it; `chat` takes the path as an argument."""
        path = () if self.path is None else (self.path,) if words[0] == "chat" else ("--path", self.path)
        store = None if self.store is None else _without_password(self.store)
        named = {"--agent": self.agent, "--config": self.config, "--store": store}
        options = [part for name, value in named.items() if value is not None for part in (name, value)]
        return printable(shlex.join(["lango", words[0], *path, *words[1:], *options]))


def _without_password(url: str) -> str:
    """Return a store's URL with three dots for its password: hints are kept in logs."""
    return re.sub(r"(?<=://)([^/:@]*):[^@]*(?=@)", r"\1:...", url)


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the fields of a dataclass as its own options: typer knows only parameters.

    The dataclass is the type of one of the command's parameters. Its options come last in the help.
    """
    parameters = inspect.signature(command).parameters
    [name] = [one.name for one in parameters.values() if is_dataclass(one.annotation)]
    shared: Any = parameters[name].annotation
    options = inspect.signature(shared).parameters
    shown = [one for one in (*parameters.values(), *options.values()) if one.name != name]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = shared(**{option: given.pop(option) for option in options})
        command(**given, **{name: chosen})

    vars(run)["__signature__"] = inspect.Signature(
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown], return_annotation=None
    )
    return run


def load_settings(config: str | None) -> "Settings":
    """Load the settings from a file, or from ./lango.toml."""
    from lango.config import Settings

    return Settings.load(config)


def store_url(config: str | None, url: str | None) -> str:
    """Return the store's URL of the option, or of the settings."""
    return url or load_settings(config).store.url


def settings_from_options(config: str | None, store: str | None, model: str | None) -> "Settings":
    """Load the settings, overridden by the options of the command line."""
    quiet_logging()
    settings = load_settings(config)
    update: dict[str, Any] = {}
    if model:
        update["agent"] = settings.agent.model_copy(update={"model": model})
    if store:
        update["store"] = settings.store.model_copy(update={"url": store})
    return settings.model_copy(update=update)
