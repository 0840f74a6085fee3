"""Attacks on the identity of the server: clients that write credentials, or answer with one of another kind.

Each of them would make the server fetch a token with its own identity, or send a request to an address of the attacker.
The token endpoint counts these requests: there are none.
"""

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import ResumeEntry, RunAgentInput, UserMessage
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from websockets.asyncio.client import connect

from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.sessions.sessions import get_session
from tests.agents.parts import add_api_key
from tests.e2e.server.test_credentials import KEY, MODULE, ask, credential
from tests.e2e.server.test_human_input import one_interrupt, run_agui
from tests.support.servers import credential_agent, thread_server
from tests.support.servers.oauth_server import OAuthServer, oauth_server
from tests.support.servers.server_process import Server, give, send, serving, text_of, wait_path

USER = "user"
APP = "obedient"


class Attacked:
    """A server with an identity of its own, and the endpoint that would give tokens for it."""

    def __init__(self, endpoint: str, asked: list[str], store_url: str) -> None:
        self.endpoint = endpoint
        self.asked = asked
        """The paths of the token requests."""
        self.store_url = store_url
        self.server: Server

    def credentials(self) -> dict[str, Any]:
        """Return credentials of ADK that lead to the server's own identity, or to an address of the attacker."""
        own = {"use_default_credential": True, "scopes": ["all"]}
        explicit = {"service_account_credential": service_account(f"{self.endpoint}/attacker"), "scopes": ["all"]}
        return {
            "own": {"auth_type": "serviceAccount", "service_account": own},
            "camel": {"authType": "serviceAccount", "serviceAccount": {"useDefaultCredential": True, "scopes": ["x"]}},
            "attacker": {"auth_type": "serviceAccount", "service_account": explicit},
        }


def service_account(token_uri: str) -> dict[str, str]:
    private_key = rsa.generate_private_key(65537, 2048)
    pem = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    names = ("project_id", "private_key_id", "client_id", "auth_uri", "universe_domain")
    names += ("auth_provider_x509_cert_url", "client_x509_cert_url")
    return {
        **dict.fromkeys(names, "x"),
        "type": "service_account",
        "type_": "service_account",
        "private_key": pem,
        "client_email": "server@example.com",
        "token_uri": token_uri,
    }


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture
def attacked(tmp_path: Path, store_url: str, oauth: OAuthServer) -> Iterator[Attacked]:
    asked: list[str] = []

    class TokenEndpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            body = json.dumps({"access_token": "of the server", "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with thread_server.serving(TokenEndpoint) as endpoint:
        identity = tmp_path / "identity.json"
        identity.write_text(json.dumps(service_account(f"{endpoint}/own")))
        env = credential_agent.environment(oauth) | {"GOOGLE_APPLICATION_CREDENTIALS": str(identity)}
        attack = Attacked(endpoint, asked, store_url)
        with serving(tmp_path, store_url, agent=MODULE, env=env) as attack.server:
            yield attack


Way = Callable[[httpx.AsyncClient, str, dict[str, Any]], Awaitable[httpx.Response]]
"""Writes something into the state of a session that exists."""


async def by_creating(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    return await client.post("/v1/sessions", json={"id": f"{session}-new", "state": state})


async def by_patch(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    return await client.patch(f"/v1/sessions/{session}/state", json={"delta": state})


async def by_agui(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    run = RunAgentInput(thread_id=session, run_id="r", messages=[UserMessage(id="m", content="hi")], state=state)
    return await client.post("/agui", json=run.model_dump(mode="json", by_alias=True, exclude_none=True))


async def by_adk_create(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    return await client.post(f"/apps/{APP}/users/{USER}/sessions", json={"state": state})


async def by_adk_create_with_id(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    return await client.post(f"/apps/{APP}/users/{USER}/sessions/{session}-new", json=state)


async def by_adk_patch(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    return await client.patch(f"/apps/{APP}/users/{USER}/sessions/{session}", json={"stateDelta": state})


async def by_run(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    message = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"appName": APP, "userId": USER, "sessionId": session, "newMessage": message, "stateDelta": state}
    return await client.post("/run", json=body)


async def by_run_sse(client: httpx.AsyncClient, session: str, state: dict[str, Any]) -> httpx.Response:
    message = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"appName": APP, "userId": USER, "sessionId": session, "newMessage": message, "stateDelta": state}
    return await client.post("/run_sse", json=body)


WAYS: list[Way] = [
    *(by_creating, by_patch, by_agui, by_adk_create, by_adk_create_with_id, by_adk_patch, by_run, by_run_sse)
]


async def test_attack_21_no_client_writes_a_credential_or_a_reserved_name(attacked: Attacked) -> None:
    credentials = attacked.credentials()
    states = [
        *({name: value} for value in credentials.values() for name in ("weather", "anything", "user:weather")),
        *({name: "a token"} for name in ("weather", "user:weather", "basic", "account")),  # where tools look for one
        {"adk_apiKey_0_": credentials["own"]},
        {"adk_oauth_credential:x": "x", "city": "Bern"},
        {"_adk_replay_config": {"dir": "/etc", "user_message_index": 0}},
        {"bigquery_token_cache": json.dumps({"token_uri": attacked.endpoint})},
        {"oauth2_1_oauth2_2_existing_exchanged_credential": credentials["attacker"]},
        {"mcp:mail": "a token"},
        {"weather": {"lango_credential": "kept"}},
    ]
    async with attacked.server.client() as client:
        await send(client, "s", "hi")
        before = (await client.get("/v1/sessions/s/state")).json()
        for way in WAYS:
            for state in states:
                refused = await way(client, "s", state)
                assert refused.status_code == 400, (way.__name__, [*state], refused.text)
                assert refused.json()["error"]["type"] == "StateRefused"
        for way in (by_adk_patch, by_run):  # the only ones that take temporary state
            assert (await way(client, "s", {"temp:weather": credentials["own"]})).status_code == 400
            assert (await way(client, "s", {"temp:weather": "a token"})).status_code == 400
        assert (await client.get("/v1/sessions/s/state")).json() == before
        assert [one["id"] for one in (await client.get("/v1/sessions")).json()["sessions"]] == ["s"]
        assert (await by_patch(client, "s", {"weather_of_today": {"auth_type": "sunny"}})).status_code == 200
        request = await ask(client, "s", "key")
        assert text_of(await give(client, request, credential(KEY))) == f"it got a key of {len(KEY)}"
    assert attacked.asked == []


async def test_attack_21_an_import_brings_no_credential(attacked: Attacked) -> None:
    async with attacked.server.client() as client:
        await client.post("/v1/sessions", json={"id": "s", "state": {"city": "Bern"}})
        await send(client, "s", "hi")
        exported = (await client.get("/v1/sessions/s/export")).text.splitlines()
        for number, credential in enumerate(attacked.credentials().values()):
            bad = {"weather": credential, "bearer": "a token", "_adk_replay_config": {"dir": "/"}}
            lines = [json.loads(line) for line in exported]
            for line in lines:
                if line["kind"] in ("state", "message"):
                    line["state_delta"] = {**(line.get("state_delta") or {}), **bad}
            body = "\n".join(map(json.dumps, lines))
            headers = {"Content-Type": "application/x-ndjson"}
            id_ = f"i{number}"
            made = await client.post(f"/v1/sessions/import?id={id_}", content=body, headers=headers)
            assert made.status_code == 201, made.text
            state = (await client.get(f"/v1/sessions/{id_}/state")).json()
            assert state["session"] == {"city": "Bern"}
            assert {value["name"] for change in state["changes"] for value in change["values"]} == {"city"}
            await ask(client, id_, "key")
            await ask(client, id_, "token")
    assert attacked.asked == []


async def test_attack_21_a_credential_that_is_stored_in_clear_is_not_used(attacked: Attacked) -> None:
    """Whatever wrote it, such as an earlier version."""
    async with attacked.server.client() as client, Store(attacked.store_url) as store:
        for number, credential in enumerate(attacked.credentials().values()):
            id_ = f"s{number}"
            await client.post("/v1/sessions", json={"id": id_})
            session = await store.read(get_session, SessionId(APP, USER, id_))
            delta = {"weather": credential, "bearer": credential}
            entry = NewEvent(str(uuid.uuid4()), time.time(), state_delta=delta, extra={"author": "user"})
            await store.append(session.key, session.name, session.revision, entry)
            await ask(client, id_, "key")
            await ask(client, id_, "token")
    assert attacked.asked == []


async def test_attack_21_an_answer_has_the_kind_that_was_asked_for(attacked: Attacked) -> None:
    headers = {"additional_headers": {"X-Admin": "1"}, "credentials": {"token": "t"}, "scheme": "bearer"}
    wrong = [
        *attacked.credentials().values(),
        {"auth_type": "oauth2", "oauth2": {"access_token": "t", "token_uri": attacked.endpoint}},
        {"auth_type": "http", "http": headers},
    ]
    wrong += [{"exchangedAuthCredential": credential} for credential in wrong]
    async with attacked.server.client() as client:
        request = await ask(client, "s", "key")
        call_id = request["id"]
        interrupt = await _agui_request(client)
        for answer in wrong:
            refused = await client.post(wait_path(request), json=credential(answer))
            assert (refused.status_code, refused.json()["error"]["type"]) == (422, "InvalidAnswer"), answer
            response = {"id": call_id, "name": "adk_request_credential", "response": answer}
            message = {"role": "user", "parts": [{"functionResponse": response}]}
            body = {"appName": APP, "userId": USER, "sessionId": "s", "newMessage": message}
            assert (await client.post("/run", json=body)).status_code in (400, 422), answer
            results = await client.post(wait_path(request), json={"type": "result", "result": answer})
            assert (results.status_code, results.json()["error"]["type"]) == (422, "InvalidAnswer")
            resumed = RunAgentInput(
                thread_id="a",
                run_id=uuid.uuid4().hex,
                messages=[UserMessage(id="m1", content="key")],
                resume=[ResumeEntry(interrupt_id=interrupt, status="resolved", payload=answer)],
            )
            sent = resumed.model_dump(mode="json", by_alias=True, exclude_none=True)
            assert (await client.post("/agui", json=sent)).status_code == 422, answer
            url = f"ws://127.0.0.1:{attacked.server.port}/v1/ws"
            async with connect(url) as socket:
                frame = {"type": "answer", "session": "s", "wait_id": call_id, "answer": credential(answer)}
                await socket.send(json.dumps(frame))
                assert json.loads(await socket.recv())["error"] == "InvalidAnswer"
        assert text_of(await give(client, request, credential(KEY))) == f"it got a key of {len(KEY)}"
        account = await ask(client, "o", "account")
        for answer in [{"auth_type": "http", "http": headers}, *attacked.credentials().values()]:
            assert (await client.post(wait_path(account), json=credential(answer))).status_code == 422
        token = await ask(client, "t", "token")
        answer = {"auth_type": "http", "http": headers | {"scheme": "digest"}}
        got = text_of(await give(client, token, credential(answer)))
        assert got == "it got bearer 1", "the scheme asked for"
    assert attacked.asked == []


async def _agui_request(client: httpx.AsyncClient) -> str:
    first = RunAgentInput(thread_id="a", run_id="r1", messages=[UserMessage(id="m1", content="key")])
    return one_interrupt(await run_agui(client, first)).id


async def test_attack_6_state_of_the_app_that_a_tool_sets_is_for_operators_only(tmp_path: Path, store_url: str) -> None:
    async with Store(store_url) as store:
        keys = [(await add_api_key(store, user))[1] for user in ("bob", "ada")]
    settings = 'auth = "keys"\noperators = ["ada"]'
    with serving(tmp_path, store_url, server=settings) as server:
        for user, key in zip(("bob", "ada"), keys, strict=True):
            async with server.client(Authorization=f"Bearer {key}") as client:
                assert (await client.post("/v1/sessions", json={"id": "s"})).status_code == 201
                [app] = (await client.get("/list-apps")).json()
                message = {"role": "user", "parts": [{"text": "call count"}]}
                body = {"appName": app, "userId": user, "sessionId": "s", "newMessage": message}
                own = f"/apps/{app}/users/{user}/sessions"
                run = RunAgentInput(thread_id="s", run_id="r", messages=[UserMessage(id="m", content="call count")])
                answers = {
                    "/run": await client.post("/run", json=body),
                    "/run_sse": await client.post("/run_sse", json=body | {"streaming": True}),
                    "/apps get": await client.get(f"{own}/s"),
                    "/apps patch": await client.patch(f"{own}/s", json={"stateDelta": {"a": 1}}),
                    "export": await client.get("/v1/sessions/s/export"),
                }
                public = {
                    "/agui": await client.post("/agui", json=run.model_dump(mode="json", by_alias=True)),
                    "session": await client.get("/v1/sessions/s"),
                    "fork": await client.post("/v1/sessions/s/fork"),
                    "export as html": await client.get("/v1/sessions/s/export?format=html"),
                    "export as markdown": await client.get("/v1/sessions/s/export?format=markdown"),
                    "eval set": await client.get("/v1/sessions/s/evalset"),
                }
                for name, answer in (answers | public).items():
                    assert answer.status_code < 300, (name, answer.text)
                    assert "user:seen" in answer.text or name not in answers, name
                shown = {name for name, answer in (answers | public).items() if "app:seen" in answer.text}
                assert shown == (set() if user == "bob" else set(answers))
                export = answers["export"].text
                headers = {"Content-Type": "application/x-ndjson"}
                made = await client.post("/v1/sessions/import?id=copy", content=export, headers=headers)
                assert made.status_code == 201, made.text
