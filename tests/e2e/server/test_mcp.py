"""A real server with a real MCP server and a model behind OpenAI's API: pictures, questions, progress, tools."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from lango.messages import ToolCall
from tests.support.processes import TIMEOUT_S
from tests.support.servers import mcp_tools
from tests.support.servers.mcp_tools import PICTURE_BYTES, pixels
from tests.support.servers.scripted_server import scripted_server
from tests.support.servers.server_process import ReceivedEvent, events_of, lango, serving, wait_path, waits_of

REST = f"""
[tools]
enabled = []
approval = "auto"
[mcp.media]
command = {json.dumps(sys.executable)}
args = [{json.dumps(mcp_tools.__file__)}]
[mcp.gone]
command = "/nowhere/at/all"
"""


async def until(kind: str, events: AsyncIterator[ReceivedEvent]) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        async for event in events:
            if event.type == kind:
                return event.data
    raise AssertionError(f"no {kind}")


async def test_pictures_and_questions_over_http_and_in_the_terminal(tmp_path: Path, sqlite_url: str) -> None:
    script = [ToolCall("c1", "picture", {}), "nice", ToolCall("c2", "order", {}), "ordered"]
    script += [ToolCall("c3", "order", {}), "not ordered", ToolCall("c4", "order", {}), "not ordered"]
    rest = REST.replace('[mcp.gone]\ncommand = "/nowhere/at/all"\n', "")
    with (
        scripted_server(*script) as model,
        serving(tmp_path, sqlite_url, agent='instruction = "Help."', rest=rest, env=model.environment) as server,
    ):
        async with server.client() as client:
            async with client.stream("POST", "/v1/sessions/s/messages", json={"text": "draw"}) as response:
                events = events_of(response)
                end = await until("tool_end", events)
                await until("done", events)
            assert end["result"]["content"][1] == {
                "file": "picture.png",
                "mime_type": "image/png",
                "bytes": PICTURE_BYTES,
            }
            sent = model.requests[1]["messages"]
            assert [message["role"] for message in sent[-2:]] == ["tool", "user"], "OpenAI takes no picture in a result"
            url = sent[-1]["content"][0]["image_url"]["url"]
            assert url == "data:image/png;base64," + base64.b64encode(pixels(PICTURE_BYTES)).decode()
            assert len(sent[-2]["content"]) < 300
            assert (await client.get("/v1/sessions/s/artifacts/picture.png")).content == pixels(PICTURE_BYTES)
            tools = (await client.get("/v1/tools")).json()
            assert {"order", "picture"} <= {*tools["tools"]}
            assert tools["unusable"] == []

            async with client.stream("POST", "/v1/sessions/s/messages", json={"text": "order"}) as response:
                events = events_of(response)
                asked = (await until("wait_opened", events))["wait"]
                [wait] = await waits_of(client, "s")
                [item] = (await client.get("/v1/inbox")).json()["items"]
                for listed in (wait, item["wait"]):
                    assert (listed["kind"], listed["id"]) == ("tool_question", asked["id"])
                    assert listed["call_id"] == "c2"
                path = wait_path(wait)
                assert (await client.post(path, json={"type": "value", "value": {"size": "x"}})).status_code == 422
                assert (await client.post(path, json={"type": "value"})).status_code == 400
                value = {"size": 1, "colour": "blue"}
                answered = await client.post(path, json={"type": "value", "value": value})
                assert answered.status_code == 200
                end = await until("tool_end", events)
                assert end["result"]["content"][0]["text"] == "accept: size=1 colour='blue'"
                assert (await until("done", events))["status"] == "done"

            async with client.stream("POST", "/v1/sessions/s/messages", json={"text": "order"}) as response:
                events = events_of(response)
                await until("wait_opened", events)
                listed = await asyncio.to_thread(lango, "inbox", cwd=tmp_path, env=model.environment)
                assert "What may it be?" in listed.stdout, listed
                item_id = listed.stdout.splitlines()[-1].split()[0]
                given = await asyncio.to_thread(
                    lango, "inbox", "answer", item_id, "decline", cwd=tmp_path, env=model.environment
                )
                assert (given.returncode, given.stdout.strip()) == (0, "not ordered"), given
                assert (await until("tool_end", events))["result"]["content"][0]["text"] == "decline: None"

            async with connect(f"{server.url.replace('http', 'ws', 1)}/v1/ws") as socket:
                await socket.send(json.dumps({"type": "message", "session": "s", "text": "order"}))
                asked = (await until_received("wait_opened", socket))["wait"]
                message = {"type": "answer", "session": "s", "wait_id": asked["id"]}
                await socket.send(json.dumps(message | {"answer": {"type": "value"}}))
                assert "missing required field `value`" in (await until_received("turn_error", socket))["message"]
                await socket.send(json.dumps(message | {"answer": {"type": "decline"}}))
                end = await until_received("tool_end", socket)
                assert end["result"]["content"][0]["text"] == "decline: None"
                await until_received("done", socket)


async def until_received(kind: str, socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        while (event := json.loads(await socket.recv()))["type"] != kind:
            pass
    return event


async def test_what_cannot_be_offered_is_reported_at_the_start(tmp_path: Path, sqlite_url: str) -> None:
    with (
        scripted_server() as model,
        serving(tmp_path, sqlite_url, agent='instruction = "Help."', rest=REST, env=model.environment) as server,
    ):
        async with server.client() as client:
            [reason] = (await client.get("/v1/tools")).json()["unusable"]
            assert "the MCP server gone did not answer" in reason
            async with asyncio.timeout(TIMEOUT_S):
                while "the MCP server gone did not answer" not in server.log.read_text():
                    await asyncio.sleep(0.05)
