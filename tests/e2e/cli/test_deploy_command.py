"""`lango deploy check` beside a server that runs, and turns that are run again once their nodes are back."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.server_process import Server, lango, resume, send, serving

WORKFLOW = """
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.events import RequestInput
from google.adk.workflow import START, Workflow, node


@node(name={node!r})
async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="Which size?")


def prepare(node_input: Any) -> str:
    with Path({log!r}).open("a") as file:
        file.write("prepared\\n")
    return "prepared"


def order(node_input: Any) -> str:
    return f"ordered {{node_input}}"


root_agent = Workflow(name="shop", edges=[(START, prepare, ask, order)])
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The file of the agent, in its first version."""
    file = tmp_path / "agent.py"
    write(file, "ask")
    return file


def write(agent: Path, node: str) -> None:
    agent.write_text(WORKFLOW.format(node=node, log=str(agent.with_name("log"))))


def serving_shop(agent: Path, url: str) -> Any:
    return serving(agent.parent, url, agent=f"module = {json.dumps(str(agent))}", name="shop")


def check(agent: Path) -> tuple[int, list[dict[str, Any]]]:
    done = lango("deploy", "check", "--json", cwd=agent.parent)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


async def answer(server: Server) -> str:
    """Give the size that the workflow asks for; return the type of the last event."""
    async with server.client() as client:
        [wait] = (await client.get("/v1/sessions/s/waits")).json()["waits"]
        body = {"type": "value", "value": "large"}
        response = await client.post(f"/v1/sessions/s/waits/{wait['id']}", json=body)
        assert response.status_code == 200, response.text
        return response.text


async def test_a_turn_whose_node_is_gone_is_found_before_the_deploy_and_is_run_again_after_it(
    agent: Path, store_url: str
) -> None:
    with serving_shop(agent, store_url) as server:
        async with server.client() as client:
            assert (await send(client, "s", "a shirt"))[-1].data["status"] == "waiting"
        assert check(agent)[0] == 0
        write(agent, "question")
        code, [found] = check(agent)
        assert (code, found["session"], found["state"], found["verdict"]) == (1, "s", "paused", "cannot continue")
        assert "ask" in found["why"], "it names the node"
    with serving_shop(agent, store_url) as server:
        assert "TurnDiverged" in await answer(server)
        async with server.client() as client:
            refused = await client.post("/v1/sessions/s/turns/1/retry")
            assert refused.status_code == 409, "that turn did not fail"
    write(agent, "ask")
    with serving_shop(agent, store_url) as server:
        again = lango("turns", "retry", "s", cwd=agent.parent)
        assert (again.returncode, again.stdout) == (0, "turn 2 of s will run again\n"), again.stderr
        async with server.client() as client:
            events = await resume(client, "s")
            assert events[-1].type == "done"
            assert (await client.post("/v1/sessions/s/turns/2/retry")).status_code == 409, "it has ended well"
    assert agent.with_name("log").read_text() == "prepared\n", "the finished node did not run again"


async def test_a_turn_is_run_again_by_the_route(agent: Path, sqlite_url: str) -> None:
    with serving_shop(agent, sqlite_url) as server:
        async with server.client() as client:
            await send(client, "s", "a shirt")
    write(agent, "question")
    with serving_shop(agent, sqlite_url) as server:
        assert "TurnDiverged" in await answer(server)
    write(agent, "ask")
    with serving_shop(agent, sqlite_url) as server:
        async with server.client() as client:
            assert (await client.post("/v1/sessions/s/turns/2/retry")).status_code == 202
            assert (await resume(client, "s"))[-1].type == "done"
