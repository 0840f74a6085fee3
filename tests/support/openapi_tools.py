"""A tool of an OpenAPI document that asks the API of the OAuth server whose account it is."""

from collections.abc import Callable

import httpx
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.openapi_tool import OpenAPIToolset
from typing_extensions import override

from tests.support.servers.oauth_server import OAuthServer

ANSWERED = 200


class _ToTheServer(httpx.AsyncHTTPTransport):
    """Sends each request to the server on this machine: ADK's tools refuse to call such an address."""

    def __init__(self, oauth: OAuthServer, effect: Callable[[], None]) -> None:
        super().__init__()
        self._url = httpx.URL(oauth.url)
        self._effect = effect

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host=self._url.host, port=self._url.port)
        answer = await super().handle_async_request(request)
        if answer.status_code == ANSWERED:
            self._effect()
        return answer


def rest_tools(oauth: OAuthServer, config: AuthConfig, effect: Callable[[], None] = lambda: None) -> OpenAPIToolset:
    """Make a toolset with the tool "account"; `effect` is called with each answer of the API."""
    operation = {"operationId": "account", "responses": {"200": {"description": "whose account it is"}}}
    document = {
        "openapi": "3.0.0",
        "info": {"title": "accounts", "version": "1"},
        "servers": [{"url": "http://1.1.1.1"}],
        "paths": {"/api": {"get": operation}},
    }
    return OpenAPIToolset(
        spec_dict=document,
        auth_scheme=config.auth_scheme,
        auth_credential=config.raw_auth_credential,
        credential_key=config.credential_key,
        httpx_client_factory=lambda: httpx.AsyncClient(transport=_ToTheServer(oauth, effect)),
    )
