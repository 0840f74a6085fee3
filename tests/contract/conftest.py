"""The contract holds on each database, whichever way SQLite takes a write: speed chooses it, and tests may not."""

import pytest


@pytest.fixture
def sqlite_at_once_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every write that can be is made in the caller's thread, an ordinary event by one statement."""
    monkeypatch.setattr("lango.store.engine.sqlite._FAST_COMMIT_S", float("inf"))
    monkeypatch.setattr("lango.store.engine.sqlite._FAST_COMMITS_NEEDED", 0)
    return sqlite_url


@pytest.fixture
def sqlite_in_thread_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every write is made in the writer's thread."""
    monkeypatch.setattr("lango.store.engine.sqlite._FAST_COMMIT_S", -1.0)
    return sqlite_url


@pytest.fixture(params=["sqlite_at_once", "sqlite_in_thread", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, and each way of writing."""
    return request.getfixturevalue(f"{request.param}_url")
