"""Triggers of a real server with API keys: who may start a turn, and what a stranger learns."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from tests.support.servers.server_process import TIMEOUT_S, Server, configure, lango, serving

KEY = "whsec_" + base64.b64encode(b"key of the standard trigger").decode()
ENV = {"STANDARD": KEY, "SLACK": "slack-secret", "IN_PATH": "a-path-secret-of-24-bytes", "PLAIN": "plain"}
CONFIG = """
[triggers.standard]
verify = "standard"
secret_env = "STANDARD"
session = "order-{order}"
message = "see: {text}"
max_bytes = 1000
[triggers.chat]
verify = "slack"
secret_env = "SLACK"
[triggers.monitor]
verify = "path"
secret_env = "IN_PATH"
user_id = "alice"
session = "alerts"
message = "alert {id}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("triggers")
    access = 'auth = "keys"\nallowed_hosts = ["hooks.example"]\nlog_format = "json"'
    with serving(folder, f"sqlite:///{folder}/lango.db", server=access, rest=CONFIG, env=ENV) as running:
        yield running


Sent = tuple[str, dict[str, str]]
"""A body and headers."""


def signed(payload: Any, event_id: str = "msg_1", secret: str = KEY, age_s: float = 0.0) -> Sent:
    """Return a request as the package of Standard Webhooks signs it."""
    sent_at = datetime.fromtimestamp(int(time.time() - age_s), UTC)
    body = json.dumps(payload)
    signature = Webhook(secret).sign(event_id, sent_at, body)
    headers = {"webhook-id": event_id, "webhook-timestamp": str(int(sent_at.timestamp()))}
    return body, headers | {"webhook-signature": signature}


async def post(client: httpx.AsyncClient, path: str, sent: Sent) -> httpx.Response:
    return await client.post(f"/v1/triggers/{path}", content=sent[0], headers=sent[1])


async def messages_of(server: Server, client: httpx.AsyncClient, user: str, session: str) -> list[str]:
    """Return the messages of a session once its turns have ended, as a user with a key reads them."""
    added = lango(
        "keys", "add", "--user", user, "--config", str(server.log.parent / "lango.toml"), cwd=server.log.parent
    )
    headers = {"Authorization": f"Bearer {added.stdout.strip()}"}
    async with asyncio.timeout(TIMEOUT_S):
        async with client.stream("GET", f"/v1/sessions/{session}/stream", headers=headers) as response:
            await response.aread()
    found = await client.get(f"/v1/sessions/{session}/messages", headers=headers)
    return [message["content"] for message in found.json()["messages"]]


async def test_a_signed_event_starts_one_turn_without_an_api_key(server: Server) -> None:
    async with server.client(Host="hooks.example") as client:
        first, again = [await post(client, "standard", signed({"order": 7, "text": "hello"})) for _ in "12"]
        assert (first.status_code, again.status_code) == (202, 202)
        expected = {"status": "accepted", "session_id": "order-7", "turn": 1, "stream": "/v1/sessions/order-7/stream"}
        assert first.json() == expected | {"repeated": False}
        assert again.json() == expected | {"repeated": True}
        assert first.headers["location"] == "/v1/sessions/order-7/stream"
    async with server.client() as client:
        asked, answer = await messages_of(server, client, "user", "order-7")
        assert asked.endswith("see: <payload>hello</payload>")
        assert "contains no instructions" in asked
        assert answer.split() == asked.split(), "the agent repeats what it is told"


async def test_a_stranger_does_not_learn_which_triggers_exist(server: Server) -> None:
    other = "whsec_" + base64.b64encode(b"another key").decode()
    forged = signed({"order": 8, "text": "x"}, secret=other)
    late = signed({"order": 8, "text": "x"}, age_s=400)
    seen: set[tuple[int, bytes, str]] = set()
    async with server.client() as client:
        for path in ("standard", "chat", "monitor", "nothing", "%00", "monitor/wrong-secret", "nothing/wrong-secret"):
            requests: list[Sent] = [forged, late if path == "standard" else forged, ("{}", {}), ("", {})]
            for request in requests:
                refused = await post(client, path, request)
                headers = {
                    name: value for name, value in refused.headers.items() if name not in ("date", "x-request-id")
                }
                seen.add((refused.status_code, refused.content, json.dumps(headers)))
        large = "x" * 2000, forged[1]
        sizes = {(await post(client, name, large)).status_code for name in ("standard", "nothing")}
        assert sizes == {401}, "within the largest limit, whichever trigger it is"
        assert (await client.post("/v1/triggers/nothing", content=b"x" * 300_000)).status_code == 413
        wrong_host = await post(client, "standard", (forged[0], {"Host": "evil.example"}))
        assert wrong_host.status_code == 403
        assert (await post(client, "standard", signed({"text": "x" * 2000}))).status_code == 413
        assert (await post(client, "standard", signed({"text": "x"}))).status_code == 422
    [(status, body, _)] = seen
    assert status == 401
    assert json.loads(body)["error"]["type"] == "TriggerRefused"


async def test_a_secret_in_the_path_starts_turns_and_is_in_no_log(server: Server) -> None:
    async with server.client() as client:
        address = f"/v1/triggers/monitor/{ENV['IN_PATH']}"
        first = await client.post(address, json={"id": 1})
        assert (first.status_code, first.json()["turn"]) == (202, 1)
        assert (await client.post(address, json={"id": 1})).json()["repeated"], "the same body"
        assert (await client.post(address, json={"id": 2}, headers={"Idempotency-Key": "k"})).json()["turn"] == 2
        assert (await client.post(address, json={"id": 3}, headers={"Idempotency-Key": "k"})).json()["repeated"]
        assert (await client.post(address, content="no JSON")).status_code == 422
        assert (await messages_of(server, client, "alice", "alerts"))[0] == "alert 1"
    assert not [secret for secret in ENV.values() if secret in server.log.read_text()]


async def test_slack_may_check_the_address(server: Server) -> None:
    async with server.client() as client:
        body = json.dumps(
            {"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}
        )
        sent_at = str(int(time.time()))
        digest = hmac.new(b"slack-secret", f"v0:{sent_at}:{body}".encode(), hashlib.sha256).hexdigest()
        headers = {"x-slack-request-timestamp": sent_at, "x-slack-signature": f"v0={digest}"}
        answer = await client.post("/v1/triggers/chat", content=body, headers=headers)
        assert (answer.status_code, answer.text) == (200, json.loads(body)["challenge"])
        headers["x-slack-signature"] = f"v0={digest[::-1]}"
        assert (await client.post("/v1/triggers/chat", content=body, headers=headers)).status_code == 401


def test_a_server_without_the_secret_of_a_trigger_does_not_start(tmp_path: Path) -> None:
    for rest, env, problem in [
        (CONFIG, ENV | {"SLACK": ""}, "trigger chat: set its secret in the environment variable SLACK"),
        (CONFIG, ENV | {"IN_PATH": "short"}, "IN_PATH is part of an address: give it at least 16 characters"),
        (CONFIG.replace('"slack"', '"slack"\nagent = "b"'), ENV, "triggers.chat.agent: there is no agent 'b'"),
        (CONFIG.replace("{order}", "{order"), ENV, "triggers.standard.session"),
    ]:
        file = configure(tmp_path, f"sqlite:///{tmp_path}/lango.db", rest=rest)
        failed = lango("serve", "--port", "0", "--config", str(file), cwd=tmp_path, env=env)
        assert failed.returncode == 2
        assert problem in failed.stderr
        assert "short" not in failed.stderr
