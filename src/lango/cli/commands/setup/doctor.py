"""Run `lango doctor`: check the configuration and say how to fix what fails."""

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from lango.cli.options import AgentOptions, AgentPath, Config, choose_options, complete_hints, load_settings
from lango.cli.process_setup import quiet_logging, run_async
from lango.cli.terminal_text import counted, printable
from lango.errors import ConfigError, LangoError, ProviderError, StoreDamaged

if TYPE_CHECKING:
    from lango.config import ServerSettings, Settings

Offline = Annotated[bool, typer.Option("--offline", help="Send nothing to a provider.")]

_EXTRAS = {
    "asyncpg": "postgres",
    "openai": "openai",
    "anthropic": "anthropic",
    "xllamacpp": "local",
    "mcp": "mcp",
    "jwt": "oidc",
    "a2a": "a2a",
    "grpc": "a2a-grpc",
}
_MAX_PROBLEMS = 3


class Finding(Struct, frozen=True):
    """The result of one check."""

    subject: str
    detail: str
    ok: bool | None = True
    """None: a note, neither success nor failure."""


def doctor(context: typer.Context, path: AgentPath = None, config: Config = None, offline: Offline = False) -> None:
    """Check configuration, store, models, agents, MCP servers, sandbox and port; say how to fix what fails."""
    quiet_logging()
    choose_options(AgentOptions(config=config, path=path), context)
    from lango.config.agent_files import find_agents

    paths = find_agents(path)
    bad = 0
    for finding in _findings(config, path, paths, offline):
        mark = {True: "ok  ", False: "FAIL", None: "note"}[finding.ok]
        detail = complete_hints(finding.detail)
        print(printable(f"{mark} {finding.subject}: {detail}"))
        bad += finding.ok is False
    if bad:
        print(f"lango: {counted(bad, 'problem')} to fix", file=sys.stderr)
        raise typer.Exit(1)


def _findings(config: str | None, path: str | None, paths: list[str], offline: bool) -> Iterator[Finding]:
    yield Finding("python", sys.version.split()[0])
    try:
        settings = load_settings(config)
    except LangoError as error:
        yield Finding("configuration", str(error), ok=False)
        return
    file = settings.source
    yield Finding("configuration", str(file.absolute()) if file else "the defaults: there is no lango.toml here")
    yield _finding_of("store", lambda: run_async(_check_store(settings)))
    yield from _turn_findings(settings, path)
    yield _finding_of("SQLite", _sqlite_version)
    checked = set[str]()
    for chosen in [settings.with_agent(path) for path in paths] or [settings]:
        yield from _agent_findings(chosen, checked, offline)
    if len(paths) > 1:
        yield _finding_of("agents", lambda: _check_names(settings, paths))
    for name in settings.mcp:
        yield _finding_of(f"mcp {name}", lambda name=name: run_async(_check_mcp_server(settings, name, offline)))
    if settings.server.oidc:
        yield _finding_of("tokens", lambda: run_async(_check_issuer(settings, offline)))
    yield from _missing_packages()
    yield _check_sandbox(settings)
    yield from _port_findings(settings)


def _finding_of(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, check())
    except LangoError as error:
        return Finding(what, str(error), ok=False)


async def _check_store(settings: "Settings") -> str:
    from lango.runtime.stored_data import open_store

    async with open_store(settings.store.url) as data:
        count = len(await data.session_names())
        summary = f"schema {await data.schema_version()}, {counted(count, 'session')}"
        problems = await data.check() if data.is_sqlite else ()
    if problems:
        found = "; ".join(map(str, problems[:_MAX_PROBLEMS]))
        raise StoreDamaged(f"{summary}, but it is damaged: {found}. Restore it from a backup")
    return summary


def _turn_findings(settings: "Settings", path: str | None) -> Iterator[Finding]:
    """Report open turns of apps that are not configured: no process continues them."""
    from lango.cli.options import configured_apps
    from lango.runtime.stored_data import open_store
    from lango.runtime.turns import ListedTurn

    async def read() -> list[ListedTurn]:
        async with open_store(settings.store.url) as data:
            return await data.turns.list(configured_apps(settings, path))

    try:
        turns = run_async(read())
    except LangoError:  # the finding about the store says why
        return
    stranded = Counter(one.turn.session.app_name for one in turns if one.state == "stranded")
    yield Finding("turns", f"{len(turns)} unfinished", ok=None if stranded else True)
    for app, count in stranded.items():
        are = f"{count} turn{' is' if count == 1 else 's are'} open under the app name {app!r}, which is not configured"
        yield Finding("turns", f"{are}: no process continues them; see `lango turns list`", ok=None)


def _sqlite_version() -> str:
    import apsw

    return apsw.sqlite_lib_version()


async def _check_configured_model(settings: "Settings", model: str, offline: bool) -> str:
    """Check the key and, unless offline, that the model answers."""
    from lango.runtime.checks import ModelRegistry

    async with ModelRegistry(settings) as models:
        failure = await models.check(model, send=not offline)
    if failure:
        raise ProviderError(failure)
    if model.startswith("local/"):
        from lango.providers.local.known_models import local_model

        return local_model(model.removeprefix("local/")).label
    return "the key is set; not contacted" if offline else "answers"


def _agent_findings(settings: "Settings", checked: set[str], offline: bool) -> Iterator[Finding]:
    """Check the models of an agent that were not checked before, the agent itself, and everything in its tree."""
    models: dict[str, str] = dict.fromkeys(settings.named_models, "")
    problems: list[Finding] = []
    agent = _finding_of("agent", lambda: _check_agent(settings, models, problems, offline))
    for model in [model for model in models if model not in checked]:
        checked.add(model)
        found = _finding_of(
            f"model {model}", lambda model=model: run_async(_check_configured_model(settings, model, offline))
        )
        yield found if found.ok else Finding(found.subject, found.detail + models[model], ok=False)
    yield agent
    yield from problems


def _check_agent(settings: "Settings", models: dict[str, str], problems: list[Finding], offline: bool) -> str:
    """Check the agent. Add the models that its module names, with the place, and what would fail in its tree."""
    from lango.config.agent_files import agent_lines
    from lango.runtime.checks import check_agent

    checked = run_async(check_agent(settings, contact=not offline))
    module = settings.agent.module
    if not module:
        return f"{checked.name}, {len(settings.agent.sub_agents)} sub-agents, {checked.tools} tools"

    def place(agent: str, argument: str) -> str:
        lines = agent_lines(module, agent, argument)
        return f" ({'; '.join(lines)})" if lines else f" (agent {agent!r} of {module})"

    for model, agent in checked.models.items():
        models.setdefault(model, place(agent, "model"))
    for problem in checked.problems:
        detail = problem.message + place(problem.agent, problem.argument)
        problems.append(Finding(problem.subject, detail, ok=False))
    return f"{module}: {checked.name}"


def _check_names(settings: "Settings", paths: list[str]) -> str:
    """Check that the agents of a folder have different names."""
    from lango.runtime.opening import load_agents

    loaded, broken = load_agents(settings, paths)  # the findings of each agent say why it cannot be loaded
    names = ", ".join(chosen.app_name for chosen, _ in loaded)
    return f"{names}; not served until fixed: {', '.join(one.name for one in broken)}" if broken else names


async def _check_mcp_server(settings: "Settings", name: str, offline: bool) -> str:
    from lango.runtime.checks import check_mcp_server

    return await check_mcp_server(settings, name, contact=not offline)


async def _check_issuer(settings: "Settings", offline: bool) -> str:
    """Check that the issuer's tokens can be verified."""
    from lango.server.security.oidc import Issuer, check_addresses

    oidc = settings.server.oidc
    assert oidc
    check_addresses(oidc)
    if offline:
        return f"{oidc.issuer} is configured; not contacted"
    return f"{oidc.issuer} answers with {await Issuer(oidc).load_keys()} keys"


def _missing_packages() -> Iterator[Finding]:
    for package, extra in _EXTRAS.items():
        if importlib.util.find_spec(package) is None:
            yield Finding(f"package {package}", f'not installed; pip install "lango-adk[{extra}]" installs it', ok=None)


def _check_sandbox(settings: "Settings") -> Finding:
    from lango.tools.builtin.sandbox import find_sandbox

    found = find_sandbox()
    if not isinstance(found, str):
        return Finding("sandbox", "bubblewrap works")
    wanted = "shell" in settings.tools.enabled and settings.tools.sandbox == "bubblewrap"
    return Finding("sandbox", found, ok=False if wanted else None)


def _port_findings(settings: "Settings") -> Iterator[Finding]:
    """Check that the port of HTTP is free, and that of gRPC, if the server has one."""
    server, grpc_port = settings.server, settings.server.a2a.grpc_port
    yield _check_port("port", server)
    if grpc_port is not None:
        yield _check_port("gRPC port", server.model_copy(update={"port": grpc_port}), "server.a2a.grpc_port")


def _check_port(subject: str, server: "ServerSettings", *chosen_with: str) -> Finding:
    from lango.server.startup import bind_port

    try:
        bind_port(server, *chosen_with).close()
    except ConfigError as error:
        return Finding(subject, str(error), ok=None)
    return Finding(subject, f"{server.host}:{server.port} is free")
