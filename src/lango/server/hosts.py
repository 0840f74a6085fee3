"""Names of machines: which of them are this one."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port; empty where it is none."""
    try:
        parts = urlsplit(f"//{header}")
        name = parts.hostname or ""
    except ValueError:
        return ""
    return "" if parts.path or parts.query or parts.fragment or "@" in header else name


def place_of_origin(origin: str) -> str:
    """Return the name and port in an Origin, as a Host header of the same place says it; empty where it is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""
