"""Approval requests over HTTP: listed, answered and expired."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.window import read_session_events
from tests.support.servers.server_process import TIMEOUT_S, Server, give, send, serving, wait_path, waits_of

NOT_IN_TIME = "not run: the approval request expired without an answer, which counts as declined"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('approvals')}/lango.db"


@pytest.fixture(scope="module")
def server(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), url) as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def request_approval(client: httpx.AsyncClient, session: str) -> dict[str, Any]:
    await send(client, session, "ask")
    [wait] = await waits_of(client, session)
    return wait


async def calls(client: httpx.AsyncClient, session: str, call_id: str) -> list[dict[str, Any]]:
    shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
    return [call for message in shown for call in message["tool_calls"] if call["id"] == call_id]


async def test_open_approval_requests_are_listed_with_their_expiry(server: Server, session: str) -> None:
    async with server.client() as client:
        request = await request_approval(client, session)
        expires_at = datetime.fromisoformat(request["expires_at"])
        assert timedelta(hours=23) < expires_at - datetime.now(UTC) <= timedelta(hours=24)
        assert (request["tool"], request["arguments"], request["diff"]) == ("wipe", {"text": "this"}, "")
        assert datetime.fromisoformat(request["opened_at"]) <= datetime.now(UTC)
        wrong = await client.post(wait_path(request), json={"type": "refuse", "reason": "x" * 4001})
        assert (wrong.status_code, wrong.json()["error"]["type"]) == (422, "InvalidAnswer")
        refused = await client.post(wait_path(request), json={"type": "refuse", "reason": "not today"})
        assert "refused this call. Their reason: not today" in refused.text


HINT = "This costs \x1b[31m30 euros."


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"type": "approve"}, {"confirmed": True, "payload": {"limit": 30}}),
        ({"type": "approve", "payload": [7]}, {"confirmed": True, "payload": [7]}),
        ({"type": "refuse"}, {"confirmed": False, "payload": {"limit": 30}}),
        (
            {"type": "refuse", "reason": "too much"},
            {"confirmed": False, "payload": {"limit": 30, "reason": "too much"}},
        ),
    ],
)
async def test_a_tool_that_asks_by_its_own_code_shows_its_hint_and_gets_a_payload(
    server: Server, session: str, answer: dict[str, Any], result: dict[str, Any]
) -> None:
    async with server.client() as client:
        await send(client, session, "call pay")
        [request] = await waits_of(client, session)
        waiting = (await client.get("/v1/inbox")).json()["items"]
        [item] = [one["wait"] for one in waiting if one["wait"]["session_id"] == session]
        for wait in (request, item):
            assert (wait["tool"], wait["hint"], wait["payload"]) == ("pay", HINT, {"limit": 30})
        [end] = [event.data for event in await give(client, request, answer) if event.type == "tool_end"]
        assert end["result"] == result


@pytest.mark.parametrize("approved", [True, False])
async def test_messages_show_who_approved_and_how_long_the_tool_took(
    server: Server, session: str, approved: bool
) -> None:
    async with server.client() as client:
        request = await request_approval(client, session)
        answered = await give(client, request, {"type": "approve" if approved else "refuse"})
        [end] = [event.data for event in answered if event.type == "tool_end"]
        shown = await calls(client, session, request["call_id"])
        assert len(shown) == 3, "the call, that it waits, and its result"
        for call in shown:
            assert (call["approved"], call["approved_by"]) == (approved, "user")
            assert (call["duration_s"] is not None) is approved
        assert (end["duration_s"] is not None) is approved


async def test_a_safe_tool_has_a_duration_and_no_approver(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "note")
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        made = [call for message in shown for call in message["tool_calls"]]
        assert [(call["approved"], call["approved_by"]) for call in made] == [(None, None)] * 2
        assert all(call["duration_s"] >= 0 for call in made)


async def test_reading_a_session_closes_its_expired_approval_requests(server: Server, url: str, session: str) -> None:
    async with server.client() as client, Store(url) as store:
        request = await request_approval(client, session)
        await expire_all(store)
        shown = await calls(client, session, request["call_id"])
        assert shown[-1]["output"] == {"error": NOT_IN_TIME, "outcome": "not run"}
        assert (shown[-1]["approved"], shown[-1]["approved_by"]) == (False, "policy")
        late = await client.post(wait_path(request), json={"type": "approve"})
        assert (late.status_code, late.json()["error"]["type"]) == (409, "WaitNotOpen")


async def test_a_server_closes_expired_approval_requests_by_itself(
    tmp_path_factory: pytest.TempPathFactory, session: str
) -> None:
    folder = tmp_path_factory.mktemp("alone")
    url = f"sqlite:///{folder}/lango.db"
    with serving(folder, url) as server:
        async with server.client() as client, Store(url) as store, asyncio.timeout(TIMEOUT_S):
            request = await request_approval(client, session)
            await expire_all(store)
            name = SessionId("obedient", "user", session)
            outputs: list[Any] = []
            while not outputs or "error" not in outputs[-1]:
                await asyncio.sleep(0.02)
                found = await store.read(read_session_events, name)
                assert found
                made = [call for stored in found[1] if stored.message for call in stored.message.tool_calls]
                outputs = [call.output for call in made if call.id == request["call_id"] and call.output]
            assert outputs[-1]["error"] == NOT_IN_TIME


async def expire_all(store: Store) -> None:
    """Expire every approval request, by the database's clock."""

    def operation() -> Any:
        yield "UPDATE waits SET expires_at = 1.0 WHERE expires_at IS NOT NULL", ()

    await store.write(operation)
