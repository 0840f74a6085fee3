"""One server with several agents: each has its own sessions, and every protocol addresses each of them."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
import websockets

from tests.support.servers.server_process import Server, resume, send, send_until, serving

FOLDER = Path(__file__).parents[2] / "support" / "servers" / "agent_folder"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agents")
    with serving(folder, f"sqlite:///{folder}/agents.db", str(FOLDER), name="", agent="max_turns = 5") as server:
        yield server


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as client:
        yield client


async def test_the_agents_are_listed_in_every_protocol(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/agents")).json() == {
        "agents": [
            {"name": "anna", "description": "This is Anna.", "model": "echo-anna", "error": ""},
            {"name": "ben", "description": "This is Ben.", "model": "echo-ben", "error": ""},
        ]
    }
    assert (await client.get("/list-apps")).json() == ["anna", "ben"]
    assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["anna", "ben"]
    assert (await client.get("/v1/models/ben")).json()["id"] == "ben"


async def test_a_session_belongs_to_the_agent_that_it_was_created_for(client: httpx.AsyncClient) -> None:
    created = await client.post("/v1/sessions", params={"agent": "ben"}, json={"id": "mine"})
    assert created.json()["agent"] == "ben"
    events = await send(client, "mine", "hello")
    assert "".join(event.data["text"] for event in events if event.type == "text_delta") == "ben heard hello"
    listed = {
        agent: [one["id"] for one in (await client.get("/v1/sessions", params={"agent": agent})).json()["sessions"]]
        for agent in ("anna", "ben")
    }
    assert "mine" in listed["ben"]
    assert "mine" not in listed["anna"]
    refused = await client.get("/v1/sessions", params={"agent": "carl"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "AgentNotFound")
    assert "'anna', 'ben'" in refused.json()["error"]["message"]


async def test_options_that_are_not_allowed_are_refused(client: httpx.AsyncClient) -> None:
    await client.post("/v1/sessions", params={"agent": "ben"}, json={"id": "options"})
    refused = await client.patch("/v1/sessions/options/options", json={"model": "openai/gpt-5"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (422, "SessionOptionsRefused")
    assert (await client.patch("/v1/sessions/options/options", json={"model": None})).json() == {
        "model": None,
        "instruction": None,
        "default_model": "echo-ben",
        "models": [],
        "may_set_instruction": False,
    }


async def test_an_id_that_two_agents_use_needs_the_name_of_one(client: httpx.AsyncClient) -> None:
    for agent in ("anna", "ben"):
        assert (await client.post("/v1/sessions", params={"agent": agent}, json={"id": "both"})).status_code == 201
    refused = await client.get("/v1/sessions/both")
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "AmbiguousSession")
    assert (await client.get("/v1/sessions/both", params={"agent": "ben"})).json()["agent"] == "ben"


async def test_openais_client_names_the_agent_as_its_model(server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        for agent in ("anna", "ben"):
            chat = await client.chat.completions.create(model=agent, messages=[{"role": "user", "content": "hi"}])
            assert chat.choices[0].message.content == f"{agent} heard hi"
            assert chat.model == agent
            response = await client.responses.create(model=agent, input="hi")
            assert response.output_text == f"{agent} heard hi"
            assert (await client.responses.retrieve(response.id)).output_text == f"{agent} heard hi"
        with pytest.raises(openai.NotFoundError, match="'carl'; the models are 'anna', 'ben'"):
            await client.chat.completions.create(model="carl", messages=[{"role": "user", "content": "hi"}])


async def test_adks_rest_addresses_the_agents_as_apps(client: httpx.AsyncClient) -> None:
    assert (await client.post("/apps/ben/users/user/sessions/rest")).status_code == 200
    assert (await client.get("/apps/anna/users/user/sessions/rest")).status_code == 404
    assert (await client.get("/apps/carl/users/user/sessions")).status_code == 404
    message = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"appName": "ben", "userId": "user", "sessionId": "rest", "newMessage": message}
    events = (await client.post("/run", json=body)).json()
    assert events[-1]["content"]["parts"][0]["text"] == "ben heard hi"
    assert (await client.post("/run", json=body | {"appName": "carl"})).status_code == 404


async def test_a_socket_speaks_to_the_agent_of_each_session(server: Server, client: httpx.AsyncClient) -> None:
    for agent in ("anna", "ben"):
        await client.post("/v1/sessions", params={"agent": agent}, json={"id": f"ws-{agent}"})
    async with websockets.connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket:
        for agent in ("anna", "ben"):
            await socket.send(json.dumps({"type": "message", "session": f"ws-{agent}", "text": "hi"}))
            events = [json.loads(await socket.recv())]
            while events[-1]["type"] != "done":
                events.append(json.loads(await socket.recv()))
            assert "".join(one["text"] for one in events if one["type"] == "text_delta") == f"{agent} heard hi"


async def test_openais_and_ag_uis_clients_learn_which_agent_speaks(tmp_path: Path) -> None:
    council = str(FOLDER.with_name("parallel_agent.py"))
    url, question = f"sqlite:///{tmp_path}/council.db", [{"role": "user", "content": "What do you think?"}]
    spoken = "I am Anna and agree.\n\nI am Ben and do not.\n\nBoth have a point."
    named = [{"index": 0, "name": "anna"}, {"index": 1, "name": "ben"}, {"index": 2, "name": "critic"}]
    with serving(tmp_path, url, council, name="", agent="max_turns = 5") as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            create: Any = client.chat.completions.create
            message = (await create(model="any", messages=question)).choices[0].message.to_dict()
            assert (message["content"], message["speakers"]) == (spoken, named)
            deltas = [chunk.choices[0].delta async for chunk in await create(model="m", messages=question, stream=True)]
            assert "".join(delta.content or "" for delta in deltas) == spoken
            assert [one for delta in deltas for one in delta.to_dict().get("speakers", ())] == named
        async with server.client() as client:
            run: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [{"id": "m", **question[0]}], "state": {}}
            body: dict[str, Any] = run | {"tools": [], "context": [], "forwardedProps": {}}
            lines = (await client.post("/agui", json=body)).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    starts = [event["name"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
    assert starts == ["anna", "ben", "critic"]


async def test_the_turn_of_each_agent_goes_on_after_a_kill(tmp_path: Path) -> None:
    url, gate = f"sqlite:///{tmp_path}/agents.db", tmp_path / "gate"
    with serving(tmp_path, url, str(FOLDER), name="", agent="max_turns = 5") as first:
        async with first.client() as client:
            for agent in ("anna", "ben"):
                await client.post("/v1/sessions", params={"agent": agent}, json={"id": agent})
                await send_until(client, agent, f"hold {gate}")
        first.kill()
    gate.touch()
    with serving(tmp_path, url, str(FOLDER), name="", agent="max_turns = 5") as second:
        async with second.client() as client:
            for agent in ("anna", "ben"):
                assert (await resume(client, agent))[-1].type == "done"
                messages = (await client.get(f"/v1/sessions/{agent}/messages")).json()["messages"]
                assert messages[-1]["content"] == f"{agent} heard hold {gate}"


async def test_a_broken_agent_is_listed_and_comes_alive_when_its_file_is_mended(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "agents", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "agents" / "ben" / "agent.py"
    whole = file.read_text()
    file.write_text("import not_there_at_all\n")
    url = f"sqlite:///{tmp_path}/agents.db"
    with serving(tmp_path, url, str(tmp_path / "agents"), name="", agent="max_turns = 5") as server:
        async with server.client() as client:
            events = await send(client, "s", "hello")
            assert "".join(one.data["text"] for one in events if one.type == "text_delta") == "anna heard hello"
            anna, ben = (await client.get("/v1/agents")).json()["agents"]
            assert (anna["name"], anna["error"], ben["name"]) == ("anna", "", "ben")
            assert "not_there_at_all" in ben["error"]
            assert "agent ben is not served" in server.log.read_text()
            about = (await client.get("/page/about")).json()
            assert [one["name"] for one in about["broken"]] == ["ben"]
            refusals = [
                await client.get("/v1/sessions", params={"agent": "ben"}),
                await client.post("/v1/chat/completions", json={"model": "ben", "messages": [HELLO]}),
                await client.get("/apps/ben/users/user/sessions"),
            ]
            for refused in refusals:
                assert refused.status_code == 503, refused.text
                assert "not_there_at_all" in refused.text
            assert refusals[0].json()["error"]["type"] == "AgentBroken"
            file.write_text(whole)
            while (await client.get("/v1/agents")).json()["agents"][1]["error"]:
                await asyncio.sleep(0.1)
            created = await client.post("/v1/sessions", params={"agent": "ben"}, json={"id": "mine"})
            assert created.json()["agent"] == "ben"
            events = await send(client, "mine", "hello")
            assert "".join(one.data["text"] for one in events if one.type == "text_delta") == "ben heard hello"


HELLO = {"role": "user", "content": "hello"}


async def test_a_conversation_of_openai_is_with_one_agent_and_uploads_are_for_all(server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        made = await client.conversations.create(extra_query={"agent": "ben"})
        for answer in (
            await client.responses.create(input="hello", conversation=made.id),
            await client.responses.create(model="ben", input="hello", conversation=made.id),
        ):
            assert (answer.model, answer.output_text) == ("ben", "ben heard hello")
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="anna", input="hello", conversation=made.id)
        assert len((await client.conversations.items.list(made.id)).data) == 4
        notes = await client.files.create(
            file=("notes.txt", b"Buy milk."), purpose="user_data", extra_query={"agent": "ben"}
        )
        part: Any = {"type": "input_file", "file_id": notes.id}
        for agent in ("anna", "ben"):
            said: Any = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}, part]}]
            assert (await client.responses.create(model=agent, input=said)).output_text == f"{agent} heard hello"
