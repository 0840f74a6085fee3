"""Each user has a share of the threads; what was abandoned keeps its place until it ends, and can notice."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lango.threads import Abandoned, run_in_thread, stop_if_abandoned, use_share_of

_MANY = 40
"""More than the threads of any pool."""
_WAIT_S = 120.0


def for_user(user: str, function: Callable[[], Any]) -> "asyncio.Task[Any]":
    context = contextvars.copy_context()
    context.run(use_share_of, user)
    return asyncio.get_running_loop().create_task(run_in_thread(function), context=context)


class Gate:
    """Work that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.started = asyncio.Queue[int]()
        self.opened = threading.Event()
        self._loop = asyncio.get_running_loop()

    def work(self) -> str:
        self._loop.call_soon_threadsafe(self.started.put_nowait, 1)
        assert self.opened.wait(_WAIT_S)
        return "done"


async def test_attack_22_the_abandoned_work_of_one_user_leaves_threads_for_others() -> None:
    gate = Gate()
    abandoned = [for_user("alice", gate.work) for _ in range(_MANY)]
    for _ in range(2):
        await gate.started.get()
    for task in abandoned:
        task.cancel()
    await asyncio.wait(abandoned)
    more = [for_user("alice", gate.work) for _ in range(_MANY)]
    assert await for_user("bob", lambda: "answered") == "answered"
    assert gate.started.empty(), "the places of the abandoned work are taken until its threads are done"
    gate.opened.set()
    assert await asyncio.gather(*more) == ["done"] * _MANY
    assert gate.started.qsize() == _MANY, "what waited when it was abandoned never ran"


async def test_work_that_is_abandoned_can_stop() -> None:
    gate, stopped = Gate(), threading.Event()

    def work() -> None:
        stop_if_abandoned()
        gate.work()
        try:
            stop_if_abandoned()
        except Abandoned:
            stopped.set()
            raise

    task = for_user("alice", work)
    await gate.started.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.opened.set()
    assert await asyncio.to_thread(stopped.wait, _WAIT_S)


async def test_an_error_releases_its_place_and_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            await for_user("alice", fail)
    stop_if_abandoned()  # outside of such work there is nothing to stop


async def test_a_place_that_comes_to_work_that_was_cancelled_goes_to_the_next() -> None:
    gate = Gate()
    running = [for_user("alice", gate.work) for _ in range(2)]
    for _ in running:
        await gate.started.get()
    waiting = [for_user("alice", lambda: "later") for _ in range(6)]
    await asyncio.sleep(0)  # they wait now
    gate.opened.set()
    for task in waiting[:5]:
        task.cancel()
    assert await waiting[5] == "later"
    assert await asyncio.gather(*running) == ["done"] * 2
    assert await for_user("alice", lambda: "free") == "free"
