"""Processes that start at once: forked from a server that has imported everything.

They have a folder, an environment, streams and signals of their own, as any process. What a forked process cannot show,
such as what a command imports, needs a process of its own: `fresh`.
"""

import asyncio
import atexit
import fcntl
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import termios
import warnings
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Protocol

from tests.support.fork_server import context

BIN = Path(sys.executable).parent
LANGO = str(BIN / "lango")
TIMEOUT_S = 120.0
_ROOT = str(Path(__file__).parents[2])


class Process(Protocol):
    """What tests do with a process: the common part of `subprocess.Popen` and `ForkedProcess`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class ForkedProcess:
    """A process of the fork server, with the methods of `subprocess.Popen`."""

    def __init__(
        self,
        command: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        in_terminal: bool = False,
    ) -> None:
        target: Any = _run_command
        self._process = context.Process(
            target=target, args=(command, str(cwd), dict(env), _Streams(streams), in_terminal), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """Wait until it ends by itself, as it does when its input is closed; kill it if it does not."""
        try:
            self.wait(TIMEOUT_S)
        finally:
            self.kill()


class _Streams:
    """File descriptors that are duplicated into the new process."""

    def __init__(self, numbers: tuple[int, int, int]) -> None:
        self.numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(DupFd(number) for number in self.numbers)


def _received(*numbers: Any) -> list[int]:
    return [number.detach() for number in numbers]


def run_command(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `lango`, `adk` or `python` to its end; `env` is added to the environment of the tests."""
    environment = os.environ | (env or {})
    if fresh:
        return subprocess.run(
            _executable(command),
            cwd=cwd,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        process = ForkedProcess(command, cwd, environment, (given.fileno(), output.fileno(), errors.fileno()))
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, code, _text(output), _text(errors))


def run_lango(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a `lango` command to its end; `env` is added to the environment of the tests."""
    return run_command("lango", *arguments, cwd=cwd, env=env, stdin=stdin, fresh=fresh)


@dataclass
class Started:
    """A process under way, and the end of its output that the test reads."""

    process: Process
    stdout: IO[str]


@contextmanager
def start_command(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None, stderr: IO[str], fresh: bool = False
) -> Generator[Started]:
    """Start a command, which is killed when the block ends."""
    environment = os.environ | (env or {})
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as output, Path(os.devnull).open() as nothing:
        try:
            if fresh:
                process = subprocess.Popen(
                    _executable(command), stdin=nothing, stdout=write_end, stderr=stderr, cwd=cwd, env=environment
                )
            else:
                streams = nothing.fileno(), write_end, stderr.fileno()
                process = ForkedProcess(command, cwd, environment, streams)
        finally:
            os.close(write_end)
        try:
            yield Started(process, output)
        finally:
            process.kill()
            process.wait(TIMEOUT_S)


@asynccontextmanager
async def start_piped_command(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Process]]:
    """Start a command whose output is read and whose input is written; it is killed if it outlives the block."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    (its_input, our_output), (our_input, its_output) = os.pipe(), os.pipe()
    try:
        process = ForkedProcess(command, cwd, os.environ | (env or {}), (its_input, its_output, sys.stderr.fileno()))
    finally:
        os.close(its_input)
        os.close(its_output)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_input, "rb"))
    sending, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(our_output, "wb")
    )
    writer = asyncio.StreamWriter(sending, protocol, None, loop)
    try:
        yield reader, writer, process
    finally:
        writer.close()
        await asyncio.to_thread(process.stop)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _executable(command: tuple[str, ...]) -> list[str]:
    return [str(BIN / command[0]), *command[1:]]


def _run_command(
    command: tuple[str, ...], cwd: str, env: dict[str, str], streams: list[int], in_terminal: bool
) -> None:
    if in_terminal:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if in_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # as the interpreter opens them
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    added = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = added + [path for path in sys.path if path != _ROOT]
    try:
        _run_main(*command)
    finally:
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - a forked process runs none


def _run_main(program: str, *arguments: str) -> None:
    sys.argv = [program, *arguments]
    match program, arguments:
        case "lango", _:
            from lango.cli.main import main

            main()
        case "adk", _:
            from google.adk.cli import main as adk_main

            adk_main()
        case "python", ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            sys.path.insert(0, "")
            exec(code, {"__name__": "__main__"})
        case "python", ["-W", action, *rest]:
            warnings.simplefilter(action)  # pyright: ignore[reportArgumentType]
            _run_main("python", *rest)
        case "python", [file, *_]:
            sys.argv = sys.argv[1:]
            sys.path.insert(0, str(Path(file).resolve().parent))
            runpy.run_path(file, run_name="__main__")
        case _:
            raise ValueError(f"{program} is not known here")
