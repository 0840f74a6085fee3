"""The agents, nodes and tools of an app as its developer reads them, and calls of its tools by hand."""

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from lango import Settings, open_runtime
from lango.config import AgentSettings, McpSettings, ServerSettings, StoreSettings, ToolSettings
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.store.api_keys import add_key, new_secret
from lango.testing import ScriptedProvider
from tests.support.runtimes import store_of
from tests.support.servers import mcp_tools

_SERVERS = Path(__file__).parents[2] / "support" / "servers"
_HTTP = "http://127.0.0.1:8787"
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated in favor of Workflow:DeprecationWarning")


@pytest.fixture
async def desk(sqlite_url: str) -> AsyncIterator[httpx.AsyncClient]:
    agent = AgentSettings(module=str(_SERVERS / "desk_agent.py"))
    settings = Settings(store=StoreSettings(url=sqlite_url), agent=agent, tools=ToolSettings(deny=["remember"]))
    async with open_runtime(settings) as runtime:
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url=_HTTP) as client:
            yield client


async def call(client: httpx.AsyncClient, tool: str, arguments: Mapping[str, Any], **more: Any) -> httpx.Response:
    body = {"agent": "weather", "tool": tool, "arguments": dict(arguments), **more}
    return await client.post("/v1/agents/desk/tool-calls", json=body)


async def add_user(runtime: Runtime, name: str) -> str:
    """Add a user, and return the key."""
    secret = new_secret()
    await store_of(runtime).write(add_key, name, secret, 0.0)
    return secret


def outline(node: Mapping[str, Any]) -> Any:
    return (node["name"], node["kind"], *map(outline, node["children"]))


async def test_an_app_is_described_with_its_agents_and_tools(desk: httpx.AsyncClient) -> None:
    root = (await desk.get("/v1/agents/desk")).json()
    speakers = ("both", "parallel", ("anna", "llm"), ("ben", "llm"))
    assert outline(root) == (
        "desk",
        "llm",
        ("weather", "llm"),
        ("review", "sequence", speakers, ("critic", "llm")),
    )
    assert root["description"] == "Finds the right colleague for you."
    weather = root["children"][0]
    assert weather["instruction"] == "Say what the weather will be."
    assert weather["model"] == "scripted"
    forecast, remember, book = weather["tools"]
    assert forecast["description"] == "Forecast the weather of a city."
    assert forecast["schema"]["required"] == ["city"]
    assert {"city", "days", "unit"} == forecast["schema"]["properties"].keys()
    assert [tool["decision"] for tool in (forecast, remember, book)] == ["run", "deny", "ask"]
    missing = await desk.get("/v1/agents/nobody")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "AgentNotFound")


async def test_a_toolset_of_an_mcp_server_lists_its_tools_when_it_is_asked(sqlite_url: str) -> None:
    media = McpSettings(command=sys.executable, args=[mcp_tools.__file__], tools=["picture", "order"])
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        agent=AgentSettings(name="painter", instruction="Paint."),
        mcp={"media": media, "away": McpSettings(command="/nowhere/server")},
        server=ServerSettings(auth="keys", operators=["ops"]),
    )
    async with open_runtime(settings, provider=ScriptedProvider([])) as runtime:
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url=_HTTP) as client:

            async def read(secret: str, toolsets: str) -> list[dict[str, Any]]:
                answer = await client.get(
                    f"/v1/agents/painter?toolsets={toolsets}", headers={"Authorization": f"Bearer {secret}"}
                )
                return [tool for tool in answer.json()["tools"] if tool["is_toolset"]]

            operator, user = await add_user(runtime, "ops"), await add_user(runtime, "ann")
            unasked = await read(operator, "false")
            assert [(tool["name"], tool["tools"]) for tool in unasked] == [("media", []), ("away", [])]
            of_media, of_away = await read(operator, "true")
            assert {tool["name"]: tool["description"] for tool in of_media["tools"]} == {
                "picture": "Draw a picture.",
                "order": "Ask the user for an order.",
            }
            assert all(tool["schema"]["type"] == "object" for tool in of_media["tools"])
            assert {tool["decision"] for tool in of_media["tools"]} == {"ask"}
            assert of_away["tools"] == []
            assert "away" in of_away["problem"]
            assert await read(user, "true") == unasked, "only an operator starts servers"


async def test_a_workflow_is_described_with_its_edges(sqlite_url: str) -> None:
    settings = Settings(
        store=StoreSettings(url=sqlite_url), agent=AgentSettings(module=str(_SERVERS / "workflow_agent.py"))
    )
    async with open_runtime(settings) as runtime:
        root = await runtime.describe_agents()
        assert root.kind == "workflow"
        assert {node.name: node.kind for node in root.children} == dict.fromkeys(
            ("prepare", "ask_size", "ask_freely", "order"), "function"
        )
        assert ("prepare", "ask_freely", "free") in root.edges
        await runtime.run("s", "go")
        [turn] = (await runtime.sessions.trace("s")).turns
        states = {step.name: step.status for step in turn.steps}
        assert (turn.status, states) == ("waiting", {"prepare": "done", "ask_size": "waiting", "obedient": "waiting"})
        [asking] = [message for step in turn.steps for message in step.steps]
        assert (asking.name, asking.status) == ("request for input", "waiting")
        await runtime.cancel("s")
        [turn] = (await runtime.sessions.trace("s")).turns
        assert turn.status == "done"
        assert {step.name: step.status for step in turn.steps}["obedient"] == "done"


async def test_a_tool_is_called_by_hand_apart_from_all_sessions(desk: httpx.AsyncClient) -> None:
    found = (await call(desk, "forecast", {"city": "Bern", "unit": "F"})).json()
    assert found["ok"]
    assert found["result"] == {"city": "Bern", "days": 1, "unit": "F", "weather": "sunny"}
    failed = (await call(desk, "forecast", {"city": "Atlantis"})).json()
    assert not failed["ok"]
    assert "under water" in failed["result"]["error"]
    assert failed["failure"]["function"] == "forecast"
    assert failed["failure"]["file"].endswith("desk_agent.py")
    assert (await desk.get("/v1/sessions")).json()["sessions"] == []


async def test_a_call_by_hand_follows_the_approval_policy(desk: httpx.AsyncClient) -> None:
    denied = await call(desk, "remember", {"city": "Bern"}, approved=True)
    assert (denied.status_code, denied.json()["error"]["type"]) == (403, "ToolRefused")
    asked = await call(desk, "book", {"city": "Bern"})
    assert (asked.status_code, asked.json()["error"]["type"]) == (409, "ApprovalRequired")
    assert (await call(desk, "book", {"city": "Bern"}, approved=True)).json()["result"] == {"result": "booked Bern"}


@pytest.mark.parametrize(
    ("tool", "arguments", "more", "status", "error"),
    [
        ("forecast", {}, {}, 422, "InvalidArguments"),
        ("forecast", {"city": "Bern", "days": "two"}, {}, 422, "InvalidArguments"),
        ("book", {"city": 1}, {"approved": True}, 422, "InvalidArguments"),
        ("none", {}, {}, 404, "ToolNotFound"),
        ("forecast", {"city": "Bern"}, {"state": {"adk_token": "x"}}, 400, "StateRefused"),
    ],
)
async def test_a_wrong_call_gets_a_typed_error(
    desk: httpx.AsyncClient, tool: str, arguments: Any, more: Any, status: int, error: str
) -> None:
    response = await call(desk, tool, arguments, **more)
    assert (response.status_code, response.json()["error"]["type"]) == (status, error), response.text


async def test_only_operators_read_instructions_and_call_tools(sqlite_url: str) -> None:
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        server=ServerSettings(auth="keys", operators=["ops"]),
        agent=AgentSettings(module=str(_SERVERS / "desk_agent.py")),
    )
    async with open_runtime(settings) as runtime:
        keys = {user: await add_user(runtime, user) for user in ("ops", "ann")}
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url=_HTTP) as client:
            for user, instruction, status in (
                ("ops", "Transfer the user to the right colleague.", 200),
                ("ann", "", 403),
            ):
                client.headers["Authorization"] = f"Bearer {keys[user]}"
                assert (await client.get("/v1/agents/desk")).json()["instruction"] == instruction
                assert (await call(client, "forecast", {"city": "Bern"})).status_code == status


async def test_state_and_artifacts_of_a_call_by_hand_are_shown_and_not_kept(sqlite_url: str) -> None:
    agent = AgentSettings(module=str(_SERVERS / "desk_agent.py"))
    settings = Settings(store=StoreSettings(url=sqlite_url), agent=agent)
    async with open_runtime(settings) as runtime:
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url=_HTTP) as client:
            for _ in range(2):
                found = (await call(client, "remember", {"city": "Bern"}, state={"city": "Graz"})).json()
                assert found["result"] == {"result": "remembered Bern, after Graz"}
                assert (found["state"], found["artifacts"]) == ({"city": "Bern"}, ["city.txt"])
