"""Run the work of requests in threads: each user has a share of them, and work whose caller left can stop.

A thread cannot be ended from outside. So a user's work that was abandoned keeps its place until it ends, and further
work of the same user waits: others always find a thread. Long work calls `stop_if_abandoned` from time to time.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS_PER_USER = 2
_user: contextvars.ContextVar[str] = contextvars.ContextVar("lango_user_of_threads", default="")
_abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("lango_abandoned", default=None)
_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Abandoned(Exception):
    """The caller that waited for this work has left."""


def use_share_of(user_id: str) -> None:
    """Let the work of this task, and of those that it starts, use the threads of a user's share."""
    _user.set(user_id)


def stop_if_abandoned() -> None:
    """Raise `Abandoned` in the thread of work whose caller has left."""
    event = _abandoned.get()
    if event is not None and event.is_set():
        raise Abandoned


class UserShares:
    """Limits how much of a pool, of threads or connections, each user has at once. Without a user there is no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Hold one of the user's places during the body."""
        user = _user.get()
        if user:
            await self._acquire(user)
        try:
            yield
        finally:
            self._release(user)

    async def run(self, submit: Callable[[Callable[[], Any]], Awaitable[Any]], function: Callable[[], T]) -> T:
        """Run a function in a pool once the user has a free place, which is kept until its thread is done.

        If the caller is cancelled, work that waits is dropped, and work under way can notice.
        """
        user = _user.get()
        if user:
            await self._acquire(user)
        job = _Job(function, lambda: self._release(user))
        try:
            return await submit(job.run)
        finally:
            job.abandon()

    async def _acquire(self, user: str) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._used[user] < self._most:
                self._used[user] += 1
                return
            woken = loop.create_future()
            waiter = loop, woken
            self._waiting.setdefault(user, deque()).append(waiter)
        try:
            await woken
        except asyncio.CancelledError:
            with self._lock, contextlib.suppress(ValueError, KeyError):
                self._waiting[user].remove(waiter)
            if not woken.cancelled():  # it has its place already
                self._release(user)
            raise

    def _release(self, user: str) -> None:
        """Give a place to the next work of the user, or back; called from any thread."""
        if not user:
            return
        with self._lock:
            waiting = self._waiting.get(user)
            while waiting:
                loop, woken = waiting.popleft()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._wake, user, woken)
                    return
            self._waiting.pop(user, None)
            self._used[user] -= 1
            if not self._used[user]:
                del self._used[user]

    def _wake(self, user: str, woken: "asyncio.Future[None]") -> None:
        if woken.done():  # cancelled
            self._release(user)
        else:
            woken.set_result(None)


class _Job:
    """A function that runs in a thread, or never if its caller leaves before; either way its place is released once."""

    def __init__(self, function: Callable[[], Any], release: Callable[[], None]) -> None:
        self._function = function
        self._release = release
        self._lock = threading.Lock()
        self._started = False
        self._abandoned = threading.Event()
        self._context = contextvars.copy_context()
        self._context.run(_abandoned.set, self._abandoned)

    def run(self) -> Any:
        with self._lock:
            if self._abandoned.is_set():
                return None
            self._started = True
        try:
            return self._context.run(self._function)
        finally:
            self._release()

    def abandon(self) -> None:
        """Note that the caller waits no longer, also because the work is done."""
        with self._lock:
            self._abandoned.set()
            never_started = not self._started
        if never_started:
            self._release()


async def run_in_own_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that may hang in a new daemon thread: it uses up no shared one, and the process can still exit."""
    context = contextvars.copy_context()
    outcome: concurrent.futures.Future[tuple[Any, BaseException | None]] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()  # a caller that leaves cannot cancel it

    def work() -> None:
        result, raised = None, None
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's task
            raised = error
        outcome.set_result((result, raised))

    threading.Thread(target=work, name="lango-own-thread", daemon=True).start()
    result, raised = await asyncio.wrap_future(outcome)
    if raised is not None:
        raise raised
    return result


_shares = UserShares(_THREADS_PER_USER)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread of the user's share, as `asyncio.to_thread` does without shares."""
    loop = asyncio.get_running_loop()
    return await _shares.run(lambda work: loop.run_in_executor(None, work), lambda: function(*args, **kwargs))
