"""Add timeouts, retries and fallback models to a provider.

A request is retried only until the first delta is yielded: after that the reader has seen half an answer, and a second
answer would contradict it.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import ProviderError, ProviderProtocolError, ProviderTimeout, ProviderUnavailable
from lango.providers.call_log import note_failure
from lango.providers.protocol import Closable, Delta, Finish, Provider, Request, UsageDelta, closing_stream
from lango.providers.sdk.request_encoding import without_media, without_signatures
from lango.providers.sdk.sdk_client import Timeouts
from lango.providers.wrappers.observed_provider import record_request

logger = logging.getLogger(__name__)

_TRANSIENT = (ProviderUnavailable, ProviderTimeout, ProviderProtocolError)
_REJECTED_PARTS = (
    ({400}, re.compile(r"signature|thinking|thought|reasoning|encrypted", re.IGNORECASE), without_signatures),
    (
        {400, 404, 415, 422, 500, 501},  # some servers answer 500 to a picture
        re.compile(
            r"image|vision|visual|multi-?modal|modalit|media|audio|document|pdf|file|content type|must be a string",
            re.IGNORECASE,
        ),
        without_media,
    ),
)
"""The parts of a request that a provider may reject, by the status and the words of its error."""


class Retries(Struct, frozen=True):
    """Attempts, and the wait between them: `base_s` doubled each time, up to `cap_s`, with jitter.

    A longer Retry-After of the provider is honoured; above `retry_after_cap_s` the request is not retried.
    """

    attempts: int = 4
    base_s: float = 0.5
    cap_s: float = 20.0
    retry_after_cap_s: float = 60.0

    def delay_s(self, attempt: int, retry_after_s: float | None, jitter: float) -> float | None:
        """Return the wait after an attempt (the first is 1), or None if it was the last."""
        if attempt >= self.attempts or (retry_after_s or 0) > self.retry_after_cap_s:
            return None
        backoff = min(self.cap_s, self.base_s * 2 ** (attempt - 1)) * (0.5 + jitter / 2)
        return max(backoff, retry_after_s or 0.0)


class Fallback(Struct, frozen=True):
    """The provider to use when another one fails, and its name for the model."""

    provider: Provider
    model: str


class ResilientProvider:
    """Wraps a provider and its fallbacks, and has the name of the first."""

    def __init__(
        self,
        provider: Provider,
        *,
        fallbacks: Sequence[Fallback] = (),
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Tests replace `sleep`, `clock` and `jitter` (0 to 1)."""
        self.name = provider.name
        self.records_requests = True
        """Each attempt is kept by itself, where requests are kept."""
        self._provider = provider
        self._fallbacks = tuple(fallbacks)
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        deadline = self._clock() + self._timeouts.total_s
        provider, sent, attempt = self._provider, request, 1
        fallbacks, has_output = iter(self._fallbacks), False
        while True:
            try:
                async with aclosing(self._stream_once(provider, sent, deadline)) as deltas:
                    async for delta in deltas:
                        has_output = has_output or not isinstance(delta, UsageDelta)
                        yield delta
            except ProviderError as error:
                if has_output:
                    raise
                if simpler := _simpler_request(error, sent):
                    logger.warning("%s rejected the request, sending a simpler one: %s", provider.name, error)
                    sent = simpler
                elif (wait_s := self._wait_s(error, attempt, deadline)) is not None:
                    logger.warning(
                        "%s: attempt %d failed, retrying in %.1f s: %s", provider.name, attempt, wait_s, error
                    )
                    attempt += 1
                    await self._sleep(wait_s)
                elif self._may_retry(error, deadline) and (fallback := next(fallbacks, None)):
                    logger.warning("%s failed, falling back to %s: %s", provider.name, fallback.model, error)
                    provider, sent, attempt = fallback.provider, replace(request, model=fallback.model), 1
                else:
                    raise
            else:
                return

    async def aclose(self) -> None:
        """Close the connections of all wrapped providers."""
        for provider in (self._provider, *(fallback.provider for fallback in self._fallbacks)):
            if isinstance(provider, Closable):
                await provider.aclose()

    def _may_retry(self, error: ProviderError, deadline: float) -> bool:
        return isinstance(error, _TRANSIENT) and self._clock() < deadline

    def _wait_s(self, error: ProviderError, attempt: int, deadline: float) -> float | None:
        """Return the wait before the next attempt, or None if there is none."""
        if not self._may_retry(error, deadline):
            return None
        wait_s = self._retries.delay_s(attempt, error.retry_after_s, self._jitter())
        return None if wait_s is None or self._clock() + wait_s >= deadline else wait_s

    async def _stream_once(self, provider: Provider, request: Request, deadline: float) -> AsyncGenerator[Delta, None]:
        started_at = time.time()
        try:
            with record_request(provider.name, request) as note:
                async with closing_stream(provider.stream(request)) as stream:
                    while delta := await self._next_delta(stream, provider.name, deadline):
                        note(delta)
                        yield delta
                        if isinstance(delta, Finish):
                            return
                raise ProviderProtocolError(
                    f"{provider.name}: the answer ended without a finish reason", provider=provider.name
                )
        except ProviderError as error:
            note_failure(provider.name, request.model, started_at, error)
            raise

    async def _next_delta(self, stream: AsyncIterator[Delta], name: str, deadline: float) -> Delta | None:
        left_s, idle_s = deadline - self._clock(), self._timeouts.idle_s
        cause = None
        if left_s > 0:  # checked here too: a stream that never waits gives the timer no chance to run
            try:
                async with asyncio.timeout(min(idle_s, left_s)):
                    return await anext(stream, None)
            except TimeoutError as exc:
                cause = exc
        what = f"no data for {idle_s:g} s" if idle_s < left_s else f"not finished after {self._timeouts.total_s:g} s"
        raise ProviderTimeout(f"{name}: {what}", provider=name) from cause


def _simpler_request(error: ProviderError, request: Request) -> Request | None:
    """Return the request without the signatures or the media that the provider rejects, or None."""
    for statuses, names_them, simplify in _REJECTED_PARTS:
        if error.status in statuses and names_them.search(str(error)):
            simpler = simplify(request)
            if simpler != request:
                return simpler
    return None
