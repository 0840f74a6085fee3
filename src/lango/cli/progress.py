"""Long work says how far it is: on stderr, and only where somebody looks."""

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]
"""How much is done, and of how much; None: nobody knows."""

_BETWEEN_LINES_S = 2.0


@contextmanager
def progress_bar(what: str, unit: str = "") -> Generator[Progress]:
    """Show a bar from the first news until the block ends; bytes as bytes, where no unit is named."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
    elif os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield _progress_lines(what, unit)
    else:
        with _bar(what, unit) as advance:
            yield advance


@contextmanager
def _bar(what: str, unit: str) -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    counted = (MofNCompleteColumn(), unit) if unit else (DownloadColumn(), TransferSpeedColumn())
    columns = ("{task.description}", BarColumn(), *counted, TimeRemainingColumn())
    # what is printed meanwhile goes above the bar; into a pipe it goes as it is
    above = sys.stdout.isatty()
    bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above)
    task = bar.add_task(what, total=None)

    def advance(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total)
        bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def _progress_lines(what: str, unit: str) -> Progress:
    """Tell in lines, where nothing can be drawn over; what is done in a moment needs none."""
    last = time.monotonic()

    def advance(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last < _BETWEEN_LINES_S:
            return
        last = time.monotonic()
        amounts = [_amount(count, unit) for count in (done, total) if count is not None]
        print(f"{what}: {' of '.join(amounts)} {unit or 'MB'}", file=sys.stderr, flush=True)

    return advance


def _amount(count: int, unit: str) -> str:
    return f"{count:,}" if unit else f"{count / 1e6:,.1f}"
