"""A real PgBouncer in transaction mode: each transaction may get another connection of the server."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango import open_runtime
from lango.messages import ToolCall
from lango.store import Store
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import find_session
from lango.testing import ScriptedProvider
from tests.agents.parts import TIMEOUT_S, Gate, collect, settings_for, statuses, text_of
from tests.support.servers import server_process
from tests.support.servers.server_process import send, serving
from tests.support.store_workers import NAME

pytestmark = pytest.mark.postgres

_PORT = "5432"  # of the socket's name
_WAYS = {
    "refusing": "",
    "ignoring": "ignore_startup_parameters = search_path,idle_in_transaction_session_timeout",
}
"""What it does with settings of a connection: it refuses the connection, or ignores them without a word."""


@pytest.fixture(params=_WAYS)
def pooled_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """The URL of a database through PgBouncer, with connections of other clients in its pool."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed: `apt-get install pgbouncer` brings it")
    parts = urlsplit(postgres_url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    server = Path(query["host"])
    with TemporaryDirectory(prefix="lango-bouncer-") as folder:
        Path(folder).chmod(0o777)
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host={server} port={_PORT} user={parts.username or 'postgres'}\n"
            f"[pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_port = {_PORT}\n"
            f"unix_socket_dir = {folder}\nserver_round_robin = 1\n{_WAYS[request.param]}\n"
        )
        owner = server.stat()
        process = subprocess.Popen(
            [program, "-q", str(file)], user=owner.st_uid, group=owner.st_gid, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(f"{folder}/.s.PGSQL.{_PORT}", process)
            yield parts._replace(query=urlencode(query | {"host": folder})).geturl()
        finally:
            process.kill()
            process.wait(TIMEOUT_S)


def _wait_for(path: str, process: "subprocess.Popen[bytes]") -> None:
    while True:
        assert process.poll() is None, "PgBouncer did not start"
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(path) == 0:
                return


async def test_turns_run_through_pgbouncer(pooled_url: str, postgres_url: str) -> None:
    gate = Gate()
    script = [ToolCall("c1", gate.tool.name, {}), "first", "second", *["hello"] * 12]
    async with (
        open_runtime(settings_for(pooled_url), provider=ScriptedProvider(script), tools=[gate.tool]) as runtime,
        Store(pooled_url) as other,
    ):
        first = await runtime.submit("s", "one", idempotency_key="a key")
        await gate.wait()
        second = await runtime.submit("s", "two")
        again = await runtime.submit("s", "one", idempotency_key="a key")
        gate.may_end.set()
        assert [text_of(await collect(turn.follow())) for turn in (first, again, second)] == [
            "first",
            "first",
            "second",
        ]
        # many at once: each takes the connections that others used before
        answers = await asyncio.gather(*(runtime.run(f"s{number}", "hi") for number in range(12)))
        assert answers == ["hello"] * 12
        assert await statuses(runtime) == ["done"] * 14
        assert await runtime.sessions.check("s") == []
        assert await other.read(check_database, other.dialect) == []
        assert await other.read(find_session, NAME) is None
        await other.probe()
    await _nothing_is_left_behind(postgres_url, pooled_url)


async def _nothing_is_left_behind(url: str, pooled_url: str) -> None:
    """No table is outside the schema, and no setting stays with a connection that other applications share."""
    connect: Any = cast("Any", asyncpg).connect
    direct = await connect(url.partition("&schema")[0])
    try:
        assert await direct.fetchval("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await direct.close()
    pooled = [await connect(pooled_url.partition("&schema")[0], statement_cache_size=0) for _ in range(5)]
    try:
        for connection in pooled:
            async with connection.transaction():
                assert await connection.fetchval("SHOW search_path") == '"$user", public'
                assert await connection.fetchval("SHOW transaction_timeout") == "0"
    finally:
        for connection in pooled:
            await connection.close()


async def test_two_servers_answer_through_pgbouncer(pooled_url: str, tmp_path: Path) -> None:
    with serving(tmp_path, pooled_url) as one, serving(tmp_path, pooled_url) as other:
        async with one.client() as client, other.client() as second:
            for number in range(5):
                for reader in (client, second):
                    assert server_process.text_of(await send(reader, "s", f"say {number}")) == f"say {number}"
            assert (await second.get("/readyz")).status_code == 200
            one.terminate()
            assert server_process.text_of(await send(second, "s", "say on")) == "say on"
