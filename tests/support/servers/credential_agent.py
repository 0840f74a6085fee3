"""An agent for servers and terminals under test, whose tools need credentials of the user.

The message is the name of the tool: `account` needs an OAuth access, `key` a key, `password` a name and a password,
`token` a bearer token, `vault` a consent in a vault; any other message comes back. Tools say what they were given, and
show no secret. The OAuth server is that of the environment; see `environment`.
"""

import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
from fastapi.openapi.models import APIKey, HTTPBase
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.base_auth_provider import BaseAuthProvider
from google.adk.auth.credential_manager import CredentialManager
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from pydantic import Field
from typing_extensions import override

from lango.adk import ProviderLlm
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.testing import deltas_of
from tests.support.servers.oauth_server import OAuthServer

FILE = Path(__file__)
NAMES = ("account", "key", "password", "token", "vault")


def environment(oauth: OAuthServer, callback: str = "http://127.0.0.1:1/v1/oauth/callback") -> dict[str, str]:
    """Return the variables that the agent's process needs."""
    return {
        "TEST_OAUTH_URL": oauth.url,
        "TEST_OAUTH_SECRET": oauth.client_secret,
        "TEST_OAUTH_CALLBACK": callback,
        KEY_VARIABLE: new_key(),
    }


class _Provider:
    name = "obedient"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        if last.role == "tool":
            output = last.tool_calls[0].output or {}
            yield TextDelta(f"it got {output.get('got', output)}")
        elif last.content in NAMES:
            for delta in deltas_of([ToolCall(f"call_{last.content}", last.content, {})]):
                yield delta
            return
        else:
            yield TextDelta(last.content)
        yield Finish("stop")


def _oauth_config() -> AuthConfig:
    server = OAuthServer(url=os.environ["TEST_OAUTH_URL"], client_secret=os.environ["TEST_OAUTH_SECRET"])
    return server.config(os.environ["TEST_OAUTH_CALLBACK"], pkce=True)


async def account(credential: AuthCredential) -> dict[str, Any]:
    """Return the name of the user's account."""
    assert credential.oauth2
    headers = {"Authorization": f"Bearer {credential.oauth2.access_token}"}
    async with httpx.AsyncClient() as client:
        return {"got": (await client.get(f"{os.environ['TEST_OAUTH_URL']}/api", headers=headers)).json()["user"]}


def key(credential: AuthCredential) -> dict[str, Any]:
    """Return the length of the key."""
    return {"got": f"a key of {len(credential.api_key or '')}"}


def password(credential: AuthCredential) -> dict[str, Any]:
    """Return the name, and the length of the password."""
    assert credential.http
    given = credential.http.credentials
    return {"got": f"{credential.http.scheme} {given.username} and {len(given.password or '')}"}


def token(credential: AuthCredential) -> dict[str, Any]:
    """Return the length of the token."""
    assert credential.http
    return {"got": f"{credential.http.scheme} {len(credential.http.credentials.token or '')}"}


def vault(credential: AuthCredential) -> dict[str, Any]:
    """Return the length of the key in the vault."""
    return {"got": f"a key of {len(credential.api_key or '')} from the vault"}


class _Vault(CustomAuthScheme):
    type_: str = Field(default="vault", alias="type")
    description: str = "the vault"


class _VaultProvider(BaseAuthProvider):
    """Gives a key when the user says that the access is allowed."""

    @property
    @override
    def supported_auth_schemes(self) -> Any:
        return (_Vault,)

    @override
    async def get_auth_credential(self, auth_config: AuthConfig, context: CallbackContext) -> AuthCredential:
        if context.get_auth_response(auth_config) is not None:
            return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="vault")
        consent = OAuth2Auth(auth_uri="https://vault.example/allow")
        return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=consent)


def _tool(function: Callable[..., Any], config: AuthConfig) -> AuthenticatedFunctionTool:
    return AuthenticatedFunctionTool(func=function, auth_config=config)


def _http(scheme: str) -> AuthConfig:
    made = HTTPBase(scheme=scheme, description=f"the {scheme} service")
    return AuthConfig(auth_scheme=made, credential_key=scheme)


_KEY = APIKey.model_validate({"type": "apiKey", "in": "header", "name": "X-Key", "description": "the weather service"})

if "TEST_OAUTH_URL" in os.environ:
    CredentialManager.register_auth_provider(_VaultProvider())
    root_agent = LlmAgent(
        name="obedient",
        model=ProviderLlm(_Provider(), "m"),
        tools=[
            _tool(account, _oauth_config()),
            _tool(key, AuthConfig(auth_scheme=_KEY, credential_key="weather")),
            _tool(password, _http("basic")),
            _tool(token, _http("bearer")),
            _tool(vault, AuthConfig(auth_scheme=_Vault(), credential_key="vault")),
        ],
    )
