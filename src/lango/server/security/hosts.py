"""Recognise loopback hosts, and parse Host and Origin headers."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or address is always this machine."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@lru_cache(4096)
def network_of(address: str) -> str:
    """Return the part of an address that identifies a client: an IPv4 address, or the /64 network of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))


def host_of(header: str) -> str:
    """Return the host name in a Host header, without the port; empty if the header is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        name = parts.hostname or ""
    except ValueError:
        return ""
    return "" if parts.path or parts.query or parts.fragment or "@" in header else name


def host_and_port_of_origin(origin: str) -> str:
    """Return the host and port of an Origin, as a Host header has them; empty if the Origin is invalid."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""
