"""Announce this process as a replica of its app, and find the others."""

import asyncio
import logging
from datetime import datetime

from msgspec import Struct

from lango.errors import LangoError, StoreError
from lango.sessions import as_datetime
from lango.store import Store
from lango.store.turns.lease import mark_seen, read_replicas
from lango.turns.liveness import place_of_owner, standing_of_owner

_INTERVAL_S = 2.0
_log = logging.getLogger("lango.runtime")


class ListedReplica(Struct, frozen=True):
    """A process that runs turns of an app, and takes over those of other processes that are gone."""

    app: str
    version: str
    """The version of the app that it runs."""
    place: str
    """Its machine and process, for people."""
    started_at: datetime
    running_turns: int
    is_this: bool = False
    """It is the process that was asked."""


async def list_replicas(store: Store, own: str = "") -> list[ListedReplica]:
    """List the live replicas of all apps of a store; `own` is the owner of the one that asks."""
    return [
        ListedReplica(app, version, place_of_owner(owner), as_datetime(started_at), running_turns, owner == own)
        for owner, app, version, started_at, running_turns in await store.read(read_replicas)
        if standing_of_owner(owner) != "gone"
    ]


async def live_versions(store: Store, app_name: str, own: str = "") -> set[str]:
    """Return the versions that live replicas of an app run; `own` is an owner that is left out."""
    live = [one for one in await list_replicas(store, own) if one.app == app_name and not one.is_this]
    return {one.version for one in live}


class Replicas:
    """The replicas of an app: this process, and others on the same store."""

    def __init__(self, store: Store, app_name: str, owner: str, version: str) -> None:
        self._store = store
        self._app_name = app_name
        self._owner = owner
        self.version = version
        self._left = asyncio.Event()

    async def announce(self) -> None:
        """Store every few seconds that this process runs, until it leaves."""
        while not self._left.is_set():
            try:
                await self._store.write(mark_seen, self._owner, self._app_name, self.version)
            except StoreError as error:
                self._store.outages.warn(f"this replica could not be announced: {error}")
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._left.wait()
            except TimeoutError:
                continue

    async def leave(self) -> None:
        """Stop being a replica: other ones take this version's turns."""
        if self._left.is_set():
            return
        self._left.set()
        try:
            await self._store.forget_replica(self._owner)
        except LangoError as error:
            _log.warning("this replica could not be removed from the list, where it stays for a few seconds: %s", error)

    async def list(self) -> list[ListedReplica]:
        """List the live replicas of this app."""
        return [one for one in await list_replicas(self._store, self._owner) if one.app == self._app_name]

    async def versions_elsewhere(self) -> set[str]:
        """Return the versions that other live replicas of the app run."""
        return await live_versions(self._store, self._app_name, self._owner)
