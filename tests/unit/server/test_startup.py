"""The socket that a server listens on, the memory that it gives back, and its log."""

import asyncio
import json
import logging
import platform
import socket
import subprocess
import sys

import pytest

from lango.config import ServerSettings
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


def test_a_server_imports_the_sdks_of_others_when_they_are_used() -> None:
    """The SDK of MCP takes as long to import as everything that the server itself has."""
    code = """
import sys
import lango.server.serve
heavy = {"mcp", "a2a", "acp", "openai", "anthropic", "grpc", "jwt", "authlib", "splintr", "snowballstemmer"}
print(heavy & set(sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


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
