"""Tools that need a credential of the user: the turn pauses, and the answer continues it, in any process."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import APIKey
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool

from lango import open_runtime
from lango.adk import AdkTool, ProviderLlm
from lango.adk.agents.tools.adk_tool import tool_from_adk
from lango.errors import CredentialKeyError, InvalidAnswer, ProviderRejected, WaitNotOpen
from lango.events import ToolEnd, TurnDone, TurnError, TurnEvent, to_json
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.testing import ScriptedProvider
from lango.waits import CredentialWait
from tests.agents.answers import approve, open_credentials, opened, submit_credential
from tests.agents.parts import collect, last_error, messages, rows, settings_for, text_of
from tests.support.kill_points import until_idle
from tests.support.processes import TIMEOUT_S
from tests.support.runtimes import expire_waits, store_of
from tests.support.servers.oauth_server import OAuthServer, oauth_server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_VARIABLE, made := new_key())
    return made


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


def account_tool(oauth: OAuthServer, name: str = "account", **options: Any) -> AuthenticatedFunctionTool:
    """Make a tool that asks the API who the user is."""

    async def whoami(credential: AuthCredential) -> dict[str, Any]:
        """Return the name of the user's account."""
        assert credential.oauth2
        async with httpx.AsyncClient() as client:
            answer = await client.get(
                f"{oauth.url}/api", headers={"Authorization": f"Bearer {credential.oauth2.access_token}"}
            )
        return {"status": answer.status_code, "account": answer.json()["user"]}

    whoami.__name__ = name
    return AuthenticatedFunctionTool(func=whoami, auth_config=oauth.config(**options))


SECRETS = "SELECT id FROM waits WHERE secret IS NOT NULL OR answer IS NOT NULL"
API_KEY = "api-key-0123456789abcdef"


def key_tool() -> AuthenticatedFunctionTool:
    """Make a tool that needs a key, and shows its last characters."""

    def show_key(credential: AuthCredential) -> dict[str, str]:
        """Show the end of the key."""
        return {"end": (credential.api_key or "")[-4:]}

    show_key.__name__ = "key"
    scheme = APIKey.model_validate({"type": "apiKey", "in": "header", "name": "X-Key"})
    return AuthenticatedFunctionTool(
        func=show_key, auth_config=AuthConfig(auth_scheme=scheme, credential_key="the key")
    )


async def everything(runtime: Runtime) -> str:
    """Return every value of every table."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if store_of(runtime).dialect == "postgres":
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    names = [name for [name] in await rows(store_of(runtime), tables)]
    return repr([await rows(store_of(runtime), f"SELECT * FROM {name}") for name in names])


def agent(oauth: OAuthServer, *answers: Any, **options: Any) -> LlmAgent:
    provider = ScriptedProvider(answers or [ToolCall("c1", "account", {}), "you are alice"])
    return LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[account_tool(oauth, **options)])


def needed(events: list[TurnEvent]) -> CredentialWait:
    [found] = opened(events, CredentialWait)
    return found


def done(events: list[TurnEvent]) -> TurnDone:
    assert isinstance(events[-1], TurnDone), events
    return events[-1]


async def ask(runtime: Runtime, text: str = "who am I?", session: str = "s", user: str = "user") -> CredentialWait:
    events = await collect(runtime.stream(session, text, user_id=user))
    assert done(events).waits[0].kind == "credential", events
    return needed(events)


async def answer(runtime: Runtime, call_id: str, value: Any, session: str = "s", user: str = "user") -> list[TurnEvent]:
    return await collect((await submit_credential(runtime, session, call_id, value, user_id=user)).follow())


@pytest.mark.parametrize("pkce", [False, True])
async def test_t4_a_tool_pauses_for_a_credential_and_goes_on_with_it(
    sqlite_url: str, oauth: OAuthServer, pkce: bool
) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth, pkce=pkce)) as runtime:
        request = await ask(runtime)
        assert request.auth_url.startswith(f"{oauth.url}/authorize?")
        assert (request.scheme_type, request.scopes) == ("oauth2", ("read", "write"))
        assert request.expires_at is not None
        assert [one.id for one in await open_credentials(runtime, "s")] == [request.id]
        events = await answer(runtime, request.id, await oauth.allow(request.auth_url))
        assert (done(events).status, text_of(events)) == ("done", "you are alice")
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.result == {"status": 200, "account": "alice"}
        assert await open_credentials(runtime, "s") == []
        assert await rows(store_of(runtime), SECRETS) == []
        [saved] = await runtime.credentials.list()
        assert (saved.kind, saved.scopes, saved.refreshable) == ("oauth2", ("read", "write"), True)


async def test_t4_the_answer_may_come_to_another_process(store_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, pkce=True)) as runtime:
        request = await ask(runtime)
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, "you are alice", pkce=True)) as another:
        events = await answer(another, request.id, await oauth.allow(request.auth_url))
        assert text_of(events) == "you are alice"


async def test_a_failed_turn_runs_again_with_the_stored_credential(sqlite_url: str, oauth: OAuthServer) -> None:
    script = [ToolCall("c1", "account", {}), ProviderRejected("not now"), "you are alice"]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime)
        events = await answer(runtime, request.id, await oauth.allow(request.auth_url))
        assert isinstance(events[-1], TurnError), events
        [failed] = await runtime.turns.failed()
        await runtime.turns.retry("s", failed.turn)
        await until_idle(runtime)
        assert (await messages(runtime))[-1].content == "you are alice"
        assert await open_credentials(runtime, "s") == []
        assert oauth.grants == ["authorization_code"], "the code is exchanged once"


async def test_the_next_use_takes_the_stored_credential(sqlite_url: str, oauth: OAuthServer) -> None:
    script = [ToolCall("c1", "account", {}), "first", ToolCall("c2", "account", {}), "second"]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime)
        await answer(runtime, request.id, await oauth.allow(request.auth_url))
        events = await collect(runtime.stream("another session", "again"))
        assert text_of(events) == "second"
        assert oauth.grants == ["authorization_code"]
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.result["account"] == "alice"


async def test_a_credential_belongs_to_one_user(store_url: str, oauth: OAuthServer) -> None:
    script = [ToolCall("c1", "account", {}), "alice", ToolCall("c1", "account", {}), "bob"]
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime, user="alice")
        await answer(runtime, request.id, await oauth.allow(request.auth_url), user="alice")
        oauth.user = "bob"
        other = await ask(runtime, user="bob")
        with pytest.raises(WaitNotOpen):
            await answer(runtime, other.id, await oauth.allow(other.auth_url), user="alice")
        events = await answer(runtime, other.id, await oauth.allow(other.auth_url), user="bob")
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.result["account"] == "bob"
        assert len(await runtime.credentials.list(user_id="alice")) == 1


async def test_t4_an_expired_token_is_refreshed_and_saved(store_url: str, oauth: OAuthServer) -> None:
    oauth.expires_in = 1  # a token that is about to expire counts as expired
    script = [ToolCall("c1", "account", {}), "first", ToolCall("c2", "account", {}), "second"]
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime)
        await answer(runtime, request.id, await oauth.allow(request.auth_url))
        before = await rows(store_of(runtime), "SELECT secret, updated_at FROM credentials")
        oauth.expire_all()
        oauth.expires_in = 3600
        events = await collect(runtime.stream("s", "again"))
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.result == {"status": 200, "account": "alice"}
        assert oauth.grants[-1] == "refresh_token"
        assert await rows(store_of(runtime), "SELECT secret, updated_at FROM credentials") != before


async def test_a_deleted_credential_is_asked_for_again(store_url: str, oauth: OAuthServer) -> None:
    script = [ToolCall("c1", "account", {}), "first", ToolCall("c2", "account", {}), "second"]
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime)
        await answer(runtime, request.id, await oauth.allow(request.auth_url))
        [saved] = await runtime.credentials.list()
        assert await runtime.credentials.delete(saved.key)
        assert not await runtime.credentials.delete(saved.key)
        assert (await ask(runtime, "again")).id != request.id


WRONG: list[Any] = ["", "yes", "http://127.0.0.1/?code=c", {"code": "c", "state": "of another"}, 3, None, ["a"]]


@pytest.mark.parametrize("value", WRONG, ids=str)
async def test_an_answer_that_cannot_be_used_is_refused(oauth: OAuthServer, value: Any) -> None:
    async with open_runtime(settings_for("sqlite://"), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        with pytest.raises(InvalidAnswer):
            await submit_credential(runtime, "s", request.id, value)
        assert len(await open_credentials(runtime, "s")) == 1, "it can still be answered"


async def test_an_answer_counts_once(store_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        address = await oauth.allow(request.auth_url)
        await answer(runtime, request.id, address)
        with pytest.raises(WaitNotOpen):
            await submit_credential(runtime, "s", request.id, address)


async def test_a_request_expires(store_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(store_url), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        address = await oauth.allow(request.auth_url)
        await expire_waits(runtime)
        async with asyncio.timeout(TIMEOUT_S):
            while await rows(store_of(runtime), "SELECT 1 FROM open_calls"):
                await asyncio.sleep(0.02)
        with pytest.raises(WaitNotOpen):
            await submit_credential(runtime, "s", request.id, address)
        assert (await messages(runtime))[-1].tool_calls[0].output == {"error": "no credential: the request expired"}
        assert await rows(store_of(runtime), SECRETS) == []


async def test_a_message_instead_of_an_answer_closes_the_request(sqlite_url: str, oauth: OAuthServer) -> None:
    script = [ToolCall("c1", "account", {}), "as you like"]
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth, *script)) as runtime:
        request = await ask(runtime)
        address = await oauth.allow(request.auth_url)
        assert await runtime.run("s", "never mind") == "as you like"
        with pytest.raises(WaitNotOpen):
            await submit_credential(runtime, "s", request.id, address)


async def test_a_pasted_address_is_the_answer_and_no_message(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        assert await runtime.run("s", await oauth.allow(request.auth_url)) == "you are alice"
        assert not [message for message in await messages(runtime) if "code-" in message.content]


async def test_a_declined_request_is_closed(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        assert await runtime.cancel_wait("s", request.id)
        assert not await runtime.cancel_wait("s", request.id)
        assert await open_credentials(runtime, "s") == []


async def test_without_a_key_the_turn_fails_and_says_what_to_do(
    sqlite_url: str, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth)) as runtime:
        error = last_error(await collect(runtime.stream("s", "who am I?")))
        assert error.error == CredentialKeyError.__name__
        assert KEY_VARIABLE in error.message
        assert "lango credentials key" in error.message


async def test_two_tools_ask_and_the_model_waits_for_both(sqlite_url: str, oauth: OAuthServer) -> None:
    provider = ScriptedProvider([[ToolCall("c1", "one", {}), ToolCall("c2", "two", {})], "both"])
    tools = [account_tool(oauth, name, key=name) for name in ("one", "two")]
    root = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[*tools])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "go"))
        first, second = opened(events, CredentialWait)
        events = await answer(runtime, first.id, await oauth.allow(first.auth_url))
        assert (done(events).waits[0].kind, text_of(events)) == ("credential", "")
        events = await answer(runtime, second.id, await oauth.allow(second.auth_url))
        assert (done(events).status, text_of(events)) == ("done", "both")
        results = {call.id: call.output for message in provider.requests[-1].messages for call in message.tool_calls}
        assert {name: (result or {}).get("account") for name, result in results.items()} == {
            "c1": "alice",
            "c2": "alice",
        }


async def test_an_approval_holds_when_the_tool_then_needs_a_credential(sqlite_url: str, oauth: OAuthServer) -> None:
    provider = ScriptedProvider([ToolCall("c1", "account", {}), "you are alice"])
    tool = AdkTool(tool_from_adk(account_tool(oauth)))
    root = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[tool])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "who am I?"))
        assert done(events).waits[0].kind == "approval", events
        request = needed(await collect(approve(runtime, "s", "c1", approved=True)))
        events = await answer(runtime, request.id, await oauth.allow(request.auth_url))
        assert (done(events).status, text_of(events)) == ("done", "you are alice")


async def test_a_code_that_is_used_up_is_asked_for_again(sqlite_url: str, oauth: OAuthServer) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=agent(oauth)) as runtime:
        request = await ask(runtime)
        address = await oauth.allow(request.auth_url)
        oauth.codes.clear()  # as after a kill between the exchange and the save
        events = await answer(runtime, request.id, address)
        assert done(events).waits[0].kind == "credential"
        again = needed(events)
        assert text_of(await answer(runtime, again.id, await oauth.allow(again.auth_url))) == "you are alice"


async def test_attack_13_no_secret_is_stored_logged_sent_or_exported(
    store_url: str, oauth: OAuthServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # of the test's own browser
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    provider = ScriptedProvider([ToolCall("c1", "account", {}), "you are alice", ToolCall("c2", "key", {}), "done"])
    tools = [account_tool(oauth, pkce=True), key_tool()]
    root = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[*tools])
    seen: list[TurnEvent] = []
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        seen += await collect(runtime.stream("s", "who am I?"))
        request = needed(seen)
        asked = await everything(runtime)
        seen += await answer(runtime, request.id, await oauth.allow(request.auth_url))
        seen += await collect(runtime.stream("s", "and the key?"))
        [wanted] = await open_credentials(runtime, "s")
        seen += await answer(runtime, wanted.id, API_KEY)
        exported = "".join([line async for line in runtime.sessions.export_lines("s")])
        stored = await everything(runtime)
    sent = json.dumps([to_json(event) for event in seen])
    shown = repr(provider.requests)
    assert "adk_request_credential" in stored
    assert API_KEY[-4:] in shown, "the tool was given the key"
    assert oauth.verifiers
    for secret in [*oauth.secrets, API_KEY]:
        for where, text in (("store", asked + stored), ("log", caplog.text), ("export", exported), ("events", sent)):
            assert secret not in text, where
        assert secret not in shown
