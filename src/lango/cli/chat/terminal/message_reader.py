"""Read messages and decisions line by line."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from lango.cli.chat.terminal.typed_line import TypedLine

Decision = Literal["yes", "no", "always", "reason", "edit"]
DECISIONS: dict[str, Decision] = {"y": "yes", "n": "no", "a": "always", "r": "reason", "e": "edit"}
"""The decisions about a call, by the key that gives them."""
_WORDS: Mapping[str, Decision] = {
    **DECISIONS,
    "yes": "yes",
    "no": "no",
    "always": "always",
    "reason": "reason",
    "edit": "edit",
}


class InputInterrupted(Exception):
    """Ctrl-C at the prompt; the exception's text is the discarded input."""


class LineReader:
    """Reads lines of stdin in a daemon thread, because a read cannot be cancelled."""

    hides_input: ClassVar[bool] = False
    """Whether a hidden line is not shown while it is typed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: deque[str] = deque()
        self._ended = False
        self._line_ready: asyncio.Future[None] | None = None
        self._is_interactive = sys.stdin.isatty()
        threading.Thread(target=self._read, daemon=True).start()

    async def read_message(self, default: str = "") -> str | None:
        """Read a message: a line, or several of which all but the last end with a backslash."""
        del default
        lines: list[str] = []
        self._prompt("> ")
        while (line := await self._line()) is not None:
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
            self._prompt(". ")
        return "\n".join(lines) if lines else None

    async def ask_decision(self, question: str) -> Decision | None:
        """Read a decision. On a terminal, ask again; in a pipe, any other line is the next message and no answer."""
        if self._is_interactive:
            self._lines.clear()  # lines typed before the question do not answer it
        while True:
            self._prompt(f"{question} ")
            try:
                line = await self._line()
            except InputInterrupted:
                return None
            if line is None:
                return None
            if decision := _WORDS.get(line.strip().lower()):
                return decision
            if not self._is_interactive:
                self._lines.appendleft(line)
                return None

    async def ask_line(self, question: str, *, hidden: bool = False) -> str | None:
        """Read the next line. A terminal shows it: only `KeyboardReader` hides it."""
        del hidden
        self._prompt(f"{question} ")
        line = await self._line()
        return None if line is None else line.strip()

    def interrupt(self) -> None:
        """Stop waiting for a line."""
        if self._line_ready and not self._line_ready.done():
            self._line_ready.set_exception(InputInterrupted(""))

    @contextmanager
    def while_answering(self, line: "TypedLine") -> Generator[None]:
        """Do nothing: the terminal itself echoes lines, and each is the next message."""
        del line
        yield

    async def _line(self) -> str | None:
        while not self._lines:
            if self._ended:
                return None
            self._line_ready = ready = self._loop.create_future()
            try:
                await ready
            except asyncio.CancelledError:
                if ready.done() and not ready.cancelled():
                    ready.result()  # Ctrl-C at the same moment: the user wants to stop
                raise
        return self._lines.popleft()

    def _prompt(self, prompt: str) -> None:
        if self._is_interactive:
            stream = sys.stdout if sys.stdout.isatty() else sys.stderr
            stream.write(prompt)
            stream.flush()

    def _read(self) -> None:
        # not sys.stdin: a thread that holds its lock would keep the interpreter from exiting
        encoding = sys.stdin.encoding or "utf-8"
        with (
            suppress(OSError, RuntimeError),  # the terminal is gone, or the loop is closed
            open(0, encoding=encoding, errors="replace", newline="\n", closefd=False) as lines,
        ):
            for line in lines:
                self._loop.call_soon_threadsafe(self._take, line.removesuffix("\n").removesuffix("\r"))
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, None)

    def _take(self, line: str | None) -> None:
        if line is None:
            self._ended = True
        else:
            self._lines.append(line)
        if self._line_ready and not self._line_ready.done():
            self._line_ready.set_result(None)
