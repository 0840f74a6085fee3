"""Load agents, open the store, check protected files, and open runtimes on one store."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lango.adk.agents.app_builder import own_app_name
from lango.adk.run.agent_app import AgentApp
from lango.adk.run.engine import AdkEngine
from lango.adk.run.schedule_tool import schedule
from lango.adk.run.tool_limits import read_full_result
from lango.config import Settings
from lango.config.agent_files import Snapshot, agent_location, snapshot
from lango.errors import ConfigError
from lango.runtime.execution.replicas import live_versions
from lango.runtime.execution.webhook_sender import WebhookSender
from lango.runtime.runtime import Runtime
from lango.runtime.webhooks import store_configured_webhooks
from lango.store import Store
from lango.store.engine.urls import store_files
from lango.telemetry import traces
from lango.tools import Tool, builtin_tools

if TYPE_CHECKING:
    from lango.providers import Provider


_log = logging.getLogger("lango.runtime")
_WRITING_TOOLS = {"write_file", "edit_file", "shell"}


def load_named_agent(settings: Settings, root_agent: Any = None) -> tuple[Settings, Any]:
    """Load the agent of `agent.module`, unless one is given; return it, and the settings with the name of its app.

    The app has its agent's name, unless the settings or an `App` name it. Return None for the agent if there is none.
    """
    if root_agent is None and settings.agent.module:
        from lango.adk.agents.loader import load_agent  # ADK's loader brings requests and yaml

        root_agent = load_agent(settings.agent.module)
    if root_agent is None:
        return settings, None
    name = own_app_name(root_agent) or settings.agent.name or str(root_agent.name)
    return settings.model_copy(update={"agent": settings.agent.model_copy(update={"name": name})}), root_agent


class BrokenAgent(Struct, frozen=True):
    """An agent of several that cannot be loaded or run."""

    name: str
    """Of its file or folder: the agent's own name is not known."""
    path: str
    error: ConfigError


def load_agents(settings: Settings, paths: Sequence[str]) -> tuple[list[tuple[Settings, Any]], list[BrokenAgent]]:
    """Load the agents at several paths; return the settings of each, with its name, and its agent or app.

    Those that cannot be loaded are returned apart. Raise `ConfigError` if none can, or if two have the same name.
    """
    from lango.adk.agents.loader import load_agent

    if settings.agent.name and len(paths) > 1:
        raise ConfigError("agent.name cannot name several agents: remove it, or give the path of one agent")
    found: dict[str, tuple[Settings, Any]] = {}
    broken: list[BrokenAgent] = []
    for path in paths:
        try:
            agent = load_agent(path)
        except ConfigError as error:
            broken.append(BrokenAgent(Path(path).resolve().stem, path, error))
            continue
        if agent.name in found:
            first = agent_location(found[agent.name][0].agent.module or "")
            second = agent_location(path)
            raise ConfigError(f"two agents have the name {agent.name!r} ({first}; {second}): rename one of them")
        found[agent.name] = settings.with_agent(path, settings.agent.name or agent.name), agent
    if not found:
        raise broken[0].error
    return [*found.values()], broken


def protected_files(settings: Settings) -> list[Path]:
    """Return the files that no built-in tool may read or write, even inside its workspace.

    Raise `ConfigError` if the store is inside the workspace of a tool that writes, unless the settings allow it.
    """
    files = store_files(settings.store.url)
    root = Path(settings.tools.workspace).expanduser().resolve()
    inside = [file for file in files[:1] if file.resolve().is_relative_to(root)]
    if inside and _WRITING_TOOLS & {*settings.tools.enabled} and not settings.tools.store_in_workspace:
        raise ConfigError(
            f"the store {settings.store.url} is inside the workspace {settings.tools.workspace!r} of tools that write: "
            "set tools.workspace to a folder of its own, or tools.store_in_workspace = true to allow it"
        )
    own = [settings.source, Path(settings.agent.module) if settings.agent.module else None]
    return [*files, *(path for path in own if path is not None)]


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None,
    *,
    tools: Sequence[Tool] = (),
    provider: "Provider | None" = None,
    root_agent: Any = None,
    every_session: bool = True,
) -> AsyncGenerator[Runtime, None]:
    """Open the store and build the agent; close everything when the context is left.

    `tools` are added to those of the settings. `provider` is used instead of the configured one. `root_agent` is your
    own ADK agent or app. Turns whose process is gone continue here: those of every session, or without `every_session`
    only those of sessions that this runtime is sent something for. Raise `ConfigError` for missing settings, before
    anything runs.
    """
    settings = settings or Settings()
    async with _open_store(settings) as store:
        settings, root_agent = load_named_agent(settings, root_agent)
        async with _run_agent(settings, store, root_agent, tools, provider, every_session=every_session) as runtime:
            yield runtime


class OpenedAgents:
    """The runtimes of several agents on one store, and the agents that cannot run."""

    def __init__(self, settings: Settings, store: Store, stack: AsyncExitStack) -> None:
        """`stack` closes the runtimes."""
        self._settings = settings
        self._store = store
        self._stack = stack
        self._seen: dict[str, Snapshot] = {}
        self.runtimes: list[Runtime] = []
        self.broken: dict[str, BrokenAgent] = {}
        """By their names, which those of running agents may repeat."""

    async def open(self, paths: Sequence[str]) -> list[Runtime]:
        """Open a runtime for each agent at some paths that can run; return those."""
        self._seen |= {path: snapshot([Path(path)], self._workspace) for path in paths}
        loaded, broken = load_agents(self._settings, paths)
        opened: list[Runtime] = []
        for chosen, agent in loaded:
            try:
                running = _run_agent(chosen, self._store, agent)
                opened.append(await self._stack.enter_async_context(running))
            except ConfigError as error:
                broken.append(BrokenAgent(chosen.app_name, chosen.agent.module or "", error))
        for one in broken:
            self.broken[one.name] = one
            _log.error("agent %s is not served: %s", one.name, one.error)
        self.runtimes += opened
        return opened

    async def open_mended(self) -> dict[str, list[Runtime]]:
        """Open a runtime for each agent that could not run, and whose files have changed since.

        Return them by the names in `broken`, which the caller removes once it serves them.
        """
        opened: dict[str, list[Runtime]] = {}
        for name, one in [*self.broken.items()]:
            if await asyncio.to_thread(snapshot, [Path(one.path)], self._workspace) == self._seen[one.path]:
                continue
            from lango.adk.agents.loader import forget_modules  # ADK's loader brings requests and yaml

            forget_modules(one.path)
            try:
                if found := await self.open([one.path]):
                    opened[name] = found
                elif self.broken[name] is one:
                    del self.broken[name]  # it is listed under another name now
            except ConfigError as error:
                self.broken[name] = BrokenAgent(name, one.path, error)
                _log.error("agent %s is not served: %s", name, error)
        return opened

    @property
    def _workspace(self) -> Path:
        return Path(self._settings.tools.workspace).resolve()


@asynccontextmanager
async def open_runtimes(settings: Settings, paths: Sequence[str]) -> AsyncGenerator[OpenedAgents, None]:
    """Open a runtime for each agent at one of the paths, all on one store; without paths, for the configured agent.

    Of several agents, those that cannot be loaded are left out. Raise `ConfigError` if none can, or if two have the
    same name.
    """
    settings = settings.with_agent(paths[0]) if len(paths) == 1 else settings
    async with _open_store(settings) as store, AsyncExitStack() as stack:
        agents = OpenedAgents(settings, store, stack)
        if len(paths) > 1:
            await agents.open(paths)
        else:
            settings, root_agent = load_named_agent(settings)
            agents.runtimes.append(await stack.enter_async_context(_run_agent(settings, store, root_agent)))
        if not agents.runtimes:
            raise next(iter(agents.broken.values())).error
        yield agents


@asynccontextmanager
async def _open_store(settings: Settings) -> AsyncGenerator[Store, None]:
    protected_files(settings)
    async with (
        traces.export_spans(settings.telemetry),
        Store(settings.store.url, wait_s=settings.store.wait_s, language=settings.memory.language) as store,
    ):
        yield store


def build_agent_app(
    settings: Settings, root_agent: Any, tools: Sequence[Tool] = (), provider: "Provider | None" = None
) -> AgentApp:
    """Build the app of an agent with the tools of the settings."""
    has_tools = tools or settings.tools.enabled or settings.mcp
    built_in = builtin_tools(
        settings.tools,
        protected=protected_files(settings),
        read_result=read_full_result if has_tools else None,
        schedule=schedule,
    )
    return AgentApp.build(settings, [*built_in, *tools], provider, root_agent)


@asynccontextmanager
async def _run_agent(
    settings: Settings,
    store: Store,
    root_agent: Any,
    tools: Sequence[Tool] = (),
    provider: "Provider | None" = None,
    *,
    every_session: bool = True,
) -> AsyncGenerator[Runtime, None]:
    """Run the turns of one agent on an open store."""
    app = build_agent_app(settings, root_agent, tools, provider)
    engine = AdkEngine(settings, store, app)
    await engine.load()
    await store_configured_webhooks(store, app.name, settings.webhooks, is_complete=every_session)
    if every_session and await live_versions(store, app.name):
        # a deploy: the other replicas run the turns until this one, which takes over theirs, can do so at once
        await engine.preload()
    sender = WebhookSender(store, settings.server.webhook_addresses)
    runtime = Runtime(settings, store, engine, sender, every_session=every_session)
    try:
        yield runtime
    finally:
        await runtime.close()
        await sender.close()  # the turns that ended last are reported, too
