"""Run a shell command in the sandbox with limits, and kill everything it started."""

import asyncio
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, field
from pydantic import Field
from typing_extensions import override

from lango.errors import ToolError
from lango.tools.builtin.safe_open import drop_setuid
from lango.tools.builtin.sandbox import ENVIRONMENT, find_sandbox
from lango.tools.builtin.workspace import Workspace
from lango.tools.tool import Tool, tool

SandboxChoice = Literal["bubblewrap", "none"]
_COARSE_CLOCK_S = 1.0
"""The lag of a file system's timestamps behind the clock."""
_GRACE_S = 2.0
"""How long killed processes may take to close their pipes."""
_MARK_VARIABLE = "LANGO_COMMAND"
"""The variable that identifies a command's processes, even in another group or with another parent."""
_MAX_ROUNDS, _ROUND_S = 20, 0.01
"""Rounds of killing, because processes may start others in between, and the pause between them."""


class ShellLimits(Struct, frozen=True):
    """Limits of a command."""

    timeout_s: int = 60
    longest_timeout_s: int = 600
    cpu_s: int = 120
    """CPU time of one process."""
    memory_bytes: int = 2 * 1024**3
    """Memory of one process, and of all together."""
    processes: int = 256
    """Processes and threads."""
    file_bytes: int = 512 * 1024**2
    open_files: int = 512
    head_bytes: int = 150_000
    """Bytes kept of the beginning of stdout, and of stderr; `tail_bytes` are kept of their ends."""
    tail_bytes: int = 50_000
    look_every_s: float = 0.05
    """How often the processes are counted: the kernel's limit does not apply to root."""


def shell_tool(
    workspace: Workspace, *, sandbox: SandboxChoice = "bubblewrap", limits: ShellLimits | None = None
) -> Tool:
    """Return the shell tool. Without a working sandbox it runs nothing, unless `sandbox` is "none"."""
    bounds = limits or ShellLimits()

    @tool(name="shell", level="dangerous", effect="once", timeout_s=bounds.longest_timeout_s + 30)
    async def shell(
        command: Annotated[str, Field(min_length=1, max_length=100_000)],
        timeout_s: Annotated[int, Field(ge=1, le=bounds.longest_timeout_s)] = bounds.timeout_s,
    ) -> dict[str, Any]:
        """Run a shell command in the workspace. It has no network access, and no process outlives it.

        Args:
            timeout_s: The command is killed after this many seconds.
        """
        if "\0" in command:
            raise ToolError("a command cannot contain NUL")
        argv = await _command_line(workspace, sandbox, command, bounds)
        began = time.time() - _COARSE_CLOCK_S
        try:
            return await _run(argv, workspace.root, timeout_s, bounds)
        finally:
            await asyncio.to_thread(drop_setuid, workspace.root, began)

    return shell


async def _command_line(workspace: Workspace, choice: SandboxChoice, command: str, limits: ShellLimits) -> list[str]:
    program = next((found for name in ("bash", "sh") if (found := shutil.which(name, path=ENVIRONMENT["PATH"]))), "")
    if choice == "none":
        # without a limit of processes: it would count all processes of this user
        return [program, "-c", _limit_script(limits, processes=False), program, command]
    box = await asyncio.to_thread(find_sandbox)
    if isinstance(box, str):
        raise ToolError(f"not run: {box}")
    limited = _limit_script(limits, processes=True)
    return await asyncio.to_thread(box.command, workspace, program, "-c", limited, program, command)


def _limit_script(limits: ShellLimits, *, processes: bool) -> str:
    """Return the script that sets the kernel's limits, then executes the command; it fails without limits."""
    kilobytes = limits.memory_bytes // 1024
    commands = [
        *(f"ulimit -t {limits.cpu_s}", f"ulimit -d {kilobytes}", f"ulimit -f {limits.file_bytes // 1024}"),
        *("ulimit -c 0", f"ulimit -n {limits.open_files}"),
    ]
    if processes:  # bash calls it -u, dash -p
        commands.append(f"{{ ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes}; }}")
    return " && ".join(commands) + ' || { echo "the limits cannot be set" >&2; exit 126; }; exec "$0" -c "$1"'


async def _start(argv: list[str], folder: Path, limits: ShellLimits) -> "_Started":
    mark = uuid.uuid4().hex
    return await asyncio.get_running_loop().subprocess_exec(
        lambda: _CommandProcess(limits, f"{_MARK_VARIABLE}={mark}".encode()),
        *argv,
        cwd=folder,
        # also for bubblewrap itself: its environment can be read as /proc/1/environ inside
        env={**ENVIRONMENT, _MARK_VARIABLE: mark},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _run(argv: list[str], folder: Path, timeout_s: float, limits: ShellLimits) -> dict[str, Any]:
    starting = asyncio.ensure_future(_start(argv, folder, limits))
    try:
        transport, command = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # the command may run already, and asyncio would kill it without its children
        transport, command = await starting
        await _end(transport, command)
        raise
    pid = transport.get_pid()
    watcher = asyncio.ensure_future(_watch_limits(pid, limits))
    excess = ""
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait({watcher, command.exited}, return_when=asyncio.FIRST_COMPLETED)
            excess = watcher.result() if watcher.done() else ""
    except TimeoutError:
        excess = f"it ran for more than {timeout_s:g} s"
    finally:
        watcher.cancel()
        await _end(transport, command)
    result: dict[str, Any] = {
        "exit_code": transport.get_returncode(),
        "stdout": command.streams[1].text(),
        "stderr": command.streams[2].text(),
    }
    if excess:
        raise ToolError(f"the command was killed: {excess}", **result)
    return result


async def _end(transport: asyncio.SubprocessTransport, command: "_CommandProcess") -> None:
    """Kill a command and all its processes, which would otherwise keep running and hold the pipes open.

    A sandbox ends with its first process. Without it, processes that left the process group are found by their
    parents or, if these are gone, by the mark in their environment.
    """
    if transport.get_returncode() is None:  # else its pid may belong to another process
        for pid in list(_descendants(transport.get_pid())):
            _kill(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    await asyncio.to_thread(_kill_marked, command.mark)
    await asyncio.wait({command.closed}, timeout=_GRACE_S)
    transport.close()


class _CommandProcess(asyncio.SubprocessProtocol):
    """A process and its output. Unlike asyncio's `wait`, it does not wait for pipes, which children may hold."""

    def __init__(self, limits: ShellLimits, mark: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.mark = mark
        self.streams = {1: _OutputBuffer(limits), 2: _OutputBuffer(limits)}
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.streams[fd].add(data)

    @override
    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


_Started = tuple[asyncio.SubprocessTransport, _CommandProcess]


def _kill_marked(mark: bytes) -> None:
    """Kill the processes with a command's mark, and those that they start in between."""
    for _ in range(_MAX_ROUNDS):
        found = [pid for pid, environment in _environments() if mark in environment]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_ROUND_S)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _environments() -> Iterator[tuple[int, bytes]]:
    """Yield the environments of this user's processes, on systems with /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended in between, or of another user
            yield int(process.name), (process / "environ").read_bytes()


def _descendants(pid: int) -> Iterator[int]:
    """Yield the descendants of a process, each before its own children."""
    pending = [pid]
    while pending:
        with suppress(OSError, ValueError):  # ended in between
            for task in Path(f"/proc/{pending.pop()}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text("ascii").split()]
                yield from children
                pending += children


async def _watch_limits(pid: int, limits: ShellLimits) -> str:
    """Wait until the command exceeds a limit; return which."""
    if sys.platform != "linux":  # only the kernel's limits apply
        await asyncio.Event().wait()
    while True:
        await asyncio.sleep(limits.look_every_s)
        processes, memory = _usage(pid, limits.processes)
        if processes > limits.processes:
            return f"it had more than {limits.processes} processes"
        if memory > limits.memory_bytes:
            return f"it used more than {limits.memory_bytes // 1024**2} MB of memory"


def _usage(pid: int, max_processes: int) -> tuple[int, int]:
    """Count the processes and threads of a process tree, and their memory; stop above `max_processes`."""
    seen = memory = 0
    page = os.sysconf("SC_PAGE_SIZE")
    for current in chain([pid], _descendants(pid)):
        with suppress(OSError, ValueError, IndexError):  # ended in between
            memory += int(Path(f"/proc/{current}/statm").read_text("ascii").split()[1]) * page
            seen += len(os.listdir(f"/proc/{current}/task"))  # noqa: PTH208 - only a count
        if seen > max_processes:
            break
    return seen, memory


class _OutputBuffer(Struct):
    """The head and the tail of a stream; the bytes between are counted and dropped."""

    limits: ShellLimits
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, piece: bytes) -> None:
        """Add output."""
        self.total += len(piece)
        room = self.limits.head_bytes - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:]
        if len(self.tail) > 4 * self.limits.tail_bytes:
            del self.tail[: -self.limits.tail_bytes]

    def text(self) -> str:
        """Return the kept text, with a note about the gap."""
        tail = self.tail[-self.limits.tail_bytes :]
        left_out = self.total - len(self.head) - len(tail)
        mark = f"\n[... {left_out} of {self.total} bytes were left out ...]\n".encode() if left_out else b""
        return bytes(self.head + mark + tail).decode("utf-8", "replace")
