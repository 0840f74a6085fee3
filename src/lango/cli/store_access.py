"""Open the store for one command, and find the sessions that its options name."""

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lango.cli.options import AppFilter, Config, StoreUrl, UserFilter, load_settings, store_url
from lango.cli.process_setup import run_async
from lango.errors import SessionNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lango.config import Settings
    from lango.runtime.stored_data import AppData, StoredData
    from lango.sessions import SessionRecord


T = TypeVar("T")


def run_on_store(config: str | None, url: str | None, work: "Callable[[StoredData], Awaitable[T]]") -> T:
    """Open the store of the options `--config` and `--store`, and run work on it."""
    from lango.runtime.stored_data import open_store

    chosen_url = store_url(config, url)

    async def opened() -> T:
        async with open_store(chosen_url) as data:
            return await work(data)

    before = signal.signal(signal.SIGINT, _raise_interrupt)
    try:
        return run_async(opened())
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_interrupt(*_: object) -> None:
    """Exit at the first Ctrl-C: asyncio's handler would wait for a blocked pipe."""
    raise KeyboardInterrupt


@dataclass(frozen=True)
class SessionOptions:
    """The options of commands about stored sessions: of which app and user, and in which store."""

    app: AppFilter = None
    user: UserFilter = None
    config: Config = None
    store: StoreUrl = None

    def run(self, work: "Callable[[StoredData], Awaitable[T]]") -> T:
        """Open the store, and run work on it."""
        return run_on_store(self.config, self.store, work)

    def run_on(
        self,
        session_id: str,
        work: "Callable[[AppData, SessionRecord], Awaitable[T]]",
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
        from lango.runtime.app_names import load_named_agent

        return load_named_agent(settings)[0].app_name

    async def owners(self, data: "StoredData") -> list[tuple[str, str]]:
        """Return the apps and users that have sessions."""
        return [owner for owner in await data.owners() if self.include(*owner)]

    async def sessions(self, data: "StoredData", session_id: str | None = None) -> "list[SessionRecord]":
        """Return the sessions of an app, a user, or all, or those with an id."""
        found = await data.sessions(self.app, session_id)
        return [record for record in found if self.include(record.name.app_name, record.name.user_id)]

    async def session(self, data: "StoredData", session_id: str) -> "SessionRecord":
        """Return the only session with an id. Raise `SessionNotFound` or `UsageError`."""
        found = await self.sessions(data, session_id)
        if not found:
            raise SessionNotFound(f"there is no session {session_id!r}; `lango sessions list` lists them")
        if len(found) > 1:
            raise UsageError(f"{len(found)} sessions have the id {session_id!r}: select one with --app and --user")
        return found[0]
