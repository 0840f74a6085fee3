"""Turns whose stream ends before they do, as OpenAI's and ADK's clients see them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lango.sessions import SessionId
from lango.store import Store
from tests.support.servers.server_process import TIMEOUT_S, Server, events_of, serving

KEY = {"Idempotency-Key": "k"}
NAME = SessionId("obedient", "user", "s")


@pytest.fixture
def two_servers(tmp_path: Path, sqlite_url: str) -> Iterator[tuple[Server, Server]]:
    """Start a server that runs the turn, and one whose client follows it through the store."""
    with serving(tmp_path / "a", sqlite_url) as owner, serving(tmp_path / "b", sqlite_url) as reader:
        yield owner, reader


def requests(text: str) -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """Return the same message for each protocol: the body and the headers by path."""
    chat = {"model": "obedient", "messages": [{"role": "user", "content": text}]}
    session = {"X-Session-Id": NAME.id}
    run = {"userId": NAME.user_id, "sessionId": NAME.id, "newMessage": {"role": "user", "parts": [{"text": text}]}}
    return {
        "/v1/chat/completions": (chat, session),
        "/v1/chat/completions?": (chat | {"stream": True}, session),
        "/run": (run, {}),
        "/run_sse": (run, {}),
    }


async def wait_for_readers(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while f"lango_streams {float(count)}" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("status", "error"), [(503, "Stopping"), (404, "SessionNotFound")])
async def test_a_stopping_server_and_a_deleted_session_are_not_failures_of_the_server(
    two_servers: tuple[Server, Server], tmp_path: Path, sqlite_url: str, status: int, error: str
) -> None:
    owner, reader = two_servers
    text = f"hold {tmp_path / 'gate'}"
    async with owner.client() as client, reader.client() as other:
        path = f"/v1/sessions/{NAME.id}/messages"
        async with client.stream("POST", path, json={"text": text}, headers=KEY) as response:
            assert (await anext(events_of(response))).type == "accepted"
            tasks = {
                path: asyncio.create_task(other.post(path, json=body, headers=KEY | headers))
                for path, (body, headers) in requests(text).items()
            }
            await wait_for_readers(other, len(tasks))
            if error == "Stopping":
                await asyncio.to_thread(reader.terminate)
            else:
                async with Store(sqlite_url) as store:
                    await store.delete_session(NAME)
            completion, completion_stream, run, run_stream = [await task for task in tasks.values()]
    assert (completion.status_code, completion.json()["error"]["code"]) == (status, error)
    assert (completion.headers["x-session-id"], completion.headers["x-should-retry"]) == (NAME.id, "false")
    assert (run.status_code, run.json()["error"]["type"]) == (status, error)
    assert run.json()["detail"] == run.json()["error"]["message"]
    for whole in (completion, run):
        assert whole.headers.get("retry-after") == ("1" if status == 503 else None)
    frames = [
        json.loads(stream.text.strip().splitlines()[-1].removeprefix("data: "))
        for stream in (completion_stream, run_stream)
    ]
    assert frames[0]["error"]["code"] == frames[1]["error_details"]["error_type"] == error
