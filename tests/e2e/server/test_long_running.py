"""Results of long-running tools over HTTP: to any replica, also after a kill."""

import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers.server_process import ReceivedEvent, events_of, send, serving


async def bring(client: httpx.AsyncClient, session: str, call_id: str, **body: Any) -> list[ReceivedEvent]:
    path = f"/v1/sessions/{session}/results/{call_id}"
    async with client.stream("POST", path, json=body, headers={"Idempotency-Key": uuid.uuid4().hex}) as response:
        return [event async for event in events_of(response)]


async def test_another_replica_takes_the_results_after_a_kill(tmp_path: Path, store_url: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "one", store_url) as first:
        async with first.client() as client:
            events = await send(client, "s", "call order")
        assert events[-1].data["status"] == "waiting_for_result"
        call_id = next(event.data["call_id"] for event in events if event.type == "tool_start")
        first.process.kill()
    with serving(tmp_path / "two", store_url) as second:
        async with second.client() as client:
            [awaited] = (await client.get("/v1/sessions/s/results")).json()["results"]
            assert (awaited["call_id"], awaited["name"]) == (call_id, "order")
            events = await bring(client, "s", call_id, result={"at": "sea"}, will_continue=True)
            assert [event.type for event in events] == ["accepted", "text_delta", "done"]
            assert events[1].data["text"] == "the tool said {'at': 'sea'}"
            events = await bring(client, "s", call_id, result={"at": "home"})
            assert events[1].data["text"] == "the tool said {'at': 'home'}"
            assert (await client.get("/v1/sessions/s/results")).json() == {"results": []}
            path = f"/v1/sessions/s/results/{call_id}"
            assert (await client.post(path, json={"result": {}})).status_code == 409
            assert (await client.post("/v1/sessions/none/results/c", json={"result": {}})).status_code == 404
            assert (await client.post(path, json={"result": "text"})).status_code == 400
