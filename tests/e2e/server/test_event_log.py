"""Events of older turns, whose texts the log has joined, over every protocol of a real server."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Event, RunAgentInput, UserMessage
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionUserMessageParam
from websockets.asyncio.client import connect

from lango.events import IDS_PER_TURN
from lango.store.turns.event_log import KEPT_TURNS
from tests.e2e.server.test_live import live
from tests.e2e.server.test_streams import is_whole
from tests.e2e.server_compat.test_agui import run, types_of
from tests.support.servers.server_process import (
    TIMEOUT_S,
    ReceivedEvent,
    Server,
    give,
    resume,
    send,
    send_until,
    serving,
    text_of,
    waits_of,
)

NOTED, ASKED = {"Idempotency-Key": "noted"}, {"Idempotency-Key": "asked"}
RUN = RunAgentInput(thread_id="old", run_id="r", messages=[UserMessage(id="m", content="note")])


@dataclass
class Past:
    """A session whose first turns the log keeps with whole texts, with the events that clients received."""

    server: Server
    session: str
    approval_events: list[ReceivedEvent]
    approved: list[ReceivedEvent]
    noted: list[ReceivedEvent]
    completion: dict[str, Any]
    run: list[Event]
    first_piece: int
    """The id of the first of two pieces of a text."""


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("log")
    with serving(folder, f"sqlite:///{folder}/lango.db") as server:
        yield asyncio.run(talk(server, folder / "gate"))


async def talk(server: Server, gate: Path, session: str = "old") -> Past:
    async with server.client() as client:
        approval_events = await send(client, session, "ask", **ASKED)
        [wait] = await waits_of(client, session)
        approved = await give(client, wait, {"type": "approve"})
        noted = await send(client, session, "note", **NOTED)
        completion, run_events = await complete(server, session), await run(client, RUN)
        first_piece = (await send_until(client, session, f"hold {gate}"))[-1].id
        gate.touch()
        await resume(client, session, first_piece)
        past = Past(server, session, approval_events, approved, noted, completion, run_events, first_piece)
        await many_more(client, session)
        return past


async def complete(server: Server, session: str) -> dict[str, Any]:
    """Request the same completion again; return it without its time and the durations of its tools."""
    headers = {"X-Session-Id": session, "Idempotency-Key": "completion"}
    message = ChatCompletionUserMessageParam(role="user", content="note")
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S) as openai:
        answer = await openai.chat.completions.create(model="m", messages=[message], extra_headers=headers)
    received = answer.model_dump(exclude={"created"})
    for tool in received["choices"][0]["message"]["executed_tools"]:
        tool.pop("duration_s", None)
    return received


@pytest.fixture
async def client(past: Past) -> AsyncIterator[httpx.AsyncClient]:
    async with past.server.client() as opened:
        yield opened


async def many_more(client: httpx.AsyncClient, session: str) -> None:
    """Run so many turns that the log joins the texts of earlier ones."""
    for number in range(KEPT_TURNS + 1):
        await send(client, session, f"turn {number}")


def stored_fields(events: list[ReceivedEvent]) -> list[dict[str, Any]]:
    """Return the fields of events that stay the same: joined texts have another id."""
    left_out = ("id", "duration_s", "expires_at", "waits")

    def fields(data: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in data.items() if name not in left_out}
        return kept | {"wait": fields(kept["wait"])} if "wait" in kept else kept

    return [fields(event.data) for event in events]


async def test_the_id_of_a_piece_that_was_joined_is_410(client: httpx.AsyncClient, past: Past) -> None:
    session, lost = past.session, past.first_piece
    for path, params in ((f"/v1/sessions/{session}/stream", {}), ("/v1/live", {"session": session})):
        answer = await client.get(path, params=params, headers={"Last-Event-ID": str(lost)})
        assert answer.status_code == 410, answer.text
        error = answer.json()["error"]
        assert error["type"] == "EventsGone"
        assert "read the messages of the session, then follow it again" in error["message"]
    async with connect(f"ws://127.0.0.1:{past.server.port}/v1/ws") as socket, asyncio.timeout(TIMEOUT_S):
        await socket.send(json.dumps({"type": "resume", "session": session, "after": lost}))
        refused = json.loads(await socket.recv())
    assert (refused["error"], refused["fatal"], refused["session"]) == ("EventsGone", False, session)
    newest = await resume(client, session)
    assert is_whole(newest), "without the id, the newest turn streams"
    assert await resume(client, session, newest[1].id) == newest[2:]


async def test_every_turn_streams_whole_from_the_start(client: httpx.AsyncClient, past: Past) -> None:
    everything = await resume(client, past.session, 0)
    turns = [list(turn) for _, turn in groupby(everything, lambda event: event.id // IDS_PER_TURN)]
    assert [stored_fields(turn) for turn in turns[:3]] == [
        stored_fields(turn) for turn in (past.approval_events, past.approved, past.noted)
    ]
    assert all(is_whole(turn) for turn in turns)
    assert [text_of(turn) for turn in turns[6:]] == [f"turn {number}" for number in range(KEPT_TURNS + 1)]
    for at in (0, 1, 2, 3, 5, 8):
        assert await resume(client, past.session, everything[at].id) == everything[at + 1 :], "and from any of them"
    async with live(client, past.session, 0) as page:
        received = await page.until("done", len(turns))
    assert received == everything


async def test_an_older_turn_has_its_approval_request(client: httpx.AsyncClient, past: Past) -> None:
    again = await send(client, past.session, "ask", **ASKED)
    [question] = [event.data["wait"] for event in again if event.type == "wait_opened"]
    assert (question["call_id"], question["tool"], question["arguments"]) == ("call_1", "wipe", {"text": "this"})
    assert (
        [event.type for event in again]
        == [event.type for event in past.approval_events]
        == ["accepted", "wait_opened", "done"]
    )
    assert again[-1].data["status"] == "waiting"


async def test_repeated_completions_and_runs_are_the_same(client: httpx.AsyncClient, past: Past) -> None:
    assert await complete(past.server, past.session) == past.completion
    assert types_of(await run(client, RUN)) == types_of(past.run)


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def test_a_repeated_key_streams_the_turn_with_its_tools_in_every_process(
    tmp_path: Path, store_url: str, session: str
) -> None:
    key = {"Idempotency-Key": "k"}
    with serving(tmp_path / "one", store_url) as first_server, serving(tmp_path / "two", store_url) as second_server:
        async with first_server.client() as here, second_server.client() as there:
            first = await send(here, session, "note", **key)
            for client in (here, there):
                assert await send(client, session, "note", **key) == first, "exactly, as long as it is kept"
            await many_more(there, session)
            again = await send(here, session, "note", **key)
            assert again[0] == first[0]
            assert stored_fields(again) == stored_fields(first)
            assert is_whole(again)
            assert await send(there, session, "note", **key) == again
            other = await there.post(f"/v1/sessions/{session}/messages", json={"text": "x"}, headers=key)
            assert other.status_code == 422, other.text
    with serving(tmp_path / "three", store_url) as three:
        async with three.client() as client:
            assert await send(client, session, "note", **key) == again, "after a restart"


async def test_the_key_of_a_withdrawn_message_stays_used(
    client: httpx.AsyncClient, past: Past, session: str, tmp_path: Path
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
    assert [(event.type, event.data.get("error")) for event in same] == [
        ("accepted", None),
        ("turn_error", "TurnCancelled"),
    ]
    assert "withdrawn before its turn started" in same[-1].data["message"]
    async with connect(f"ws://127.0.0.1:{past.server.port}/v1/ws") as socket, asyncio.timeout(TIMEOUT_S):
        for text, error in (("third", "IdempotencyKeyReused"), ("second", "TurnCancelled")):
            await socket.send(json.dumps({"type": "message", "session": session, "text": text, "idempotency_key": "k"}))
            while (event := json.loads(await socket.recv()))["type"] != "turn_error":
                assert event["type"] == "accepted"
            assert event["error"] == error
    (tmp_path / "gate").touch()
    assert text_of(await resume(client, session, 0)) == "begun ended"
