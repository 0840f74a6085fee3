"""The inbox and grants over HTTP and WebSocket: listed in pages, answered, hinted at live, and private."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.e2e.server.test_live import live
from tests.support.servers.server_process import (
    TIMEOUT_S,
    ReceivedEvent,
    Server,
    events_of,
    give,
    lango,
    send,
    serving,
    wait_path,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("inbox")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def inbox(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    response = await client.get("/v1/inbox", params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def own(client: httpx.AsyncClient, session: str) -> list[dict[str, Any]]:
    return [item["wait"] for item in (await inbox(client))["items"] if item["wait"]["session_id"] == session]


def kinds(events: list[ReceivedEvent]) -> list[str]:
    return [event.type for event in events]


async def test_each_item_is_answered_in_the_same_way(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "ask")
        [approval] = await own(client, session)
        assert (approval["kind"], approval["tool"], approval["arguments"]) == ("approval", "wipe", {"text": "this"})
        assert approval["turn"] == 1
        assert "ask" in [item["title"] for item in (await inbox(client))["items"]]
        assert approval["opened_at"] < approval["expires_at"]
        assert (await give(client, approval, {"type": "approve"}))[-1].data["status"] == "done"
        await send(client, session, "call order")
        [result] = await own(client, session)
        assert (result["kind"], result["tool"], result["expires_at"]) == ("long_running_result", "order", None)
        await give(client, result, {"type": "result", "result": {"at": "home"}})
        assert await own(client, session) == []


async def test_a_session_id_of_any_form_is_in_the_path_of_the_answer(server: Server) -> None:
    name = f"a b?c#d%-{uuid.uuid4().hex[:4]}"
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": name})
        created = (await client.get("/v1/sessions")).json()["sessions"]
        assert name in [one["id"] for one in created]
        async with client.stream(
            "POST", f"/v1/sessions/{quote(name, safe='')}/messages", json={"text": "ask"}
        ) as response:
            [_ async for _ in events_of(response)]
        [item] = await own(client, name)
        assert (await give(client, item, {"type": "refuse"}))[-1].type == "done"


async def test_the_inbox_comes_in_pages(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            for number in range(5):
                await send(client, f"s{number}", "ask" if number % 2 else "call order")
            seen: list[str] = []
            page = await inbox(client, limit=2)
            while page["next_cursor"]:
                seen += [item["wait"]["session_id"] for item in page["items"]]
                page = await inbox(client, limit=2, cursor=page["next_cursor"])
            seen += [item["wait"]["session_id"] for item in page["items"]]
            assert seen == ["s4", "s3", "s2", "s1", "s0"]
            for cursor in ("x", "W10", "WyJhIiwxLCJiIl0", "[]"):
                assert (await client.get("/v1/inbox", params={"cursor": cursor})).status_code == 400
            assert (await client.get("/v1/inbox", params={"limit": 0})).status_code == 400


async def test_a_grant_is_given_listed_used_and_revoked(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "ask")
        [item] = await own(client, session)
        path = wait_path(item)
        grants = f"/v1/sessions/{session}/grants"
        for bad, status in (({"arguments": {"text": {"glob": "*"}}}, 422), ({"arguments": 1}, 400), ({"x": 1}, 400)):
            response = await client.post(path, json={"type": "approve", "grant": bad})
            assert (response.status_code, "message" in response.json()["error"]) == (status, True), response.text
        assert (await client.post(path, json={"type": "refuse", "grant": {}})).status_code == 400
        assert (await client.get(grants)).json() == {"grants": []}
        grant = {"arguments": {"text": {"glob": "th*"}}, "expires_in_s": 60}
        await give(client, item, {"type": "approve", "grant": grant})
        [grant] = (await client.get(grants)).json()["grants"]
        assert (grant["id"], grant["tool"], grant["active"], grant["granted_by"]) == (1, "wipe", True, "user")
        assert grant["arguments"] == {"text": {"glob": "th*"}}
        assert grant["expires_at"] > grant["granted_at"]
        assert "wait_opened" not in kinds(await send(client, session, "ask"))
        messages = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        [*_, last] = [call for message in messages for call in message["tool_calls"]]
        assert (last["approved"], last["approved_by"], last["grant_id"]) == (True, "user", 1)
        assert (await client.delete(f"{grants}/1")).status_code == 204
        assert [(await client.delete(f"{grants}/{number}")).status_code for number in (1, 2, "x")] == [404, 404, 400]
        assert "wait_opened" in kinds(await send(client, session, "ask"))


async def test_a_grant_comes_over_the_websocket(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "ask")
        [item] = await own(client, session)
        async with connect(server.url.replace("http", "ws") + "/v1/ws") as socket, asyncio.timeout(TIMEOUT_S):
            message = {"type": "answer", "session": session, "wait_id": item["id"]}
            broad = {"type": "approve", "grant": {"arguments": {"text": {"any": True}}}}
            await socket.send(json.dumps(message | {"answer": broad}))
            refused = json.loads(await socket.recv())
            assert (refused["type"], refused["error"]) == ("turn_error", "GrantRefused")
            await socket.send(json.dumps(message | {"answer": {"type": "approve", "grant": {}}}))
            while (event := json.loads(await socket.recv()))["type"] != "done":
                assert event["type"] != "turn_error", event
        assert "wait_opened" not in kinds(await send(client, session, "ask"))


async def test_a_page_gets_events_when_something_starts_or_stops_waiting_in_any_process(
    tmp_path: Path, store_url: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "a", store_url) as here, serving(tmp_path / "b", store_url) as there:
        async with here.client() as client, there.client() as other, live(client, None) as page:
            await page.hint("inbox")
            await send(other, "s", "ask")
            await page.hint("inbox")
            [item] = await own(client, "s")
            await give(other, item, {"type": "approve"})
            await page.hint("inbox")
            assert await own(client, "s") == []


async def test_the_inbox_and_the_grants_of_others_are_not_there(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server='auth = "keys"') as server:
        alice, bob = (_key(tmp_path, user) for user in ("alice", "bob"))
        async with server.client(Authorization=f"Bearer {alice}") as client:
            await client.post("/v1/sessions", json={"id": "s"})
            await send(client, "s", "ask")
            [item] = await own(client, "s")
            await give(client, item, {"type": "approve", "grant": {}})
            await send(client, "s", "call order")
            assert len((await inbox(client))["items"]) == 1
        async with server.client(Authorization=f"Bearer {bob}") as client:
            assert await inbox(client) == {"items": [], "next_cursor": None}
            assert (await client.get("/v1/sessions/s/grants")).status_code == 404
            assert (await client.delete("/v1/sessions/s/grants/1")).status_code == 404
            assert (await client.get("/v1/sessions/s/waits")).status_code == 404
            assert (await client.post(wait_path(item), json={"type": "approve"})).status_code == 404
        async with server.client() as client:
            assert (await client.get("/v1/inbox")).status_code == 401


def _key(folder: Path, user: str) -> str:
    made = lango("keys", "add", "--user", user, cwd=folder)
    assert made.returncode == 0, made.stderr
    return made.stdout.split()[-1]
