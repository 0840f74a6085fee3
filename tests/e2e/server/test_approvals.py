"""Questions for approval over HTTP: what waits, until when, who answered, and what becomes of those that nobody did."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lango.store import SessionId, Store
from lango.store.sessions.window import read_session_events
from tests.support.servers.served import PATIENCE_S, Server, events_of, send, serving

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


async def ask(client: httpx.AsyncClient, session: str) -> dict[str, Any]:
    asked = await send(client, session, "ask")
    return next(event.data for event in asked if event.type == "approval")


async def calls(client: httpx.AsyncClient, session: str, call_id: str) -> list[dict[str, Any]]:
    shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
    return [call for message in shown for call in message["tool_calls"] if call["id"] == call_id]


async def test_what_waits_is_listed_with_its_time(server: Server, session: str) -> None:
    async with server.client() as client:
        question = await ask(client, session)
        until = datetime.fromisoformat(question["expires_at"])
        assert timedelta(hours=23) < until - datetime.now(UTC) <= timedelta(hours=24)
        [waiting] = (await client.get(f"/v1/sessions/{session}/approvals")).json()["approvals"]
        assert {name: waiting[name] for name in ("call_id", "name", "arguments")} == {
            "call_id": question["call_id"],
            "name": "wipe",
            "arguments": {"text": "this"},
        }
        assert abs(datetime.fromisoformat(waiting["expires_at"]) - until) < timedelta(milliseconds=1)
        assert datetime.fromisoformat(waiting["asked_at"]) <= datetime.now(UTC)
        await send(client, session, "never mind")
        assert (await client.get(f"/v1/sessions/{session}/approvals")).json() == {"approvals": []}
        assert (await client.get("/v1/sessions/none/approvals")).status_code == 404


@pytest.mark.parametrize("approved", [True, False])
async def test_messages_say_who_answered_and_how_long_the_tool_took(
    server: Server, session: str, approved: bool
) -> None:
    async with server.client() as client:
        question = await ask(client, session)
        path = f"/v1/sessions/{session}/approvals/{question['call_id']}"
        async with client.stream("POST", path, json={"approved": approved}) as response:
            [end] = [event.data async for event in events_of(response) if event.type == "tool_end"]
        shown = await calls(client, session, question["call_id"])
        assert len(shown) == 3, "the call, that it waits, and its result"
        for call in shown:
            assert (call["approved"], call["approved_by"]) == (approved, "user")
            assert (call["duration_s"] is not None) is approved
        assert (end["duration_s"] is not None) is approved


async def test_a_safe_tool_has_a_duration_and_nobody_to_thank(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "note")
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        made = [call for message in shown for call in message["tool_calls"]]
        assert [(call["approved"], call["approved_by"]) for call in made] == [(None, None)] * 2
        assert all(call["duration_s"] >= 0 for call in made)


async def test_whoever_reads_a_session_after_the_time_sees_the_no(server: Server, url: str, session: str) -> None:
    async with server.client() as client, Store(url) as store:
        question = await ask(client, session)
        await over(store)
        shown = await calls(client, session, question["call_id"])
        assert shown[-1]["output"] == {"error": NOT_IN_TIME, "outcome": "not run"}
        assert (shown[-1]["approved"], shown[-1]["approved_by"]) == (False, "policy")
        path = f"/v1/sessions/{session}/approvals/{question['call_id']}"
        late = await client.post(path, json={"approved": True})
        assert (late.status_code, late.json()["error"]["type"]) == (409, "ApprovalExpired")
        assert "not answered in time" in late.json()["error"]["message"]


async def test_a_server_closes_what_expired_though_nobody_comes_back(
    tmp_path_factory: pytest.TempPathFactory, session: str
) -> None:
    folder = tmp_path_factory.mktemp("alone")
    url = f"sqlite:///{folder}/lango.db"
    with serving(folder, url, rest="[tools]\napproval_expires_s = 0.3") as server:
        async with server.client() as client, Store(url) as store, asyncio.timeout(PATIENCE_S):
            question = await ask(client, session)
            name = SessionId("obedient", "user", session)
            told: list[Any] = []
            while not told or "error" not in told[-1]:
                await asyncio.sleep(0.02)
                found = await store.read(read_session_events, name)
                assert found
                made = [call for one in found[1] if one.message for call in one.message.tool_calls]
                told = [call.output for call in made if call.id == question["call_id"] and call.output]
            assert told[-1]["error"] == NOT_IN_TIME


async def over(store: Store) -> None:
    """Let the time of every question be over, by the database's clock."""

    def operation() -> Any:
        yield "UPDATE open_calls SET expires_at = 1.0 WHERE expires_at IS NOT NULL", ()

    await store.write(operation)
