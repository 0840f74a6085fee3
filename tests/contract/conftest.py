"""The contract holds on each database, whichever way SQLite takes a write: speed chooses it, and tests may not."""

from collections.abc import AsyncIterator

import pytest

from lango.adk import SqlSessionService
from lango.store import Store, checks


@pytest.fixture
def sqlite_at_once_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every write that can be is made in the caller's thread, an ordinary event by one statement."""
    monkeypatch.setattr("lango.store.sqlite._QUICK_S", float("inf"))
    monkeypatch.setattr("lango.store.sqlite._QUICK_ENOUGH", 0)
    return sqlite_url


@pytest.fixture
def sqlite_in_thread_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every write is made in the writer's thread."""
    monkeypatch.setattr("lango.store.sqlite._QUICK_S", -1.0)
    return sqlite_url


@pytest.fixture(params=["sqlite_at_once", "sqlite_in_thread", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, and each way of writing."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """A store that is whole when the test is over."""
    async with Store(store_url) as store:
        yield store
        await _nothing_is_wrong(store)


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[SqlSessionService]:
    """A service whose store is whole when the test is over."""
    async with SqlSessionService(store_url) as service:
        yield service
        await _nothing_is_wrong(service.store)


async def _nothing_is_wrong(store: Store) -> None:
    found = {name.id: await store.check(name) for name in await store.read(checks.names)}
    assert {id_: list(map(str, problems)) for id_, problems in found.items() if problems} == {}
    assert await store.check_database() == []
