"""Attack 20: a PostgreSQL store, by hostile ids, schemas, roles, notifications, locks and clients."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango.errors import StoreError, StoreUnavailable, StoreUrlError, Unstorable
from lango.messages import Message
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.api_keys import find_key, revoke_key
from lango.store.engine.postgres.notifications import channel_name
from lango.store.engine.urls import open_database
from lango.store.memory.user_facts import delete_fact, read_facts
from lango.store.sessions.sessions import create_session, find_session, list_sessions
from lango.store.sessions.window import read_session_events
from tests.support.servers.server_process import TIMEOUT_S, lango, send, serving

pytestmark = pytest.mark.postgres

SECRET = "hunter2secret"
HOSTILE = [
    "alice",
    "alice'; DROP TABLE sessions; --",
    "%",
    "a%",
    "a_ice",
    "\\",
    '"',
    "$1",
    "Alice",
    "al\u0456ce",  # Cyrillic
    "alice\u200b",
    "\uff41lice",  # full width
    "ALICE",
    "alic\u00e9",
    "alice\u0301",
    "x" * 512,
    "x" * 511 + "y",
]


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[Any]:
    """A direct connection, like that of another application of the database."""
    connect: Any = cast("Any", asyncpg).connect
    connection = await connect(postgres_url.partition("&schema")[0])
    try:
        yield connection
    finally:
        await connection.close()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


async def write_message(store: Store, name: SessionId, text: str) -> None:
    session = await store.write(create_session, name, None, time.time())
    entry = NewEvent(f"e-{name.user_id[:40]}", 1.0, message=Message("user", text))
    await store.append(session.key, name, session.revision, entry)


async def test_attack_20_users_with_hostile_ids_see_their_own_alone(postgres_url: str) -> None:
    async with Store(postgres_url) as store:
        for number, user in enumerate(HOSTILE):
            await write_message(store, SessionId("app", user, "s"), f"the canary of number{number}x")
        for number, user in enumerate(HOSTILE):
            assert [one.name.user_id for one in await store.read(list_sessions, "app", user)] == [user]
            [hit] = await store.search("app", user, "canary")
            assert f"number{number}x" in hit.text
            assert not await store.search("ap", user, "canary")
        assert await store.delete_session(SessionId("app", "%", "s"))
        assert len(await store.read(list_sessions, "app")) == len(HOSTILE) - 1


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "x" * 513, "x" * 1_000_000])
async def test_attack_20_an_unstorable_id_belongs_to_no_session(postgres_url: str, bad: str) -> None:
    async with Store(postgres_url) as store:
        for name in (SessionId("app", "u", bad), SessionId("app", bad, "s"), SessionId(bad, "u", "s")):
            assert await store.read(find_session, name) is None
            assert await store.read(read_session_events, name) is None
            assert not await store.delete_session(name)
            with pytest.raises(Unstorable):
                await store.write(create_session, name, None, time.time())
        assert await store.read(list_sessions, "app", bad) == []
        assert await store.search("app", bad, "hello") == []
        assert await store.read(read_facts, "app", bad) == []
        assert not await store.write(delete_fact, "app", bad, 1)
        assert not await store.write(delete_fact, "app", "u", 2**70)
        assert not await store.write(revoke_key, bad, time.time())
        assert await store.read(find_key, bad) is None


@pytest.mark.parametrize(
    "query",
    [
        "') | '@x",
        "canary & !theirs",
        "canary | theirs",
        "canary:*",
        "'",
        "\\",
        "\\'",
        "canary <-> x",
        "( ",
        "%",
        "_",
        "\0",
    ],
)
async def test_attack_20_a_search_has_no_syntax(postgres_url: str, query: str) -> None:
    async with Store(postgres_url) as store:
        await write_message(store, SessionId("app", "alice", "s"), "canary mine")
        await write_message(store, SessionId("app", "bob", "s"), "canary theirs")
        assert all("theirs" not in hit.text for hit in await store.search("app", "alice", query))


async def test_attack_20_schemas_with_similar_names_are_separate(postgres_url: str, admin: Any) -> None:
    plain = postgres_url
    for url in (plain, plain.replace("=test", "=TEST"), plain.replace("=test", "=Test")):
        async with Store(url) as store:
            assert await store.read(list_sessions) == []
            await store.write(create_session, SessionId("app", "u", schema_of(url)[:5]), None, time.time())
            assert [one.name.id for one in await store.read(list_sessions)] == [schema_of(url)[:5]]
            tables = await admin.fetchval("SELECT COUNT(*) FROM pg_tables WHERE schemaname = $1", schema_of(url))
            assert tables > 10, "they are where the URL says"


@pytest.mark.parametrize(
    "schema", ["x" * 64, "pg_temp", "pg_catalog", "information_schema", 'a"b', "a,public", "a b", "é"]
)
def test_attack_20_a_schema_name_that_would_be_truncated_or_reserved_is_refused(
    postgres_server: str, schema: str
) -> None:
    with pytest.raises(StoreUrlError):
        open_database(f"{postgres_server}&schema={schema}")


async def test_attack_20_a_hostile_schema_in_the_path_of_a_role_is_not_used(postgres_url: str, admin: Any) -> None:
    async with Store(postgres_url) as store:
        await store.write(create_session, SessionId("app", "u", "ours"), None, time.time())
    evil = f"evil_{schema_of(postgres_url)}"
    await admin.execute(
        f'CREATE SCHEMA {evil}; CREATE TABLE {evil}.sessions (LIKE "{schema_of(postgres_url)}".sessions)'
    )
    await admin.execute(f"ALTER ROLE postgres SET search_path = {evil}, public")
    try:
        async with Store(postgres_url) as store:
            assert [one.name.id for one in await store.read(list_sessions)] == ["ours"]
            await store.write(create_session, SessionId("app", "u", "more"), None, time.time())
        assert await admin.fetchval(f"SELECT COUNT(*) FROM {evil}.sessions") == 0
    finally:
        await admin.execute("ALTER ROLE postgres RESET search_path")


@pytest.fixture
async def small_url(postgres_url: str, admin: Any) -> AsyncIterator[str]:
    """A store whose role may only read and write rows."""
    async with Store(postgres_url) as store:
        await store.write(create_session, SessionId("app", "u", "before"), None, time.time())
    schema, role = schema_of(postgres_url), f"small_{schema_of(postgres_url)}"
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
    await admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    await admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    await admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    yield postgres_url.replace("postgres:@", f"{role}:{SECRET}@")
    await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_attack_20_a_role_that_may_only_read_and_write_rows_is_enough(small_url: str, admin: Any) -> None:
    async with Store(small_url) as store:
        await write_message(store, SessionId("app", "u", "s"), "hello canary")
        assert await store.search("app", "u", "canary")
    role = small_url.partition("//")[2].partition(":")[0]
    await admin.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema_of(small_url)} FROM {role}")
    with pytest.raises(StoreUnavailable, match="permission denied") as refused:
        async with Store(small_url):
            pass
    assert SECRET not in str(refused.value)


async def test_attack_20_a_lock_of_another_role_does_not_block_startup(postgres_url: str, admin: Any) -> None:
    async with Store(postgres_url) as store:
        await store.write(create_session, SessionId("app", "u", "s"), None, time.time())
    await admin.execute("SELECT pg_advisory_lock($1)", zlib.crc32(schema_of(postgres_url).encode()))
    async with asyncio.timeout(TIMEOUT_S / 4), Store(postgres_url) as store:
        assert await store.read(find_session, SessionId("app", "u", "s"))


async def test_attack_20_a_statement_timeout_counts_as_an_outage(postgres_url: str, admin: Any) -> None:
    """Another transaction holds the row, and the server gives a statement 100 ms."""
    name = SessionId("app", "u", "s")
    async with Store(postgres_url) as store:
        await store.write(create_session, name, None, time.time())
    await admin.execute("ALTER ROLE postgres SET statement_timeout = '100ms'")
    try:
        async with Store(postgres_url, wait_s=0.5) as store, admin.transaction():
            await store.read(list_sessions)
            await admin.execute(f'LOCK TABLE "{schema_of(postgres_url)}".sessions')
            with pytest.raises(StoreUnavailable) as refused:
                await store.write(create_session, SessionId("app", "u", "t"), None, time.time())
            assert refused.value.retry_after_s
    finally:
        await admin.execute("ALTER ROLE postgres RESET statement_timeout")


@pytest.mark.parametrize("payload", ["abc {}", "{} '; DROP", "9" * 5000 + " {}", "-1 {}", "\u0663 {}", "1e9 {}"])
async def test_attack_20_a_forged_notification_is_harmless(
    postgres_url: str, admin: Any, payload: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Store(postgres_url) as store:
        session = await store.write(create_session, SessionId("app", "u", "s"), None, time.time())
        database = vars(store)["_database"]
        async with database.subscribe(session.key) as changes:
            await admin.execute(
                "SELECT pg_notify($1, $2)", channel_name(schema_of(postgres_url)), payload.format(session.key)
            )
            assert await changes.wait(TIMEOUT_S), "a session key is accepted after a forged payload, too"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# -- passwords --------------------------------------------------------------------------------------------------------

URLS = [
    f"postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}@127.0.0.1:1/db?sslmode=bogus",
    f"postgresql://127.0.0.1:1/db?user=u&password={SECRET}",
    f"postgresql://u:12/{SECRET}@h/db",
    f"postgresql://u:12?{SECRET}@h/db",
    f"postgresql://u:12#{SECRET}@h/db",
    f"postgresql://u:{SECRET}@h:99999/db",
    f"postgresql://u:{SECRET}@[h/db",
    f"postgresql://u:{SECRET}@h%00/db",
    f"postgresq://u:{SECRET}@h/db",
    f"postgresq:///db?password={SECRET}",
    f"host=h password={SECRET}",
    f"sqlite://u:{SECRET}@h/db",
]


@pytest.mark.parametrize("url", URLS)
async def test_attack_20_no_error_shows_a_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((StoreError, StoreUrlError)) as refused:
        async with Store(url, wait_s=0.0) as store:
            await store.read(list_sessions)
    assert SECRET not in str(refused.value)
    assert "12" not in str(refused.value).replace("127.0.0.1", ""), "nor a part of it"
    assert SECRET not in caplog.text


def test_attack_20_doctor_shows_no_password(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(f'[store]\nurl = "{URLS[3]}"\n')
    output = lango("doctor", "--offline", cwd=tmp_path)
    assert "FAIL store" in output.stdout
    assert SECRET not in output.stdout + output.stderr


# -- a server on it ---------------------------------------------------------------------------------------------------


async def test_attack_20_clients_that_do_not_read_hold_no_connection_of_the_store(
    postgres_url: str, tmp_path: Path, admin: Any
) -> None:
    """Thirty streams are open, three times the size of the pool, and other requests are served at once."""
    with serving(tmp_path, postgres_url) as server:
        async with server.client() as client, AsyncExitStack() as held:
            for number in range(30):
                body = {"text": f"hold {tmp_path}/never"}
                stream = client.stream("POST", f"/v1/sessions/held{number}/messages", json=body)
                assert (await held.enter_async_context(stream)).status_code == 200
            async with asyncio.timeout(TIMEOUT_S / 2):
                assert (await send(client, "other", "say hello"))[-1].type == "done"
                assert (await client.get("/readyz")).status_code == 200
            assert await admin.fetchval("SELECT COUNT(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == 0
            await admin.execute(f'ALTER SCHEMA "{schema_of(postgres_url)}" RENAME TO "{schema_of(postgres_url)}_gone"')
            answer = await client.get("/v1/sessions")
            assert answer.status_code in (500, 503)
            ready = await client.get("/readyz")
            for shown in (answer.text, ready.text):
                assert "lango-pg-" not in shown, "a client does not learn where the database is"


async def test_f7_readiness_names_a_database_that_became_read_only(
    postgres_url: str, tmp_path: Path, admin: Any
) -> None:
    """As after a failover that left the address at the standby."""
    database = await admin.fetchval("SELECT current_database()")
    with serving(tmp_path, postgres_url) as server:
        async with server.client() as client:
            assert (await client.get("/readyz")).status_code == 200
            try:
                await admin.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
                await admin.execute(
                    "SELECT pg_terminate_backend(pid, 10_000) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND application_name = 'lango'"
                )
                ready = await client.get("/readyz")
                assert ready.status_code == 503
                said = ready.json()["checks"]["database"]
                assert said == "StoreUnavailable: PostgreSQL is read-only: point the store's URL at the primary"
                assert (await client.get("/v1/sessions")).status_code == 200, "reads continue"
            finally:
                await admin.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
