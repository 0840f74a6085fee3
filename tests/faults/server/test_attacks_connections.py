"""Attacks 18 and 19: without a key nothing is read, slow clients are cut off, and an open stream ends with its key."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from lango.config import ServerSettings
from lango.server.security.connections import RESERVED_CONNECTIONS, ConnectionLimits
from tests.faults.server.test_attacks_oidc import server_settings
from tests.support.servers import server_process
from tests.support.servers.issuer import issuing, rsa_key
from tests.support.servers.server_process import TIMEOUT_S, Server, configure, events_of, lango, serving

MEGABYTE = 1_000_000
RECHECKING = f"module = {json.dumps(str(Path(server_process.__file__).with_name('rechecking_agent.py')))}"


def limits_of(**limits: int) -> ConnectionLimits:
    return ConnectionLimits.from_settings(ServerSettings.model_validate({"limits": limits}))


def opened(server: Server, text: str = "") -> socket.socket:
    """Open a connection and send something."""
    made = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)
    made.sendall(text.replace("\n", "\r\n").encode())
    return made


def answer_on(connection: socket.socket) -> tuple[int, str]:
    """Read an answer to its end, or to where the server closes."""
    data = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65536):
            data += more
    return (int(data.split()[1]) if data else 0), data.decode()


def attempts(otherwise: str) -> Iterator[None]:
    """Let a test try again for as long as it may take; then it fails."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        yield
    pytest.fail(otherwise)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("keyed")
    url = f"sqlite:///{folder}/lango.db"
    configure(folder, url)
    assert lango("keys", "add", "--user", "alice", cwd=folder).stdout
    with serving(folder, url, server='auth = "keys"') as running:
        yield running


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/agui", "/v1/sessions", "/v1/sessions/s/messages", "/run", "/run_sse"],
)
@pytest.mark.parametrize("length", [f"Content-Length: {MEGABYTE // 2}", "Transfer-Encoding: chunked"])
def test_attack_18_who_has_no_key_is_refused_before_the_body_is_read(keyed: Server, path: str, length: str) -> None:
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n{length}\n\n"
    with opened(keyed, head) as connection:  # nothing of the body is sent: who waits for it waits for ever
        status, answer = answer_on(connection)
    assert status == 401, answer
    assert "connection: close" in answer.lower()


def test_attack_18_an_import_without_a_key_is_refused_before_it_is_read(keyed: Server) -> None:
    kind = "Content-Type: application/x-ndjson"
    head = f"POST /v1/sessions/import HTTP/1.1\nHost: localhost\n{kind}\nContent-Length: {50 * MEGABYTE}\n\n"
    with opened(keyed, head) as connection:
        assert answer_on(connection)[0] == 401


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v1/sessions", "/healthz"])
def test_attack_18_a_body_with_two_lengths_is_refused_and_nothing_after_it_is_read(
    keyed: Server, method: str, path: str
) -> None:
    """A proxy that reads the other length would take the rest of one client's body for another's request."""
    head = f"{method} {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    smuggled = "GET /healthz HTTP/1.1\nHost: localhost\n\n"
    for lengths in ("Content-Length: 5\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\nContent-Length: 0"):
        with opened(keyed, f"{head}{lengths}\n\n0\n\n{smuggled}") as connection:
            status, answer = answer_on(connection)
        assert status == 400, answer
        assert "send Content-Length or Transfer-Encoding, not both" in answer
        assert "connection: close" in answer.lower()
        assert answer.count("HTTP/1.1 ") == 1


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with short timeouts."""
    folder = tmp_path_factory.mktemp("hasty")
    limits = "limits.head_timeout_s = 0.5\nlimits.body_timeout_s = 0.5"
    with serving(folder, f"sqlite:///{folder}/lango.db", server=limits) as running:
        yield running


@pytest.mark.parametrize("head", ["", "GET /healthz HT", "GET /healthz HTTP/1.1\nHost: localhost\n"])
def test_attack_18_a_head_that_does_not_end_is_cut_off(hasty: Server, head: str) -> None:
    with opened(hasty, head) as connection:
        assert answer_on(connection) == (0, "")


def test_attack_18_a_head_in_small_pieces_is_cut_off_too(hasty: Server) -> None:
    with opened(hasty, "GET /healthz HTTP/1.1\n") as connection, suppress(ConnectionError):
        connection.settimeout(0.05)
        for _ in attempts("the head was never cut off"):  # a byte a time: each in good time, and the end never comes
            connection.sendall(b"X")
            with suppress(TimeoutError):
                if connection.recv(100) == b"":
                    break


def test_attack_18_a_second_head_on_the_same_connection_has_the_same_limit(hasty: Server) -> None:
    with opened(hasty, "GET /healthz HTTP/1.1\nHost: localhost\n\n") as connection:
        answered = b""
        while not answered.endswith(b"}"):
            piece = connection.recv(65536)
            assert piece, "the first head came in time"
            answered += piece
        connection.sendall(b"GET /healthz HTT")
        assert answer_on(connection) == (0, "")


def test_attack_18_a_body_that_does_not_come_is_answered_with_408(hasty: Server) -> None:
    head = "POST /v1/sessions HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 1000\n\n{"
    with opened(hasty, head) as connection:
        status, answer = answer_on(connection)
    assert status == 408, answer
    assert "body_timeout_s" in answer


def test_attack_18_a_stream_is_not_a_slow_client(hasty: Server) -> None:
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{hasty.port}", timeout=TIMEOUT_S) as client,
        client.stream("GET", "/v1/live") as live,
    ):
        lines = live.iter_lines()
        assert next(lines)
        for _ in range(3):  # another process's changes are looked for once a second: longer than any of the limits
            assert client.post("/v1/sessions", json={}).status_code == 201
            while "changed" not in next(lines):
                pass


def test_attack_18_too_many_connections_are_refused_and_health_checks_are_answered(tmp_path: Path) -> None:
    limits = "limits.max_connections = 5\nlimits.head_timeout_s = 600"
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=limits) as server, ExitStack() as held:
        for _ in range(5):
            held.enter_context(opened(server, "GET / HTT"))
        request, answer = "GET {} HTTP/1.1\nHost: localhost\nConnection: close\n\n", ""
        for _ in attempts("the server never refused"):  # until it has seen all of them
            with opened(server, request.format("/v1/sessions")) as connection:
                status, answer = answer_on(connection)
            if status == 503:
                break
        assert "TooManyConnections" in answer
        assert "retry-after: 5" in answer.lower()
        for path in ("/healthz", "/readyz"):
            with opened(server, request.format(path)) as connection:
                assert answer_on(connection)[0] == 200
        for _ in range(RESERVED_CONNECTIONS):
            held.enter_context(opened(server, "GET / HTT"))
        for _ in attempts("the reserve was never full"):
            with opened(server, "") as connection:
                status, answer = answer_on(connection)
            if status == 503:
                break
        assert "TooManyConnections" in answer, "beyond the reserve nothing is read at all"
        # what takes a place of the reserve and sends nothing loses it soon
        for _ in attempts("the reserve was never free again"):
            with opened(server, request.format("/healthz")) as connection:
                if answer_on(connection)[0] == 200:
                    break


def test_attack_18_one_client_cannot_take_all_connections() -> None:
    limits = limits_of(max_connections=100, max_connections_per_client=3)
    assert limits.allows("192.0.2.1", ["192.0.2.1"] * 2 + ["192.0.2.2"] * 3)
    assert not limits.allows("192.0.2.1", ["192.0.2.1"] * 3)
    assert not limits.allows("127.0.0.1", ["127.0.0.1"] * 3), "a configured number holds for every client"
    default = limits_of(max_connections=1000)
    assert not default.allows("192.0.2.1", ["192.0.2.1"] * 256)
    assert default.allows("127.0.0.1", ["127.0.0.1"] * 500), "a proxy on this machine"
    assert limits_of(max_connections_per_client=0).allows("192.0.2.1", ["192.0.2.1"] * 500)


# -- 19: keys that are revoked and tokens that expire while a stream is open ------------------------------------------


@asynccontextmanager
async def streams(server: Server, secret: str) -> AsyncGenerator[list["asyncio.Task[str]"]]:
    """Open a stream of each kind; each task returns the last frame when it is closed."""
    headers = {"Authorization": f"Bearer {secret}"}
    begun = [asyncio.Event() for _ in range(3)]

    async def live() -> str:
        async with server.client(**headers) as client, client.stream("GET", "/v1/live") as response:
            last = ""
            async for event in events_of(response):
                begun[0].set()
                last = str(event.data)
            return last

    async def turn() -> str:
        async with server.client(**headers) as client:
            await client.post("/v1/sessions", json={"id": "held"})
            hold = {"text": "hold nothing-that-comes"}
            async with client.stream("POST", "/v1/sessions/held/messages", json=hold) as response:
                last = ""
                async for event in events_of(response):
                    begun[1].set()
                    last = str(event.data)
                return last

    async def both_ways() -> str:
        url = f"ws://127.0.0.1:{server.port}/v1/ws"
        async with connect(url, additional_headers=headers, ping_interval=None) as connection:
            begun[2].set()
            try:
                while True:
                    await connection.recv()
            except ConnectionClosed as closed:
                return str(closed)

    tasks = [asyncio.create_task(one) for one in (live(), turn(), both_ways())]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(one.wait() for one in begun))
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_attack_19_streams_end_when_their_key_is_revoked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    configure(tmp_path, url)
    alice, bob = [lango("keys", "add", "--user", user, cwd=tmp_path).stdout.strip() for user in ("alice", "bob")]
    ids = [json.loads(line)["id"] for line in lango("keys", "list", "--json", cwd=tmp_path).stdout.splitlines()]
    with serving(tmp_path, url, server='auth = "keys"', agent=RECHECKING) as server:
        async with streams(server, alice) as of_alice, streams(server, bob) as of_bob:
            assert lango("keys", "revoke", ids[0], cwd=tmp_path).returncode == 0
            async with asyncio.timeout(TIMEOUT_S):
                frames = await asyncio.gather(*of_alice)
            assert all("Unauthorized" in one or "API key" in one for one in frames), frames
            assert not any(task.done() for task in of_bob), "whose key holds reads on"


async def test_attack_19_streams_end_when_their_token_expires(tmp_path: Path) -> None:
    key = rsa_key()
    with (
        issuing(key) as issuer,
        serving(
            tmp_path,
            f"sqlite:///{tmp_path}/lango.db",
            server=server_settings(issuer.url) + "\nleeway_s = 0",
            agent=RECHECKING,
        ) as server,
    ):
        async with streams(server, issuer.token("carol", exp=int(time.time()) + 6)) as of_carol:
            async with asyncio.timeout(TIMEOUT_S):
                frames = await asyncio.gather(*of_carol)
            assert all("expired" in one.lower() or "Unauthorized" in one for one in frames), frames
