"""Messages while a turn runs, and turns in the background, over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from lango.messages import ToolCall
from lango.tools import tool
from tests.browser.site import PAUSE, serving_script

STEERING = {"X-When-Busy": "steer"}


@tool(effect="none")
async def look() -> str:
    """Look."""
    return "seen"


async def test_clients_of_every_protocol_steer_by_a_field_or_a_header(tmp_path: Path) -> None:
    script = [[f"I look{PAUSE}. ", ToolCall("c1", "look", {})], "All three."]
    async with (
        serving_script(tmp_path, script, tools=[look]) as site,
        httpx.AsyncClient(base_url=site.url, timeout=None) as client,
    ):
        accepted = await client.post(
            "/v1/sessions/s/messages", json={"text": "go"}, headers={"Prefer": "respond-async"}
        )
        assert (accepted.status_code, accepted.json()["turn"]) == (202, 1)
        address = accepted.headers["Location"]
        assert address == accepted.json()["address"] == "/v1/sessions/s/turns/1"
        while not site.provider.requests:
            await asyncio.sleep(0)
        assert (await client.get(address)).json()["status"] == "running"
        [listed] = (await client.get("/v1/turns")).json()["turns"]
        assert (listed["session_id"], listed["turn"], listed["state"]) == ("s", 1, "running")

        async def own_stream() -> list[str]:
            sent = await client.post("/v1/sessions/s/messages", json={"text": "two", "when_busy": "steer"})
            return [line for line in sent.text.splitlines() if line.startswith("event:")]

        async def openai() -> str:
            body = {"model": "lango", "messages": [{"role": "user", "content": "three"}]}
            headers = {"X-Session-Id": "s", "X-When-Busy": "steer"}
            sent = await client.post("/v1/chat/completions", json=body, headers=headers)
            return sent.json()["choices"][0]["message"]["content"]

        own, completion = asyncio.create_task(own_stream()), asyncio.create_task(openai())
        while len((await client.get("/v1/sessions/s/waiting")).json()["waiting"]) < 2:
            await asyncio.sleep(0)
        queued = await client.post(
            "/v1/sessions/s/messages", json={"text": "never"}, headers={"Prefer": "respond-async"}
        )
        stopped = await client.post(f"{queued.headers['Location']}/cancel")
        assert stopped.json() == {"cancelled": True}
        site.provider.resume.set()
        assert await own == ["event: accepted", "event: steered", "event: done"]
        assert await completion == "All three."
        followed = (await client.get(f"{address}/stream")).text
        assert followed.count("event: steered") == 2
        assert (await client.get(address)).json()["status"] == "done"
        shown = (await client.get("/v1/sessions/s/messages")).json()["messages"]
        assert {one["content"] for one in shown if one["is_steering"]} == {"two", "three"}
        refused = await client.post("/v1/sessions/s/messages", json={"text": "x"}, headers={"X-When-Busy": "soon"})
        assert refused.status_code == 400
        assert "steer" in refused.text
        assert (await client.get("/v1/sessions/s/turns/99")).status_code == 404


async def test_failed_turns_are_listed_and_run_again_over_http(tmp_path: Path) -> None:
    async with (
        serving_script(tmp_path, [ValueError("boom"), "At last."]) as site,
        httpx.AsyncClient(base_url=site.url, timeout=None) as client,
    ):
        await client.post("/v1/sessions/s/messages", json={"text": "go"})
        [failed] = (await client.get("/v1/turns?state=failed")).json()["turns"]
        assert (failed["session_id"], failed["turn"], failed["can_retry"]) == ("s", 1, True)
        assert "boom" in failed["message"]
        assert failed["first_words"] == "go"
        assert (await client.get("/v1/sessions/s/turns/1")).json()["status"] == "failed"
        assert (await client.post("/v1/sessions/s/turns/1/retry")).status_code == 202
        assert "event: done" in (await client.get("/v1/sessions/s/turns/1/stream")).text
        shown = (await client.get("/v1/sessions/s/messages")).json()["messages"]
        assert shown[-1]["content"] == "At last."
        assert (await client.get("/v1/turns?state=failed")).json() == {"turns": []}


Send = Callable[[httpx.AsyncClient, str], Awaitable[str]]
"""Sends a steering message to a session, in a protocol; returns the text of the answer."""


async def by_responses(client: httpx.AsyncClient, session: str) -> str:
    body = {"model": "lango", "input": "two", "conversation": session}
    answer = (await client.post("/v1/responses", json=body, headers=STEERING)).json()
    return "".join(part["text"] for item in answer["output"] for part in item.get("content") or ())


async def by_agui(client: httpx.AsyncClient, session: str) -> str:
    message = {"id": "m", "role": "user", "content": "two"}
    body: dict[str, Any] = {
        "threadId": session,
        "runId": "r",
        "messages": [message],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    answer = await client.post("/agui", json=body, headers=STEERING)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def by_adk(client: httpx.AsyncClient, session: str) -> str:
    message = {"role": "user", "parts": [{"text": "two"}]}
    body = {"appName": "lango", "userId": "user", "sessionId": session, "newMessage": message}
    events = (await client.post("/run", json=body, headers=STEERING)).json()
    return "".join(part.get("text", "") for event in events for part in event["content"]["parts"])


async def by_websocket(client: httpx.AsyncClient, session: str) -> str:
    address = str(client.base_url).replace("http://", "ws://")
    async with connect(f"{address}/v1/ws") as socket:
        message = {"type": "message", "session": session, "text": "two", "when_busy": "steer", "idempotency_key": "k"}
        await socket.send(json.dumps(message))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "done":
            events.append(json.loads(await socket.recv()))
    assert [event["type"] for event in events if event["type"] != "subscribed"] == ["accepted", "steered", "done"]
    return "Both."  # the answer is in the stream of the turn that took it in


@pytest.mark.parametrize("send", [by_responses, by_agui, by_adk, by_websocket])
async def test_a_message_steers_in_each_protocol(tmp_path: Path, send: Send) -> None:
    script = [[f"I look{PAUSE}. ", ToolCall("c1", "look", {})], "Both."]
    async with (
        serving_script(tmp_path, script, tools=[look]) as site,
        httpx.AsyncClient(base_url=site.url, timeout=None) as client,
    ):
        accepted = await client.post(
            "/v1/sessions/s/messages", json={"text": "go"}, headers={"Prefer": "respond-async"}
        )
        while not site.provider.requests:
            await asyncio.sleep(0)
        sending = asyncio.ensure_future(send(client, "s"))
        while not (sending.done() or (await client.get("/v1/sessions/s/waiting")).json()["waiting"]):
            await asyncio.sleep(0)
        site.provider.resume.set()
        assert (await sending).endswith("Both.")
        assert "event: done" in (await client.get(f"{accepted.headers['Location']}/stream")).text
    assert [
        [message.content for message in request.messages if message.role == "user"]
        for request in site.provider.requests
    ] == [["go"], ["go", "two"]]
