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

from lango.errors import ProviderError, ProviderProtocolError, ProviderRejected, ProviderTimeout, ProviderUnavailable
from lango.providers.call_log import note_failure
from lango.providers.protocol import Closable, Delta, Finish, Provider, Request, UsageDelta, closing_stream
from lango.providers.sdk.request_encoding import has_media, has_signatures, without_media, without_signatures
from lango.providers.sdk.sdk_client import Timeouts

logger = logging.getLogger(__name__)

_ABOUT_MEDIA = re.compile(
    r"image|vision|visual|multi-?modal|modalit|media|audio|document|pdf|file|content type|must be a string",
    re.IGNORECASE,
)
_ABOUT_SIGNATURES = re.compile(r"signature|thinking|thought|reasoning|encrypted", re.IGNORECASE)


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
        self._provider = provider
        self._fallbacks = tuple(fallbacks)
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    @property
    def name(self) -> str:
        """The name of the first provider."""
        return self._provider.name

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        deadline = self._clock() + self._timeouts.total_s
        targets = [Fallback(self._provider, request.model), *self._fallbacks]
        for position, target in enumerate(targets, 1):
            progress = _Progress()
            attempts = self._stream_with_retries(
                target.provider, replace(request, model=target.model), deadline, progress
            )
            try:
                async with aclosing(attempts) as deltas:
                    async for delta in deltas:
                        yield delta
            except (ProviderUnavailable, ProviderTimeout, ProviderProtocolError) as error:
                if progress.has_output or position == len(targets) or self._clock() >= deadline:
                    raise
                fallback = targets[position].model
                logger.warning("%s failed, falling back to %s: %s", target.provider.name, fallback, error)
            else:
                return

    async def aclose(self) -> None:
        """Close the connections of all wrapped providers."""
        for provider in (self._provider, *(fallback.provider for fallback in self._fallbacks)):
            if isinstance(provider, Closable):
                await provider.aclose()

    async def _stream_with_retries(
        self, provider: Provider, request: Request, deadline: float, progress: "_Progress"
    ) -> AsyncGenerator[Delta, None]:
        attempt = 1
        while True:
            try:
                async with aclosing(self._stream_once(provider, request, deadline, progress)) as deltas:
                    async for delta in deltas:
                        yield delta
            except ProviderRejected as error:
                simpler = None if progress.has_output else _without_refused_parts(error, request)
                if simpler is None:
                    raise
                logger.warning("%s rejected the request, sending a simpler one: %s", provider.name, error)
                request = simpler
            except (ProviderUnavailable, ProviderTimeout, ProviderProtocolError) as error:
                if not progress.has_output and _refuses_media(error, request):  # some servers answer 500 to a picture
                    logger.warning(
                        "%s does not accept images, sending the request without them: %s", provider.name, error
                    )
                    request = without_media(request)
                    continue
                wait_s = self._wait_s(error, attempt, deadline)
                if progress.has_output or wait_s is None:
                    raise
                logger.warning("%s: attempt %d failed, retrying in %.1f s: %s", provider.name, attempt, wait_s, error)
                attempt += 1
                await self._sleep(wait_s)
            else:
                return

    def _wait_s(self, error: ProviderError, attempt: int, deadline: float) -> float | None:
        retry_after_s = error.retry_after_s if isinstance(error, ProviderUnavailable) else None
        wait_s = self._retries.delay_s(attempt, retry_after_s, self._jitter())
        return None if wait_s is None or self._clock() + wait_s >= deadline else wait_s

    async def _stream_once(
        self, provider: Provider, request: Request, deadline: float, progress: "_Progress"
    ) -> AsyncGenerator[Delta, None]:
        started_at = time.time()
        try:
            async with closing_stream(provider.stream(request)) as stream:
                while True:
                    delta = await self._next_delta(stream, provider.name, deadline)
                    if delta is None:
                        raise ProviderProtocolError(
                            f"{provider.name}: the answer ended without a finish reason", provider=provider.name
                        )
                    progress.has_output = progress.has_output or not isinstance(delta, UsageDelta)
                    yield delta
                    if isinstance(delta, Finish):
                        return
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


class _Progress(Struct):
    """Whether a part of the answer was yielded."""

    has_output: bool = False


def _without_refused_parts(error: ProviderRejected, request: Request) -> Request | None:
    """Return the request without the media or signatures that the vendor rejects; None if it rejects another part."""
    if _refuses_signatures(error, request):
        return without_signatures(request)
    return without_media(request) if _refuses_media(error, request) else None


def _refuses_media(error: ProviderError, request: Request) -> bool:
    return (
        error.status in (400, 404, 415, 422, 500, 501)
        and has_media(request)
        and _ABOUT_MEDIA.search(str(error)) is not None
    )


def _refuses_signatures(error: ProviderRejected, request: Request) -> bool:
    return error.status == 400 and has_signatures(request) and _ABOUT_SIGNATURES.search(str(error)) is not None
