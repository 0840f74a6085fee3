"""Runs the app under uvicorn: an address or a sentence at the start, an honest end."""

import asyncio
import functools
import gc
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn

from lango.config import Settings
from lango.runtime.opening import open_runtime
from lango.server.app import create_app
from lango.server.context import ServerContext
from lango.server.security.connections import ConnectionLimits, LimitedProtocol
from lango.server.security.middleware import max_message_bytes

_CLEANUP_S = 15.0
_GC_THRESHOLDS = (5_000, 10, 100)
"""New objects until a collection, small collections until a larger one, and those until one of all objects.

A collection stops every thread, 0.25 ms for a thousand objects: the first two kinds stay below 15 ms, and the third,
which grows with all that is in memory, is rare. The usual 700 objects would collect too often: a long conversation has
tens of thousands.
"""
_SWITCH_INTERVAL_S = 0.001  # a thread that imports or reads must not keep every stream waiting for 5 ms at a time


async def serve(settings: Settings, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve at a place until a signal comes. Everything that can be wrong is known before anything is served."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        async with open_runtime(settings) as runtime:
            app = create_app(settings, runtime)
            config = uvicorn.Config(
                app,
                http=cast("Any", functools.partial(LimitedProtocol, ConnectionLimits.from_settings(settings.server))),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws_max_size=max_message_bytes(settings.server),
                ws_per_message_deflate=False,  # small messages, and hundreds of kilobytes for each socket
                timeout_graceful_shutdown=int(settings.server.shutdown_s + _CLEANUP_S),
            )
            address = _base_url(settings.server.host, listener.getsockname()[1])
            await _Server(config, app.state.served, lambda: ready(address)).serve([listener])
    finally:
        listener.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, context: ServerContext, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._context = context
        self._on_ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what is there now stays: no collection goes through it again, in the middle of a stream
        gc.callbacks.append(_RefreezeAfterImports())
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door, and let those inside finish: streams end with their turns, then the connections do."""
        draining = asyncio.create_task(self._context.turns.drain(self._context.settings.server.shutdown_s))
        await super().shutdown(sockets)
        await draining

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take a signal as the wish to stop, and not raise it again: the runtime is still to be closed."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


class _RefreezeAfterImports:
    """Freezes again after a full collection what was imported since: the first turn brings most of it."""

    def __init__(self) -> None:
        self._module_count = len(sys.modules)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2 and len(sys.modules) > self._module_count:
            self._module_count = len(sys.modules)
            gc.freeze()


def _base_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
