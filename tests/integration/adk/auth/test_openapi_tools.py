"""Scenarios of ADK's own tests of authentication: tools of OpenAPI documents, which keep tokens in the state."""

from collections.abc import Callable

import pytest
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
)
from google.adk.auth.auth_tool import AuthConfig

from lango import open_runtime
from lango.messages import ToolCall
from tests.agents.parts import settings_for
from tests.integration.adk.test_credentials import everything
from tests.support.auth_scenarios import (
    KEY,
    agent,
    api_key,
    ask,
    bearer,
    give,
    oauth_config,
    openid,
    requests,
    results,
    status,
)
from tests.support.openapi_tools import rest_tools
from tests.support.servers.oauth_server import OAuthServer

pytestmark = [  # of what ADK does itself: it derives the key of a configuration, and sends requests
    pytest.mark.filterwarnings("ignore:This method is deprecated. Use credential_key:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning"),
]


# -- tools of an OpenAPI document -------------------------------------------------------------------------------------


def rest_agent(oauth: OAuthServer, config: AuthConfig, turns: int = 1) -> LlmAgent:
    script = [step for n in range(turns) for step in (ToolCall(f"c{n}", "account", {}), "done")]
    return agent([rest_tools(oauth, config)], *script)


REST: dict[str, tuple[Callable[[OAuthServer], AuthConfig], str]] = {
    "a token of the configuration": (lambda o: bearer(token_of(o)), "'user': 'alice'"),
    "a key of the configuration": (lambda _: api_key(KEY), "Status Code: 401"),
}


def token_of(oauth: OAuthServer) -> AuthCredential:
    _, tokens = oauth.token({"grant_type": "client_credentials"})
    oauth.access[tokens["access_token"]] = "alice", float("inf")
    http = HttpAuth(scheme="bearer", credentials=HttpCredentials(token=tokens["access_token"]))
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)


@pytest.mark.parametrize("scenario", REST)
async def test_a_tool_of_an_openapi_document_uses_the_configuration(
    sqlite_url: str, oauth: OAuthServer, scenario: str
) -> None:
    make, expected = REST[scenario]
    async with open_runtime(settings_for(sqlite_url), root_agent=rest_agent(oauth, make(oauth))) as runtime:
        events = await ask(runtime)
        assert requests(events) == []
        assert expected in str(results(events))


@pytest.mark.parametrize("make", [oauth_config, openid], ids=["OAuth", "OpenID Connect"])
async def test_a_tool_of_an_openapi_document_asks_once(
    sqlite_url: str, oauth: OAuthServer, make: Callable[[OAuthServer], AuthConfig]
) -> None:
    """Its token is in the state of the session, where ADK keeps it, and encrypted."""
    async with open_runtime(settings_for(sqlite_url), root_agent=rest_agent(oauth, make(oauth))) as runtime:
        [request] = requests(await ask(runtime))
    async with open_runtime(
        settings_for(sqlite_url), root_agent=agent([rest_tools(oauth, make(oauth))], "done")
    ) as runtime:
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        assert (status(events), results(events)) == ("done", [{"user": "alice"}])
        exported = "".join([line async for line in runtime.sessions.export_lines("s")])
    async with open_runtime(settings_for(sqlite_url), root_agent=rest_agent(oauth, make(oauth), 4)) as runtime:
        events = await ask(runtime, "again")
        assert (requests(events), results(events)) == ([], [{"user": "alice"}])
        assert oauth.grants == ["authorization_code"]

        oauth.expire_all()  # the API refuses the token, which is then refreshed and kept
        events = await ask(runtime, "again")
        assert (requests(events), results(events)) == ([], [{"user": "alice"}])
        assert oauth.grants == ["authorization_code", "refresh_token"]

        oauth.expire_all()
        oauth.refused_grants.add("refresh_token")
        events = await ask(runtime, "again")
        assert len(requests(events)) == 1, "only the user can help"
        stored = await everything(runtime)
        for secret in oauth.secrets:
            assert secret not in stored
            assert secret not in exported


async def test_an_api_that_refuses_every_token_asks_no_user_again(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=rest_agent(oauth, oauth_config(oauth), 3)) as runtime:
        [request] = requests(await ask(runtime))
        oauth.closed = True
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        events += await ask(runtime, "again")
        assert (status(events), requests(events)) == ("done", [])
        assert "401" in str(results(events)[-1])
        assert oauth.grants == ["authorization_code", "refresh_token"], "a refresh that did not help is not repeated"
        oauth.closed = False
        assert results(await ask(runtime, "again")) == [{"user": "alice"}]


async def test_a_deleted_token_of_an_openapi_tool_is_asked_for_again(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=rest_agent(oauth, oauth_config(oauth), 2)) as runtime:
        [request] = requests(await ask(runtime))
        await give(runtime, request.id, await oauth.allow(request.auth_url))
        [kept] = await runtime.credentials.list()
        assert (kept.kind, kept.refreshable) == ("oauth2", True)
        assert await runtime.credentials.delete(kept.key)
        assert len(requests(await ask(runtime, "again"))) == 1
