"""Attack 24: many requests at one instant, forged addresses, networks of addresses, and clocks that jump."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from websockets.asyncio.client import connect

from lango.config import ServerSettings
from lango.runtime.access import ApiKeys
from lango.server.errors import ApiError
from lango.server.security import auth
from lango.server.security.auth import Authenticator
from lango.server.security.connections import ConnectionLimits
from lango.server.security.hosts import is_loopback, network_of
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

LIMIT = 5


@dataclass
class Keyed:
    server: Server
    url: str

    async def key(self, user: str, requests_per_minute: int | None = LIMIT) -> str:
        """Make a key that allows a few requests a minute."""
        async with Store(self.url) as store:
            return (await add_api_key(store, user, requests_per_minute=requests_per_minute))[1]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("rates")
    url = f"sqlite:///{folder}/lango.db"
    limits = 'auth = "keys"\nlimits.max_connections_per_client = 60'
    with serving(folder, url, server=limits) as server:
        yield Keyed(server, url)


async def test_attack_24_many_requests_at_one_instant_are_no_more_than_are_allowed(keyed: Keyed) -> None:
    """Each with another forged address, half of them for what is not there."""
    secret = await keyed.key("alice")
    async with keyed.server.client(Authorization=f"Bearer {secret}") as client:
        attempts = [
            client.get(
                "/v1/sessions" if number % 2 else "/v1/sessions/none",
                headers={"X-Forwarded-For": f"203.0.113.{number}", "X-Real-IP": "::1", "Forwarded": f"for={number}"},
            )
            for number in range(40)
        ]
        answers = await asyncio.gather(*attempts)
    statuses = Counter(answer.status_code == 429 for answer in answers)
    assert statuses == {False: LIMIT, True: 40 - LIMIT}
    waits = [int(answer.headers["Retry-After"]) for answer in answers if answer.status_code == 429]
    assert all(1 <= wait_s <= 60 for wait_s in waits)
    async with keyed.server.client(Authorization=f"Bearer {await keyed.key('alice')}") as client:
        assert (await client.get("/v1/sessions")).status_code == 200, "another key has a count of its own"


async def test_attack_24_a_socket_is_no_way_around(keyed: Keyed) -> None:
    secret = await keyed.key("bob")
    url = f"ws://127.0.0.1:{keyed.server.port}/v1/ws"
    async with connect(url, additional_headers={"Authorization": f"Bearer {secret}"}) as socket:
        for _ in range(3 * LIMIT):
            await socket.send('{"type": "cancel", "session": "none"}')
        async with asyncio.timeout(TIMEOUT_S):
            frames = [str(await socket.recv()) for _ in range(3 * LIMIT)]
    limited = [one for one in frames if "RateLimited" in one]
    assert len(limited) == 2 * LIMIT + 1, "the handshake counts, too"


async def test_attack_24_sockets_are_connections_of_their_client(keyed: Keyed) -> None:
    secret = await keyed.key("carol", None)
    headers = {"Authorization": f"Bearer {secret}"}
    async with AsyncExitStack() as held:
        for _ in range(59):
            url = f"ws://127.0.0.1:{keyed.server.port}/v1/ws"
            await held.enter_async_context(connect(url, additional_headers=headers, ping_interval=None))
        async with keyed.server.client() as first, keyed.server.client(**{"X-Forwarded-For": "203.0.113.9"}) as second:
            assert (await first.get("/healthz")).status_code == 200
            assert (await second.get("/healthz")).status_code == 503
    async with keyed.server.client() as later, asyncio.timeout(TIMEOUT_S):
        while (await later.get("/healthz")).status_code != 200:  # until the server has seen that they are gone
            await asyncio.sleep(0.01)


async def test_attack_24_a_limit_never_sticks_and_no_clock_moves_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, wall = 1_000.0, 1_794_702_400.0
    clocks = SimpleNamespace(monotonic=lambda: now, time=lambda: wall)
    monkeypatch.setattr(auth, "time", clocks)
    async with Store(sqlite_url) as store:
        authenticator = Authenticator(ServerSettings(auth="keys"), ApiKeys(store))
        _, secret = await add_api_key(store, "alice", requests_per_minute=LIMIT)

        async def passed(count: int) -> int:
            attempts = [authenticator.authenticate(f"Bearer {secret}") for _ in range(count)]
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            assert all(isinstance(one, auth.Caller | ApiError) for one in outcomes)
            return sum(isinstance(one, auth.Caller) for one in outcomes)

        assert await passed(3 * LIMIT) == LIMIT
        for leap in (3_600.0, -86_400.0, 1e9):
            wall += leap
            assert await passed(LIMIT) == 0, "the clock on the wall grants nothing"
        now += 59.9
        assert await passed(LIMIT) == 0
        now += 0.2
        assert await passed(3 * LIMIT) == LIMIT, "those that were refused were not counted"
        admitted: list[float] = []
        for _ in range(100):
            now += 7.0
            admitted += [now] * await passed(2)
        assert len(admitted) > 5 * LIMIT
        assert all(sum(at <= other < at + 60 for other in admitted) <= LIMIT for at in admitted), "in any minute"


def test_attack_24_all_addresses_of_one_network_are_one_client() -> None:
    settings = ServerSettings.model_validate({"limits": {"max_connections_per_client": 3}})
    limits = ConnectionLimits.from_settings(settings)
    mine = [f"2001:db8:1:2::{number:x}" for number in range(1, 4)]
    assert not limits.allows("2001:db8:1:2:ffff::9", mine)
    assert limits.allows("2001:db8:1:3::1", mine)
    assert not limits.allows("::ffff:192.0.2.1", ["192.0.2.1"] * 3)
    assert limits.allows("192.0.2.2", ["192.0.2.1"] * 3)
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("not an address") == "not an address"
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:192.0.2.1")
