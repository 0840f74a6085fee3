"""The events of a turn after fifty newer ones: what a real server says then, on every way to it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import RunAgentInput, UserMessage
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from lango.store.streams import KEPT_TURNS
from tests.e2e.served import PATIENCE_S, Seen, Server, resume, send, send_until, serving, text_of
from tests.e2e.test_server_agui import run, types_of
from tests.e2e.test_server_live import live
from tests.e2e.test_server_streams import is_whole

KINDS = ["accepted", "tool_start", "tool_end", "text_delta", "done"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("log")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as opened:
        yield opened


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def many_more(client: httpx.AsyncClient, session: str) -> None:
    """Let so many turns pass that the log drops the events of the first."""
    for number in range(KEPT_TURNS + 1):
        await send(client, session, f"turn {number}")


def about(events: list[Seen]) -> list[dict[str, Any]]:
    """Return what events say, without ids, and without how long a tool took."""
    return [{name: said for name, said in event.data.items() if name not in ("id", "duration_s")} for event in events]


async def test_a_place_that_only_the_log_knew_is_gone_and_that_is_said(
    client: httpx.AsyncClient, server: Server, session: str
) -> None:
    first = await send(client, session, "note")
    assert [event.type for event in first] == KINDS
    await many_more(client, session)
    lost = {"Last-Event-ID": str(first[2].id)}
    for path, params in ((f"/v1/sessions/{session}/stream", {}), ("/v1/live", {"session": session})):
        answer = await client.get(path, params=params, headers=lost)
        assert answer.status_code == 410, answer.text
        error = answer.json()["error"]
        assert error["type"] == "EventsGone"
        assert "read the messages of the session, then follow it anew" in error["message"]
    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket, asyncio.timeout(PATIENCE_S):
        await socket.send(json.dumps({"type": "resume", "session": session, "after": first[2].id}))
        refused = json.loads(await socket.recv())
    assert (refused["error"], refused["fatal"], refused["session"]) == ("EventsGone", False, session)
    newest = await resume(client, session)
    assert is_whole(newest), "without the id, the newest turn is told"
    assert await resume(client, session, newest[1].id) == newest[2:]


async def test_every_turn_is_told_whole_from_the_beginning_on(client: httpx.AsyncClient, session: str) -> None:
    first = await send(client, session, "note")
    await many_more(client, session)
    count = KEPT_TURNS + 2
    for events in (await resume(client, session, 0), await resume(client, session, first[0].id)):
        turns = [[event for event in events if event.id // 1_000_000 == turn] for turn in range(1, count + 1)]
        assert about(turns[0][-4:]) == about(first[1:]), "the tool, the text, the usage"
        assert all(is_whole(turn) for turn in turns[1:])
        assert [text_of(turn) for turn in turns[1:]] == [f"turn {number}" for number in range(count - 1)]
        assert sum(len(turn) for turn in turns) == len(events)
        ids = [event.id for event in events]
        assert ids == sorted(set(ids))
        for at in (1, 2, 3, 4):
            assert await resume(client, session, events[at].id) == events[at + 1 :], "and from any of them"
    async with live(client, session, 0) as page:
        assert (await page.until("done", count))[: len(first)] == (await resume(client, session, 0))[: len(first)]


async def test_a_key_again_tells_the_turn_with_its_tools_in_every_process(
    tmp_path: Path, store_url: str, session: str
) -> None:
    key = {"Idempotency-Key": "k"}
    with serving(tmp_path / "one", store_url) as one, serving(tmp_path / "two", store_url) as two:
        async with one.client() as here, two.client() as there:
            first = await send(here, session, "note", **key)
            for client in (here, there):
                assert await send(client, session, "note", **key) == first, "exactly, as long as it is kept"
            await many_more(there, session)
            again = await send(here, session, "note", **key)
            assert again[0] == first[0]
            assert about(again) == about(first)
            assert is_whole(again)
            assert await send(there, session, "note", **key) == again
            other = await there.post(f"/v1/sessions/{session}/messages", json={"text": "x"}, headers=key)
            assert other.status_code == 422, other.text
    with serving(tmp_path / "three", store_url) as three:
        async with three.client() as client:
            assert await send(client, session, "note", **key) == again, "after a restart"


async def test_a_turn_that_asks_is_told_again_with_its_question(client: httpx.AsyncClient, session: str) -> None:
    key = {"Idempotency-Key": "k"}
    first = await send(client, session, "ask", **key)
    async with client.stream("POST", f"/v1/sessions/{session}/approvals/call_1", json={"approved": True}) as response:
        await response.aread()
    approved = await resume(client, session)
    await many_more(client, session)
    again = await send(client, session, "ask", **key)
    [question] = [event.data for event in again if event.type == "approval"]
    assert (question["call_id"], question["name"], question["arguments"]) == ("call_1", "wipe", {"text": "this"})
    assert [event.type for event in again] == [event.type for event in first] == ["accepted", "approval", "done"]
    assert again[-1].data["status"] == "waiting_for_approval"
    everything = await resume(client, session, 0)
    second = [event for event in everything if event.id // 1_000_000 == 2]
    assert about(second) == about(approved), "the answer's turn has the tool that it let run"


async def test_completions_and_runs_that_come_again_are_the_same(
    client: httpx.AsyncClient, server: Server, session: str
) -> None:
    openai = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)
    headers = {"X-Session-Id": session, "Idempotency-Key": "k"}

    async def complete() -> dict[str, Any]:
        answer = await openai.chat.completions.create(
            model="obedient", messages=[{"role": "user", "content": "note"}], extra_headers=headers
        )
        return answer.model_dump(exclude={"created"})

    asked = RunAgentInput(
        thread_id=session,
        run_id="r",
        messages=[UserMessage(id="m", content="note")],
        state={},
        tools=[],
        context=[],
        forwarded_props={},
    )
    async with openai:
        completion, events = await complete(), await run(client, asked)
        await many_more(client, session)
        again = await complete()
        for executed in (completion, again):
            for tool in executed["choices"][0]["message"]["executed_tools"]:
                tool.pop("duration_s", None)
        assert again == completion
        assert types_of(await run(client, asked)) == types_of(events)


async def test_a_key_of_a_message_that_was_taken_back_is_that_of_no_other(
    client: httpx.AsyncClient, server: Server, session: str, tmp_path: Path
) -> None:
    await send_until(client, session, f"hold {tmp_path / 'gate'}")
    key, path = {"Idempotency-Key": "k"}, f"/v1/sessions/{session}/messages"
    request = client.stream("POST", path, json={"text": "second"}, headers=key)
    async with request as response:
        await anext(response.aiter_lines())
    assert (await client.delete(f"/v1/sessions/{session}/waiting/2")).status_code == 204
    other = await client.post(path, json={"text": "third"}, headers=key)
    assert (other.status_code, other.json()["error"]["type"]) == (422, "IdempotencyKeyReused")
    same = await send(client, session, "second", **key)
    assert [(event.type, event.data.get("error")) for event in same] == [("accepted", None), ("error", "TurnCancelled")]
    assert "taken back before its turn came" in same[-1].data["message"]
    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket, asyncio.timeout(PATIENCE_S):
        for text, error in (("third", "IdempotencyKeyReused"), ("second", "TurnCancelled")):
            await socket.send(json.dumps({"type": "message", "session": session, "text": text, "idempotency_key": "k"}))
            while (event := json.loads(await socket.recv()))["type"] != "error":
                assert event["type"] == "accepted"
            assert event["error"] == error
    (tmp_path / "gate").touch()
    assert text_of(await resume(client, session, 0)) == "begun ended"
