"""Long work says how far it is: on stderr, and only where somebody looks."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]
"""How much is done, and of how much; None: nobody knows."""


@contextmanager
def progress_bar(what: str, unit: str = "") -> Generator[Progress]:
    """Show a bar until the block ends; bytes as bytes, where no unit is named."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    counted = (MofNCompleteColumn(), unit) if unit else (DownloadColumn(), TransferSpeedColumn())
    columns = (BarColumn(), *counted, TimeRemainingColumn())
    with Bar("{task.description}", *columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
