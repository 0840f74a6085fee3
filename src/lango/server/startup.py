"""Bind the port, refuse an unsafe configuration, set up the allocator and the log, before the app is imported."""

import ctypes
import errno
import json
import logging
import socket
import sys
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

from lango.config import ServerSettings, Settings
from lango.errors import ConfigError
from lango.runtime.access import ApiKeys
from lango.runtime.stored_data import open_store
from lango.safe_text import printable, printable_line, redact_secrets
from lango.server.security.hosts import is_loopback
from lango.telemetry.traces import current_trace_ids

_LARGE_BLOCK_BYTES = 1_000_000
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
_EXTRA_FIELDS = ("session", "turn", "status", "trace_id", "request_id")


async def open_listener(settings: Settings, fd: int | None = None) -> socket.socket:
    """Bind the port; raise `ConfigError` if it is taken, or if the server would be open without authentication.

    `fd` is the listening socket of the process that started this one.
    """
    listener = bind_port(settings.server) if fd is None else socket.socket(fileno=fd)
    try:
        async with open_store(settings.store.url) as stored:
            await check_exposure(settings.server, stored.keys)
    except BaseException:
        listener.close()
        raise
    return listener


def bind_port(settings: ServerSettings, chosen_with: str = "--port or LANGO_SERVER__PORT") -> socket.socket:
    """Bind the port early: a port in use should be reported before a model is loaded."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small packets at once only on sockets that name TCP: else a response waits 40 ms for its body
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        taken = "a server may already run there; " if error.errno == errno.EADDRINUSE else ""
        raise ConfigError(
            f"cannot listen on {where} ({error.strerror}): {taken}choose another with {chosen_with}"
        ) from error
    return listener


async def check_exposure(settings: ServerSettings, keys: ApiKeys) -> None:
    """Raise `ConfigError` for a server that other machines could use without a key or token."""
    if "*" in settings.allowed_origins and settings.auth == "none":
        raise ConfigError(
            'server.allowed_origins = ["*"] needs server.auth = "keys" or "oidc": without it, list the origins'
        )
    if settings.adk_ui and settings.auth != "none":
        raise ConfigError('ADK\'s dev UI sends no keys: it is served with server.auth = "none" only')
    if settings.oidc:
        from lango.server.security import oidc  # raises where its package is missing

        oidc.check_addresses(settings.oidc)
        return
    if is_loopback(settings.host):
        return
    if settings.auth == "none":
        raise ConfigError(
            f"without keys, the server listens on this machine only, not on {settings.host}: "
            'create a key with `lango keys add --user NAME` and set server.auth = "keys", or use --host 127.0.0.1'
        )
    if not any(key.revoked_at is None for key in await keys.list()):
        raise ConfigError(
            f"other machines can reach {settings.host}, but there is no API key yet: create one with `lango keys add`"
        )


def return_large_blocks() -> None:
    """Let glibc return large freed blocks to the system at once.

    By default, it keeps them in the heap as soon as one was freed: after many requests of ten megabytes, a server would
    stay at twice the memory.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON of a record."""
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= current_trace_ids()
        fields |= {name: getattr(record, name) for name in _EXTRA_FIELDS if hasattr(record, name)}
        if text := _exception_text(self, record):
            fields["exception"] = text
        return json.dumps(fields)


class LineLogFormatter(logging.Formatter):
    """Formats a record as one line without control characters, and its traceback as indented lines below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record. A text from outside can neither begin another one nor control a terminal."""
        record.message, record.asctime = record.getMessage(), self.formatTime(record)
        line = printable_line(self.formatMessage(record))
        text = _exception_text(self, record)
        return f"{line}\n{indent(printable(text), '    ', lambda _: True)}" if text else line


def _exception_text(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text is None and record.exc_info:
        return redact_secrets(formatter.formatException(record.exc_info))
    return record.exc_text or ""


def configure_logging(log_format: str, level: str = "info") -> None:
    """Log to standard error. ADK's own log would repeat whole requests and responses, so it is off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if log_format == "json" else LineLogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("lango").setLevel(level.upper())
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    for name in ("a2a.server.routes.jsonrpc_dispatcher", "a2a.utils.error_handlers"):
        logging.getLogger(name).addFilter(_is_server_fault)


def _is_server_fault(record: logging.LogRecord) -> bool:
    """Whether a record of A2A's SDK is about the server: it logs each wrong request, some with tracebacks."""
    return record.levelno >= logging.ERROR and not record.getMessage().startswith("Failed to ")
