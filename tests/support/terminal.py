"""A real pseudo-terminal with `lango` in it, read the way a person reads a screen."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyte

from tests.support.processes import TIMEOUT_S, ForkedProcess, Process

AGENT = Path(__file__).with_name("terminal_agent.py")

CTRL_C, CTRL_D, CTRL_O, ENTER, ALT_ENTER, UP = "\x03", "\x04", "\x0f", "\r", "\x1b\r", "\x1b[A"

_PROMPT = re.compile(r"\n>\s*\n.* tokens")


class Terminal:
    """A terminal of a size, and the process in it."""

    def __init__(self, process: Process, master: int, columns: int, rows: int) -> None:
        self.process = process
        self.raw = b""
        """Everything that the process wrote."""
        self._master = master
        self._screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """What a person sees who scrolls up to the beginning."""
        above = ["".join(line[at].data for at in range(self._screen.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in [*above, *self._screen.display]]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def shown(self) -> str:
        """What is on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def cells(self) -> list[list[pyte.screens.Char]]:
        """What is on the screen now, each character with its colours."""
        buffer = self._screen.buffer
        return [[buffer[row][at] for at in range(self._screen.columns)] for row in range(self._screen.lines)]

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def send(self, text: str) -> None:
        self.type(text + ENTER)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.process.pid, signal.SIGWINCH)

    def wait_for(self, wanted: str | Callable[[], bool], why: str = "") -> None:
        """Read until the text, or what a function says, is there."""
        there = wanted if callable(wanted) else lambda: wanted in self.text
        end = time.monotonic() + TIMEOUT_S
        while not there():
            left = end - time.monotonic()
            assert left > 0, f"not seen: {why or wanted!r}\n{self.text}"
            assert self._read(left), f"the process ended before {why or wanted!r} was seen\n{self.text}"

    def wait_prompt(self) -> None:
        """Read until the prompt waits for a message, with its line of status below."""
        self.wait_for(lambda: bool(_PROMPT.search("\n" + self.shown)), "the prompt")

    def confirm_new_session(self) -> None:
        """Say yes to the question whether an unknown id begins a session."""
        self.wait_for("start a new session with this id?")
        self.send("y")

    @property
    def prompts(self) -> int:
        """How often the process has begun to read keys: it asks for pasted text to be marked each time."""
        return self.raw.count(b"\x1b[?2004h")

    def ask(self, text: str, *wanted: str) -> str:
        """Send a message, wait for the next prompt, and return what stands between the two."""
        before = self.prompts
        self.send(text)
        self.wait_for(lambda: self.prompts > before and bool(_PROMPT.search(self._since(text))), f"an end of {text!r}")
        output = self.after(text)
        for words in wanted:
            assert words in output, self.text
        return output

    def after(self, text: str) -> str:
        """Return what stands between a message and the prompt after it."""
        return _PROMPT.split(self._since(text))[0].partition("\n")[2]

    def _since(self, text: str) -> str:
        head = text.splitlines()[0][: self._screen.columns - 2]
        found = self.text.rpartition(f"> {head}")
        return found[2] if found[1] else ""

    def wait_end(self) -> int:
        """Read to the end, and return the exit code."""
        end = time.monotonic() + TIMEOUT_S
        while self._read(max(0.0, end - time.monotonic())):
            assert time.monotonic() < end, self.text
        return self.process.wait(TIMEOUT_S)

    def read_some(self, timeout_s: float) -> None:
        """Read what there is, or comes within some time."""
        self._read(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other side is closed
            data = b""
        self.raw += data
        self._stream.feed(data)
        return bool(data)


def configure(folder: Path, rest: str = "", agent: str = "") -> None:
    module = f"module = {json.dumps(str(AGENT))}"
    (folder / "lango.toml").write_text(f'[agent]\nname = "obedient"\n{module}\n{agent}\n{rest}\n')


@contextmanager
def terminal(
    folder: Path,
    *arguments: str,
    columns: int = 80,
    rows: int = 30,
    stdout: IO[bytes] | None = None,
    **environment: str,
) -> Generator[Terminal]:
    """Run `lango` in a terminal until the block ends; `stdout` may go elsewhere."""
    if not (folder / "lango.toml").exists():
        configure(folder)
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    env = inherited | {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state")} | environment
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    streams = slave, stdout.fileno() if stdout else slave, slave
    process = ForkedProcess(("lango", *arguments), folder, env, streams, in_terminal=True)
    os.close(slave)
    try:
        yield Terminal(process, master, columns, rows)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        os.close(master)
