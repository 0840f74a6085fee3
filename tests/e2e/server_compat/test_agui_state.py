"""The state of AG-UI's own client is the session's: it survives runs, tools, a reload and a restart."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from lango.store import Store
from tests.support.clients.packages import AGUI_CLIENT, run_javascript
from tests.support.processes import TIMEOUT_S
from tests.support.servers.server_process import Server, serving

SCRIPT = Path(__file__).parents[2] / "support" / "servers" / "agui_state.mjs"


async def run_steps(server: Server, thread: str, *steps: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return await asyncio.to_thread(
        run_javascript, SCRIPT, AGUI_CLIENT, url=server.url, thread=thread, steps=list(steps), **more
    )


async def test_the_clients_state_survives_runs_tools_and_reloads(tmp_path: Path, store_url: str) -> None:
    thread = f"t-{uuid.uuid4().hex[:8]}"
    start = {"city": "Bern", "cart": {"items": [1, 2], "paid": False}, "gone": None}
    counted = {**start, "count": 1, "list": [{"a/b~": 1}], "user:seen": "count"}
    with serving(tmp_path / "one", store_url) as server:
        first, second, tool, changed = await run_steps(
            server,
            thread,
            {"say": "hello"},
            {"say": "again"},
            {"say": "call count"},
            {"say": "bye", "set": {"city": "Genf"}},
            initialState=start,
        )
        assert first["state"] == second["state"] == start, "what the client began with stays"
        assert first["types"][:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
        assert [one["type"] for one in first["shown"]] == [one["type"] for one in second["shown"]] == ["STATE_SNAPSHOT"]
        assert tool["state"] == counted, "what a tool changes reaches the client"
        assert [one["type"] for one in tool["shown"]] == ["STATE_SNAPSHOT", "STATE_DELTA"]
        assert tool["types"].index("STATE_DELTA") < tool["types"].index("TEXT_MESSAGE_START"), "while the run goes on"
        assert changed["state"] == {**counted, "city": "Genf"}
        assert not any(one["error"] for one in (first, second, tool, changed)), "AG-UI's own verification agrees"
    async with Store(store_url) as store:
        kept = await stored_deltas(store)
    assert kept == [start, None, None, {"city": "Genf"}], "a run that changes nothing stores nothing"
    with serving(tmp_path / "two", store_url) as server:
        reloaded, more = await run_steps(server, thread, {"say": "I am back"}, {"say": "call count"})
        assert reloaded["state"] == {**counted, "city": "Genf"}, "a client without a state gets the stored one"
        assert more["state"]["count"] == 2
        assert more["shown"][1]["delta"] == [
            {"op": "replace", "path": "/count", "value": 2},
            {"op": "replace", "path": "/list", "value": [{"a/b~": 1}, {"a/b~": 2}]},
        ]


async def test_a_killed_server_loses_no_state(tmp_path: Path, store_url: str) -> None:
    thread, gate = f"t-{uuid.uuid4().hex[:8]}", tmp_path / "gate"

    def run(text: str, state: dict[str, Any]) -> dict[str, Any]:
        message = {"id": uuid.uuid4().hex, "role": "user", "content": text}
        return {"threadId": thread, "runId": uuid.uuid4().hex, "messages": [message], "state": state}

    with serving(tmp_path / "one", store_url) as first:
        async with first.client() as client:
            running = run(f"hold {gate}", {"city": "Bern", "cart": [1]})
            async with client.stream("POST", "/agui", json=running) as response:
                await read_until("TEXT_MESSAGE_CONTENT", response)
                queued = run("call count", {"city": "Genf", "paid": None})
                async with client.stream("POST", "/agui", json=queued) as waiting:
                    await read_until("RUN_STARTED", waiting)
                    first.kill()
    gate.touch()
    with serving(tmp_path / "two", store_url) as second:
        [reloaded] = await run_steps(second, thread, {"say": "I am back"})
        assert reloaded["error"] is None
        assert reloaded["state"] == {
            "city": "Genf",
            "cart": [1],
            "paid": None,
            "count": 1,
            "list": [{"a/b~": 1}],
            "user:seen": "count",
        }, "the state of the run that was under way, of the one behind it, and of its tool"


async def read_until(kind: str, response: httpx.Response) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async for line in response.aiter_lines():
            if line and json.loads(line.removeprefix("data: "))["type"] == kind:
                return
    raise AssertionError(f"no {kind}")


async def stored_deltas(store: Store) -> list[Any]:
    """The state changes that came with the user's messages."""
    from lango.store.lifecycle.integrity import list_session_names
    from lango.store.sessions.window import read_session_events

    [name] = await store.read(list_session_names)
    found = await store.read(read_session_events, name)
    assert found
    return [one.state_delta or None for one in found[1] if one.message and one.message.role == "user"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("agui-state")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


async def test_state_comes_with_answers_too(server: Server) -> None:
    thread = f"t-{uuid.uuid4().hex[:8]}"
    asked, answered = await run_steps(
        server,
        thread,
        {"say": "ask"},
        {
            "set": {"sure": True},
            "resume": [{"interruptId": "call_1", "status": "resolved", "payload": {"approved": True}}],
        },
        initialState={"a": 1},
    )
    assert asked["state"] == {"a": 1}
    assert answered["state"] == {"a": 1, "sure": True}
    assert answered["error"] is None


async def test_errors_reach_ag_uis_own_client(server: Server) -> None:
    failed, refused = await run_steps(
        server, f"t-{uuid.uuid4().hex[:8]}", {"say": "fail"}, {"say": "hello", "set": {"app:x": 1}}
    )
    assert (failed["types"][-1], "the provider does not want to" in failed["error"]) == ("RUN_ERROR", True)
    assert "state: clients cannot set app: and temp: keys" in refused["error"], "the sentence of a refused request"


_TOO_LARGE = "state: at most 10,000 values and 1,000,000 characters; keep large data in artifacts"


async def test_state_that_is_not_the_clients_is_refused_with_a_sentence(server: Server) -> None:
    async with server.client() as client:
        for state, sentence in (
            (
                {"app:x": 1, "temp:y": 2},
                "state: clients cannot set app: and temp: keys: app:x, temp:y",
            ),
            ([1], "state: must be an object"),
            ({"a": [1] * 10_000}, _TOO_LARGE),
            ({"a": "x" * 1_000_000}, _TOO_LARGE),
        ):
            body = {
                "threadId": "t",
                "runId": "r",
                "messages": [{"id": "m", "role": "user", "content": "hello"}],
                "state": state,
            }
            response = await client.post("/agui", json=body)
            status = 413 if sentence is _TOO_LARGE else 400
            assert (response.status_code, response.json()["error"]["message"]) == (status, sentence)
