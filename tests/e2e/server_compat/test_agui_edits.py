"""AG-UI: an edited or regenerated message, and the client's instructions, in what the model reads."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients.packages import AGUI_CLIENT, run_javascript
from tests.support.servers.scripted_server import ScriptedServer, scripted_server
from tests.support.servers.server_process import Server, serving

SCRIPT = Path(__file__).parents[2] / "support" / "servers" / "agui_edits.mjs"
Messages = list[dict[str, Any]]


def user(text: str, message_id: str | None = None) -> dict[str, Any]:
    return {"id": message_id or uuid.uuid4().hex, "role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex, "role": "assistant", "content": text}


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    """Run a model that is called as often as the parameter says."""
    with scripted_server(*(f"answer {number}" for number in range(1, request.param + 1))) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path, store_url: str, model: ScriptedServer) -> Iterator[Server]:
    agent = 'instruction = "Help."'
    with serving(tmp_path, store_url, agent=agent, rest="[tools]\nenabled = []", env=model.environment) as running:
        yield running


async def run(client: httpx.AsyncClient, messages: Messages, **more: Any) -> httpx.Response:
    body: dict[str, Any] = {
        "threadId": "t",
        "runId": uuid.uuid4().hex,
        "messages": messages,
        "state": {},
        "tools": [],
        "context": [],
    }
    response = await client.post("/agui", json={**body, "forwardedProps": {}, **more})
    if response.status_code == 200:
        assert "RUN_FINISHED" in response.text, response.text
    return response


def read(model: ScriptedServer, request: int = -1) -> list[tuple[str, str]]:
    """Return the conversation in a request to the model, by default in the last one."""
    return [(one["role"], one["content"]) for one in model.requests[request]["messages"] if one["role"] != "system"]


@pytest.mark.parametrize("model", [7], indirect=True)
async def test_an_edited_or_regenerated_message_is_what_the_model_reads(server: Server, model: ScriptedServer) -> None:
    first, second = user("I am Ann"), user("who am I?")
    async with server.client() as client:
        await run(client, [first])
        await run(client, [first, assistant("answer 1"), second])
        # edited: the second message, under a new id
        await run(client, [first, assistant("answer 1"), user("how old am I?")])
        assert read(model) == [("user", "I am Ann"), ("assistant", "answer 1"), ("user", "how old am I?")]
        # regenerated: the same message again
        await run(client, [first, assistant("answer 1"), user("how old am I?")])
        assert read(model) == [("user", "I am Ann"), ("assistant", "answer 1"), ("user", "how old am I?")]
        # edited: the only message before it, which keeps its id
        await run(client, [user("I am Bob", first["id"])])
        assert read(model) == [("user", "I am Bob")]
        # an earlier message is another one, and what followed it is kept
        await run(client, [user("I am Cid"), assistant("hello Cid"), user("and now?")])
        assert read(model) == [("user", "I am Cid"), ("assistant", "hello Cid"), ("user", "and now?")]
        # the conversation continues
        more = [user("I am Cid"), assistant("hello Cid"), user("and now?"), assistant("answer 6"), user("more")]
        await run(client, more)
        assert read(model) == [(one["role"], one["content"]) for one in more]
        sessions = (await client.get("/v1/sessions")).json()["sessions"]
        assert len(sessions) == 5, "each conversation before an edit is kept in a fork"


@pytest.mark.parametrize("model", [5], indirect=True)
def test_what_ag_uis_own_client_edits_and_regenerates_is_what_the_model_reads(
    server: Server, model: ScriptedServer
) -> None:
    steps: list[dict[str, Any]] = [
        {"say": "I am Ann"},
        {"say": "who am I?"},
        {"keep": 3},  # regenerated: the last question once more, without its answer
        {"keep": 2, "say": "how old am I?"},  # edited: the message has a new id
        {"keep": 1, "edit": "I am Bob"},  # edited: the message keeps its id
    ]
    shown = run_javascript(SCRIPT, AGUI_CLIENT, url=server.url, thread="t", steps=steps)
    assert shown == [["user", "I am Bob"], ["assistant", "answer 5"]]
    before = ("user", "I am Ann"), ("assistant", "answer 1")
    assert [read(model, at) for at in range(5)] == [
        [("user", "I am Ann")],
        [*before, ("user", "who am I?")],
        [*before, ("user", "who am I?")],
        [*before, ("user", "how old am I?")],
        [("user", "I am Bob")],
    ]


@pytest.mark.parametrize("model", [4], indirect=True)
async def test_a_client_that_sends_only_what_is_new_continues(server: Server, model: ScriptedServer) -> None:
    async with server.client() as client:
        for text in ("one", "two", "two"):
            await run(client, [user(text)])
        assert [text for role, text in read(model) if role == "user"] == ["one", "two", "two"]
        # one that leaves out the beginning
        await run(client, [user("two"), assistant("answer 3"), user("three")])
        assert [text for role, text in read(model) if role == "user"] == ["one", "two", "two", "three"]
        assert len((await client.get("/v1/sessions")).json()["sessions"]) == 1


@pytest.mark.parametrize("model", [2], indirect=True)
async def test_the_clients_instructions_reach_the_model_after_the_agents(server: Server, model: ScriptedServer) -> None:
    messages = [
        {"id": "s", "role": "system", "content": "Speak like a pirate."},
        {"id": "d", "role": "developer", "content": "Use metric units."},
        user("hello"),
    ]
    async with server.client() as client:
        await run(client, messages, context=[{"description": "The open page", "value": "Invoice 17"}])
        system = "\n".join(str(one["content"]) for one in model.requests[-1]["messages"] if one["role"] == "system")
        places = [system.index(text) for text in ("Help.", "Speak like a pirate.", "Use metric units.", "Invoice 17")]
        assert places == sorted(places)
        assert "The open page" in system
        await run(client, [user("again")])
        assert "pirate" not in json.dumps(model.requests[-1]), "they hold for the turns of their run"


@pytest.mark.parametrize("model", [1], indirect=True)
async def test_instructions_of_clients_can_be_refused(tmp_path: Path, sqlite_url: str, model: ScriptedServer) -> None:
    agent, refusing = 'instruction = "Help."', "client_instructions = false"
    with serving(tmp_path, sqlite_url, agent=agent, server=refusing, env=model.environment) as server:
        async with server.client() as client:
            for more in (
                {"context": [{"description": "page", "value": "Invoice 17"}]},
                {"messages": [{"id": "s", "role": "system", "content": "Obey."}, user("hello")]},
            ):
                response = await run(client, **({"messages": [user("hello")]} | more))
                assert (response.status_code, response.json()["error"]["type"]) == (400, "ClientInstructionsRefused")
            assert (await run(client, [user("hello")])).status_code == 200
