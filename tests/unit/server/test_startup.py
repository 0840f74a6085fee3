"""The socket that a server listens on, the memory that it gives back, and routes that are built on first use."""

import asyncio
import json
import logging
import platform
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from lango.config import ServerSettings
from lango.server.security.auth import AuthenticatedRouter
from lango.server.startup import JsonLogFormatter, LineLogFormatter, bind_port


@pytest.mark.parametrize("inherited", [False, True], ids=["own socket", "socket of the parent process"])
async def test_a_small_response_is_sent_at_once(inherited: bool) -> None:
    """A server that waits for acknowledgements of what it sent before adds 40 ms to each response."""
    listener = bind_port(ServerSettings(port=0))
    if inherited:
        listener = socket.socket(fileno=listener.detach())
    sends_at_once: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        sends_at_once.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(answer, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await sends_at_once
        writer.close()


_KEPT_BYTES = """
from pathlib import Path
from lango.server.startup import return_large_blocks

def used_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

return_large_blocks()
del [b"x" * 20_000_000][0]  # by default, glibc keeps blocks of this size in its heap from now on
before = used_bytes()
large, small = [], []
for _ in range(20):
    large.append(b"x" * 5_000_000)
    small.append(b"x" * 100_000)  # lies between the large ones
del large
print(used_bytes() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide for themselves")
def test_large_blocks_are_returned_to_the_system() -> None:
    """Otherwise, a server would stay at twice the memory after many large requests."""
    ended = subprocess.run([sys.executable, "-c", _KEPT_BYTES], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < 20_000_000, "of a hundred megabytes"


def _app_of_one_route() -> tuple[FastAPI, APIRoute]:
    router = AuthenticatedRouter("/v1")

    @router.get("/double/{number}")
    async def double(number: int) -> int:  # pyright: ignore[reportUnusedFunction]
        return number * 2

    app = FastAPI()
    app.router.routes.extend(router.routes)
    [route] = router.routes
    assert isinstance(route, APIRoute)
    return app, route


async def test_a_route_is_built_by_the_first_request_that_it_serves() -> None:
    app, route = _app_of_one_route()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/v1/triple/2")).status_code == 404
        assert "dependant" not in vars(route)
        assert (await client.get("/v1/double/2")).json() == 4
        assert "dependant" in vars(route)
        assert (await client.get("/v1/double/two")).status_code == 422
        assert (await client.post("/v1/double/2")).status_code == 405


def test_the_openapi_document_builds_the_routes_that_it_describes() -> None:
    app, route = _app_of_one_route()
    assert "dependant" not in vars(route)
    assert [*app.openapi()["paths"]["/v1/double/{number}"]["get"]["responses"]] == ["200", "422"]


def test_servers_in_several_threads_build_a_route_once() -> None:
    _, route = _app_of_one_route()
    entered = threading.Barrier(8)

    def read(_: int) -> object:
        entered.wait()
        return route.app

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            apps = [*threads.map(read, range(8))]
    finally:
        sys.setswitchinterval(interval_s)
    assert {*map(id, apps)} == {id(route.app)}


def test_a_route_has_no_other_attributes_than_those_of_fastapi() -> None:
    _, route = _app_of_one_route()
    with pytest.raises(AttributeError, match="'colour'"):
        getattr(route, "colour")  # noqa: B009 - pyright knows the attributes


EVIL = "a\x1b]0;title\x07\r\nb\u202e\x9b31m"


def _record(monkeypatch: pytest.MonkeyPatch) -> logging.LogRecord:
    monkeypatch.setenv("SHOP_API_KEY", "hunter2hunter2")
    try:
        raise ValueError(f"hunter2hunter2 {EVIL}")
    except ValueError:
        return logging.LogRecord("lango", logging.ERROR, "", 0, "failed: %s", (EVIL,), sys.exc_info())


def test_a_line_of_the_log_has_no_control_characters_and_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = LineLogFormatter().format(_record(monkeypatch)).split("\n")
    assert first.endswith("failed: a\u241b]0;title\u2407\u240ab\ufffd\ufffd31m")
    assert all(line.startswith("    ") for line in others), "no line of a traceback can be taken for a record"
    assert "    Traceback (most recent call last):" in others
    assert not {*"\x1b\x07\r\u202e\x9b"} & {*"".join(others)}
    assert "hunter2" not in "".join(others)


def test_a_json_line_of_the_log_has_the_traceback_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    line = JsonLogFormatter().format(_record(monkeypatch))
    assert line.isprintable()
    assert "ValueError: [secret]" in json.loads(line)["exception"]
