"""Connect to public addresses only, checked on the address that is connected to.

A name is looked up once per connection, all its addresses are checked, and the connection goes to one of them. So a
name that changes its addresses afterwards (DNS rebinding) has no effect; a redirect is a new connection.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, cast

import httpcore
from typing_extensions import override

from lango.errors import BlockedAddress

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
