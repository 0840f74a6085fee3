"""`lango doctor`: what works, what does not, and the way out of it."""

import asyncio
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from lango.cli.options import Config, load_settings
from lango.cli.terminal_text import printable
from lango.errors import LangoError, ProviderError, StoreDamaged

if TYPE_CHECKING:
    from lango.config import Settings

Offline = Annotated[bool, typer.Option("--offline", help="Send nothing to a provider.")]

_EXTRAS = {
    "asyncpg": "postgres",
    "openai": "openai",
    "anthropic": "anthropic",
    "xllamacpp": "local",
    "mcp": "mcp",
    "jwt": "oidc",
}
_ASK_TIMEOUT_S = 30.0
_MOST_PROBLEMS = 3


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    subject: str
    detail: str
    ok: bool | None = True
    """None: neither good nor bad, worth knowing."""


def doctor(config: Config = None, offline: Offline = False) -> None:
    """Check configuration, store, models, agent, MCP servers, sandbox and port; say how to mend what is wrong."""
    from lango.cli.process_setup import quiet_logging

    quiet_logging()
    bad = 0
    for finding in _findings(config, offline):
        mark = {True: "ok  ", False: "FAIL", None: "note"}[finding.ok]
        print(printable(f"{mark} {finding.subject}: {finding.detail}"))
        bad += finding.ok is False
    if bad:
        print(f"lango: {bad} of these must be mended", file=sys.stderr)
        raise typer.Exit(1)


def _findings(config: str | None, offline: bool) -> Iterator[Finding]:
    yield Finding("python", sys.version.split()[0])
    try:
        chosen = load_settings(config)
    except LangoError as error:
        yield Finding("configuration", str(error), ok=False)
        return
    yield Finding("configuration", config or os.environ.get("LANGO_CONFIG") or "lango.toml, or the defaults")
    yield _finding_of("store", lambda: asyncio.run(_check_store(chosen)))
    yield _finding_of("SQLite", _sqlite_version)
    models = _configured_models(chosen)
    agent = _finding_of("agent", lambda: _check_agent(chosen, models))
    for model in dict.fromkeys(models):
        yield _finding_of(
            f"model {model}", lambda model=model: asyncio.run(_check_configured_model(chosen, model, offline))
        )
    yield agent
    for name in chosen.mcp:
        yield _finding_of(f"mcp {name}", lambda name=name: asyncio.run(_check_mcp_server(chosen, name, offline)))
    if chosen.server.oidc:
        yield _finding_of("tokens", lambda: asyncio.run(_check_issuer(chosen, offline)))
    yield from _missing_packages()
    yield _check_sandbox(chosen)
    yield _check_port(chosen)


def _finding_of(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, check())
    except LangoError as error:
        return Finding(what, str(error), ok=False)


async def _check_store(chosen: "Settings") -> str:
    from lango.store import Store
    from lango.store.engine.urls import store_files
    from lango.store.lifecycle.integrity import check_database
    from lango.store.sessions.sessions import list_sessions

    async with Store(chosen.store.url) as store:
        said = f"schema {await store.schema_version()}, {len(await store.read(list_sessions))} sessions"
        problems = await store.read(check_database, store.dialect) if store_files(chosen.store.url) else []
    if problems:
        found = "; ".join(map(str, problems[:_MOST_PROBLEMS]))
        raise StoreDamaged(f"{said}, but it is damaged: {found}. Restore it from a backup")
    return said


def _sqlite_version() -> str:
    import apsw

    return apsw.sqlite_lib_version()


def _configured_models(chosen: "Settings") -> list[str]:
    """Return the models that the settings name."""
    root = chosen.agent.model if chosen.agent.module else chosen.model
    named = [root, chosen.agent.fallback_model, chosen.memory.model if chosen.memory.enabled else None]
    named += [sub.model for sub in chosen.agent.sub_agents.values()]
    return [name for name in named if name]


async def _check_configured_model(chosen: "Settings", model: str, offline: bool) -> str:
    """Say whether the key is there and, unless offline, whether the provider knows the model."""
    from lango.adk.agents.model_registry import ModelRegistry
    from lango.messages import Message
    from lango.providers import Request

    models = ModelRegistry(chosen)
    made = models.get(model)
    if model.startswith("local/"):
        from lango.providers.local import LocalProvider

        return LocalProvider().label(made.model)
    if offline:
        return "the key is set; not asked"
    request = Request(made.model, (Message("user", "ping"),), max_tokens=16)
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            async for _ in made.provider.stream(request):
                pass
    except TimeoutError as error:
        raise ProviderError(f"no answer within {_ASK_TIMEOUT_S:g} s") from error
    finally:
        await models.close()
    return "answers"


def _check_agent(chosen: "Settings", models: list[str]) -> str:
    """Build the agent as a turn would, with its tools; its models are asked apart: add those that a module names."""
    from lango.adk.agents.app_builder import build_app
    from lango.adk.agents.model_registry import ModelRegistry, models_to_assign
    from lango.adk.run.plugin import RuntimePlugin
    from lango.runtime.opening import protected_files
    from lango.testing import ScriptedProvider
    from lango.tools import builtin_tools

    tools = builtin_tools(chosen.tools, protected=protected_files(chosen))
    built = build_app(chosen, ModelRegistry(chosen, ScriptedProvider([])), tools, RuntimePlugin())
    if chosen.agent.module:
        models += models_to_assign(built.root_agent, chosen)
        return f"{chosen.agent.module}: {built.root_agent.name if built.root_agent else built.name}"
    return f"{chosen.agent.name}, {len(chosen.agent.sub_agents)} sub-agents, {len(tools)} tools"


async def _check_mcp_server(chosen: "Settings", name: str, offline: bool) -> str:
    """Say whether an MCP server starts, or answers, and what it brings."""
    from lango.adk.agents.mcp import mcp_toolsets

    [toolset] = mcp_toolsets({name: chosen.mcp[name]}, timeout_s=_ASK_TIMEOUT_S)
    if offline:
        return "is set; not asked"
    try:
        return f"answers with {len(await toolset.get_tools())} tools"
    finally:
        await toolset.close()


async def _check_issuer(chosen: "Settings", offline: bool) -> str:
    """Say whether the issuer's tokens could be verified."""
    from lango.server.security.oidc import Issuer, check_addresses

    oidc = chosen.server.oidc
    assert oidc
    check_addresses(oidc)
    if offline:
        return f"{oidc.issuer} is set; not asked"
    return f"{oidc.issuer} answers with {await Issuer(oidc).load_keys()} keys"


def _missing_packages() -> Iterator[Finding]:
    for package, extra in _EXTRAS.items():
        if importlib.util.find_spec(package) is None:
            yield Finding(f"package {package}", f'not installed; pip install "lango-adk[{extra}]" brings it', ok=None)


def _check_sandbox(chosen: "Settings") -> Finding:
    from lango.tools.builtin.sandbox import find_sandbox

    found = find_sandbox()
    if not isinstance(found, str):
        return Finding("sandbox", "bubblewrap works")
    wanted = "shell" in chosen.tools.enabled and chosen.tools.sandbox == "bubblewrap"
    return Finding("sandbox", found, ok=False if wanted else None)


def _check_port(chosen: "Settings") -> Finding:
    address = f"{chosen.server.host}:{chosen.server.port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((chosen.server.host, chosen.server.port))
        except OSError as error:
            return Finding("port", f"{address} is taken ({error.strerror}): choose another as server.port", ok=None)
    return Finding("port", f"{address} is free")
