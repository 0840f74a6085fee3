"""Show the progress of long work on stderr, if stderr is a terminal."""

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]
"""Called with the amount done and the total, None if unknown."""

_BETWEEN_LINES_S = 2.0


@contextmanager
def progress_bar(what: str, unit: str = "") -> Generator[Progress]:
    """Show a bar from the first report until the end of the body; without a unit, amounts are bytes."""
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
    # on a terminal, printed lines appear above the bar
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
    """Report in lines on a terminal that cannot redraw; short work reports nothing."""
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
