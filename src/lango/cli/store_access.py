"""Open the store for one command, and find the sessions it names."""

import signal
from typing import TYPE_CHECKING, TypeVar

from lango.cli.options import load_settings, store_url
from lango.cli.process_setup import run_async
from lango.errors import SessionNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lango.store import SessionRecord, Store


T = TypeVar("T")


def run_on_store(config: str | None, url: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Open the store of the options `--config` and `--store`, and run work on it."""
    from lango.store import Store

    chosen_url = store_url(config, url)

    async def opened() -> T:
        async with Store(chosen_url) as store:
            return await work(store)

    before = signal.signal(signal.SIGINT, _raise_interrupt)
    try:
        return run_async(opened())
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_interrupt(*_: object) -> None:
    """Exit at the first Ctrl-C: asyncio's handler would wait for a blocked pipe."""
    raise KeyboardInterrupt


async def app_name(store: "Store", app: str | None, config: str | None) -> str:
    """Return the app of an option, or of the configured agent; an agent of a module may give it its name."""
    settings = load_settings(config)
    if app or settings.agent.name or not settings.agent.module:
        return app or settings.app_name
    from lango.runtime.app_names import load_named_agent

    return (await load_named_agent(settings, store))[0].app_name


async def session_owners(store: "Store", app: str | None, user: str | None) -> list[tuple[str, str]]:
    """Return the apps and users that have sessions."""
    from lango.store.sessions import sessions

    found = await store.read(sessions.list_users)
    return [owner for owner in found if app in (None, owner[0]) and user in (None, owner[1])]


async def sessions_matching(store: "Store", app: str | None, user: str | None) -> "list[SessionRecord]":
    """Return the sessions of an app, a user, or all."""
    from lango.store.sessions.sessions import list_sessions

    return [record for record in await store.read(list_sessions, app) if user is None or record.name.user_id == user]


async def session_by_id(store: "Store", session_id: str, app: str | None, user: str | None) -> "SessionRecord":
    """Return the only session with an id. Raises `SessionNotFound` or `UsageError`."""
    from lango.store.sessions import sessions

    same_id = await store.read(sessions.list_sessions_by_id, session_id)
    found = [
        record for record in same_id if app in (None, record.name.app_name) and user in (None, record.name.user_id)
    ]
    if not found:
        raise SessionNotFound(f"there is no session {session_id!r}; `lango sessions list` lists them")
    if len(found) > 1:
        raise UsageError(f"{len(found)} sessions have the id {session_id!r}: select one with --app and --user")
    return found[0]
