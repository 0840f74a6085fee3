"""Trace and state over HTTP: the same for every caller, the secrets of the app for operators only."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from lango import Settings, Tool, open_runtime
from lango.config import ServerSettings, StoreSettings, TraceSettings
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.store.api_keys import add_key, new_secret
from lango.testing import ScriptedProvider
from tests.support.runtimes import store_of

_MARKUP = "<img src=x onerror=alert(1)>"


def _look(arguments: dict[str, str]) -> dict[str, str]:
    return {"seen": _MARKUP}


def _fail(arguments: dict[str, str]) -> None:
    raise KeyError("drawer")


LOOK = Tool("look", "Look.", {"type": "object"}, _look)
_HTTP = "http://127.0.0.1:8787"


def _client(settings: Settings, runtime: Runtime) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(settings, runtime)), base_url=_HTTP)


@pytest.fixture
async def served(sqlite_url: str) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    settings = Settings(store=StoreSettings(url=sqlite_url), trace=TraceSettings(requests=True))
    provider = ScriptedProvider([ToolCall("c1", "look", {}), "seen", "seen x"])
    async with (
        open_runtime(settings, tools=[LOOK], provider=provider) as runtime,
        _client(settings, runtime) as client,
    ):
        yield runtime, client


async def test_a_trace_leads_to_events_and_requests(served: tuple[Runtime, httpx.AsyncClient]) -> None:
    runtime, client = served
    await runtime.run("s", f"look {_MARKUP}")
    trace = (await client.get("/v1/sessions/s/trace")).json()
    [turn] = trace["turns"]
    [agent] = turn["steps"]
    call = agent["steps"][0]
    assert (trace["keeps_requests"], trace["before"], turn["status"], agent["name"]) == (True, None, "done", "lango")
    assert (call["steps"][0]["name"], call["seq"], turn["started_at"][-1]) == ("look", 2, "Z")
    [attempt] = call["attempts"]
    request = (await client.get(f"/v1/sessions/s/trace/requests/{attempt['request_id']}")).json()
    assert request["sent"]["messages"][-1]["text"] == f"look {_MARKUP}"
    assert (request["answer"]["calls"][0]["name"], request["previous_id"], request["changes"]) == ("look", None, None)
    [second] = agent["steps"][1]["attempts"]
    request = (await client.get(f"/v1/sessions/s/trace/requests/{second['request_id']}")).json()
    assert (request["previous_id"], request["changes"]["added_messages"]) == (attempt["request_id"], [1, 2])
    raw = (await client.get(f"/v1/sessions/s/trace/requests/{attempt['request_id']}/raw")).json()
    assert raw["request"]["messages"][-1]["content"] == f"look {_MARKUP}"
    assert raw["response"][-1]["reason"] == "tool_calls"
    event = (await client.get("/v1/sessions/s/trace/events/3")).json()
    assert (event["role"], event["tool_calls"][0]["output"]) == ("tool", {"seen": _MARKUP})
    assert (await client.get("/v1/sessions/s/trace", params={"turn": 1})).json()["turns"] == [turn]
    for path, expected in [
        ("trace?turn=9", (404, "TraceNotFound")),
        ("trace?turn=0", (400, "BadRequest")),
        ("trace/requests/00", (404, "TraceNotFound")),
        ("trace/events/99", (404, "MessageNotFound")),
        ("state?at=99", (404, "MessageNotFound")),
    ]:
        answer = await client.get(f"/v1/sessions/s/{path}")
        assert (answer.status_code, answer.json()["error"]["type"]) == expected
    assert (await client.get("/v1/sessions/none/trace")).status_code == 404
    changes = {"results": {"c1": {"seen": "x"}}, "agents": {"lango": {"system": "Be brief."}}}
    fork = await client.post("/v1/sessions/s/run-on", json={"turn": 1, "before": 3, "id": "f", **changes})
    assert (fork.status_code, fork.json()["forked_from"]) == (201, {"id": "s", "seq": 2})
    lines = (await client.get("/v1/sessions/f/stream")).text.splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    assert "".join(event["text"] for event in events if event["type"] == "text_delta") == "seen x"
    for wanted, status in [({"turn": 9}, 404), ({"turn": 1, "before": 9}, 409), ({"turn": 1, "agents": {"a": 1}}, 400)]:
        assert (await client.post("/v1/sessions/s/run-on", json=wanted)).status_code == status


async def test_state_is_read_and_set(served: tuple[Runtime, httpx.AsyncClient]) -> None:
    runtime, client = served
    await runtime.run("s", "hi")
    set_ = await client.patch("/v1/sessions/s/state", json={"delta": {"a": {"b": [1]}, "user:u": None, "app:x": 1}})
    state = set_.json()
    assert (state["session"], state["user"], state["app"], state["may_set_app"]) == (
        {"a": {"b": [1]}},
        {"u": None},
        {"x": 1},
        True,
    )
    assert [value["name"] for value in state["changes"][-1]["values"]] == ["a", "u", "x"]
    assert (await client.get("/v1/sessions/s/state", params={"at": 1})).json()["session"] == {}
    assert (await client.patch("/v1/sessions/s/state", json={"delta": {"temp:x": 1}})).status_code == 400
    assert (await client.patch("/v1/sessions/s/state", json={"delta": 5})).status_code == 400


async def test_users_read_neither_requests_nor_the_state_of_the_app(sqlite_url: str) -> None:
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        trace=TraceSettings(requests=True),
        server=ServerSettings(auth="keys", operators=["boss"]),
    )
    provider = ScriptedProvider(["one", "tried", "two"])
    async with open_runtime(settings, provider=provider) as runtime, _client(settings, runtime) as client:
        keys = {user: new_secret() for user in ("boss", "alice")}
        for user, secret in keys.items():
            await store_of(runtime).write(add_key, user, secret, 0.0)
        found: dict[str, str] = {}
        for user in ("boss", "alice"):
            client.headers["authorization"] = f"Bearer {keys[user]}"
            await runtime.sessions.create("s", user_id=user, state={"app:secret": 1, "own": 2})
            await runtime.run("s", "hi", user_id=user)
            trace = (await client.get("/v1/sessions/s/trace")).json()
            [attempt] = trace["turns"][0]["steps"][0]["steps"][0]["attempts"]
            assert (trace["keeps_requests"], attempt["request_id"] is None) == (user == "boss", user != "boss")
            stored = await runtime.sessions.trace("s", user_id=user)
            found[user] = stored.turns[0].steps[0].steps[0].attempts[0].request_id or ""
            tried = await client.post("/v1/sessions/s/run-on", json={"message": "hi", "id": f"of-{user}"})
            assert tried.status_code == (201 if user == "boss" else 403)
            for path in (found[user], f"{found[user]}/raw"):
                answer = await client.get(f"/v1/sessions/s/trace/requests/{path}")
                assert answer.status_code == (200 if user == "boss" else 403)
            state = (await client.get("/v1/sessions/s/state")).json()
            assert (state["app"], state["session"]) == ({"secret": 1} if user == "boss" else {}, {"own": 2})
            assert ("app" in str(state["changes"])) == (user == "boss")
            changed = await client.patch("/v1/sessions/s/state", json={"delta": {"app:secret": 2}})
            assert changed.status_code == (200 if user == "boss" else 403)
        client.headers["authorization"] = f"Bearer {keys['boss']}"
        assert (await client.get(f"/v1/sessions/s/trace/requests/{found['alice']}")).status_code == 404


async def test_only_operators_read_tracebacks(sqlite_url: str) -> None:
    settings = Settings(store=StoreSettings(url=sqlite_url), server=ServerSettings(auth="keys", operators=["boss"]))
    provider = ScriptedProvider([ToolCall("c1", "fail", {}), "no"] * 2)
    fail = Tool("fail", "Fail.", {"type": "object"}, _fail)
    async with (
        open_runtime(settings, tools=[fail], provider=provider) as runtime,
        _client(settings, runtime) as client,
    ):
        for user, status in (("boss", 200), ("alice", 403)):
            secret = new_secret()
            await store_of(runtime).write(add_key, user, secret, 0.0)
            client.headers["authorization"] = f"Bearer {secret}"
            await runtime.run("s", "go", user_id=user)
            answer = await client.get("/v1/sessions/s/trace/failures")
            assert answer.status_code == status
            assert ("raise KeyError" in answer.text) == (status == 200)
            messages = await client.get("/v1/sessions/s/messages")
            assert "KeyError: 'drawer'" in messages.text, "the sentence is for everyone"
            assert "Traceback" not in messages.text
            if status == 200:
                [failure] = answer.json()["failures"]
                assert (failure["step"], failure["function"], failure["at"][-1]) == ("c1", "_fail", "Z")
                assert (await client.get("/v1/sessions/none/trace/failures")).status_code == 404
