"""Attack 24: many uploads at once that never end: they are on disk and bounded, of each user and of all together."""

import asyncio
import select
import socket
import tracemalloc
from contextlib import suppress
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.types import Message

from lango.server.json_body import JsonRequest
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.faults.server.test_attacks_connections import MEGABYTE, answer_on, opened
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

PIECE = 64 * 1024


async def test_attack_24_a_body_that_is_not_complete_is_not_held_in_memory() -> None:
    """Twenty megabytes have come; fewer than two are in memory until the end has come, too."""
    pieces, held = 320, list[int]()

    async def receive() -> Message:
        if len(held) == pieces:
            return {"type": "http.request", "body": b"end", "more_body": False}
        held.append(tracemalloc.get_traced_memory()[0])
        return {"type": "http.request", "body": bytes(PIECE), "more_body": True}

    request = JsonRequest({"type": "http", "method": "PUT", "headers": []}, receive)
    tracemalloc.start()
    try:
        body = await request.body()
    finally:
        tracemalloc.stop()
    assert max(held) - held[0] < 2 * MEGABYTE
    assert len(body) == pieces * PIECE + 3
    assert await request.body() is body


async def test_attack_24_a_file_of_a_form_that_is_not_complete_is_not_held_in_memory() -> None:
    pieces, held = 320, list[int]()
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    async def receive() -> Message:
        if len(held) == pieces:
            return {"type": "http.request", "body": b"\r\n--x--\r\n", "more_body": False}
        held.append(tracemalloc.get_traced_memory()[0])
        return {"type": "http.request", "body": head if len(held) == 1 else bytes(PIECE), "more_body": True}

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    request = JsonRequest({"type": "http", "method": "POST", "headers": headers}, receive)
    tracemalloc.start()
    try:
        async with request.form(max_files=1) as form:
            file = form["file"]
    finally:
        tracemalloc.stop()
    assert max(held) - held[0] < 3 * MEGABYTE
    assert isinstance(file, UploadFile)
    assert file.size == (pieces - 1) * PIECE


def begin_upload(server: Server, key: str, size: int) -> socket.socket:
    """Send all of a body but its last byte."""
    head = f"PUT /v1/artifacts/a HTTP/1.1\nHost: localhost\nAuthorization: Bearer {key}\nConnection: close\n"
    upload = opened(server, f"{head}Content-Type: text/plain\nContent-Length: {size + 1}\n\n")
    with suppress(BrokenPipeError, ConnectionResetError):  # it is refused
        upload.sendall(bytes(size))
    return upload


def take_answered(uploads: list[socket.socket]) -> tuple[int, str]:
    """Wait until one of some uploads is answered, take it from them, and return the answer."""
    [first, *others], _, _ = select.select(uploads, [], [], TIMEOUT_S)
    assert others == []
    uploads.remove(first)
    with first:
        return answer_on(first)


async def test_attack_24_unfinished_uploads_are_bounded_per_user_and_in_all(tmp_path: Path, store_url: str) -> None:
    async with Store(store_url) as store:
        keys = [(await add_api_key(store, user))[1] for user in ("alice", "bob", "carol", "dave", "erin")]
    limits = {"unfinished": 8, "import": 1, "attachment": 1, "conversation": 1}
    settings = "\n".join(f"limits.max_{name}_bytes = {size * MEGABYTE}" for name, size in limits.items())
    settings += f"\nlimits.body_timeout_s = {TIMEOUT_S}"
    env = {"LANGO_STORE__MAX_ARTIFACT_BYTES": str(2 * MEGABYTE)}
    with serving(tmp_path, store_url, server=f'auth = "keys"\n{settings}', env=env) as server:
        uploads = [begin_upload(server, keys[0], MEGABYTE * 9 // 10) for _ in range(3)]
        status, answer = take_answered(uploads)
        assert status == 429, answer
        assert "server.limits.max_unfinished_bytes" in answer
        assert "retry-after" in answer.lower()
        uploads += [begin_upload(server, key, MEGABYTE * 19 // 10) for key in keys[1:4]]
        uploads.append(begin_upload(server, keys[4], MEGABYTE * 9 // 10))
        status, answer = take_answered(uploads)
        assert status == 503, answer
        uploads[0].sendall(b"x")
        status, answer = take_answered(uploads)
        assert status == 201, answer
        for connection in uploads:  # those whose client has left do not count either
            connection.close()
        body, headers = bytes(MEGABYTE * 19 // 10), {"Content-Type": "text/plain"}
        async with server.client(Authorization=f"Bearer {keys[4]}") as client, asyncio.timeout(TIMEOUT_S):
            for _ in range(3):
                while (answered := await client.put("/v1/artifacts/b", content=body, headers=headers)).is_error:
                    assert answered.status_code == 503, answered.text
