"""Run `lango serve` and `lango chat`."""

import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lango.cli.options import (
    AgentOptions,
    AgentPath,
    Continue,
    Model,
    Resume,
    StoreOptions,
    with_shared_options,
)
from lango.cli.process_setup import fast_imports, run_async
from lango.errors import UsageError

if TYPE_CHECKING:
    import socket

    from lango.config import Settings

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on, instead of server.host.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65_535, help="The port, instead of server.port; 0: any that is free.")
]
DrainS = Annotated[
    float | None,
    typer.Option("--drain-s", min=0, help="How long steps under way may take at a stop, instead of server.drain_s."),
]
AdkUi = Annotated[bool, typer.Option("--adk-ui", help="Also serve ADK's own dev UI at /dev-ui/.")]

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What Lango logs; debug: tracebacks with the frames of libraries, too."),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Restart when agent files or the configuration change; turns continue.")
]
ListenerFd = Annotated[int | None, typer.Option("--listener-fd", hidden=True)]


@with_shared_options
def serve(
    chosen: StoreOptions,
    path: AgentPath = None,
    host: Host = None,
    port: Port = None,
    drain_s: DrainS = None,
    adk_ui: AdkUi = False,
    log_level: LogLevel = "info",
    reload: Reload = False,
    listener_fd: ListenerFd = None,
) -> None:
    """Serve one agent or several over HTTP until Ctrl-C. Without keys, on this machine only."""
    gc.disable()  # imported objects are never garbage; the server enables it again
    from lango.config.agent_files import find_agents

    agent_paths, settings = find_agents(path), chosen.load_settings()
    named: dict[str, Any] = {"host": host, "port": port, "drain_s": drain_s, "adk_ui": adk_ui or None}
    given = {name: value for name, value in named.items() if value is not None}
    update: dict[str, Any] = {"server": settings.server.model_copy(update=given)}
    if settings.trace.requests is None:  # a developer sees what was sent; a server with users keeps it only if told to
        update["trace"] = settings.trace.model_copy(update={"requests": settings.server.auth == "none"})
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

    configure_logging(settings.server.log_format, log_level)
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
        return run_with_reload(lambda: start_server(listener.fileno()), watch, settings.server.drain_s)


@dataclass(frozen=True)
class ChatOptions(AgentOptions):
    """The options of a chat, which takes the path as an argument."""

    path: AgentPath = None


@with_shared_options
def chat(chosen: ChatOptions, resume: Resume = None, continue_newest: Continue = False, model: Model = None) -> None:
    """Chat with the agent. Ctrl-C stops an answer, Ctrl-D ends, /help lists the commands."""
    settings = chosen.settings(model)
    chosen.name_agent(settings)
    with fast_imports():
        from lango.cli.chat.loop import run_chat

    try:
        run_async(run_chat(settings, resume, continue_newest))
    except BrokenPipeError:  # the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(141) from None
