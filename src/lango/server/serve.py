"""Run the app under uvicorn until a signal arrives, and shut it down in order."""

import asyncio
import functools
import gc
import logging
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from lango.config import Settings
from lango.errors import ConfigError
from lango.runtime.opening import open_runtimes
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.server.context import ServerContext
from lango.server.security.connections import ConnectionLimits, LimitedProtocol
from lango.server.security.middleware import max_message_bytes
from lango.server.security.websocket_protocol import WebSocketProtocol
from lango.server.startup import return_large_blocks

if TYPE_CHECKING:
    from lango.server.compat.a2a.grpc_server import GrpcServer

_log = logging.getLogger("lango.server")

_CLEANUP_S = 15.0
_GC_THRESHOLDS = (5_000, 10, 20)
"""New objects before a young collection, young ones before a middle one, and middle ones before a full one.

A collection stops every thread, 0.25 ms for a thousand objects and 2 ms for a thousand that it frees: the first two
stay below 15 ms. A turn leaves 25 objects to the full one, which comes every 2,400 turns and takes 0.1 s; every 600
turns it delays 200 streams too often, every 12,000 it takes 0.5 s and memory grows by 60 MB. The default of 700 objects
would collect too often while a long conversation, of tens of thousands of objects, is loaded.
"""
_SWITCH_INTERVAL_S = 0.001  # the default lets a busy thread delay every stream by 5 ms


async def serve(
    settings: Settings, listener: socket.socket, ready: Callable[[str], None], agent_paths: Sequence[str] = ()
) -> None:
    """Serve the agents at some paths, or the configured one, until a signal arrives.

    Problems with the configuration are raised before the first request.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return_large_blocks()
    try:
        async with open_runtimes(settings, agent_paths) as opened:
            app = create_app(settings, opened)
            config = uvicorn.Config(
                app,
                http=cast("Any", functools.partial(LimitedProtocol, ConnectionLimits.from_settings(settings.server))),
                ws=WebSocketProtocol,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws_max_size=max_message_bytes(settings.server.limits),
                ws_per_message_deflate=False,  # it would cost hundreds of kilobytes per socket, for small messages
                timeout_graceful_shutdown=int(settings.server.drain_s + _CLEANUP_S),
            )
            address = _base_url(settings.server.host, listener.getsockname()[1])
            context: ServerContext = app.state.context
            grpc_server = await _start_grpc(context, address)
            checking = asyncio.create_task(_report_unusable_tools(settings, opened.runtimes))
            mending = asyncio.create_task(context.agents.serve_mended())
            try:
                await _Server(config, context, grpc_server, lambda: ready(address)).serve([listener])
            finally:
                checking.cancel()
                mending.cancel()
    finally:
        listener.close()


async def _start_grpc(context: ServerContext, address: str) -> "GrpcServer | None":
    """Start A2A over gRPC if it has a port. Raise `ConfigError` if it cannot be served."""
    if context.settings.server.a2a.grpc_port is None:
        return None
    try:
        from lango.server.compat.a2a.grpc_server import GrpcServer
    except ImportError as error:
        needed = 'server.a2a.grpc_port needs packages that are not installed: pip install "lango-adk[a2a-grpc]"'
        raise ConfigError(needed) from error
    return await GrpcServer.start(context.agents, address)


async def _report_unusable_tools(settings: Settings, runtimes: Sequence[Runtime]) -> None:
    """Ask the MCP servers for their tools: the log says which of them cannot be offered, and which does not answer."""
    for runtime in runtimes if settings.mcp else ():
        for failure in (await runtime.tool_names(ask_toolsets=True, require_all=False)).failures:
            _log.warning("%s", failure)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, context: ServerContext, grpc: "GrpcServer | None", ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._context = context
        self._grpc = grpc
        self._on_ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # later collections skip the objects of startup
        gc.callbacks.append(_RefreezeAfterImports())
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, and let turns finish: streams end with their turns, then connections close."""
        drain_s = self._context.settings.server.drain_s
        stopping = [asyncio.create_task(self._context.agents.drain(drain_s))]
        if self._grpc is not None:
            stopping.append(asyncio.create_task(self._grpc.stop(drain_s + _CLEANUP_S)))
        await super().shutdown(sockets)
        await asyncio.gather(*stopping)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop at a signal without raising it again: the runtime is still to be closed."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


class _RefreezeAfterImports:
    """Freezes modules that were imported since, after a full collection: the first turn imports most."""

    def __init__(self) -> None:
        self._module_count = 0  # the first collection comes after the first turns, which build what all others use

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2 and len(sys.modules) > self._module_count:
            self._module_count = len(sys.modules)
            gc.freeze()


def _base_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
