"""Declare the options that several commands share, and open what they select: settings, agent, store, sessions.

The commands that messages name are completed with these options, so that they work as they are printed.
"""

import functools
import inspect
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typing_extensions import override

from lango.cli.process_setup import fast_imports, quiet_logging, run_async
from lango.cli.terminal_text import printable
from lango.errors import LangoError, SessionNotFound, UsageError

if TYPE_CHECKING:
    from lango.config import Settings
    from lango.runtime.runtime import Runtime
    from lango.runtime.stored_data import AppData, StoredData
    from lango.sessions import SessionInfo

T = TypeVar("T")

_PREFIX_LENGTH = 4

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

SessionIdArgument = Annotated[str, typer.Argument(help="The session's id, or its beginning.")]
AppFilter = Annotated[str | None, typer.Option("--app", help="Of this app only.")]
UserFilter = Annotated[str | None, typer.Option("--user", help="Of this user only.")]
_COMMAND = re.compile(r"`lango ([^`]+)`")


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the fields of a dataclass as its own options: typer knows only parameters.

    The dataclass is the type of one of the command's parameters. Its options come last in the help.
    """
    parameters = inspect.signature(command).parameters
    [name] = [one.name for one in parameters.values() if is_dataclass(one.annotation)]
    shared: Any = parameters[name].annotation
    options = inspect.signature(shared).parameters
    shown = [one for one in (*parameters.values(), *options.values()) if one.name != name]
    takes_context = any(one.annotation is typer.Context for one in shown)
    if not takes_context:
        shown.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = shared(**{option: given.pop(option) for option in options})
        context: typer.Context = given["context"] if takes_context else given.pop("context")
        choose_options(chosen, context)
        command(**given, **{name: chosen})

    vars(run)["__signature__"] = inspect.Signature(
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown], return_annotation=None
    )
    return run


def choose_options(chosen: "StoreOptions", context: typer.Context) -> None:
    """Let hints name the options of the command that runs in a context."""
    chosen_options.set(chosen)
    all_commands.set(context.find_root().command)


def id_by_prefix(wanted: str, ids: Iterable[str], what: str) -> str:
    """Return the only id that begins with what the user typed, or that itself if none does. Raise `UsageError`."""
    found = {id_ for id_ in ids if id_.startswith(wanted)}
    if wanted in found or not found or len(wanted) < _PREFIX_LENGTH:
        return wanted
    if len(found) > 1:
        some = ", ".join(sorted(found)[:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"{len(found)} {what} begin with {wanted!r}: give more of the id ({some})")
    return found.pop()


def load_settings(config: str | None) -> "Settings":
    """Load the settings from a file, or from ./lango.toml."""
    from lango.config import Settings

    return Settings.load(config)


@dataclass(frozen=True)
class StoreOptions:
    """The options that select a store."""

    config: Config = None
    store: StoreUrl = None

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self.store or load_settings(self.config).store.url

    def load_settings(self) -> "Settings":
        """Load the settings, for the store of the options."""
        return load_settings(self.config).with_store(self.store)

    @property
    def agent_path(self) -> str | None:
        """The file or folder of the agent, of commands that load one."""
        return None

    def named_values(self) -> list[tuple[str, str]]:
        """Return the options that were given, as another command takes them."""
        # hints are kept in logs: no password of the store
        store = None if self.store is None else re.sub(r"(?<=://)([^/:@]*):[^@]*(?=@)", r"\1:...", self.store)
        named = {"--config": self.config, "--store": store}
        return [(name, value) for name, value in named.items() if value is not None]

    def run(self, work: "Callable[[StoredData], Awaitable[T]]", *, contract: bool = False) -> T:
        """Open the store, and run work on it; `contract`: with the contract steps of its schema."""
        from lango.runtime.stored_data import open_store

        url = self.url

        async def opened() -> T:
            async with open_store(url, contract=contract) as data:
                return await work(data)

        before = signal.signal(signal.SIGINT, _raise_interrupt)
        try:
            return run_async(opened())
        finally:
            signal.signal(signal.SIGINT, before)


chosen_options: ContextVar[StoreOptions | None] = ContextVar("lango_options", default=None)
"""The options of the command that runs."""
all_commands: ContextVar[Any] = ContextVar("lango_commands")
"""Typer's group of all commands, if there are options."""


def _raise_interrupt(*_: object) -> None:
    """Exit at the first Ctrl-C: asyncio's handler would wait for a blocked pipe."""
    raise KeyboardInterrupt


@dataclass(frozen=True)
class SessionOptions(StoreOptions):
    """The options of commands about stored sessions: of which app and user, and in which store."""

    app: AppFilter = None
    user: UserFilter = None

    def run_on(
        self,
        session_id: str,
        work: "Callable[[AppData, SessionInfo], Awaitable[T]]",
        settings: "Settings | None" = None,
    ) -> T:
        """Open the store, and run work on the only session with an id and the data of its app."""

        async def run(data: "StoredData") -> T:
            record = await self.session(data, session_id)
            return await work(data.app(record.name.app_name, settings), record)

        return self.run(run)

    def include(self, app_name: str, user_id: str) -> bool:
        """Whether the options select an app and a user."""
        return self.app in (None, app_name) and self.user in (None, user_id)

    def app_name(self) -> str:
        """Return the app of the option, or of the configured agent; an agent of a module may give it its name."""
        settings = load_settings(self.config)
        if self.app or settings.agent.name or not settings.agent.module:
            return self.app or settings.app_name
        from lango.runtime.opening import load_named_agent

        return load_named_agent(settings)[0].app_name

    async def owners(self, data: "StoredData") -> list[tuple[str, str]]:
        """Return the apps and users that have sessions."""
        return [owner for owner in await data.owners() if self.include(*owner)]

    async def sessions(self, data: "StoredData", session_id: str | None = None) -> "list[SessionInfo]":
        """Return the sessions of an app, a user, or all, or those with an id."""
        found = await data.sessions(self.app, session_id)
        return [record for record in found if self.include(record.name.app_name, record.name.user_id)]

    async def session(self, data: "StoredData", session_id: str) -> "SessionInfo":
        """Return the only session with an id, or whose id begins with it. Raise `SessionNotFound` or `UsageError`."""
        found = await self.sessions(data, session_id)
        if not found and len(session_id) >= _PREFIX_LENGTH:
            names = [name for name in await data.session_names() if self.include(name.app_name, name.user_id)]
            found = await self.sessions(data, id_by_prefix(session_id, [name.id for name in names], "sessions"))
        if not found:
            raise SessionNotFound(f"there is no session {session_id!r}; `lango sessions list` lists them")
        if len(found) > 1:
            raise UsageError(f"{len(found)} sessions have the id {session_id!r}: select one with --app and --user")
        return found[0]


@dataclass(frozen=True)
class AgentOptions(StoreOptions):
    """The options that select an agent and the store of its sessions."""

    path: AgentPathOption = None
    agent: AgentName = None

    def settings(self, model: str | None = None) -> "Settings":
        """Load the settings, overridden by the options, with the agent that they select. Its module may print."""
        quiet_logging()
        settings = self.load_settings()
        if model:
            settings = settings.model_copy(update={"agent": settings.agent.model_copy(update={"model": model})})
        return _choose_agent(settings, self.path, self.agent)

    def run_on_agent(self, work: "Callable[[Runtime], Awaitable[T]]", model: str | None = None) -> T:
        """Open the agent, and run work on its runtime, which takes over no turns of other processes."""
        settings = self.settings(model)
        with fast_imports():
            from lango.runtime.opening import open_runtime

        async def opened() -> T:
            async with open_runtime(settings, every_session=False) as runtime:
                return await work(runtime)

        return run_async(opened())

    def name_agent(self, settings: "Settings") -> None:
        """Let hints name the agent of the settings: of several, the user may have chosen one."""
        if self.path and not self.agent:
            chosen_options.set(replace(self, path=settings.agent.module))

    @property
    @override
    def agent_path(self) -> str | None:
        return self.path

    @override
    def named_values(self) -> list[tuple[str, str]]:
        named = {"--path": self.path, "--agent": self.agent}
        return [*super().named_values(), *((name, value) for name, value in named.items() if value is not None)]


def _choose_agent(settings: "Settings", path: str | None, name: str | None) -> "Settings":
    """Return the settings for the agent at a path. Of several, `name` selects one, or the user in a terminal."""
    from lango.config.agent_files import find_agents

    if path is None:
        if name is not None:
            raise UsageError("--agent selects one of the agents at a path: also give the path of their folder")
        return settings
    paths = find_agents(path)
    if len(paths) == 1 and name is None:
        return settings.with_agent(paths[0])
    from lango.runtime.opening import load_agents

    loaded, broken = load_agents(settings, paths)
    found = {chosen.app_name: chosen for chosen, _ in loaded}
    for one in broken:
        if name == one.name and name not in found:
            raise one.error
        print(f"lango: {printable(str(one.error))}", file=sys.stderr)
    if name is None and sys.stdin.isatty() and sys.stderr.isatty():
        name = _ask_name([*found])
    if name is None:
        raise UsageError(f"there are {len(found)} agents in {path}: select one with --agent ({', '.join(found)})")
    if name not in found:
        raise UsageError(f"there is no agent {name!r} in {path}; there is {', '.join(found)}")
    return found[name]


def _ask_name(names: list[str]) -> str:
    """Ask which agent is meant: by its number or its name."""
    for number, name in enumerate(names, 1):
        print(f"{number}. {printable(name)}", file=sys.stderr)
    while True:
        print("Which agent? ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            raise UsageError("no agent was selected")
        answer = line.strip()
        if answer in names:
            return answer
        if answer.isdecimal() and 0 < int(answer) <= len(names):
            return names[int(answer) - 1]
        print(f"type a number from 1 to {len(names)}, or a name", file=sys.stderr)


def configured_apps(settings: "Settings", path: str | None) -> set[str] | None:
    """Return the names of the apps at a path, or of the configured one; or None if an agent cannot be loaded."""
    from lango.config.agent_files import find_agents
    from lango.runtime.opening import load_agents, load_named_agent

    try:
        if path is not None:
            loaded, broken = load_agents(settings, find_agents(path))
            return None if broken else {chosen.app_name for chosen, _ in loaded}
        return {load_named_agent(settings)[0].app_name}
    except LangoError:
        return None


def read_json_option(name: str, text: str | None) -> Any:
    """Return the value of an option that takes JSON, or None if it is not given. Raise `UsageError`."""
    from lango.json_values import read_json

    try:
        return None if text is None else read_json(text)
    except ValueError as error:
        raise UsageError(f"{name} takes JSON: {error}") from None


def complete_hints(message: str) -> str:
    """Add the options of this command to the commands in a message: they are for the same store and agent."""
    chosen = chosen_options.get()
    return (
        message if chosen is None else _COMMAND.sub(lambda found: _complete(found, all_commands.get(), chosen), message)
    )


def _complete(found: re.Match[str], commands: Any, chosen: StoreOptions) -> str:
    words = found[1].split()
    command, depth = find_command(commands, words)
    if command is None or any(word in ("--config", "--store") for word in words):
        return found[0]
    accepted = {option for parameter in command.params for option in parameter.opts}
    more = [part for name, value in chosen.named_values() if name in accepted for part in (name, value)]
    takes_path = any(one.name == "path" and one.metavar == "[PATH]" for one in command.params)
    path = [chosen.agent_path] if takes_path and chosen.agent_path is not None else []
    return f"`{' '.join(['lango', *words[:depth], *map(shlex.quote, path), *words[depth:], *map(shlex.quote, more)])}`"


def find_command(commands: Any, words: list[str]) -> tuple[Any, int]:
    """Return the command that words begin with, and how many of them name it; None if there is none."""
    command, depth = commands, 0
    while (below := getattr(command, "commands", None)) and depth < len(words) and words[depth] in below:
        command, depth = below[words[depth]], depth + 1
    return (command, depth) if depth else (None, 0)
