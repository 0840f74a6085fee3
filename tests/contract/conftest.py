"""Run the contract on both databases, and on SQLite in both threads: otherwise the speed of the disk would choose."""

import pytest


@pytest.fixture
def sqlite_at_once_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run writes in the caller's thread, ordinary events by the single statement."""
    monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMIT_S", float("inf"))
    monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMITS_NEEDED", 0)
    return sqlite_url


@pytest.fixture
def sqlite_in_thread_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run all writes in the writer's thread."""
    monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMIT_S", -1.0)
    return sqlite_url


@pytest.fixture(params=["sqlite_at_once", "sqlite_in_thread", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each database, and each thread of SQLite."""
    return request.getfixturevalue(f"{request.param}_url")
