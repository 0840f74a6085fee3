"""Limit the number of connections and the time a request head may take.

A connection costs a file descriptor, and a process has few. Without a limit, clients that open connections and send
nothing would lock out all others, health checks included. So connections are limited in total and per client, a few
more are reserved for health checks, and a connection whose head takes too long is closed. Bodies have limits in
`lango.server.security.middleware`.
"""

import asyncio
from typing import Any, cast

import h11
from msgspec import Struct
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from lango.config import ServerSettings
from lango.server.security.hosts import is_loopback, network_of

try:
    import resource
except ImportError:  # not on Windows, which has no such limit
    resource = None

FOR_HEALTH_CHECKS = "for_health_checks"
"""Key in the state of a request: its connection is reserved for health checks."""
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
RESERVED_CONNECTIONS = 16
"""Connections beyond the limit, for health checks."""
_RESERVED_FILES = 128
"""File descriptors for everything else: the store, providers, tools."""
_DEFAULT_PER_CLIENT = 256
_RESERVED_HEAD_TIMEOUT_S = 2.0
_BUSY_RESPONSE = b"""\
HTTP/1.1 503 Service Unavailable\r
Content-Type: application/json\r
Retry-After: 5\r
Connection: close\r
Content-Length: %d\r
\r
%s"""
_BUSY_BODY = b'{"error":{"type":"TooManyConnections","message":"too many open connections: try again later"}}'


class ConnectionLimits(Struct, frozen=True):
    """Limits on connections and on the time of a request head."""

    max_connections: int
    per_client: int
    """Limit for one address; 0: none."""
    exempts_loopback: bool
    """Whether `per_client` does not apply to loopback addresses, where a proxy may connect from."""
    head_timeout_s: float

    @classmethod
    def from_settings(cls, settings: ServerSettings) -> "ConnectionLimits":
        """Read the limits of a port from the settings, bounded by the file descriptors of the process."""
        limits = settings.limits
        most, ports = limits.max_connections, 1 if settings.a2a.grpc_port is None else 2
        files = _raise_file_limit()
        if files is not None:
            most = max(1, min(most, (files - _RESERVED_FILES - RESERVED_CONNECTIONS) // ports))
        named = limits.max_connections_per_client
        per_client = _DEFAULT_PER_CLIENT if named is None else named
        return cls(most, per_client, named is None, limits.head_timeout_s)

    def allows(self, client: str, others: list[str]) -> bool:
        """Whether a client may open a connection; `others` are the clients of all open connections.

        IPv6 addresses count by network: one client has a whole /64.
        """
        if len(others) >= self.max_connections + RESERVED_CONNECTIONS:
            return False
        if not self.per_client or (self.exempts_loopback and is_loopback(client)):
            return True
        network = network_of(client)
        return sum(network_of(other) == network for other in others) < self.per_client


def _raise_file_limit() -> int | None:
    """Raise the limit on open files to its maximum, and return it."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems report no limit and have one
            pass
    return None if soft == resource.RLIM_INFINITY else soft


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with limits on connections."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._reserved = False

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:
        """Refuse a connection beyond the limits; `RequestGuard` keeps the reserved ones for health checks."""
        connections = cast("set[Any]", self.connections)
        others: list[str] = [connection.client[0] for connection in connections if connection.client]
        super().connection_made(transport)
        if not self._limits.allows(self.client[0] if self.client else "", others):
            transport.write(_BUSY_RESPONSE % (len(_BUSY_BODY), _BUSY_BODY))
            transport.close()
            return
        self._reserved = len(others) >= self._limits.max_connections
        self.app_state = self.app_state | {FOR_HEALTH_CHECKS: self._reserved}
        self._start_head_timer()

    @override
    def data_received(self, data: bytes) -> None:
        """Read data, and stop the timer once the head is complete."""
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:
            self._cancel_head_timer()
        else:
            self._start_head_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a closed connection."""
        self._cancel_head_timer()
        super().connection_lost(exc)

    @override
    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection to the WebSocket protocol."""
        self._cancel_head_timer()
        super().handle_websocket_upgrade(event)

    def _start_head_timer(self) -> None:
        """Limit the time for the whole head; further pieces of it do not extend the time."""
        if self._head_timer is None and not self.transport.is_closing():
            timeout_s = _RESERVED_HEAD_TIMEOUT_S if self._reserved else self._limits.head_timeout_s
            self._head_timer = self.loop.call_later(timeout_s, self.transport.abort)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
