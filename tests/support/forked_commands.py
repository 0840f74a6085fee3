"""Python scripts as commands that others start, such as MCP servers: forked, as each would import its libraries again.

The command is a small program without imports of its own: it hands its arguments, environment and streams to this
process, which forks the script from the server of `tests.support.fork_server`, and ends when the script has.
"""

import functools
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from tests.support.processes import TIMEOUT_S, ForkedProcess

_HAND_OVER = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as given:
    given.connect(sys.argv[1])
    about = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)])
    socket.send_fds(given, [about.encode()], [0, 1, 2])
    given.recv(1)
"""
_MOST_BYTES = 100_000


class Command(TypedDict):
    """A command and its arguments, as the settings of an MCP server have them."""

    command: str
    args: list[str]


def forked_command(*arguments: str) -> Command:
    """Return a command that runs what `python` does with these arguments."""
    return Command(command=sys.executable, args=["-I", "-S", "-c", _HAND_OVER, _address(), *arguments])


@contextmanager
def forked_http_server(script: Path | str) -> Generator[str]:
    """Run an MCP server on a socket that listens already, which is its first stream; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        streams = listener.fileno(), sys.__stdout__.fileno(), sys.__stderr__.fileno()  # pyright: ignore[reportOptionalMemberAccess]
        process = ForkedProcess(("python", str(script), "0"), Path.cwd(), os.environ, streams)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            process.terminate()
            process.stop()


@functools.cache
def _address() -> str:
    """Return the address at which this process takes over commands."""
    folder = tempfile.TemporaryDirectory(prefix="lango-")
    listener = socket.socket(socket.AF_UNIX)
    address = f"{folder.name}/commands"
    listener.bind(address)
    listener.listen()
    threading.Thread(target=_serve, args=(listener, folder), daemon=True).start()
    return address


def _serve(listener: socket.socket, folder: tempfile.TemporaryDirectory[str]) -> None:
    with folder:
        while True:
            given, _ = listener.accept()
            threading.Thread(target=_run, args=(given,), daemon=True).start()


def _run(given: socket.socket) -> None:
    with given:
        about, streams, _, _ = socket.recv_fds(given, _MOST_BYTES, 3)
        try:
            arguments, folder, environment = json.loads(about)
            first, second, third = streams
            process = ForkedProcess(("python", *arguments), Path(folder), environment, (first, second, third))
        finally:
            for stream in streams:
                os.close(stream)
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
