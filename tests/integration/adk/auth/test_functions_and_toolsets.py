"""Scenarios of ADK's own tests of authentication: functions, schemes of one's own, and toolsets."""

from typing import Any

import pytest
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    OAuth2Auth,
)
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.base_auth_provider import BaseAuthProvider
from google.adk.auth.credential_manager import CredentialManager
from google.adk.tools import BaseTool, FunctionTool, ToolContext
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.base_toolset import BaseToolset
from pydantic import Field
from typing_extensions import override

from lango import open_runtime
from lango.errors import InvalidAnswer
from lango.messages import ToolCall
from tests.agents.answers import submit_credential
from tests.agents.parts import settings_for
from tests.support.auth_scenarios import (
    KEY,
    account_of,
    agent,
    api_key,
    ask,
    give,
    requests,
    results,
    secret_tool,
    status,
    tool_with,
)
from tests.support.servers.oauth_server import OAuthServer

pytestmark = [  # of what ADK does itself: it derives the key of a configuration, and sends requests
    pytest.mark.filterwarnings("ignore:This method is deprecated. Use credential_key:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning"),
]


# -- functions --------------------------------------------------------------------------------------------------------


class CalledObject:
    """An object that is called as a function."""

    async def __call__(self, credential: AuthCredential) -> dict[str, Any]:
        """Return what was given."""
        return {"kind": credential.auth_type.value}


def with_context(tool_context: ToolContext, credential: AuthCredential) -> dict[str, Any]:
    """Return what was given."""
    return {"kind": credential.auth_type.value, "state": "n" in tool_context.state}


def without_parameter() -> dict[str, Any]:
    """Return something."""
    return {"kind": "none"}


def with_default(credential: AuthCredential | None = None) -> dict[str, Any]:
    """Return what was given."""
    return {"kind": credential.auth_type.value if credential else None}


def failing(credential: AuthCredential) -> dict[str, Any]:
    """Fail."""
    raise ValueError("no such city")


def with_argument(city: str, credential: AuthCredential) -> dict[str, Any]:
    """Return the city."""
    return {"city": city}


FUNCTIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an object": (CalledObject(), {}, "'kind': 'apiKey'"),
    "a context beside the credential": (with_context, {}, "'kind': 'apiKey', 'state': False"),
    "no parameter for the credential": (without_parameter, {}, "'kind': 'none'"),
    "a credential with a default": (with_default, {}, "'kind': 'apiKey'"),
    "a function that fails": (failing, {}, "no such city"),
    "an argument that is missing": (with_argument, {}, "city"),
    "an argument": (with_argument, {"city": "Rome"}, "'city': 'Rome'"),
}


@pytest.mark.parametrize("scenario", FUNCTIONS)
async def test_functions_get_the_credential_as_in_adk(sqlite_url: str, scenario: str) -> None:
    function, arguments, expected = FUNCTIONS[scenario]
    tool = AuthenticatedFunctionTool(func=function, auth_config=api_key(None))
    root = agent([tool], ToolCall("c1", tool.name, arguments), "done")
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        [request] = requests(await ask(runtime))
        assert (request.scheme_type, request.auth_url) == ("apiKey", "")
        events = await give(runtime, request.id, "0123456789")
        assert status(events) == "done"
        assert expected in str(results(events)[0])


async def test_a_function_without_a_configuration_runs_without_a_credential(sqlite_url: str) -> None:
    tool = AuthenticatedFunctionTool(func=with_default)
    root = agent([tool], ToolCall("c1", tool.name, {}), "done")
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert results(await ask(runtime)) == [{"kind": None}]


@pytest.mark.parametrize("response", [{"status": "sign in, please"}, "sign in, please"], ids=["object", "text"])
async def test_a_tool_says_itself_that_it_waits(sqlite_url: str, oauth: OAuthServer, response: Any) -> None:
    root = agent([tool_with(oauth, oauth.config(), response_for_auth_required=response)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await ask(runtime)
        assert len(requests(events)) == 1
        assert "sign in, please" in str(results(events))


# -- schemes of one's own ---------------------------------------------------------------------------------------------


class Vault(CustomAuthScheme):
    type_: str = Field(default="vault", alias="type")
    path: str = ""


class VaultProvider(BaseAuthProvider):
    """Gives what the vault has; a user must allow the access first if it is none."""

    def __init__(self) -> None:
        self.has: AuthCredential | None = None
        self.paths: list[str] = []

    @property
    @override
    def supported_auth_schemes(self) -> Any:
        return (Vault,)

    @override
    async def get_auth_credential(self, auth_config: AuthConfig, context: CallbackContext) -> AuthCredential | None:
        scheme = auth_config.auth_scheme
        assert isinstance(scheme, Vault)
        self.paths.append(scheme.path)
        return self.has


VAULT = VaultProvider()


@pytest.fixture
def vault() -> VaultProvider:
    if not VAULT.paths:
        CredentialManager.register_auth_provider(VAULT)
    VAULT.paths, VAULT.has = ["registered"], None
    return VAULT


def vault_tool() -> BaseTool:
    return secret_tool(AuthConfig(auth_scheme=Vault(path="weather"), credential_key="vault"))


async def test_a_provider_of_ones_own_gives_the_credential(sqlite_url: str, vault: VaultProvider) -> None:
    vault.has = KEY
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([vault_tool()])) as runtime:
        events = await ask(runtime)
        assert (requests(events), results(events)) == ([], [{"characters": 10}])
        assert vault.paths[-1] == "weather"


@pytest.mark.parametrize("answer", ["allowed", "https://vault.example/done?code=c&state=n1", "adk"])
async def test_a_provider_of_ones_own_lets_the_user_allow_the_access(
    sqlite_url: str, vault: VaultProvider, answer: str
) -> None:
    consent = OAuth2Auth(auth_uri="https://vault.example/allow?state=n1", state="n1")
    vault.has = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=consent)
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([vault_tool()])) as runtime:
        [request] = requests(await ask(runtime))
        assert (request.scheme_type, request.auth_url) == ("vault", "https://vault.example/allow?state=n1")
    vault.has, asked = KEY, vault.has  # the user allowed it meanwhile
    value = asked.model_dump(mode="json", exclude_none=True) if answer == "adk" else answer
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([vault_tool()], "done")) as runtime:
        for wrong in ("", "https://vault.example/done?code=c&state=n2", "https://vault.example/done?error=no"):
            with pytest.raises(InvalidAnswer):
                await submit_credential(runtime, "s", request.id, wrong)
        events = await give(runtime, request.id, value)
        assert (status(events), results(events)) == ("done", [{"characters": 10}])


async def test_a_provider_without_a_credential_fails_the_tool(sqlite_url: str, vault: VaultProvider) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([vault_tool()])) as runtime:
        assert "AuthProvider did not return a credential" in str(results(await ask(runtime)))


class Unknown(CustomAuthScheme):
    type_: str = Field(default="unknown", alias="type")


async def test_a_scheme_without_a_provider_fails_the_tool(sqlite_url: str) -> None:
    root = agent([secret_tool(AuthConfig(auth_scheme=Unknown(), credential_key="unknown"))])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert "No auth provider registered" in str(results(await ask(runtime)))


# -- toolsets ---------------------------------------------------------------------------------------------------------


class Toolset(BaseToolset):
    """A toolset of one's own, with one tool that uses the credential of the toolset."""

    def __init__(self, oauth: OAuthServer, config: AuthConfig | None) -> None:
        super().__init__()
        self.config, self.oauth = config, oauth

    @override
    def get_auth_config(self) -> AuthConfig | None:
        return self.config

    @override
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        async def account(tool_context: ToolContext) -> dict[str, Any]:
            """Return whose account it is."""
            known = tool_context.get_invocation_context().credential_by_key
            credential = known.get(self.config.credential_key or "") if self.config else None
            return await account_of(self.oauth, credential)

        return [FunctionTool(account)]


async def test_a_toolset_without_a_configuration_does_not_ask(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([Toolset(oauth, None)])) as runtime:
        assert results(await ask(runtime)) == [{"account": None}]


async def test_toolsets_ask_before_their_tools_are_listed(sqlite_url: str, oauth: OAuthServer) -> None:
    config = oauth.config()
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([Toolset(oauth, config)])) as runtime:
        [request] = requests(await ask(runtime))
    assert config.exchanged_auth_credential is None, "the configuration is shared by all users"
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([Toolset(oauth, config)])) as runtime:
        events = await give(runtime, request.id, await oauth.allow(request.auth_url))
        assert (status(events), results(events)) == ("done", [{"account": "alice"}])
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([Toolset(oauth, config)])) as runtime:
        assert results(await ask(runtime, "again")) == [{"account": "alice"}]
