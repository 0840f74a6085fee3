"""Vendors' SDK clients: made on first use, one per event loop, closed with their provider."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from lango.errors import MissingDependency

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for a model: for a connection, for the next chunk, and in all, retries included."""

    connect_s: float = 10.0
    idle_s: float = 120.0
    total_s: float = 900.0


def load_sdk(module: str, install: str) -> ModuleType:
    """Import a vendor's SDK, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingDependency(f'The package {module!r} is not installed: pip install "{install}"') from exc


class ClientPerLoop(Generic[T]):
    """One client per event loop: a connection pool cannot be used from another loop than the one that opened it."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    async def get(self) -> T:
        """Return this loop's client. The first one is made in a thread: an SDK takes a second to import."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            made = await asyncio.to_thread(self._make)
            client = self._clients.setdefault(loop, made)
            if client is not made:  # two first requests at once
                await self._close(made)
        return client

    async def aclose(self) -> None:
        """Close this loop's client; the next request makes a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await self._close(client)
