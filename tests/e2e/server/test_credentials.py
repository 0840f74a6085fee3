"""Credential requests on a real server: HTTP, WebSocket, AG-UI, OpenAI's protocol, the callback and the inbox."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from ag_ui.core import ResumeEntry, RunAgentInput, RunFinishedEvent, TextMessageContentEvent, UserMessage
from websockets.asyncio.client import connect

from tests.e2e.server.test_human_input import one_interrupt, run_agui
from tests.support.servers import credential_agent
from tests.support.servers.oauth_server import OAuthServer, oauth_server
from tests.support.servers.server_process import (
    TIMEOUT_S,
    Server,
    events_of,
    give,
    resume,
    send,
    serving,
    text_of,
    wait_path,
    waits_of,
)

MODULE = f"module = {json.dumps(str(credential_agent.FILE))}"
KEY = "the-key-0123456789"


@pytest.fixture(scope="module")
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, oauth: OAuthServer) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("credentials")
    env = credential_agent.environment(oauth)
    with serving(folder, f"sqlite:///{folder}/lango.db", agent=MODULE, env=env) as running:
        yield running
        logged = running.log.read_text()
        assert not [secret for secret in [*oauth.secrets, KEY] if secret in logged]


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
async def no_credentials(server: Server) -> None:
    """Let every test begin with a user who has given none."""
    async with server.client() as client:
        assert (await client.delete("/v1/credentials")).status_code == 200


async def ask(client: httpx.AsyncClient, session: str, text: str = "account") -> dict[str, Any]:
    events = await send(client, session, text)
    assert events[-1].data.get("status") == "waiting", events
    [wait] = await waits_of(client, session)
    assert wait["kind"] == "credential"
    return wait


def credential(value: Any) -> dict[str, Any]:
    return {"type": "credential", "value": value}


async def call_back(client: httpx.AsyncClient, address: str) -> httpx.Response:
    """Open the address that the OAuth server sends the user to, on this server."""
    return await client.get(f"/v1/oauth/callback?{urlsplit(address).query}")


@pytest.mark.parametrize(
    ("name", "value", "kind", "scheme", "got"),
    [
        ("key", KEY, "apiKey", "", f"a key of {len(KEY)}"),
        ("password", {"username": "ann", "password": "secret"}, "http", "basic", "basic ann and 6"),
        ("password", "ann:se:cret", "http", "basic", "basic ann and 7"),
        ("token", KEY, "http", "bearer", f"bearer {len(KEY)}"),
    ],
)
async def test_a_credential_without_an_address(
    server: Server, session: str, name: str, value: Any, kind: str, scheme: str, got: str
) -> None:
    async with server.client() as client:
        request = await ask(client, session, name)
        assert (request["scheme_type"], request["scheme"], request["auth_url"]) == (kind, scheme, "")
        for wrong in ("", 3, None, {"username": "ann"}, {"username": "ann", "password": ""}):
            refused = await client.post(wait_path(request), json=credential(wrong))
            assert (refused.status_code, refused.json()["error"]["type"]) == (422, "InvalidAnswer"), wrong
        events = await give(client, request, credential(value))
        assert text_of(events) == f"it got {got}"


async def test_a_name_without_a_password_is_no_answer(server: Server, session: str) -> None:
    async with server.client() as client:
        request = await ask(client, session, "password")
        refused = await client.post(wait_path(request), json=credential("ann"))
        assert refused.status_code == 422
        assert "name:password" in refused.json()["error"]["message"]


async def test_websocket(server: Server, session: str, oauth: OAuthServer) -> None:
    async def read(kind: str) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            while (event := json.loads(await socket.recv()))["type"] != kind:
                assert event["type"] != "turn_error" or not event["fatal"], event
            return event

    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket:
        await socket.send(json.dumps({"type": "message", "session": session, "text": "account"}))
        request = (await read("wait_opened"))["wait"]
        assert (await read("done"))["status"] == "waiting"
        message = {"type": "answer", "session": session, "wait_id": request["id"]}
        await socket.send(json.dumps({**message, "answer": credential("nonsense")}))
        refused = await read("turn_error")
        assert (refused["error"], refused["session"], refused["fatal"]) == ("InvalidAnswer", session, False)
        address = await oauth.allow(request["auth_url"])
        await socket.send(json.dumps({**message, "answer": credential(address)}))
        assert (await read("tool_end"))["result"] == {"got": "alice"}
        assert (await read("done"))["status"] == "done"
        await socket.send(json.dumps({**message, "answer": credential(address)}))
        assert (await read("turn_error"))["error"] == "WaitNotOpen"


async def test_agui_answers_an_interrupt(server: Server, session: str, oauth: OAuthServer) -> None:
    async with server.client() as client:
        first = RunAgentInput(thread_id=session, run_id="r1", messages=[UserMessage(id="m1", content="account")])
        interrupt = one_interrupt(await run_agui(client, first))
        assert interrupt.reason == "credential_needed"
        [address] = [word for word in (interrupt.message or "").split() if word.startswith(oauth.url)]
        wrong = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="nonsense")
        body = RunAgentInput(thread_id=session, run_id="r2", messages=first.messages, resume=[wrong])
        refused = await client.post("/agui", json=body.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert (refused.status_code, refused.json()["error"]["type"]) == (422, "InvalidAnswer")
        right = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=await oauth.allow(address))
        events = await run_agui(
            client, RunAgentInput(thread_id=session, run_id="r3", messages=first.messages, resume=[right])
        )
        text = "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))
        assert text == "it got alice"


async def test_agui_closes_a_request_that_is_cancelled(server: Server, session: str) -> None:
    async with server.client() as client:
        first = RunAgentInput(thread_id=session, run_id="r1", messages=[UserMessage(id="m1", content="key")])
        interrupt = one_interrupt(await run_agui(client, first))
        given_up = ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        events = await run_agui(
            client, RunAgentInput(thread_id=session, run_id="r2", messages=first.messages, resume=[given_up])
        )
        assert isinstance(events[-1], RunFinishedEvent)
        assert await waits_of(client, session) == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_openai_says_what_the_turn_waits_for(
    server: Server, session: str, oauth: OAuthServer, streamed: bool
) -> None:
    async def complete(messages: list[dict[str, Any]]) -> str:
        body = {"model": "obedient", "messages": messages, "stream": streamed}
        response = await client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        if not streamed:
            return response.json()["choices"][0]["message"]["content"]
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
        chunks = [json.loads(line)["choices"] for line in lines]
        return "".join(choice["delta"].get("content") or "" for choices in chunks for choice in choices)

    async with server.client(**{"X-Session-Id": session}) as client:
        messages = [{"role": "user", "content": "account"}]
        asked = await complete(messages)
        assert asked.strip().startswith("[This needs access: "), asked
        address = asked.rpartition("allow it at ")[2].removesuffix("]")
        assert address.startswith(oauth.url), asked
        page = await call_back(client, await oauth.allow(address))
        assert page.status_code == 200, page.text
        await resume(client, session)
        messages += [{"role": "assistant", "content": asked}, {"role": "user", "content": "and now?"}]
        assert await complete(messages) == "and now?"
        shown = (await client.get(f"/v1/sessions/{session}/messages")).text
        assert "it got alice" in shown
        assert not [secret for secret in oauth.secrets if secret in shown]


async def test_openai_names_the_route_for_a_key(server: Server, session: str) -> None:
    async with server.client(**{"X-Session-Id": session}) as client:
        body = {"model": "obedient", "messages": [{"role": "user", "content": "key"}]}
        asked = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
        path = asked.rpartition("POST ")[2].removesuffix("]")
        async with client.stream("POST", path, json=credential(KEY)) as response:
            assert text_of([event async for event in events_of(response)]) == f"it got a key of {len(KEY)}"


async def test_the_inbox_has_what_is_needed_to_give_each_credential(
    server: Server, session: str, oauth: OAuthServer
) -> None:
    async def own(name: str) -> dict[str, Any]:
        items = (await client.get("/v1/inbox")).json()["items"]
        [wait] = [item["wait"] for item in items if item["wait"]["session_id"] == f"{session}-{name}"]
        return wait

    async with server.client() as client:
        for name in ("account", "key", "password"):
            await ask(client, f"{session}-{name}", name)
        account, key, password = [await own(name) for name in ("account", "key", "password")]
        assert {item["kind"] for item in (account, key, password)} == {"credential"}
        assert account["auth_url"].startswith(f"{oauth.url}/authorize?")
        assert account["scopes"] == ["read", "write"]
        assert (key["scheme_type"], key["message"], key["auth_url"]) == ("apiKey", "the weather service", "")
        assert password["scheme"] == "basic"
        for item, value in ((account, await oauth.allow(account["auth_url"])), (key, KEY), (password, "ann:secret")):
            assert text_of(await give(client, item, credential(value))).startswith("it got ")
        assert session not in (await client.get("/v1/inbox")).text


async def test_all_credentials_of_the_caller_are_deleted(server: Server, session: str, oauth: OAuthServer) -> None:
    async with server.client() as client:
        for name, value in (("key", KEY), ("token", KEY)):
            request = await ask(client, session, name)
            await give(client, request, credential(value))
        listed = (await client.get("/v1/credentials")).json()["credentials"]
        assert [one["key"] for one in listed] == ["weather", "bearer"]
        assert (await client.delete("/v1/credentials")).json() == {"deleted": 2}
        assert (await client.delete("/v1/credentials")).json() == {"deleted": 0}
        assert (await client.get("/v1/credentials")).json() == {"credentials": []}
        await ask(client, session, "key")


async def test_the_server_may_be_killed_between_request_and_callback(tmp_path: Path, oauth: OAuthServer) -> None:
    url, env = f"sqlite:///{tmp_path}/lango.db", credential_agent.environment(oauth)
    with serving(tmp_path / "first", url, agent=MODULE, env=env) as first:
        async with first.client() as client:
            request = await ask(client, "s")
        first.kill()
    with serving(tmp_path / "second", url, agent=MODULE, env=env) as second:
        async with second.client() as client:
            assert (await call_back(client, await oauth.allow(request["auth_url"]))).status_code == 200
            assert text_of(await resume(client, "s")) == "it got alice"
