"""Credential requests over HTTP: the callback of an OAuth server, the routes, and ADK's REST."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from lango import open_runtime
from lango.server.app import create_app
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from tests.agents.answers import open_credentials
from tests.agents.parts import settings_for
from tests.integration.adk.test_credentials import agent, ask
from tests.support.kill_points import until_idle
from tests.support.servers.oauth_server import OAuthServer, oauth_server

CALLBACK = "http://127.0.0.1:8787/v1/oauth/callback"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture
async def served(store_url: str, oauth: OAuthServer) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    settings = settings_for(store_url)
    async with open_runtime(settings, root_agent=agent(oauth, redirect_uri=CALLBACK, pkce=True)) as runtime:
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            yield runtime, client


async def test_the_callback_goes_on_with_the_turn_once(
    served: tuple[Any, httpx.AsyncClient], oauth: OAuthServer
) -> None:
    runtime, client = served
    request = await ask(runtime)
    [listed] = (await client.get("/v1/sessions/s/waits")).json()["waits"]
    assert (listed["id"], listed["auth_url"]) == (request.id, request.auth_url)
    address = await oauth.allow(request.auth_url)
    page = await client.get(address)
    assert (page.status_code, "Access granted" in page.text) == (200, True)
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    await until_idle(runtime)
    messages = (await client.get("/v1/sessions/s/messages")).text
    assert "you are alice" in messages
    assert (await client.get(address)).status_code == 404, "the state counts once"
    [credential] = (await client.get("/v1/credentials")).json()["credentials"]
    assert credential["key"] == "account"
    assert not [secret for secret in oauth.secrets if secret in messages + str(credential)]
    assert (await client.delete("/v1/credentials/account")).status_code == 204
    assert (await client.delete("/v1/credentials/account")).status_code == 404


@pytest.mark.parametrize("query", ["", "?state=guessed&code=c", "?code=c"])
async def test_attack_26_a_callback_without_a_known_state_does_nothing(
    served: tuple[Any, httpx.AsyncClient], query: str
) -> None:
    runtime, client = served
    await ask(runtime)
    assert (await client.get(f"/v1/oauth/callback{query}")).status_code == 404
    assert len(await open_credentials(runtime, "s")) == 1


async def test_a_denied_access_closes_the_request(served: tuple[Any, httpx.AsyncClient], oauth: OAuthServer) -> None:
    runtime, client = served
    oauth.denies = True
    request = await ask(runtime)
    assert "Access denied" in (await client.get(await oauth.allow(request.auth_url))).text
    assert await open_credentials(runtime, "s") == []


async def test_a_request_is_answered_by_its_route(served: tuple[Any, httpx.AsyncClient], oauth: OAuthServer) -> None:
    runtime, client = served
    request = await ask(runtime)
    route = f"/v1/sessions/s/waits/{request.id}"
    assert (await client.post(route, json={"type": "credential", "value": "nonsense"})).status_code == 422
    stream = await client.post(route, json={"type": "credential", "value": await oauth.allow(request.auth_url)})
    assert "event: done" in stream.text
    assert (await client.post(route, json={"type": "credential", "value": "x"})).status_code == 409


async def test_adks_rest_takes_what_its_clients_send_back(
    served: tuple[Any, httpx.AsyncClient], oauth: OAuthServer
) -> None:
    runtime, client = served
    about = {"appName": runtime.app_name, "userId": "user", "sessionId": "s"}
    await runtime.sessions.create("s")
    first = await client.post("/run", json=about | {"newMessage": {"role": "user", "parts": [{"text": "who am I?"}]}})
    [call] = [
        part["functionCall"]
        for event in first.json()
        for part in event["content"]["parts"]
        if part.get("functionCall", {}).get("name") == "adk_request_credential"
    ]
    config = call["args"]["authConfig"]
    assert oauth.client_secret not in first.text
    assert "codeVerifier" not in first.text
    config["exchangedAuthCredential"]["oauth2"]["authResponseUri"] = await oauth.allow(
        config["exchangedAuthCredential"]["oauth2"]["authUri"]
    )
    response = {"id": call["id"], "name": call["name"], "response": config}
    message = {"role": "user", "parts": [{"functionResponse": response}]}
    second = await client.post("/run", json=about | {"newMessage": message})
    assert "you are alice" in second.text, second.text
