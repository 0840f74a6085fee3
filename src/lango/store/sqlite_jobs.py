"""Writes on their way through the writer's thread of `engine.sqlite`, and back to those who wait for them."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct, field

from lango.store.engine.database import Operation, Row, Undo, run_sync


class Job(Struct, eq=False):
    """One operation on its way through the writer."""

    make: Callable[[], Operation[Any]]
    loop: asyncio.AbstractEventLoop | None = None
    future: "asyncio.Future[Any] | None" = None
    result: Any = None
    error: BaseException | None = field(default=None)

    def run(self, execute: Callable[[str, tuple[Any, ...]], list[Row]]) -> bool:
        """Run the operation; False: what it wrote must be taken back."""
        try:
            self.result = run_sync(self.make(), execute)
        except Undo as undo:
            self.result = undo.result
            return False
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
            self.error = error
            return False
        return True

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it."""
        return self.future is None or not self.future.cancelled()

    def deliver(self) -> None:
        """Hand the outcome to whoever waits, in their event loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def waiting(queue: "SimpleQueue[Job | None]", most: int) -> Iterator[Job]:
    """What else waits by now, so many at most; the order of arrival is kept."""
    for _ in range(most):
        try:
            job = queue.get_nowait()
        except Empty:
            return
        if job is None:
            queue.put(None)  # the end comes after this group
            return
        yield job


def deliver(jobs: list[Job]) -> None:
    """Wake each event loop once for all of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver_all, done)


def _deliver_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.deliver()
