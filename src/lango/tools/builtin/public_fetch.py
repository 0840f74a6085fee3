"""Fetch a public address over HTTP: every connection and redirect is checked, and the body has a limit.

The addresses of a host are looked up once and checked, and the connection goes to one of them. So a name that changes
its addresses afterwards (DNS rebinding) has no effect; a redirect is a new connection.
"""

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urljoin

import httpcore
import httpx
from msgspec import Struct
from typing_extensions import override

from lango.errors import BlockedAddress, ToolError

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Looks up the addresses of a host and port."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's metadata server has a public address
        *("::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2620:4f:8000::/48"),
        *("3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
]
"""IANA's special-purpose ranges, whole: the `ipaddress` of a Python knows those of its release, with their exceptions.

https://www.iana.org/assignments/iana-ipv4-special-registry and https://www.iana.org/assignments/iana-ipv6-special-registry
"""


def is_public(address: str) -> bool:
    """Whether an address, or the IPv4 address that it embeds, is public."""
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo and parsed.teredo[1])
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not any(parsed in network for network in _SPECIAL)


async def resolve(host: str, port: int) -> list[str]:
    """Look up a host with the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class PublicNetworkBackend(httpcore.AsyncNetworkBackend):
    """Connects to public addresses, and to the allowed `address:port`."""

    def __init__(self, *, allow: Collection[str] = (), resolve: Resolve = resolve) -> None:
        self._allow = frozenset(allow)
        self._resolve = resolve
        self._below = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look up the host, check every address, and connect to the first that answers."""
        failed: Exception | None = None
        for address in await self.resolve_public(host, port):
            try:
                return await self._below.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")

    @override
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raise: a local socket is never public."""
        raise BlockedAddress("a Unix socket is not a web address")

    @override
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def resolve_public(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host. Raises `BlockedAddress` if one of them is not public."""
        try:
            addresses = await self._resolve(host.strip("[]"), port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"could not resolve {host}") from error
        for address in addresses:
            if not is_public(address) and f"{address}:{port}" not in self._allow:
                raise BlockedAddress(f"{host} is not allowed: {address} is not a public address")
        return addresses


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
    """Return the first response that is not a redirect; it is open until the stack closes."""
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
