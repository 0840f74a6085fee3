"""Rename, fork, rewind, search, export and import sessions of a real server."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.evaluation.eval_set import EvalSet

from tests.support.servers.server_process import Server, events_of, give, send, send_until, serving, text_of, waits_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("conversations")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["type"]


async def contents(client: httpx.AsyncClient, session: str) -> list[str]:
    page = (await client.get(f"/v1/sessions/{session}/messages")).json()
    return [item["content"] for item in page["messages"]]


async def test_a_session_is_renamed(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "how are you today")
        path = f"/v1/sessions/{session}"
        assert (await client.get(path)).json()["title"] == "how are you today"
        renamed = await client.patch(path, json={"title": "Greetings"})
        assert (renamed.status_code, renamed.json()["title"]) == (200, "Greetings")
        listed = (await client.get("/v1/sessions")).json()["sessions"]
        assert {item["id"]: item["title"] for item in listed}[session] == "Greetings"
        assert (await client.patch(path, json={"title": ""})).json()["title"] == "how are you today"
        assert error_of(await client.patch(path, json={"title": "x" * 201})) == (400, "BadRequest")
        assert error_of(await client.patch("/v1/sessions/nobodys", json={"title": "x"})) == (404, "SessionNotFound")


async def test_edit_and_resend_is_a_fork(server: Server, session: str) -> None:
    async with server.client() as client:
        for text in ("one", "two", "three"):
            await send(client, session, text)
        made = await client.post(f"/v1/sessions/{session}/fork", json={"at": 2, "title": "Another way"})
        assert made.status_code == 201
        assert (await client.post(f"/v1/sessions/{session}/fork")).json()["messages"] == 6, "without a body: all of it"
        fork = made.json()
        assert (fork["title"], fork["forked_from"], fork["messages"]) == ("Another way", {"id": session, "seq": 2}, 2)
        assert text_of(await send(client, fork["id"], "other")) == "other"
        assert await contents(client, fork["id"]) == ["one", "one", "other", "other"]
        assert len(await contents(client, session)) == 6
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        assert text_of(await send(client, fork["id"], "still here")) == "still here"
        assert (await contents(client, fork["id"]))[:2] == ["one", "one"]
        whole = (await client.post(f"/v1/sessions/{fork['id']}/fork", json={})).json()
        assert (whole["messages"], whole["title"]) == (6, "Another way (fork)")


async def test_a_question_for_approval_is_open_in_the_fork_too(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "ask")
        fork = (await client.post(f"/v1/sessions/{session}/fork", json={})).json()["id"]
        for id_ in (fork, session):
            [wait] = await waits_of(client, id_)
            events = await give(client, wait, {"type": "approve"})
            assert "noted" in text_of(events), "each runs its own"
            assert events[-1].type == "done"


async def test_a_rewind_takes_back_and_the_conversation_goes_on(server: Server, session: str) -> None:
    async with server.client() as client:
        for text in ("one", "two", "three"):
            await send(client, session, text)
        path = f"/v1/sessions/{session}/rewind"
        rewound = await client.post(path, json={"before": 4})
        assert rewound.status_code == 200, rewound.text
        assert await contents(client, session) == ["one", "one"]
        assert error_of(await client.post(path, json={"before": 4})) == (404, "MessageNotFound")
        async with client.stream("GET", f"/v1/sessions/{session}/stream") as newest:
            assert text_of([event async for event in events_of(newest)]) == "one", "a rewound turn is not streamed"
        assert text_of(await send(client, session, "2")) == "2"
        assert await contents(client, session) == ["one", "one", "2", "2"]


async def test_messages_are_found_and_marked(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, f"a needle named {session[2:]} in 干草堆")
        found = await client.get("/v1/search", params={"q": f"needle {session[2:]}"})
        assert found.status_code == 200
        [question_hit, answered] = sorted(found.json()["hits"], key=lambda hit: hit["seq"])
        assert (question_hit["session_id"], question_hit["seq"], question_hit["role"]) == (session, 1, "user")
        assert (answered["seq"], answered["role"]) == (2, "assistant")
        assert question_hit["title"] == question_hit["text"] == f"a needle named {session[2:]} in 干草堆"
        assert [question_hit["text"][start:end] for start, end in question_hit["marks"]] == ["needle", session[2:]]
        assert len((await client.get("/v1/search", params={"q": "草堆", "limit": 1})).json()["hits"]) == 1
        assert (await client.get("/v1/search", params={"q": '" OR *'})).json() == {"hits": []}
        for wrong in ({}, {"q": "x" * 1001}, {"q": "x", "limit": 0}, {"q": "x", "limit": 101}):
            assert error_of(await client.get("/v1/search", params=wrong)) == (400, "BadRequest")


async def test_nothing_is_taken_back_while_a_turn_runs(server: Server, session: str, tmp_path: Path) -> None:
    async with server.client() as client:
        await send_until(client, session, f"hold {tmp_path / 'never'}")
        path = f"/v1/sessions/{session}"
        assert error_of(await client.post(f"{path}/rewind", json={"before": 1})) == (409, "TurnRunning")
        fork = (await client.post(f"{path}/fork", json={})).json()
        assert fork["messages"] == 1, "a fork has what is stored by then"
        assert text_of(await send(client, fork["id"], "meanwhile")) == "meanwhile"
        assert (await client.post(f"{path}/cancel")).json() == {"cancelled": True}


NDJSON = {"Content-Type": "application/x-ndjson"}


async def test_an_export_is_imported_under_another_id(server: Server, session: str) -> None:
    async with server.client() as client:
        odd = f"{session} é"
        await client.post("/v1/sessions", json={"id": odd, "state": {"n": 1}})
        await send(client, odd, "note")
        exported = await client.get(f"/v1/sessions/{odd}/export")
        assert exported.status_code == 200
        assert exported.headers["content-type"] == "application/x-ndjson"
        saved_as = exported.headers["content-disposition"]
        assert saved_as == f"attachment; filename=\"{session}__.jsonl\"; filename*=UTF-8''{session}%20%C3%A9.jsonl"
        body = exported.content
        path = "/v1/sessions/import"
        assert error_of(await client.post(path, content=body, headers=NDJSON)) == (409, "SessionExists")
        made = await client.post(path, params={"id": session}, content=body, headers=NDJSON)
        assert made.status_code == 201, made.text
        assert (made.json()["id"], made.json()["state"], made.json()["messages"]) == (session, {"n": 1}, 4)
        again = (await client.get(f"/v1/sessions/{session}/export")).content
        assert again.splitlines()[2:] == body.splitlines()[2:]
        assert text_of(await send(client, session, "goes on")) == "goes on"
        assert error_of(await client.get("/v1/sessions/nobodys/export")) == (404, "SessionNotFound")
        case = await client.get(f"/v1/sessions/{session}/evalset")
        assert case.headers["content-disposition"].startswith(f'attachment; filename="{session}.evalset.json"')
        [read] = EvalSet.model_validate_json(case.content).eval_cases
        assert read.session_input is not None
        assert read.session_input.state == {"n": 1}
        assert len(read.conversation or ()) == 2
        assert error_of(await client.get("/v1/sessions/nobodys/evalset")) == (404, "SessionNotFound")
        assert error_of(await client.get("/v1/sessions/nobodys/export?format=html")) == (404, "SessionNotFound")
        shared = await client.get(f"/v1/sessions/{session}/export?format=html")
        assert shared.headers["content-type"] == "text/html; charset=utf-8"
        assert shared.headers["content-disposition"].startswith(f'attachment; filename="{session}.html"')
        assert shared.text.startswith("<!DOCTYPE html>")
        wrong = await client.get(f"/v1/sessions/{session}/export?format=pdf")
        assert wrong.status_code == 400


async def test_an_invalid_import_names_the_line(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "hello")
        lines = (await client.get(f"/v1/sessions/{session}/export")).content.splitlines(keepends=True)
        path = f"/v1/sessions/import?id=copy-{session}"
        for body in (b"", b"{}", b"".join(lines[:-1]), b"".join([*lines[:3], *lines[4:]]), b"\xff"):
            refused = await client.post(path, content=body, headers=NDJSON)
            assert error_of(refused) == (400, "InvalidExport")
            assert "line" in refused.json()["error"]["message"]
        assert (await client.get(f"/v1/sessions/copy-{session}")).status_code == 404
        plain = await client.post(path, content=b"".join(lines), headers={"Content-Type": "text/plain"})
        assert plain.status_code == 415
        huge = await client.post(path, content=b" " * 100_000_001, headers=NDJSON)
        assert error_of(huge) == (413, "TooLarge")
        more = b"".join(lines[:2]) + b"\n" * 2_000_000 + b"".join(lines[2:])
        assert (await client.post(path, content=more, headers=NDJSON)).status_code == 201, (
            "larger than a message may be"
        )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("fork", {"at": -1}),
        ("fork", {"at": "x"}),
        ("fork", {"at": 2**70}),
        ("fork", {"id": "a/b"}),
        ("fork", {"user_id": "bob"}),
        ("rewind", {}),
        ("rewind", {"before": 0}),
        ("rewind", {"before": None}),
    ],
)
async def test_an_invalid_request_gets_a_reason(server: Server, session: str, path: str, body: Any) -> None:
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": session})
        assert error_of(await client.post(f"/v1/sessions/{session}/{path}", json=body)) == (400, "BadRequest")
        other = await client.post(f"/v1/sessions/{session}/fork", json={"at": 7})
        assert error_of(other) == (404, "MessageNotFound")
        taken = await client.post(f"/v1/sessions/{session}/fork", json={"id": session})
        assert error_of(taken) == (409, "SessionExists")
