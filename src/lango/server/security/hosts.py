"""Names of machines: which of them are this one."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
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
    """Return what one client has of an address: all of one of IPv4, the /64 of one of IPv6."""
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
    """Return the name in a Host header, without its port; empty where it is none."""
    try:
        parts = urlsplit(f"//{header}")
        name = parts.hostname or ""
    except ValueError:
        return ""
    return "" if parts.path or parts.query or parts.fragment or "@" in header else name


def host_and_port_of_origin(origin: str) -> str:
    """Return the name and port in an Origin, as a Host header of the same place says it; empty where it is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""
