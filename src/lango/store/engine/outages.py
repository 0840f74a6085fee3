"""Retry operations while the database is away, for as long as the caller may wait.

A running turn waits for `store.wait_s`: its answer is worth more than its time. A new request is refused sooner, so
that its client can try another replica.
"""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from lango.errors import StoreUnavailable

T = TypeVar("T")

_log = logging.getLogger("lango.store")

DEFAULT_WAIT_S = 60.0
_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_SAME_OUTAGE_S = 30.0
_NEVER = -math.inf
"""Failures that are farther apart belong to different outages."""

_waits_for_database: ContextVar[bool] = ContextVar("lango_store_waits_long", default=False)


@contextmanager
def wait_for_database(enabled: bool = True) -> Generator[None]:
    """Let the operations of this block wait for `store.wait_s`; if not `enabled`, only for a moment."""
    before = _waits_for_database.set(enabled)
    try:
        yield
    finally:
        _waits_for_database.reset(before)


class Outages:
    """Tries operations again while the database is away, and remembers since when, and when it came back.

    The time to wait counts from the beginning of the outage: an operation that comes later waits for what is left of
    it, and not at all where the others have given up.
    """

    def __init__(self, wait_s: float, short_wait_s: float) -> None:
        """`short_wait_s`: for operations outside of `wait_for_database`, unless `wait_s` is less."""
        self.wait_s = wait_s
        self.recovered_at = 0.0
        """When an operation first succeeded after an outage, by `time.monotonic`; 0: there was none."""
        self._short_wait_s = min(wait_s, short_wait_s)
        self._outage_started_at = self._last_failure_at = _NEVER

    @property
    def is_away(self) -> bool:
        """Whether the last operation found the database away."""
        return self._last_failure_at != _NEVER

    async def retry(self, attempt: Callable[[], Awaitable[T]], failed: StoreUnavailable | None = None) -> T:
        """Retry until it succeeds, or the time to wait is over; `failed`: the first attempt has failed already."""
        clock = asyncio.get_running_loop().time
        wait_s = self.wait_s if _waits_for_database.get() else self._short_wait_s
        deadline = math.inf
        for tries in itertools.count():
            try:
                if failed is not None:
                    raise failed
                result = await attempt()
            except StoreUnavailable as error:
                if error.retry_after_s is None:
                    raise
                now = clock()
                deadline = min(deadline, self._outage_start(now) + wait_s)
                if now >= deadline:
                    raise
                delay_s = min(_DELAYS_S[min(tries, len(_DELAYS_S) - 1)], deadline - now)
                _log.warning("%s; trying again in %.2g s, for %.0f s more", error, delay_s, deadline - now)
            else:
                self.database_available()
                return result
            failed = None
            await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")

    def database_available(self) -> None:
        """Record that the database answers."""
        if self._last_failure_at != _NEVER:  # not the property: this is called after every operation
            self._last_failure_at = _NEVER
            self.recovered_at = time.monotonic()

    def _outage_start(self, now: float) -> float:
        """Return the start of the current outage, which is now unless it began before."""
        if now - self._last_failure_at > _SAME_OUTAGE_S:
            self._outage_started_at = now
        self._last_failure_at = now
        return self._outage_started_at
