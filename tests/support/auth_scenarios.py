"""Tools and agents for scenarios of authentication, on the OAuth server of this machine."""

from collections.abc import Sequence
from typing import Any

import httpx
from fastapi.openapi.models import APIKey, HTTPBearer, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from google.adk.auth.auth_schemes import ExtendedOAuth2, OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools import BaseTool
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool

from lango.adk import ProviderLlm
from lango.events import ToolEnd, TurnEvent
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.waits import CredentialWait
from tests.agents.answers import opened, submit_credential, waiting_for
from tests.agents.parts import collect
from tests.support.servers.oauth_server import CLIENT_ID, OAuthServer


async def account_of(oauth: OAuthServer, credential: AuthCredential | None) -> dict[str, Any]:
    """Ask the API whose token this is."""
    token = credential.oauth2.access_token if credential and credential.oauth2 else None
    async with httpx.AsyncClient() as client:
        found = (await client.get(f"{oauth.url}/api", headers={"Authorization": f"Bearer {token}"})).json()
    return {"account": found["user"]}


def tool_with(oauth: OAuthServer, config: AuthConfig, name: str = "account", **options: Any) -> BaseTool:
    async def account(credential: AuthCredential) -> dict[str, Any]:
        """Return whose account it is."""
        return await account_of(oauth, credential)

    account.__name__ = name
    return AuthenticatedFunctionTool(func=account, auth_config=config, **options)


def secret_tool(config: AuthConfig) -> BaseTool:
    def account(credential: AuthCredential) -> dict[str, Any]:
        """Show the length of the secret."""
        http = credential.http.credentials if credential.http else None
        secret = credential.api_key or (http.token or http.password if http else "") or ""
        return {"characters": len(secret)}

    return AuthenticatedFunctionTool(func=account, auth_config=config)


def oauth_config(oauth: OAuthServer, *, secret: str | None = "", key: str | None = None, **members: Any) -> AuthConfig:
    """Return a configuration without a key of its own; `members` are those of `OAuth2Auth`."""
    config = oauth.config()
    raw = config.raw_auth_credential
    assert raw
    assert raw.oauth2
    raw.oauth2 = raw.oauth2.model_copy(
        update={"client_secret": oauth.client_secret if secret == "" else secret, **members}
    )
    return AuthConfig(auth_scheme=config.auth_scheme, raw_auth_credential=raw, credential_key=key)


def openid(oauth: OAuthServer, *grants: str) -> AuthConfig:
    scheme = OpenIdConnectWithConfig(
        authorization_endpoint=f"{oauth.url}/authorize",
        token_endpoint=f"{oauth.url}/token",
        scopes=["openid", "profile"],
        grant_types_supported=[*grants] or None,
    )
    oauth2 = OAuth2Auth(
        client_id=CLIENT_ID, client_secret=oauth.client_secret, redirect_uri="http://127.0.0.1:1/callback"
    )
    raw = AuthCredential(auth_type=AuthCredentialTypes.OPEN_ID_CONNECT, oauth2=oauth2)
    return AuthConfig(auth_scheme=scheme, raw_auth_credential=raw)


def discovered(oauth: OAuthServer, issuer_url: str) -> AuthConfig:
    flow = OAuthFlowAuthorizationCode(authorizationUrl="", tokenUrl="", scopes={"read": ""})
    scheme = ExtendedOAuth2(issuer_url=issuer_url, flows=OAuthFlows(authorizationCode=flow))
    return AuthConfig(auth_scheme=scheme, raw_auth_credential=oauth.config().raw_auth_credential)


def api_key(raw: AuthCredential | None) -> AuthConfig:
    scheme = APIKey.model_validate({"type": "apiKey", "in": "header", "name": "X-Key"})
    return AuthConfig(auth_scheme=scheme, raw_auth_credential=raw)


def bearer(raw: AuthCredential | None) -> AuthConfig:
    return AuthConfig(auth_scheme=HTTPBearer(), raw_auth_credential=raw)


KEY = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="0123456789")
TOKEN = AuthCredential(
    auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(scheme="bearer", credentials=HttpCredentials(token="0123456789"))
)


def agent(tools: Sequence[Any], *answers: Any) -> LlmAgent:
    provider = ScriptedProvider(answers or [ToolCall("c1", "account", {}), "done"])
    return LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[*tools])


def requests(events: list[TurnEvent]) -> list[CredentialWait]:
    return opened(events, CredentialWait)


def results(events: list[TurnEvent]) -> list[Any]:
    return [event.result for event in events if isinstance(event, ToolEnd)]


def status(events: list[TurnEvent]) -> str:
    return waiting_for(events)


async def ask(runtime: Runtime, text: str = "go") -> list[TurnEvent]:
    return await collect(runtime.stream("s", text))


async def give(runtime: Runtime, call_id: str, value: Any) -> list[TurnEvent]:
    return await collect((await submit_credential(runtime, "s", call_id, value)).follow())
