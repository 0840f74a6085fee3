"""Attacks on credential requests: of other users, with guessed and used states, and through the callback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from tests.e2e.server.test_credentials import KEY, MODULE, ask, call_back, credential
from tests.support.servers import credential_agent
from tests.support.servers.oauth_server import OAuthServer, oauth_server
from tests.support.servers.server_process import (
    Server,
    configure,
    give,
    lango,
    resume,
    serving,
    text_of,
    wait_path,
    waits_of,
)


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


class Users:
    """A server with API keys, and its users."""

    def __init__(self, server: Server, keys: list[str]) -> None:
        self.server = server
        self.alice, self.bob = [server.client(Authorization=f"Bearer {key}") for key in keys]
        self.nobody = server.client()


@pytest.fixture
def users(tmp_path: Path, oauth: OAuthServer) -> Iterator[Users]:
    url, env = f"sqlite:///{tmp_path}/lango.db", credential_agent.environment(oauth)
    configure(tmp_path, url)
    keys = [lango("keys", "add", "--user", user, cwd=tmp_path).stdout.strip() for user in ("alice", "bob")]
    with serving(tmp_path, url, server='auth = "keys"', agent=MODULE, env=env) as running:
        yield Users(running, keys)


async def ask_in_new(client: httpx.AsyncClient, text: str = "account") -> dict[str, Any]:
    assert (await client.post("/v1/sessions", json={"id": "s"})).status_code == 201
    return await ask(client, "s", text)


def with_state(address: str, state: str) -> str:
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()} | {"state": state}
    return f"http://x/?{'&'.join(f'{name}={quote(value)}' for name, value in query.items())}"


async def test_attack_26_a_state_belongs_to_one_request_and_counts_once(users: Users, oauth: OAuthServer) -> None:
    async with users.alice as alice, users.bob as bob, users.nobody as nobody:
        of_alice, of_bob = await ask_in_new(alice), await ask_in_new(bob)
        address = await oauth.allow(of_alice["auth_url"])
        for state in ("", "guessed", "%", "\0", "x" * 900):
            assert (await call_back(nobody, with_state(address, state))).status_code in (400, 404)
        refused = await bob.post(wait_path(of_bob), json=credential(address))
        assert refused.status_code == 422, "the code of alice in the session of bob"
        assert len(await waits_of(alice, "s")) == 1
        assert (await call_back(nobody, address)).status_code == 200
        assert text_of(await resume(alice, "s")) == "it got alice"
        assert (await call_back(nobody, address)).status_code == 404, "it counts once"
        assert (await bob.get("/v1/credentials")).json() == {"credentials": []}


async def test_attack_26_another_user_cannot_see_answer_or_delete(users: Users) -> None:
    async with users.alice as alice, users.bob as bob, users.nobody as nobody:
        request = await ask_in_new(alice, "key")
        path = wait_path(request)
        for client, status in ((bob, 404), (nobody, 401)):
            assert (await client.post(path, json=credential(KEY))).status_code == status
            assert (await client.get("/v1/sessions/s/waits")).status_code == status
        assert (await bob.get("/v1/inbox")).json()["items"] == []
        assert text_of(await give(alice, request, credential(KEY))) == f"it got a key of {len(KEY)}"
        assert (await bob.delete("/v1/credentials")).json() == {"deleted": 0}
        assert (await bob.delete("/v1/credentials/weather")).status_code == 404
        assert (await nobody.delete("/v1/credentials")).status_code == 401
        assert len((await alice.get("/v1/credentials")).json()["credentials"]) == 1


async def test_attack_26_the_callback_shows_nothing_of_its_address(users: Users) -> None:
    async with users.alice as alice, users.nobody as nobody:
        request = await ask_in_new(alice)
        address: str = request["auth_url"]
        state = parse_qs(urlsplit(address).query)["state"][0]
        script = "<script>alert(1)</script>"
        for query in (f"state={quote(script)}", f"state={state}&error={quote(script)}"):
            page = await nobody.get(f"/v1/oauth/callback?{query}")
            assert script not in page.text
            assert page.headers["content-security-policy"].startswith("default-src 'none'")
            assert page.headers["referrer-policy"] == "no-referrer"
