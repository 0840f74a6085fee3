"""Log each failure of the user's own code once, with its traceback, and collect it for the developer.

Frames of libraries, of ADK and of Lango are folded, unless there are no others. Secrets are redacted.
"""

import asyncio
import logging
import sysconfig
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from lango.errors import AgentFailed, LangoError, ToolError
from lango.safe_text import printable, printable_line, redact_secrets

LOGGER = "lango.failures"
_log = logging.getLogger(LOGGER)
_LOGGED_MARK = "_lango_logged"
_MAX_CHARACTERS = 20_000
_MAX_CHAIN = 20


class Failure(Struct, frozen=True, kw_only=True):
    """An error that the user's own code raised in a turn."""

    turn: int
    step: str
    """The tool call, or the path of the workflow node; empty: a callback, a plugin or an agent of the user's own."""
    what: str
    """Says what failed."""
    error: str
    """The class and the message of the error."""
    file: str
    """Where the user's own code was; empty: none of it ran."""
    line: int
    function: str
    folded: str
    """The traceback, with the frames of libraries folded."""
    traceback: str
    """The whole traceback."""
    at: float


class CollectedFailures:
    """The failures of some code, until they are taken."""

    def __init__(self) -> None:
        self._failures: list[Failure] = []

    @property
    def are_any(self) -> bool:
        """Whether there are failures to take."""
        return bool(self._failures)

    def add(self, *failures: Failure) -> None:
        """Add failures, also those that were taken and are still to be stored."""
        self._failures += failures

    def take(self) -> Sequence[Failure]:
        """Remove and return the failures, the oldest first."""
        taken, self._failures = self._failures, []
        return sorted(taken, key=lambda failure: failure.at)


_collected: ContextVar[tuple[CollectedFailures, int] | None] = ContextVar("lango_failures", default=None)


@contextmanager
def failures_collected(into: CollectedFailures, turn: int) -> Generator[None]:
    """Collect the failures of the code of the block, and of the tasks that it starts."""
    token = _collected.set((into, turn))
    try:
        yield
    finally:
        _collected.reset(token)


def log_failure(what: str, error: BaseException, step: str = "") -> None:
    """Log that something failed, with the traceback of its error, and collect it for the developer.

    `step` is the tool call or node. Nothing is logged for a cancellation, for an error of Lango (of the store, a
    provider or a limit), or if the error, or one that led to it, was logged before.
    """
    chain = _chain(error)
    for one in chain:
        is_ours = isinstance(one, LangoError) and not isinstance(one, AgentFailed | ToolError)
        if is_ours or isinstance(one, asyncio.CancelledError) or hasattr(one, _LOGGED_MARK):
            return
    vars(error)[_LOGGED_MARK] = True
    folded = _safe("".join(_folded(error).format()))
    if (collected := _collected.get()) is not None:
        into, turn = collected
        frame = next((own[-1] for one in reversed(chain) if (own := _own_frames(one))), None)
        failure = Failure(
            turn=turn,
            step=step,
            what=printable_line(redact_secrets(what)),
            error=_safe("".join(traceback.format_exception_only(error))),
            file=_short_path(frame.filename) if frame else "",
            line=(frame.lineno or 0) if frame else 0,
            function=frame.name if frame else "",
            folded=folded,
            traceback=_safe("".join(traceback.format_exception(error))),
            at=time.time(),
        )
        into.add(failure)
    if not _log.isEnabledFor(logging.ERROR):
        return
    record = _log.makeRecord(_log.name, logging.ERROR, __file__, 0, "%s", (what,), None)
    # not as `exc_info`: a handler would write messages and source lines with the secrets in them, and may not be able
    # to write a lone surrogate
    whole = _log.isEnabledFor(logging.DEBUG)
    record.exc_text = _safe("".join(traceback.format_exception(error))) if whole else folded
    _log.handle(record)


def mark_logged(error: BaseException) -> None:
    """Do not log an error that another process, or an earlier run of its turn, has logged."""
    vars(error)[_LOGGED_MARK] = True


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it."""
    found = [error]
    while len(found) < _MAX_CHAIN and (before := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(before)
    return found


class _FoldedStack(traceback.StackSummary):
    """The frames of a traceback, of which a line counts each run of library frames."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **how: Any) -> str:
        """Format a frame, or the run of library frames that it begins; None leaves it out."""
        if not _is_library(frame_summary.filename):
            return super().format_frame_summary(frame_summary, **how)
        at = next(at for at, frame in enumerate(self) if frame is frame_summary)
        if at and _is_library(self[at - 1].filename):
            return None  # pyright: ignore[reportReturnType] - documented: the frame is left out
        count = next((n for n, frame in enumerate(self[at:]) if not _is_library(frame.filename)), len(self) - at)
        return f"  [{count} frame{'s' if count > 1 else ''} of libraries]\n"


def _folded(error: BaseException) -> traceback.TracebackException:
    """Return a traceback with folded frames, or the whole one if no frame is the user's own."""
    found = traceback.TracebackException.from_exception(error)
    if any(_own_frames(one) for one in _chain(error)):
        one: traceback.TracebackException | None = found
        for _ in range(_MAX_CHAIN):
            if one is None:
                break
            one.stack = _FoldedStack(one.stack)
            one = one.__cause__ or one.__context__
    return found


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]


@cache
def _is_library(file: str) -> bool:
    """Whether a file is part of Python, of Lango or of another installed package."""
    if file.startswith("<") or "site-packages" in file or "dist-packages" in file:
        return True
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(__file__).parents[1])]
    return any(Path(file).is_relative_to(folder) for folder in folders)


def _short_path(file: str) -> str:
    """Return a path from the current folder, if it is in there."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _safe(text: str) -> str:
    text, half = printable(redact_secrets(text.rstrip())), _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"
