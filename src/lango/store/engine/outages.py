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
from typing import Literal, TypeVar

from lango.errors import StoreUnavailable

T = TypeVar("T")

_log = logging.getLogger("lango.store")

DEFAULT_WAIT_S = 60.0
_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_SAME_OUTAGE_S = 30.0
"""Failures that are farther apart belong to different outages."""
_WARNING_INTERVAL_S = 10.0
_NEVER = -math.inf

Patience = Literal["long", "short", "none"]
_patience: ContextVar[Patience] = ContextVar("lango_store_patience", default="short")


@contextmanager
def wait_for_database(patience: Patience = "long") -> Generator[None]:
    """Let the operations of this block wait for `store.wait_s`; `short`: only for a moment, `none`: fail at once."""
    before = _patience.set(patience)
    try:
        yield
    finally:
        _patience.reset(before)


class Outages:
    """Retries operations while the database is away, and remembers since when, and when it came back.

    A full disk is an outage of writes: reads that succeed do not end it. The time to wait counts from the beginning of
    the outage: a later operation waits for the rest of it, and not at all once the earlier ones have given up.
    """

    def __init__(self, wait_s: float, short_wait_s: float) -> None:
        """`short_wait_s`: for operations outside of `wait_for_database`, unless `wait_s` is less."""
        self.recovered_at = 0.0
        """When an operation first succeeded after an outage, by `time.monotonic`; 0: there was none."""
        self.wait_s = wait_s
        self._waits_s: dict[Patience, float] = {"long": wait_s, "short": min(wait_s, short_wait_s), "none": 0.0}
        self._reads_fail = self._writes_fail = False
        self._outage_started_at = self._last_failure_at = self._warned_at = _NEVER
        self._unreported = 0

    @property
    def is_away(self) -> bool:
        """Whether the last write or the last read found the database away."""
        return self._reads_fail or self._writes_fail

    async def retry(
        self, attempt: Callable[[], Awaitable[T]], failed: StoreUnavailable | None = None, *, writes: bool
    ) -> T:
        """Retry until it succeeds, or the time to wait is over; `failed`: the first attempt has failed already."""
        clock = asyncio.get_running_loop().time
        wait_s = self._waits_s[_patience.get()]
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
                deadline = min(deadline, self._outage_start(now, writes=writes) + wait_s)
                if now >= deadline:
                    raise
                delay_s = min(_DELAYS_S[min(tries, len(_DELAYS_S) - 1)], deadline - now)
                self.warn(f"{error}; retrying for another {deadline - now:.0f} s")
            else:
                self.database_available(wrote=writes)
                return result
            failed = None
            await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")

    def warn(self, message: str) -> None:
        """Log a failure of an operation: the first one of an outage, then one every few seconds with their number."""
        now = time.monotonic()
        if now - self._warned_at < _WARNING_INTERVAL_S:
            self._unreported += 1
            return
        _log.warning("%s%s", message, f" ({self._unreported} more failures before)" if self._unreported else "")
        self._warned_at, self._unreported = now, 0

    def database_available(self, *, wrote: bool) -> None:
        """Record that an operation succeeded."""
        if not (self._reads_fail or (wrote and self._writes_fail)):
            return
        self._reads_fail = False
        self._writes_fail = self._writes_fail and not wrote
        self.recovered_at = time.monotonic()
        if not self.is_away:
            self._last_failure_at = self._warned_at = _NEVER
            _log.warning("the database is available again (%d failures were not logged)", self._unreported)
            self._unreported = 0

    def _outage_start(self, now: float, *, writes: bool) -> float:
        """Return the start of the current outage, which is now unless it began before."""
        if now - self._last_failure_at > _SAME_OUTAGE_S:
            self._outage_started_at = now
        self._last_failure_at = now
        self._writes_fail |= writes
        self._reads_fail |= not writes
        return self._outage_started_at
