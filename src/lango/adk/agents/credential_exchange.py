"""Exchange credentials for tokens outside the event loop, within a time limit, once per session at a time.

ADK asks token servers with a client that blocks its thread, in part on the event loop: one slow server
would stop every turn. Each exchange runs in a thread of its own, and takes none of those that turns share.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

from lango.adk.agents.adk_internals import exchange_credentials_by
from lango.errors import CredentialTimeout
from lango.threads import run_in_own_thread

LIMIT_S = 30.0
"""How long an exchange may take."""
_MOST_AT_ONCE = 32
_slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
_locks: WeakValueDictionary[tuple[int, object], asyncio.Lock] = WeakValueDictionary()


def move_exchanges_off_the_loop() -> None:
    """Let ADK exchange credentials here, as far as its modules are imported; may be called again."""
    exchange_credentials_by(_exchange)


async def _exchange(work: Callable[[], Coroutine[Any, Any, Any]], once_per: object = None) -> Any:
    """Run a step of ADK that may wait for a token server. Raise `CredentialTimeout` after the limit.

    Of steps with an equal `once_per`, one runs at a time: the later ones find what the first has got.
    """
    if once_per is None:
        return await _run_in_thread(work)
    key = id(asyncio.get_running_loop()), once_per
    lock = _locks.get(key) or _locks.setdefault(key, asyncio.Lock())
    async with lock:
        return await _run_in_thread(work)


async def _run_in_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    if not _slots.acquire(blocking=False):
        raise CredentialTimeout("too many requests to token servers are open: try again later")

    def run() -> Any:
        try:
            return asyncio.run(work())
        finally:
            _slots.release()

    try:
        async with asyncio.timeout(LIMIT_S):
            return await run_in_own_thread(run)
    except TimeoutError as error:
        raise CredentialTimeout(f"the token server did not answer within {LIMIT_S:g} s: try again later") from error
