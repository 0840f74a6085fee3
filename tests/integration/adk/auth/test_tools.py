"""The scenarios of ADK's own tests of authentication that go through its public interface, run by the runtime.

Each request is answered in another runtime. `docs/adk-features.md` lists the tests that do not apply.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    OAuth2Auth,
)
from google.adk.auth.auth_tool import AuthConfig

from lango import open_runtime
from lango.adk import ProviderLlm
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for, text_of
from tests.support.auth_scenarios import (
    KEY,
    TOKEN,
    agent,
    api_key,
    ask,
    bearer,
    discovered,
    give,
    oauth_config,
    openid,
    requests,
    results,
    secret_tool,
    status,
    tool_with,
)
from tests.support.openapi_tools import rest_tools
from tests.support.servers.oauth_server import OAuthServer

pytestmark = [  # of what ADK does itself: it derives the key of a configuration, and sends requests
    pytest.mark.filterwarnings("ignore:This method is deprecated. Use credential_key:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning"),
]


Make = Callable[[OAuthServer], Any]
"""Makes the tool that is called "account"."""


# -- what needs no answer ---------------------------------------------------------------------------------------------

READY: dict[str, tuple[Make, dict[str, Any]]] = {
    "a key of the configuration": (lambda _: secret_tool(api_key(KEY)), {"characters": 10}),
    "a token of the configuration": (lambda _: secret_tool(bearer(TOKEN)), {"characters": 10}),
    "client credentials": (lambda o: tool_with(o, o.client_credentials()), {"account": "the application"}),
    "client credentials of OpenID Connect": (
        lambda o: tool_with(o, openid(o, "authorization_code", "client_credentials")),
        {"account": "the application"},
    ),
}


@pytest.mark.parametrize("scenario", READY)
async def test_a_credential_of_the_application_asks_no_user(sqlite_url: str, oauth: OAuthServer, scenario: str) -> None:
    make, expected = READY[scenario]
    script = [ToolCall("c1", "account", {}), "first", ToolCall("c2", "account", {}), "second"]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([make(oauth)], *script)) as runtime:
        events = await ask(runtime) + await ask(runtime, "again")
        assert requests(events) == []
        assert results(events) == [expected, expected]
        assert oauth.grants == (["client_credentials"] if "client" in scenario else []), "the token is kept"


async def test_client_credentials_that_the_server_refuses_give_the_tool_no_token(
    sqlite_url: str, oauth: OAuthServer
) -> None:
    oauth.refused_grants.add("client_credentials")
    root = agent([tool_with(oauth, oauth.client_credentials())])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await ask(runtime)
        assert (status(events), results(events)) == ("done", [{"account": None}])


WRONG: dict[str, tuple[Callable[[OAuthServer], AuthConfig], str]] = {
    "OAuth without a credential": (
        lambda o: AuthConfig(auth_scheme=o.config().auth_scheme),
        "raw_auth_credential is required",
    ),
    "OpenID Connect without a credential": (
        lambda o: AuthConfig(auth_scheme=openid(o).auth_scheme),
        "raw_auth_credential is required",
    ),
    "OAuth with a credential that has no client": (
        lambda o: AuthConfig(
            auth_scheme=o.config().auth_scheme,
            raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2),
        ),
        "oauth2 required for credential type",
    ),
    "OAuth without the id of a client": (lambda o: oauth_config(o, client_id=None), "requires client_id"),
    "a server that has no metadata": (lambda o: discovered(o, f"{o.url}/none"), "auto-discovery has failed"),
    "an issuer that is no address": (lambda o: discovered(o, "bad_url"), "auto-discovery has failed"),
    "PKCE with another method": (lambda o: oauth_config(o, code_challenge_method="plain"), "S256"),
}


@pytest.mark.parametrize("scenario", WRONG)
async def test_a_configuration_that_cannot_work_fails_the_tool_with_adks_sentence(
    sqlite_url: str, oauth: OAuthServer, scenario: str
) -> None:
    make, sentence = WRONG[scenario]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([tool_with(oauth, make(oauth))])) as runtime:
        events = await ask(runtime)
        assert (status(events), requests(events)) == ("done", [])
        [result] = results(events)
        assert sentence in str(result)
        assert oauth.client_secret not in str(events)


# -- what a user answers ----------------------------------------------------------------------------------------------

ASKING: dict[str, Callable[[OAuthServer], AuthConfig]] = {
    "OAuth without a key of its own": oauth_config,
    "OpenID Connect": openid,
    "addresses that the server publishes": lambda o: discovered(o, o.url),
    "a secret in the body": lambda o: oauth_config(o, token_endpoint_auth_method="client_secret_post"),
    "PKCE": lambda o: oauth_config(o, code_challenge_method="S256"),
    "a client without a secret": lambda o: oauth_config(o, secret=None, code_challenge_method="S256"),
    "further parameters of the address": lambda o: oauth_config(o, prompt="consent", audience="the api", nonce="n"),
}


@pytest.mark.parametrize("scenario", ASKING)
async def test_a_user_allows_the_access_once_for_all_processes(
    sqlite_url: str, oauth: OAuthServer, scenario: str
) -> None:
    make = ASKING[scenario]
    oauth.public = scenario == "a client without a secret"
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([tool_with(oauth, make(oauth))])) as runtime:
        [request] = requests(await ask(runtime))
    assert request.scheme_type == ("openIdConnect" if scenario == "OpenID Connect" else "oauth2")
    if scenario == "OpenID Connect":
        assert request.scopes == ("openid", "profile")
    if scenario == "further parameters of the address":
        assert "prompt=consent" in request.auth_url
        assert "audience=the+api" in request.auth_url or "audience=the%20api" in request.auth_url
    async with open_runtime(
        settings_for(sqlite_url), root_agent=agent([tool_with(oauth, make(oauth))], "done")
    ) as runtime:
        events = await give(runtime, request.id, await oauth.allow(request.auth_url) + "#")
        assert (status(events), results(events)) == ("done", [{"account": "alice"}])
    if not oauth.public:
        assert set(oauth.client_methods) == {"post" if scenario == "a secret in the body" else "basic"}
    oauth.expire_all()
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([tool_with(oauth, make(oauth))])) as runtime:
        events = await ask(runtime, "again")
        assert requests(events) == []
        assert oauth.grants == ["authorization_code"]


async def test_two_tools_with_one_key_ask_once(sqlite_url: str, oauth: OAuthServer) -> None:
    config = oauth.config()
    tools = [tool_with(oauth, config, name) for name in ("one", "two")]
    calls = [ToolCall("c1", "one", {}), ToolCall("c2", "two", {})]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(tools, calls)) as runtime:
        [request] = requests(await ask(runtime))
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(tools, "both")) as runtime:
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        assert (status(events), text_of(events)) == ("done", "both")
        assert results(events) == [{"account": "alice"}, {"account": "alice"}]
        assert oauth.grants == ["authorization_code"]


async def test_a_token_that_cannot_be_refreshed_is_given_to_the_tool_as_it_is(
    sqlite_url: str, oauth: OAuthServer
) -> None:
    oauth.expires_in = 1
    script = [ToolCall("c1", "account", {}), "first", ToolCall("c2", "account", {}), "second"]
    root = agent([tool_with(oauth, oauth.config())], *script)
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        [request] = requests(await ask(runtime))
        await give(runtime, request.id, await oauth.allow(request.auth_url))
        oauth.refused_grants.add("refresh_token")
        oauth.expire_all()
        events = await ask(runtime, "again")
        assert (requests(events), results(events)) == ([], [{"account": None}])
        assert oauth.grants[-1] == "refresh_token"


@pytest.mark.parametrize("tool", ["function", "OpenAPI"])
async def test_a_refresh_token_that_is_not_replaced_stays_valid(sqlite_url: str, oauth: OAuthServer, tool: str) -> None:
    oauth.expires_in, oauth.rotates = 1, False
    config = oauth.config()
    script = [step for n in range(3) for step in (ToolCall(f"c{n}", "account", {}), "done")]
    made: Any = tool_with(oauth, config) if tool == "function" else rest_tools(oauth, config)
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([made], *script)) as runtime:
        [request] = requests(await ask(runtime))
        await give(runtime, request.id, await oauth.allow(request.auth_url))
        for _ in range(2):
            events = await ask(runtime, "again")
            assert requests(events) == []
            assert "alice" in str(results(events))
        assert oauth.grants.count("refresh_token") >= 2


async def test_an_address_of_the_configuration_is_where_the_user_goes(sqlite_url: str, oauth: OAuthServer) -> None:
    members = {"auth_uri": f"{oauth.url}/authorize?state=n1&redirect_uri=http://127.0.0.1:1/", "state": "n1"}
    config = oauth_config(oauth, key="account", redirect_uri="http://127.0.0.1:1/", **members)
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([tool_with(oauth, config)])) as runtime:
        [request] = requests(await ask(runtime))
        assert request.auth_url == members["auth_uri"]
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        assert (status(events), results(events)) == ("done", [{"account": "alice"}])


# -- who asks, and who answers ----------------------------------------------------------------------------------------


async def test_an_answer_cannot_choose_the_key_or_the_token_endpoint(sqlite_url: str, oauth: OAuthServer) -> None:
    """ADK's clients send the whole configuration back, which they may have changed."""
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([tool_with(oauth, oauth.config())])) as runtime:
        [request] = requests(await ask(runtime))
        query = parse_qs(urlsplit(await oauth.allow(request.auth_url)).query)
        elsewhere = OAuthServer(url="http://127.0.0.1:1", client_secret="a secret of the client").config(key="another")
        given = OAuth2Auth(auth_code=query["code"][0], state=query["state"][0])
        elsewhere.exchanged_auth_credential = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=given)
        value = elsewhere.model_dump(mode="json", exclude_none=True, by_alias=True)
        events = await give(runtime, request.id, value)
        assert (status(events), results(events)) == ("done", [{"account": "alice"}])
        assert [kept.key for kept in await runtime.credentials.list()] == ["account"]


async def test_an_agent_that_was_asked_for_a_credential_transfers_back(sqlite_url: str, oauth: OAuthServer) -> None:
    def root(*script: Any) -> LlmAgent:
        model = ProviderLlm(ScriptedProvider(script), "m")
        child = LlmAgent(name="child", model=model, tools=[tool_with(oauth, oauth.config())])
        return LlmAgent(name="root", model=model, sub_agents=[child])

    def to(name: str, call_id: str) -> ToolCall:
        return ToolCall(call_id, "transfer_to_agent", {"agent_name": name})

    asking = root(to("child", "t1"), ToolCall("c1", "account", {}))
    async with open_runtime(settings_for(sqlite_url), root_agent=asking) as runtime:
        [request] = requests(await ask(runtime))
        assert request.author == "child"
    async with open_runtime(settings_for(sqlite_url), root_agent=root(to("root", "t2"), "back")) as runtime:
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        assert (status(events), text_of(events)) == ("done", "back")
        assert results(events)[0] == {"account": "alice"}


async def test_two_answers_come_one_after_the_other(store_url: str, oauth: OAuthServer) -> None:
    """The second tool waits while the first one has run, as in ADK's test of partial answers."""
    tools = [tool_with(oauth, oauth.config(key=name), name) for name in ("one", "two")]
    calls = [ToolCall("c1", "one", {}), ToolCall("c2", "two", {})]
    async with open_runtime(settings_for(store_url), root_agent=agent(tools, calls)) as runtime:
        first, second = requests(await ask(runtime))
    async with open_runtime(settings_for(store_url), root_agent=agent(tools)) as runtime:
        events = await give(runtime, second.id, await oauth.allow(second.auth_url))
        assert (status(events), results(events)) == ("credential", [{"account": "alice"}])
    async with open_runtime(settings_for(store_url), root_agent=agent(tools, "both")) as runtime:
        events = await give(runtime, first.id, await oauth.allow(first.auth_url))
        assert (status(events), text_of(events)) == ("done", "both")
