"""Run the contract on both databases, and where order matters on SQLite in both threads.

Otherwise the speed of the disk would choose the thread.
"""

import pytest

_IN_BOTH_THREADS = {
    "test_adk_session_service",
    "test_client_histories",
    "test_content_races",
    "test_event_ids",
    "test_event_log",
    "test_fork_and_rewind",
    "test_idempotency",
    "test_queue",
    "test_queued_files",
    "test_session_state",
    "test_single_statement_append",
    "test_store",
    "test_take_over",
}
"""Modules about appends, turns and what happens at once; an operation runs by the same code in either thread."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that needs a store on each database."""
    if "store_url" in metafunc.fixturenames:
        at_once = ["sqlite_at_once"] if metafunc.definition.path.stem in _IN_BOTH_THREADS else []
        metafunc.parametrize("store_url", [*at_once, "sqlite_in_thread", "postgres"], indirect=True)


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


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """Each database, and each thread of SQLite."""
    return request.getfixturevalue(f"{request.param}_url")
