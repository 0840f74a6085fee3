"""Attack 22: a token server that does not answer stops the turn that asked it, after a limit, and no other."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.auth import oauth2_credential_util

from lango import open_runtime
from lango.adk.agents import tool_credentials
from lango.errors import CredentialTimeout
from lango.messages import ToolCall
from tests.agents.answers import submit_credential
from tests.agents.parts import TIMEOUT_S, collect, settings_for, text_of
from tests.support.auth_scenarios import agent, ask, oauth_config, openid, requests, results, tool_with
from tests.support.openapi_tools import rest_tools
from tests.support.servers.oauth_server import OAuthServer

pytestmark = [
    pytest.mark.filterwarnings("ignore:This method is deprecated. Use credential_key:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning"),
]

Tools = Callable[[OAuthServer], Any]
TOOLS: dict[str, Tools] = {
    "a function": lambda oauth: tool_with(oauth, oauth_config(oauth)),
    "a function without a secret": lambda oauth: tool_with(oauth, oauth_config(oauth, secret=None)),
    "openid": lambda oauth: tool_with(oauth, openid(oauth)),
    "an OpenAPI document": lambda oauth: rest_tools(oauth, oauth_config(oauth)),
}
every_tool = pytest.mark.parametrize("make", TOOLS.values(), ids=TOOLS.keys())
CALLS = (ToolCall("c1", "account", {}), ToolCall("c2", "account", {}))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time limit but ours end the wait, however busy the machine is."""
    monkeypatch.setattr(oauth2_credential_util, "_TOKEN_REQUEST_TIMEOUT_SECONDS", TIMEOUT_S)
    monkeypatch.setattr(tool_credentials, "LIMIT_S", TIMEOUT_S)


async def until_asked(oauth: OAuthServer) -> None:
    assert await asyncio.to_thread(oauth.asked.wait, TIMEOUT_S)


@every_tool
async def test_attack_22_others_are_served_while_a_token_server_hangs(
    sqlite_url: str, oauth: OAuthServer, make: Tools
) -> None:
    oauth.public = make is TOOLS["a function without a secret"]
    root = agent([make(oauth)], CALLS[0], "hello bob", "done")
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        [request] = requests(await ask(runtime))
        address = await oauth.allow(request.auth_url)
        oauth.hangs = True
        turn = await submit_credential(runtime, "s", request.id, address)
        await until_asked(oauth)
        assert text_of(await collect(runtime.stream("s", "hi", user_id="bob"))) == "hello bob"
        assert oauth.grants == [], "the token server has not answered yet"
        oauth.may_answer.set()
        [result] = results(await collect(turn.follow()))
    assert "alice" in str(result)
    assert oauth.grants == ["authorization_code"]


@every_tool
async def test_attack_22_the_limit_ends_the_wait_for_a_token_server(
    sqlite_url: str, oauth: OAuthServer, make: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_credentials, "LIMIT_S", 0.2)
    oauth.public = make is TOOLS["a function without a secret"]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent([make(oauth)])) as runtime:
        [request] = requests(await ask(runtime))
        address = await oauth.allow(request.auth_url)
        oauth.hangs = True
        events = await collect((await submit_credential(runtime, "s", request.id, address)).follow())
        [result] = results(events)
        assert "the token server did not answer within 0.2 s" in str(result)
        oauth.may_answer.set()


@pytest.mark.parametrize("name", ["a function", "an OpenAPI document"])
async def test_attack_22_calls_at_once_exchange_a_credential_once(
    store_url: str, oauth: OAuthServer, name: str
) -> None:
    """Each of two calls of one answer finds the code: it counts once."""
    root = agent([TOOLS[name](oauth)], [*CALLS], "done")
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        asked = requests(await ask(runtime))
        address = await oauth.allow(asked[0].auth_url)
        events = await collect((await submit_credential(runtime, "s", asked[0].id, address)).follow())
        for request in asked[1:]:
            address = await oauth.allow(request.auth_url)
            events += await collect((await submit_credential(runtime, "s", request.id, address)).follow())
        found = results(events)
    assert ["alice" in str(result) for result in found] == [True, True], found
    assert oauth.grants.count("authorization_code") <= len(asked)


async def test_attack_22_open_exchanges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    started, released = threading.Semaphore(0), threading.Event()

    async def exchange() -> None:
        started.release()
        released.wait(TIMEOUT_S)

    monkeypatch.setattr(tool_credentials, "_slots", threading.BoundedSemaphore(2))
    run = vars(tool_credentials)["_exchange"]
    tasks = [asyncio.create_task(run(exchange)) for _ in range(2)]
    for _ in tasks:
        assert await asyncio.to_thread(started.acquire, timeout=TIMEOUT_S)
    with pytest.raises(CredentialTimeout, match="too many"):
        await run(exchange)
    released.set()
    await asyncio.gather(*tasks)
    await run(exchange)
