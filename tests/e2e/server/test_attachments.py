"""Files over HTTP and WebSocket: sent and listed with a message, and served safely to browsers."""

import asyncio
import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import websockets

from tests.integration.runtime.test_attachments import PNG
from tests.support.servers.server_process import TIMEOUT_S, Server, events_of, serving, text_of

PAGE = b"<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("files")
    limits = "limits.max_body_bytes = 2000\nlimits.max_attachment_bytes = 300000\nlimits.max_attachments = 3"
    with serving(folder, f"sqlite:///{folder}/lango.db", server=limits) as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def file(name: str, mime_type: str, data: bytes) -> dict[str, str]:
    return {"name": name, "mime_type": mime_type, "data": base64.b64encode(data).decode()}


async def post(client: httpx.AsyncClient, session: str, body: dict[str, Any]) -> httpx.Response:
    return await client.post(f"/v1/sessions/{session}/messages", json=body)


async def test_files_are_listed_with_their_message_and_served(server: Server, session: str) -> None:
    async with server.client() as client:
        big = PNG + bytes(200_000)
        body = {
            "text": "look",
            "attachments": [file("a \u2603.png", "image/png", big), file("p.html", "text/html", PAGE)],
        }
        async with client.stream("POST", f"/v1/sessions/{session}/messages", json=body) as response:
            assert text_of([event async for event in events_of(response)]) == "look"
        [message, answered] = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert message["content"] == "look"
        assert message["attachments"] == [
            {"index": 0, "name": "a \u2603.png", "mime_type": "image/png", "bytes": len(big)},
            {"index": 1, "name": "p.html", "mime_type": "text/html", "bytes": len(PAGE)},
        ]
        assert answered["attachments"] == []
        place = f"/v1/sessions/{session}/messages/{message['seq']}/attachments"
        picture = await client.get(f"{place}/0")
        assert picture.content == big
        assert picture.headers["content-type"] == "image/png"
        assert picture.headers["content-disposition"] == "inline; filename*=UTF-8''a%20%E2%98%83.png"
        page = await client.get(f"{place}/1")
        assert page.content == PAGE
        assert page.headers["content-type"] == "application/octet-stream"
        assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''p.html"
        for served in (picture, page):
            assert served.headers["x-content-type-options"] == "nosniff"
            assert served.headers["content-security-policy"] == "default-src 'none'; sandbox"
        for missing in (f"{place}/2", f"/v1/sessions/{session}/messages/99/attachments/0"):
            gone = await client.get(missing)
            assert (gone.status_code, gone.json()["error"]["type"]) == (404, "AttachmentNotFound")


@pytest.mark.parametrize(
    ("attachments", "status"),
    [
        ([file("a.png", "image/png", bytes(300_001))], 413),
        ([file("a.png", "image/png", bytes(700_000))], 413),
        ([file("a.png", "image/png", b"x")] * 4, 413),
        ([file("a.png", "image/png", b"")], 413),
        ([{"name": "a.png", "mime_type": "image/png", "data": "not base64!"}], 400),
        ([{"name": "a.png", "mime_type": "image/png", "data": 7}], 400),
        ([file("../a.png", "image/png", b"x")], 400),
        ([file("a\r\nX-Evil: 1.png", "image/png", b"x")], 400),
        ([file("a.png", "text/html\r\nX-Evil: 1", b"x")], 400),
        ([file("a.png", "image/png", b"x") | {"uri": "file:///etc/passwd"}], 400),
        ([], 400),
    ],
)
async def test_invalid_files_are_refused_and_store_nothing(
    server: Server, session: str, attachments: list[dict[str, Any]], status: int
) -> None:
    async with server.client() as client:
        refused = await post(client, session, {"text": "", "attachments": attachments})
        assert refused.status_code == status, refused.text
        assert (await client.get(f"/v1/sessions/{session}")).status_code == 404


async def test_a_long_text_is_refused_though_files_may_be_longer(server: Server, session: str) -> None:
    async with server.client() as client:
        other = await client.post("/v1/sessions", json={"id": session, "state": {"a": "x" * 3000}})
        assert other.status_code == 413, "only a message may have files"


async def test_a_file_comes_by_websocket_too(server: Server, session: str) -> None:
    address = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with websockets.connect(address, max_size=None) as socket, asyncio.timeout(TIMEOUT_S):
        message = {"type": "message", "session": session, "text": "look"}
        await socket.send(json.dumps(message | {"attachments": [file("a.png", "image/png", PNG + bytes(200_000))]}))
        while json.loads(await socket.recv())["type"] != "done":
            pass
    async with server.client() as client:
        [message, _] = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert [attachment["bytes"] for attachment in message["attachments"]] == [len(PNG) + 200_000]
