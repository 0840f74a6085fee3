"""How long an operation waits for a database that is away, and when it tries again.

A turn under way waits as long as `store.wait_s` says: its answer is worth more than its time. A request that has only
just come is refused sooner, so that its client can try again elsewhere.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from lango.errors import StoreUnavailable

T = TypeVar("T")

_log = logging.getLogger("lango.store")

WAIT_S = 60.0
_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

_waits_long: ContextVar[bool] = ContextVar("lango_store_waits_long", default=False)


@contextmanager
def long_wait(enabled: bool = True) -> Generator[None]:
    """Let the operations of this block wait as long as `store.wait_s` says, or, not `enabled`, only for a moment."""
    before = _waits_long.set(enabled)
    try:
        yield
    finally:
        _waits_long.reset(before)


class Outages:
    """Tries operations again while the database is away, and remembers when it came back."""

    def __init__(self, wait_s: float, short_wait_s: float) -> None:
        """`short_wait_s`: for operations outside of `long_wait`, where `wait_s` is not less."""
        self.wait_s = wait_s
        self.back_at = 0.0
        """When an operation first succeeded after one that failed, by `time.monotonic`; 0: none failed yet."""
        self._short_wait_s = min(wait_s, short_wait_s)

    async def retry(self, attempt: Callable[[], Awaitable[T]], failed: StoreUnavailable | None = None) -> T:
        """Try until it succeeds, or until the time to wait is over; `failed`: the first attempt was made before."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self.wait_s if _waits_long.get() else self._short_wait_s)
        tries = 0
        while True:
            try:
                if failed is not None:
                    raise failed
                result = await attempt()
            except StoreUnavailable as error:
                left_s = deadline - clock()
                if error.retry_after_s is None or left_s <= 0:
                    raise
                delay_s = min(_DELAYS_S[min(tries, len(_DELAYS_S) - 1)], left_s)
                _log.warning("%s; trying again in %.2g s, for %.0f s more", error, delay_s, left_s)
            else:
                if tries:
                    self.back_at = time.monotonic()
                return result
            failed = None
            tries += 1
            await asyncio.sleep(delay_s)
