"""Credential requests in the inbox: what they show, who sees them, and what answers them."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent

from lango import open_runtime
from lango.adk import ProviderLlm
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.testing import ScriptedProvider
from lango.waits import CredentialWait
from tests.agents.answers import open_credentials, submit_credential
from tests.agents.parts import collect, rows, settings_for, text_of
from tests.integration.adk.test_credentials import API_KEY, account_tool, agent, ask, key_tool
from tests.support.runtimes import store_of
from tests.support.servers.oauth_server import OAuthServer, oauth_server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


async def waiting(runtime: Runtime, user: str = "user") -> list[CredentialWait]:
    items = await runtime.inbox.list(user_id=user)
    return [item.wait for item in items if isinstance(item.wait, CredentialWait)]


async def test_a_request_shows_where_the_access_is_allowed(store_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, pkce=True)) as runtime:
        request = await ask(runtime)
        [item] = await waiting(runtime)
        assert (item.id, item.auth_url, item.scopes) == (request.id, request.auth_url, ("read", "write"))
        assert (item.session_id, item.turn) == ("s", 1)
        assert item.expires_at is not None
        [listed] = await runtime.inbox.list()
        assert (listed.title, await runtime.inbox.find(listed.id)) == ("who am I?", listed)
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, "you are alice", pkce=True)) as other:
        [item] = await waiting(other)
        turn = await submit_credential(other, item.session_id, item.id, await oauth.allow(item.auth_url))
        assert await waiting(other) == [], "as soon as the answer is stored"
        assert text_of(await collect(turn.follow())) == "you are alice"


async def test_a_request_for_a_key_says_what_it_is_for(store_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "key", {}), "thanks"])
    root = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[key_tool()])
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        await ask(runtime)
        [item] = await waiting(runtime)
        assert (item.scheme_type, item.auth_url, item.scheme) == ("apiKey", "", "")
        await collect((await submit_credential(runtime, "s", item.id, API_KEY)).follow())
        assert await waiting(runtime) == []


async def test_a_user_sees_the_own_requests_alone(store_url: str, oauth: OAuthServer) -> None:
    script: list[Any] = [ToolCall("c1", "account", {}), ToolCall("c1", "account", {})]
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, *script)) as runtime:
        for user in ("ann", "bob"):
            await ask(runtime, user=user)
        [of_ann], [of_bob] = await waiting(runtime, "ann"), await waiting(runtime, "bob")
        assert of_ann.auth_url != of_bob.auth_url
        assert await waiting(runtime) == []
        await runtime.cancel_wait("s", of_ann.id, user_id="ann")
        assert await waiting(runtime, "ann") == []
        assert len(await waiting(runtime, "bob")) == 1


async def test_a_fork_has_no_request_that_cannot_be_answered(store_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth)) as runtime:
        await ask(runtime)
        await runtime.sessions.fork("s", new_id="fork")
        assert await open_credentials(runtime, "fork") == []
        assert [item.session_id for item in await waiting(runtime)] == ["s"]


async def test_all_credentials_of_one_user_are_deleted(store_url: str, oauth: OAuthServer) -> None:
    names = ("one", "two")
    script = [[ToolCall(f"c{name}", name, {}) for name in names], "done", [ToolCall("c3", "one", {})], "done"]
    tools = [account_tool(oauth, name, key=name) for name in names]
    root = LlmAgent(name="root", model=ProviderLlm(ScriptedProvider(script), "m"), tools=[*tools])
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        for user in ("ann", "bob"):
            await collect(runtime.stream("s", "go", user_id=user))
            for item in await waiting(runtime, user):
                address = await oauth.allow(item.auth_url)
                turn = await submit_credential(runtime, "s", item.id, address, user_id=user)
                await collect(turn.follow())
        assert len(await rows(store_of(runtime), "SELECT 1 FROM credentials")) == 3
        assert await runtime.credentials.delete_all(user_id="ann") == 2
        assert await runtime.credentials.delete_all(user_id="ann") == 0
        assert await rows(store_of(runtime), "SELECT user_id, credential_key FROM credentials") == [("bob", "one")]
