"""A real MCP server over HTTP that demands a token: the same for all, or one of each user."""

import asyncio
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from google.adk.tools.openapi_tool.auth.credential_exchangers.service_account_exchanger import (
    ServiceAccountCredentialExchanger,
)
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import Response

from lango import Settings, open_runtime
from lango.errors import ConfigError, MissingCredentials, StateRefused
from lango.events import ToolEnd, TurnDone, WaitOpened
from lango.messages import ToolCall
from lango.sessions import SessionId
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.store.sessions.sessions import create_session
from lango.testing import ScriptedProvider
from lango.waits import CredentialWait
from tests.agents.answers import opened, submit_credential
from tests.agents.parts import collect
from tests.support.runtimes import store_of
from tests.support.servers.oauth_server import CLIENT_ID, OAuthServer, oauth_server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@contextmanager
def mcp_server(oauth: OAuthServer, static_token: str = "") -> Generator[str]:
    """Serve a tool that says whose token it was called with; requests without a valid one get 401."""
    server = MCPServer("mail")
    callers: list[str] = []

    @server.tool()
    def mailbox() -> str:
        """Return whose mailbox this is."""
        return f"of {callers[-1]}"

    inner = server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            token = (Request(scope).headers.get("authorization") or "").removeprefix("Bearer ")
            whose = "everyone" if static_token and token == static_token else oauth.whose(token)
            if whose is None:
                await Response(status_code=401)(scope, receive, send)
                return
            callers.append(whose)
        await inner(scope, receive, send)

    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            thread.join(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        running.should_exit = True
        thread.join()


def settings(url: str, **server: Any) -> Settings:
    return Settings.model_validate(
        {
            "agent": {"model": "openai/scripted"},
            "store": {"url": "sqlite://"},
            "tools": {"approval": "auto"},
            "mcp": {"mail": {"url": url, **server}},
        }
    )


def with_oauth(oauth: OAuthServer) -> dict[str, Any]:
    return {
        "authorization_url": f"{oauth.url}/authorize",
        "token_url": f"{oauth.url}/token",
        "client_id": CLIENT_ID,
        "client_secret_env": "MAIL_SECRET",
        "scopes": ["mail"],
    }


async def test_headers_are_sent_with_the_values_of_variables(
    oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_TOKEN", "static-token")
    provider = ScriptedProvider([ToolCall("c1", "mailbox", {}), "done"])
    with mcp_server(oauth, "static-token") as url:
        own = settings(url, headers={"Authorization": "Bearer ${MAIL_TOKEN}"})
        async with open_runtime(own, provider=provider) as runtime:
            events = await collect(runtime.stream("s", "whose?"))
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert "of everyone" in str(end.result)


async def test_each_user_allows_the_access_with_their_own_account(
    oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_SECRET", oauth.client_secret)
    provider = ScriptedProvider([answer for _ in range(3) for answer in (ToolCall("c1", "mailbox", {}), "done")])
    with mcp_server(oauth) as url:
        async with open_runtime(settings(url, oauth=with_oauth(oauth)), provider=provider) as runtime:
            for user in ("alice", "bob"):
                oauth.user = user
                events = await collect(runtime.stream("s", "whose?", user_id=user))
                assert isinstance(events[-1], TurnDone), events
                [request] = opened(events, CredentialWait)
                assert (request.message, request.scopes) == ("the MCP server mail", ("mail",))
                address = await oauth.allow(request.auth_url)
                turn = await submit_credential(runtime, "s", request.id, address, user_id=user)
                events = await collect(turn.follow())
                [end] = [event for event in events if isinstance(event, ToolEnd)]
                assert f"of {user}" in str(end.result)
            events = await collect(runtime.stream("s", "again?", user_id="alice"))
            [end] = [event for event in events if isinstance(event, ToolEnd)]
            assert "of alice" in str(end.result)
            assert [one.key for one in await runtime.credentials.list(user_id="alice")] == ["mcp:mail"]


async def test_attack_21_no_credential_of_a_client_reaches_the_server(
    oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    """A token of the server's own identity would be sent to it; one that is stored in clear is not used either."""
    monkeypatch.setenv("MAIL_SECRET", oauth.client_secret)
    exchanged: list[Any] = []

    def exchange(*given: Any) -> None:
        exchanged.append(given)

    monkeypatch.setattr(ServiceAccountCredentialExchanger, "exchange_credential", exchange)
    account = {"use_default_credential": True, "scopes": ["all"]}
    credential = {"auth_type": "serviceAccount", "service_account": account}
    provider = ScriptedProvider([ToolCall("c1", "mailbox", {}), "done"])
    with mcp_server(oauth) as url:
        own = settings(url, oauth=with_oauth(oauth))
        own = own.with_store(store_url)
        async with open_runtime(own, provider=provider) as runtime:
            for state in ({"mcp:mail": credential}, {"mcp:mail": "a token"}, {"user:mcp:mail": "a token"}):
                with pytest.raises(StateRefused, match="mcp:mail"):
                    await runtime.sessions.create("s", state=state)
            name = SessionId(runtime.app_name, "user", "s")
            await store_of(runtime).write(create_session, name, {"mcp:mail": credential}, time.time())
            events = await collect(runtime.stream("s", "whose?"))
    assert [
        event.wait.message
        for event in events
        if isinstance(event, WaitOpened) and isinstance(event.wait, CredentialWait)
    ] == ["the MCP server mail"]
    assert exchanged == []


async def test_a_missing_variable_is_named_at_the_start() -> None:
    with pytest.raises(MissingCredentials, match="MAIL_TOKEN"):
        async with open_runtime(settings("http://127.0.0.1:1", headers={"X": "${MAIL_TOKEN}"})):
            await asyncio.sleep(0)


async def test_a_command_takes_neither_headers_nor_oauth(oauth: OAuthServer) -> None:
    for options in ({"headers": {"X": "1"}}, {"oauth": with_oauth(oauth) | {"client_secret_env": ""}}):
        with pytest.raises(ConfigError, match="with env"):
            async with open_runtime(settings("", command="true", **options)):
                await asyncio.sleep(0)
