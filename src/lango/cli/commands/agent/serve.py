"""Run `lango serve`."""

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import AgentPath, Config, StoreUrl, load_settings
from lango.cli.process_setup import fast_imports, run_async
from lango.errors import UsageError

if TYPE_CHECKING:
    import socket

    from lango.config import Settings

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on, instead of server.host.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65_535, help="The port, instead of server.port; 0: any that is free.")
]
AdkUi = Annotated[bool, typer.Option("--adk-ui", help="Serve ADK's own dev UI at /dev-ui/, too.")]

Reload = Annotated[
    bool, typer.Option("--reload", help="Restart when agent files or the configuration change; turns continue.")
]
ListenerFd = Annotated[int | None, typer.Option("--listener-fd", hidden=True)]


def serve(
    path: AgentPath = None,
    host: Host = None,
    port: Port = None,
    config: Config = None,
    store: StoreUrl = None,
    adk_ui: AdkUi = False,
    reload: Reload = False,
    listener_fd: ListenerFd = None,
) -> None:
    """Serve one agent or several over HTTP until Ctrl-C. Without keys, on this machine only."""
    gc.disable()  # imported objects are never garbage; the server enables it again
    from lango.config.agent_files import find_agents

    agent_paths = find_agents(path) if path is not None else []
    settings = load_settings(config)
    update: dict[str, Any] = {}
    given: dict[str, Any] = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    if adk_ui:
        given["adk_ui"] = True
    if given:
        update["server"] = settings.server.model_copy(update=given)
    if store:
        update["store"] = settings.store.model_copy(update={"url": store})
    settings = settings.model_copy(update=update)
    from lango.server.startup import open_listener

    listening_socket = run_async(open_listener(settings, listener_fd))
    if listener_fd is not None:
        from lango.cli.reload import stop_with_parent

        stop_with_parent()
    elif reload:
        raise typer.Exit(_serve_and_reload(settings, listening_socket, agent_paths))
    from lango.server.startup import configure_logging

    with fast_imports():
        from lango.server.serve import serve as run

    configure_logging(settings.server.log_format)
    run_async(run(settings, listening_socket, _print_address, agent_paths))


def _print_address(address: str) -> None:
    print(f"listening on {address}", flush=True)


def _serve_and_reload(settings: "Settings", listener: "socket.socket", agent_paths: list[str]) -> int:
    """Keep a server behind the socket running, with the files as they are."""
    if os.name == "nt":
        raise UsageError("--reload passes a socket to another process, which Windows cannot do")
    from lango.cli.reload import run_with_reload, start_server
    from lango.config.agent_files import snapshot

    module = settings.agent.module
    watched = [Path(one) for one in agent_paths or ([module] if module else [])]
    workspace = Path(settings.tools.workspace).resolve()

    def watch() -> dict[Path, int]:
        file = settings.source
        times = {file: file.stat().st_mtime_ns} if file and file.is_file() else {}
        return snapshot(watched, workspace) | times

    with listener:
        return run_with_reload(lambda: start_server(listener.fileno()), watch, settings.server.shutdown_s)
