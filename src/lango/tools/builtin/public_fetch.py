"""Fetch a public address over HTTP: every connection and redirect is checked, and the body has a limit."""

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urljoin

import httpcore
import httpx
from msgspec import Struct

from lango.errors import ToolError
from lango.tools.builtin.public_addresses import PublicNetworkBackend, Resolve, resolve

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchedResponse(Struct, frozen=True):
    """The response to a fetch, whose body is not read yet."""

    address: httpx.URL
    """Where it came from, after all redirects."""
    status: int
    headers: httpx.Headers
    stream: httpcore.Response

    @property
    def mime_type(self) -> str:
        """Its type without parameters; empty if it names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self, max_bytes: int) -> tuple[bytes, bool]:
        """Read at most `max_bytes` unpacked bytes; return them and whether that is all."""
        encoding = self.headers.get("content-encoding", "").lower()
        unpack = None
        if encoding in ("gzip", "x-gzip", "deflate"):
            unpack = zlib.decompressobj(47 if "gzip" in encoding else 15)
        elif encoding not in ("", "identity"):
            raise ToolError(f"the page is encoded as {encoding}, which was not requested")
        body = bytearray()
        async for piece in self.stream.aiter_stream():
            try:
                # limited: a small piece can unpack to a thousand times its size
                body += unpack.decompress(piece, max_bytes + 1 - len(body)) if unpack else piece
            except zlib.error as error:
                raise ToolError("could not decompress the page") from error
            if len(body) > max_bytes:
                return bytes(body[:max_bytes]), False
        return bytes(body), True


@asynccontextmanager
async def fetch_public(
    url: str,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    allow: Collection[str] = (),
    resolve: Resolve = resolve,
) -> AsyncGenerator[FetchedResponse]:
    """Fetch an address, and follow its redirects. `allow` adds addresses as `address:port` that are not public.

    Raise `BlockedAddress` for an address that is not public, and `ToolError` if there is no response, or not in time.
    """
    try:
        # a pool per fetch: no connection outlives its address check
        async with asyncio.timeout(timeout_s), AsyncExitStack() as stack:
            pool = await stack.enter_async_context(
                httpcore.AsyncConnectionPool(
                    # in a thread: reading the system's certificates takes 50 ms
                    ssl_context=await asyncio.to_thread(ssl.create_default_context),
                    network_backend=PublicNetworkBackend(allow=allow, resolve=resolve),
                    max_connections=1,
                )
            )
            yield await _follow(stack, pool, url, headers, timeout_s)
    except TimeoutError as error:
        raise ToolError(f"no complete response within {timeout_s:g} s") from error
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise ToolError(f"could not fetch the page: {error or type(error).__name__}") from error


async def _follow(
    stack: AsyncExitStack,
    pool: httpcore.AsyncConnectionPool,
    url: str,
    headers: Mapping[str, str],
    timeout_s: float,
) -> FetchedResponse:
    """Return the first response that is no redirect; it is open until the stack closes."""
    for _ in range(MAX_REDIRECTS + 1):
        address = parse_url(url)
        sent = [("Host", address.netloc.decode("ascii")), *headers.items()]
        timeouts = {"timeout": {"connect": 10.0, "read": timeout_s}}
        opened = AsyncExitStack()
        async with opened:
            response = await opened.enter_async_context(
                pool.stream("GET", str(address), headers=sent, extensions=timeouts)
            )
            given = httpx.Headers(response.headers)
            if response.status not in _REDIRECTS or "location" not in given:
                stack.push_async_exit(opened.pop_all())
                return FetchedResponse(address, response.status, given, response)
            url = _redirect_url(str(address), given["location"])
    raise ToolError(f"more than {MAX_REDIRECTS} redirects")


def _redirect_url(address: str, location: str) -> str:
    try:
        return urljoin(address, location)
    except ValueError as error:
        raise ToolError(f"the page redirects to {location[:200]!r}, which is not a valid URL") from error


def parse_url(url: str) -> httpx.URL:
    """Parse an http or https URL. Raise `ToolError` for any other, and for one with a password."""
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ToolError(f"{url[:200]} is not a valid URL: {error}") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise ToolError(f"{url[:200]} is not allowed: use an http or https URL")
    if address.userinfo:
        raise ToolError("a URL with a user name or password is not allowed")
    return address.copy_with(fragment=None)
