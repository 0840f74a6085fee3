"""The API of a real server: sessions, pages, cancel, approvals, health, metrics, and its OpenAPI description."""

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.servers.server_process import (
    TIMEOUT_S,
    Server,
    give,
    resume,
    send,
    send_until,
    serving,
    text_of,
    wait_path,
    waits_of,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("api")
    with serving(folder, f"sqlite:///{folder}/lango.db", server='log_format = "json"') as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["type"]


async def test_a_session_from_making_to_deleting(server: Server, session: str) -> None:
    async with server.client() as client:
        made = await client.post("/v1/sessions", json={"id": session, "state": {"a": 1, "user:b": [2]}})
        assert made.status_code == 201
        assert made.json()["state"] == {"a": 1, "user:b": [2]}
        assert error_of(await client.post("/v1/sessions", json={"id": session})) == (409, "SessionExists")
        for minted in (await client.post("/v1/sessions", json={}), await client.post("/v1/sessions")):
            assert len(minted.json()["id"]) == 32
        await send(client, session, "hello")
        shown = (await client.get(f"/v1/sessions/{session}")).json()
        assert shown["messages"] == 2
        assert shown["tokens"] > 0
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        for method, path in [
            ("GET", ""),
            ("GET", "/messages"),
            ("GET", "/stream"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ]:
            gone = await client.request(method, f"/v1/sessions/{session}{path}")
            assert error_of(gone) == (404, "SessionNotFound")


async def test_the_usage_of_a_session(server: Server, session: str) -> None:
    async with server.client() as client:
        for text in ("hello", "note", "again"):
            await send(client, session, text)
        usage = (await client.get(f"/v1/sessions/{session}/usage?limit=2")).json()
        assert (usage["budget_tokens"], usage["max_messages"], usage["before"]) == (32_000, 100, 2)
        noted, again = usage["turns"]
        assert [tool["name"] for tool in noted["tools"]] == ["note"]
        assert noted["tools"][0]["status"] == "finished"
        assert len(noted["model_calls"]) == noted["usage"]["model_calls"] == 2
        assert noted["model_calls"][0]["model"] == "obedient"
        assert (again["status"], again["is_rewound"], again["usage"]["input_tokens"]) == ("done", False, 10)
        assert usage["total"]["turns"] == 3
        shown = (await client.get(f"/v1/sessions/{session}")).json()
        assert usage["window"] == {
            "first_seq": 1,
            "messages": shown["messages"],
            "tokens": shown["tokens"],
            "left_out_messages": 0,
            "left_out_tokens": 0,
            "observed_seq": 0,
            "memory_tokens": 0,
            "limit": None,
            "reason": "",
        }
        [first] = (await client.get(f"/v1/sessions/{session}/usage", params={"before": usage["before"]})).json()[
            "turns"
        ]
        assert (first["turn"], first["first_seq"], first["last_seq"]) == (1, 1, 2)
        assert error_of(await client.get("/v1/sessions/nobody/usage")) == (404, "SessionNotFound")


async def test_a_session_that_is_deleted_while_it_runs_ends_its_stream(
    server: Server, session: str, tmp_path: Path
) -> None:
    async with server.client() as client, asyncio.timeout(TIMEOUT_S):
        sending = asyncio.create_task(send(client, session, f"hold {tmp_path / 'never'}"))
        while (await client.get(f"/v1/sessions/{session}/messages")).json().get("messages") in (None, []):
            await asyncio.sleep(0.01)
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        events = await sending
        assert events[-1].type == "turn_error"
        assert events[-1].data["fatal"] is True
        assert error_of(await client.get(f"/v1/sessions/{session}")) == (404, "SessionNotFound")


async def test_sessions_and_messages_come_in_pages(server: Server, session: str) -> None:
    async with server.client() as client:
        names = {f"{session}-{number}" for number in range(5)}
        for name in names:
            await client.post("/v1/sessions", json={"id": name})
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (
                await client.get("/v1/sessions", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
            ).json()
            assert len(page["sessions"]) <= 2
            seen += [item["id"] for item in page["sessions"]]
            cursor = page["next_cursor"]
        assert len(seen) == len(set(seen))
        assert names <= set(seen)

        for number in range(3):
            await send(client, session, f"message {number}")
        newest = (await client.get(f"/v1/sessions/{session}/messages", params={"limit": 4})).json()
        assert [item["seq"] for item in newest["messages"]] == [3, 4, 5, 6]
        assert newest["before"] == 3
        rest = (await client.get(f"/v1/sessions/{session}/messages", params={"before": 3, "limit": 4})).json()
        assert [item["content"] for item in rest["messages"]] == ["message 0", "message 0"]
        assert rest["before"] is None


@pytest.mark.parametrize(
    "query",
    [
        "/v1/sessions?limit=0",
        "/v1/sessions?limit=201",
        "/v1/sessions?limit=x",
        "/v1/sessions?cursor=x",
        "/v1/sessions?cursor=WyJhIiwxXQ",
        "/v1/sessions?cursor=W10",
        "/v1/sessions/s/messages?before=0",
        "/v1/sessions/s/messages?before=99999999999999999999999",
        "/v1/sessions/%00",
        f"/v1/sessions/{'x' * 201}",
    ],
)
async def test_an_invalid_request_gets_a_reason(server: Server, query: str) -> None:
    async with server.client() as client:
        answer = await client.get(query)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"text": ""}',
        '{"text": 1}',
        '{"text": null}',
        '{"text": "x", "more": 1}',
        '{"text": "\\ud800"}',
        "[" * 10_000,
    ],
)
async def test_an_invalid_message_starts_no_turn(server: Server, session: str, body: str) -> None:
    async with server.client() as client:
        answer = await client.post(
            f"/v1/sessions/{session}/messages", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400, answer.text
        assert "Value error" not in answer.text, "no internals of pydantic"
        assert (await client.get(f"/v1/sessions/{session}")).status_code == 404


async def test_cancel_stops_the_turn_and_reports_whether_one_ran(server: Server, session: str, tmp_path: Path) -> None:
    async with server.client() as client:
        seen = await send_until(client, session, f"hold {tmp_path / 'never'}")
        assert (await client.post(f"/v1/sessions/{session}/cancel")).json() == {"cancelled": True}
        [last] = (await resume(client, session, seen[-1].id))[-1:]
        assert (last.type, last.data["error"]) == ("turn_error", "TurnCancelled")
        assert (await client.post(f"/v1/sessions/{session}/cancel")).json() == {"cancelled": False}
        assert text_of(await send(client, session, "hello")) == "hello"


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_request_is_answered_once(server: Server, session: str, approved: bool) -> None:
    async with server.client() as client:
        events = await send(client, session, "ask")
        [wait] = await waits_of(client, session)
        assert wait["arguments"] == {"text": "this"}
        assert events[-1].data["status"] == "waiting"
        path, answer = wait_path(wait), {"type": "approve" if approved else "refuse"}
        for wrong in ({"type": "perhaps"}, {"approved": True}, "approve", {**answer, "more": 1}):
            assert (await client.post(path, json=wrong)).status_code == 400
        unfits: list[Any] = [{"type": "value", "value": 1}, {"type": "result", "result": {}}, {"type": "decline"}]
        for unfit in unfits:
            assert error_of(await client.post(path, json=unfit)) == (422, "InvalidAnswer")
        answered = await give(client, wait, answer)
        assert answered[-1].type == "done"
        ran = any(event.data.get("result") == {"noted": "this"} for event in answered if event.type == "tool_end")
        assert ran is approved
        assert error_of(await client.post(path, json={"type": "approve"})) == (409, "WaitNotOpen")
        assert error_of(await client.post("/v1/sessions/none/waits/x", json=answer)) == (404, "SessionNotFound")
        missing = await client.post(f"/v1/sessions/{session}/waits/none", json={"type": "approve"})
        assert error_of(missing) == (409, "WaitNotOpen")


async def test_health_readiness_and_metrics(server: Server, session: str, tmp_path: Path) -> None:
    async with server.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = (await client.get("/readyz")).json()
        assert ready["status"] == "ok"
        assert set(ready["checks"]) == {"agent", "database", "accepting"}
        before = await at_rest(server, client)
        await send(client, session, "hello")
        await send(client, session, "fail")
        gate = tmp_path / "gate"
        seen = await send_until(client, session, f"hold {gate}")
        during = await measured(client)
        assert during["lango_turns_running"] == 1
        gate.touch()
        await resume(client, session, seen[-1].id)
        after = await at_rest(server, client)
        assert after["lango_turns_running"] == 0
        assert after['lango_turns_total{status="done"}'] - before.get('lango_turns_total{status="done"}', 0) == 2
        assert after['lango_turns_total{status="failed"}'] - before.get('lango_turns_total{status="failed"}', 0) == 1
        assert after['lango_tokens_total{direction="input"}'] > before.get('lango_tokens_total{direction="input"}', 0)
        assert after["lango_turn_seconds_count"] - before["lango_turn_seconds_count"] == 3
        assert after["lango_first_text_seconds_count"] - before["lango_first_text_seconds_count"] == 2


async def at_rest(server: Server, client: httpx.AsyncClient) -> dict[str, float]:
    """Read the metrics once no client reads and every turn is counted, just after its last event."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            turns = [line for line in map(json.loads, server.log.read_text().splitlines()) if "turn" in line]
            found = await measured(client)
            if sum("status" in line for line in turns) * 2 == len(turns) and found["lango_streams"] == 0:
                return found
            await asyncio.sleep(0.01)


async def measured(client: httpx.AsyncClient) -> dict[str, float]:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_]+(\{[a-z]+=\"[^\"]+\"\})? [0-9.]+", line) for line in lines), lines
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_the_log_has_a_line_for_every_turn_as_json(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "hello")
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := [line for line in server.log.read_text().splitlines() if session in line]) < 2:
            await asyncio.sleep(0.01)
    accepted, done = [json.loads(line) for line in found]
    assert (accepted["session"], accepted["turn"]) == (session, 1)
    assert (done["session"], done["status"]) == (session, "done")
    assert "hello" not in "".join(found), "the log holds no content"


async def test_the_page_at_the_root_runs_nothing_but_its_own_files(server: Server) -> None:
    async with server.client() as client:
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        for part in re.findall(r'(?:src|href)="([^#"]+)"', page.text):
            assert part.startswith("/page/"), "nothing from elsewhere"
            assert (await client.get(part)).status_code == 200
        assert not re.search(r"<script>|<style>|\sstyle=|\son\w+=|javascript:", page.text), "nothing in line"
        assert (await client.get("/page/about")).json()["agents"][0]["model"]
        for outside in ("../app.py", "..%2fapp.py", "%2e%2e/page.py", "/etc/passwd", "vendor", "vendor/../../page.py"):
            assert (await client.get(f"/page/{outside}")).status_code == 404


async def test_a_part_of_the_page_that_is_known_is_not_sent_again(server: Server) -> None:
    async with server.client() as client:
        first = await client.get("/page/page.js")
        assert first.headers["content-type"].startswith("text/javascript")
        again = await client.get("/page/page.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_a_browser_keeps_the_parts_of_a_version_of_the_page(server: Server) -> None:
    async with server.client() as client:
        page = await client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        script, version = re.findall(r'src="(/page/([0-9a-f]{16})/page\.js)"', page.text)[0]
        part = await client.get(script)
        assert part.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert (await client.get("/page/page.js")).headers["cache-control"] == "no-cache"
        of_an_older_page = await client.get(script.replace(version, "0" * 16))
        assert of_an_older_page.headers["cache-control"] == "no-cache", "it is not what that version had"
        assert of_an_older_page.content == part.content


# -- every example of the OpenAPI description is sent, and the response matches it ------------------------------------


async def test_every_example_of_the_openapi_page_runs(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path / "fresh", sqlite_url) as server:
        async with server.client() as client:
            page = (await client.get("/openapi.json")).json()
            wanted = [(path, method) for path, operations in page["paths"].items() for method in operations]
            assert ("/v1/sessions/{session_id}/messages", "post") in wanted
            await run_example(client, page, "/v1/sessions", "post")
            # so that there is something to approve, and a file to read
            file = {"name": "a.txt", "mime_type": "text/plain", "data": "aGVsbG8="}
            await client.post("/v1/sessions/demo/messages", json={"text": "ask", "attachments": [file]})
            wanted.remove(("/v1/sessions", "post"))
            for elsewhere in (
                ("/v1/live", "get"),  # it does not end: test_live.py
                ("/v1/sessions/{session_id}/waiting/{turn}", "delete"),  # needs a queued message: test_live.py
                ("/v1/sessions/{session_id}/waits/{wait_id}", "post"),  # needs the id of a wait: test_inbox.py
                ("/v1/sessions/{session_id}/waits/{wait_id}", "delete"),
                # need a schedule: test_schedules.py
                *(("/v1/schedules/{schedule_id}", method) for method in ("get", "patch", "delete")),
                *((f"/v1/schedules/{{schedule_id}}/{verb}", "post") for verb in ("pause", "resume", "run")),
                ("/v1/credentials/{key}", "delete"),
                ("/v1/oauth/callback", "get"),
                ("/v1/triggers/{name}", "post"),  # need a trigger: test_triggers.py
                ("/v1/triggers/{name}/{secret}", "post"),
                ("/v1/webhooks", "post"),  # need the key that encrypts its secret: test_webhooks.py
                ("/v1/webhooks/{webhook_id}", "delete"),
                ("/v1/dead-deliveries/{delivery_id}/resend", "post"),
                ("/v1/sessions/{session_id}/grants/{grant_id}", "delete"),  # needs a grant: test_inbox.py
                ("/v1/sessions/{session_id}/evalset", "get"),  # needs an answer: test_session_changes.py
                # need the name of an agent: test_agent_routes.py, test_a2a.py
                ("/a2a/{agent}/.well-known/agent-card.json", "get"),
                ("/v1/agents/{name}", "get"),
                ("/v1/agents/{name}/tool-calls", "post"),
                # need a request: test_trace_routes.py
                ("/v1/sessions/{session_id}/trace/requests/{request_id}", "get"),
                ("/v1/sessions/{session_id}/trace/requests/{request_id}/raw", "get"),
                (
                    "/v1/sessions/{session_id}/memory/{note_id}",
                    "delete",
                ),  # needs a note: tests of memory
                # need an item, or a session of their own: test_openai_conversations.py
                ("/v1/conversations/{session_id}", "delete"),
                *(("/v1/conversations/{session_id}/items/{item_id}", method) for method in ("get", "delete")),
                ("/v1/embeddings", "post"),  # needs a provider: test_openai_embeddings.py
                ("/v1/files", "post"),  # needs a form: test_openai_uploads.py
                *((f"/v1/files/{{file_id}}{rest}", "get") for rest in ("", "/content")),
                ("/v1/files/{file_id}", "delete"),
                ("/v1/responses/{response_id}", "get"),  # need a response: test_responses.py
                ("/v1/responses/{response_id}", "delete"),
                ("/v1/responses/{response_id}/cancel", "post"),
                ("/v1/responses/{response_id}/input_items", "get"),
                (
                    "/v1/sessions/{session_id}/turns/{turn}/retry",
                    "post",
                ),  # needs a changed agent: test_deploy_command.py
            ):
                wanted.remove(elsewhere)
            wanted.sort(
                key=lambda item: (
                    "attachments" not in item[0],
                    "approvals" not in item[0],
                    item[1] != "put",  # artifacts are uploaded before they are read, and deleted before their session
                    item[1] == "delete",
                    "artifacts" not in item[0],
                )
            )
            for path, method in wanted:
                await run_example(client, page, path, method)


async def run_example(client: httpx.AsyncClient, page: dict[str, Any], path: str, method: str) -> None:
    operation = page["paths"][path][method]
    filled = path
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            example = (parameter.get("examples") or parameter["schema"]["examples"])[0]
            filled = filled.replace(f"{{{parameter['name']}}}", str(example))
        elif parameter.get("required") and parameter["in"] == "query":
            filled += f"?{parameter['name']}={(parameter.get('examples') or parameter['schema']['examples'])[0]}"
    sent: dict[str, Any] = {}
    if "application/json" in operation.get("requestBody", {"content": {}})["content"]:
        schema = resolved(page, operation["requestBody"]["content"]["application/json"]["schema"])
        body = schema["examples"][0]
        jsonschema.validate(body, schema | {"components": page["components"]})
        sent = {"json": body}
    elif "requestBody" in operation:
        [(kind, content)] = operation["requestBody"]["content"].items()
        sent = {"content": content["example"], "headers": {"Content-Type": kind}}
    answer = await client.request(method, filled, **sent)
    assert str(answer.status_code) in operation["responses"], (path, method, answer.status_code, answer.text)
    assert answer.status_code < 300, (path, method, answer.text)
    promised = operation["responses"][str(answer.status_code)].get("content", {})
    if "application/json" in promised and answer.content:
        schema = promised["application/json"]["schema"]
        jsonschema.validate(answer.json(), schema | {"components": page["components"]})
    elif answer.content:
        assert answer.headers["content-type"].partition(";")[0] in promised


def resolved(page: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema["$ref"].rpartition("/")[2]
    return page["components"]["schemas"][name]
