"""ADK's own server and ours, with the same agent: the same requests get the same answers, ids and times aside.

`EXPECTED` names each answer that is not the same, and why. `ROUTES` holds every route of ADK's server.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import pytest
from google.adk.cli.adk_web_server import RunAgentRequest
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.cli.fast_api import get_fast_api_app
from google.genai import types
from pydantic import BaseModel

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.e2e.adk.test_adk_api_server import api_server
from tests.support.servers import adk_agents
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

AGENT = Path(adk_agents.__file__).parent / "peer"
SESSION = "/apps/peer/users/u/sessions/s1"
_IDS = {"id", "invocationId", "timestamp", "lastUpdateTime", "createTime", "canonicalUri"}
_VERSION = "/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions/{version_id}"

ROUTES = {
    "GET /health": "same",
    "GET /version": "same",
    "GET /list-apps": "same",
    "GET /apps/{app_name}/app-info": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions": "same",
    "POST /apps/{app_name}/users/{user_id}/sessions": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions/{session_id}": "same",
    "POST /apps/{app_name}/users/{user_id}/sessions/{session_id}": "same",
    "PATCH /apps/{app_name}/users/{user_id}/sessions/{session_id}": "same",
    "DELETE /apps/{app_name}/users/{user_id}/sessions/{session_id}": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts": "same",
    "POST /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}": "same",
    "DELETE /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions": "same",
    "GET /apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions/metadata": "same",
    f"GET {_VERSION}": "same",
    f"GET {_VERSION}/metadata": "same",
    "PATCH /apps/{app_name}/users/{user_id}/memory": "same",
    "POST /run": "same",
    "POST /run_sse": "same",
    "POST /agent-identity/finalize": "501",
}

EXPECTED = {
    "invalid state": "400 and a sentence, where FastAPI answers 422 and a list",
    "a saved text": "its MIME type is known here",
    "a session with events": "400: only turns write events here",
    "streamed words": "pieces of text may be joined, and carry no path of a node",
    "a model that fails": "Lango's own type of error comes before ADK's",
}
"""The answers that differ by design, and how; errors besides them have the same status and another sentence."""


class Answer(NamedTuple):
    """A response, or the values that ADK's client made of it."""

    status: int
    kind: str
    body: Any


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Answer], dict[str, Answer], Server]]:
    folder = tmp_path_factory.mktemp("servers")
    shutil.copytree(AGENT, folder / "agents" / "peer", ignore=shutil.ignore_patterns("__pycache__"))
    with api_server(folder / "agents", "memory://") as theirs:
        adk = asyncio.run(_answers(str(theirs.base_url)))
    agent = f"module = {json.dumps(str(folder / 'agents' / 'peer'))}"
    env = {"LANGO_AGENT__NAME": "peer"}
    with serving(folder / "ours", f"sqlite:///{folder}/lango.db", agent=agent, env=env) as server:
        yield adk, asyncio.run(_answers(server.url)), server


async def _answers(url: str) -> dict[str, Answer]:
    """Send the same requests to a server: through ADK's client where it has a method."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S))
        client = await stack.enter_async_context(AdkWebServerClient(url, timeout=TIMEOUT_S))
        run = _Requests(http)
        await run.all_answers(client)
        return run.answers


class _Requests:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.answers: dict[str, Answer] = {}

    async def send(self, name: str, method: str, path: str, body: Any = None) -> Any:
        response = await self._http.request(method, path, **({} if body is None else {"json": body}))
        kind = response.headers["content-type"].partition(";")[0]
        lines = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
        value = [json.loads(line) for line in lines] if kind == "text/event-stream" else response.json()
        self.answers[name] = Answer(response.status_code, kind, value)
        return value

    async def run(self, name: str, part: dict[str, Any], path: str = "/run_sse", **fields: Any) -> list[dict[str, Any]]:
        body = {"appName": "peer", "userId": "u", "sessionId": "s1"} | fields
        return await self.send(name, "POST", path, body | {"newMessage": {"role": "user", "parts": [part]}})

    def note(self, name: str, value: Any) -> None:
        """Keep what ADK's client made of an answer."""
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        shown = [
            one.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(one, BaseModel) else one
            for one in values
        ]
        self.answers[name] = Answer(200, "client", shown)

    async def all_answers(self, client: AdkWebServerClient) -> None:
        await self._sessions(client)
        await self._turns(client)
        await self._artifacts(client)
        await self._ends(client)

    async def _sessions(self, client: AdkWebServerClient) -> None:
        self.note("client: version", await client.get_version_data())
        for path in ("/version", "/health", "/list-apps", "/list-apps?detailed=true", "/apps/peer/app-info"):
            await self.send(path, "GET", path)
        await self.send("no such app", "GET", "/apps/none/app-info")
        state = {"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4}
        await self.send("a session", "POST", "/apps/peer/users/u/sessions", {"sessionId": "s1", "state": state})
        await self.send("the same session", "POST", "/apps/peer/users/u/sessions", {"sessionId": "s1"})
        await self.send("a session with id", "POST", SESSION.replace("s1", "s2"), {"x": 1, "app:c": 5})
        made = await client.create_session(app_name="peer", user_id="v", state=state)
        self.note("client: create", made)
        names = {"app_name": "peer", "user_id": "v", "session_id": made.id}
        change = {"a": 2, "user:b": None, "app:c": 6, "temp:d": 1}
        self.note("client: update", await client.update_session(**names, state_delta=change))
        self.note("client: get", await client.get_session(**names))
        self.note("client: delete", await client.delete_session(**names))
        await self.send("changed state", "PATCH", SESSION, {"stateDelta": change})
        await self.send("state of another session", "GET", SESSION.replace("s1", "s2"))
        await self.send("state of no session", "PATCH", SESSION.replace("s1", "none"), {"stateDelta": change})
        await self.send("invalid state", "PATCH", SESSION, {"stateDelta": 3})
        await self.send("sessions", "GET", "/apps/peer/users/u/sessions")

    async def _turns(self, client: AdkWebServerClient) -> None:
        content = types.Content(role="user", parts=[types.Part(text="hello")])
        request = RunAgentRequest(app_name="peer", user_id="u", session_id="s1", new_message=content)
        self.note("client: run", [event async for event in client.run_agent(request)])
        await self.run("words", {"text": "words a b"}, "/run")
        await self.run("streamed words", {"text": "words a b"}, streaming=True)
        await self.run("a call", {"text": "call count"}, "/run", stateDelta={"n": 1, "app:m": 2})
        await self.run("a new artifact", {"text": "call draw"})
        asked = await self.run("a call to confirm", {"text": "call wipe"})
        parts = [part for event in asked for part in event["content"]["parts"]]
        [call] = [part["functionCall"] for part in parts if "adk_request_confirmation" in str(part.get("functionCall"))]
        confirmed = {"id": call["id"], "name": call["name"], "response": {"confirmed": True}}
        await self.run("a confirmation", {"functionResponse": confirmed})
        [ordered] = await self.run("a long-running call", {"text": "call order"})
        call = ordered["content"]["parts"][0]["functionCall"]
        result = {"id": call["id"], "name": call["name"], "response": {"at": "sea"}}
        await self.run("its result", {"functionResponse": result})
        await self.run("a model that fails", {"text": "fail"})
        request.new_message = types.Content(role="user", parts=[types.Part(text="fail")])
        with pytest.raises(RuntimeError, match="the model is broken"):
            async for _ in client.run_agent(request):
                pass
        for path in ("/run", "/run_sse"):
            await self.run(f"{path} without a session", {"text": "x"}, path, sessionId="none")
        await self.run("a turn of no app", {"text": "x"}, "/run", appName="none")
        found = await self.send("the session", "GET", SESSION)
        found["events"].sort(key=_sort_key)  # ADK sorts them by their times

    async def _artifacts(self, client: AdkWebServerClient) -> None:
        artifacts = f"{SESSION}/artifacts"
        names: Any = {"app_name": "peer", "user_id": "u", "session_id": "s1", "artifact_name": "city.png"}
        self.note("client: version of an artifact", await client.get_artifact_version_metadata(**names, version=0))
        self.note("client: versions of an artifact", await client.list_artifact_versions_metadata(**names))
        text = {"filename": "t.txt", "artifact": {"text": "hi"}, "customMetadata": {"k": 1}}
        await self.send("a saved text", "POST", artifacts, text)
        picture = {"filename": "p.png", "artifact": {"inlineData": {"mimeType": "image/png", "data": "QmVybg=="}}}
        await self.send("a saved picture", "POST", artifacts, picture)
        for path in (
            *("", "/city.png", "/city.png/versions", "/city.png/versions/0", "/city.png/versions/latest"),
            *("/city.png/versions/0/metadata", "/city.png/versions/metadata", "/city.png/versions/x/metadata"),
            *("/none.png", "/none.png/versions", "/none.png/versions/0/metadata"),
        ):
            await self.send(f"artifacts{path}", "GET", artifacts + path)
        for name in ("city.png", "none.png"):
            await self.send(f"deleted {name}", "DELETE", f"{artifacts}/{name}")

    async def _ends(self, client: AdkWebServerClient) -> None:
        for session in ("s1", "none"):
            await self.send(f"memory of {session}", "PATCH", "/apps/peer/users/u/memory", {"sessionId": session})
        for name in ("deleted", "deleted again"):
            await self.send(f"a session {name}", "DELETE", SESSION)
        await self.send("a session that is gone", "GET", SESSION)
        await self.send("the sessions left", "GET", "/apps/peer/users/u/sessions")
        event = {"author": "peer", "content": {"role": "model", "parts": [{"text": "made up"}]}}
        await self.send("a session with events", "POST", "/apps/peer/users/u/sessions", {"events": [event]})


def _sort_key(event: Any) -> str:
    return json.dumps(_without_ids(event))


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            name: "*" if name in _IDS and isinstance(inner, str | int | float) else _without_ids(inner)
            for name, inner in fields.items()
        }
    if isinstance(value, list):
        return [_without_ids(inner) for inner in cast("list[Any]", value)]
    return re.sub(r"^adk-[0-9a-f-]{36}$", "adk-*", value) if isinstance(value, str) else value


def test_answers_are_those_of_adks_server(answers: tuple[dict[str, Answer], dict[str, Answer], Server]) -> None:
    theirs, ours, server = answers
    assert ours.keys() == theirs.keys()
    different = {name for name in theirs if _without_ids([*theirs[name]]) != _without_ids([*ours[name]])}
    refused = {name for name in different if theirs[name].status == ours[name].status >= 400}
    assert different - refused == EXPECTED.keys()
    for name in refused:
        assert isinstance(ours[name].body["detail"], str), name
    logged = re.findall(r"^(\S.*)\n *Traceback", server.log.read_text(), re.MULTILINE)
    assert all("lango.failures" in line for line in logged), "tracebacks of the users' own code alone"


def test_streamed_text_comes_before_its_event(answers: tuple[dict[str, Answer], dict[str, Answer], Server]) -> None:
    for found in answers[:2]:
        *partial, whole = found["streamed words"].body
        assert all(event["partial"] for event in partial)
        assert "".join(event["content"]["parts"][0]["text"] for event in partial) == "ab"
        assert whole["content"]["parts"] == [{"text": "a b"}]


def test_every_route_of_adks_server_is_the_same_or_refused(
    answers: tuple[dict[str, Answer], dict[str, Answer], Server], tmp_path: Path
) -> None:
    adk = get_fast_api_app(agents_dir=str(tmp_path), web=False)
    found = {f"{method.upper()} {path}" for path, item in adk.openapi()["paths"].items() for method in item}
    assert found == ROUTES.keys(), "ADK has another route: compare it above, or refuse it with a sentence"
    names = {"app_name": "peer", "user_id": "u", "session_id": "s2", "artifact_name": "a", "version_id": "0"}
    with httpx.Client(base_url=answers[2].url, timeout=TIMEOUT_S) as client:
        for route, support in ROUTES.items():
            method, _, path = route.partition(" ")
            response = client.request(method, path.format(**names), json={} if method in ("POST", "PATCH") else None)
            if support == "same":
                assert response.status_code in (200, 400, 404, 409), route
                assert response.status_code == 200 or response.json()["detail"] != "Not Found", route
            else:
                assert (str(response.status_code), response.json()["error"]["type"]) == (support, "NotImplemented")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"invocationId": "i"}, "the server resumes interrupted turns"),
        ({"customMetadata": {"a": 1}}, "use stateDelta"),
        ({"serviceTier": "flex"}, "in the agent's model"),
    ],
)
def test_options_of_a_run_that_have_no_effect_are_refused(
    answers: tuple[dict[str, Answer], dict[str, Answer], Server], fields: dict[str, Any], message: str
) -> None:
    body = {"userId": "u", "sessionId": "s2", "newMessage": {"parts": [{"text": "x"}]}} | fields
    response = httpx.post(f"{answers[2].url}/run", json=body, timeout=TIMEOUT_S)
    assert response.status_code == 400
    assert message in response.json()["detail"]


async def test_only_operators_read_and_set_what_all_users_share(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = {user: (await add_api_key(store, user))[1] for user in ("ada", "bob")}
    state = {"app:theme": "dark", "user:name": "x"}
    with serving(tmp_path, sqlite_url, server='auth = "keys"\noperators = ["ada"]') as server:

        async def send(user: str, method: str, path: str, body: Any = None) -> httpx.Response:
            async with server.client(Authorization=f"Bearer {keys[user]}") as client:
                return await client.request(method, path.replace("USER", user), json=body)

        sessions = "/apps/obedient/users/USER/sessions"
        assert (await send("ada", "POST", f"{sessions}/s", state)).json()["state"] == state
        assert (await send("bob", "POST", f"{sessions}/s", {"user:name": "y"})).json()["state"] == {"user:name": "y"}
        message = {"userId": "bob", "sessionId": "s", "newMessage": {"parts": [{"text": "x"}]}}
        for method, path, body in (
            ("POST", sessions, {"state": {"app:theme": "light"}}),
            ("POST", f"{sessions}/t", {"app:theme": "light"}),
            ("PATCH", f"{sessions}/s", {"stateDelta": {"app:theme": "light"}}),
            ("POST", "/run", message | {"stateDelta": {"app:theme": "light"}}),
            ("GET", "/apps/obedient/app-info", None),
        ):
            refused = await send("bob", method, path, body)
            assert (refused.status_code, refused.json()["error"]["type"]) == (403, "NotAnOperator"), path
            assert "server.operators" in refused.json()["detail"]
        assert (await send("bob", "GET", f"{sessions}/s")).json()["state"] == {"user:name": "y"}
        assert (await send("ada", "GET", f"{sessions}/s")).json()["state"] == state, "bob changed nothing"
        assert (await send("ada", "GET", "/apps/obedient/app-info")).status_code == 200
        changed = await send("ada", "PATCH", f"{sessions}/s", {"stateDelta": {"app:theme": "light"}})
        assert changed.json()["state"] == state | {"app:theme": "light"}
