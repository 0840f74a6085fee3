"""Open the database that a URL names."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lango.errors import StoreUrlError
from lango.store.engine.outages import DEFAULT_WAIT_S
from lango.store.engine.postgres.postgres_database import PostgresDatabase
from lango.store.engine.schema import Migrations
from lango.store.engine.sqlite.sqlite_database import MEMORY, SqliteDatabase

Database = SqliteDatabase | PostgresDatabase
"""A database that can be used from any task, thread and event loop."""
_SCHEMES = "sqlite:///file.db or postgresql://user@host/database"


def open_database(url: str, *, wait_s: float = DEFAULT_WAIT_S, migrations: Migrations | None = None) -> Database:
    """Return the database of a URL, which is opened at its first use; a turn waits `wait_s` for it."""
    text = url.removeprefix("lango+")
    redacted = _redact_password(url)
    try:
        parts = urlsplit(text)
    except ValueError:  # its message may contain the password
        raise StoreUrlError(f"the store's URL {redacted!r} cannot be read; use {_SCHEMES}") from None
    match parts.scheme:
        case "sqlite":
            path = _sqlite_path(redacted, parts.netloc, unquote(parts.path))
            return SqliteDatabase(path, wait_s=wait_s, migrations=migrations)
        case "postgresql" | "postgres":
            return PostgresDatabase(text, wait_s=wait_s, migrations=migrations)
        case _:
            raise StoreUrlError(f"the store's URL {redacted!r} has an unknown scheme; use {_SCHEMES}")


def store_files(url: str) -> list[Path]:
    """Return the files of a SQLite store, its log and lock files included; none for PostgreSQL."""
    try:
        parts = urlsplit(url.removeprefix("lango+"))
    except ValueError:
        return []
    path = unquote(parts.path).removeprefix("/")
    if parts.scheme != "sqlite" or not path or path == MEMORY:
        return []
    return [Path(path + beside).absolute() for beside in ("", "-wal", "-shm", "-journal")]


def _sqlite_path(redacted: str, host_part: str, path: str) -> str:
    if host_part:
        host = host_part.rpartition("@")[2]
        raise StoreUrlError(
            f"the store's URL {redacted!r} contains a host: write a relative path as sqlite:///{host}{path}"
        )
    # sqlite:///a.db is relative, sqlite:////a.db absolute, as in SQLAlchemy
    return path.removeprefix("/") or MEMORY


def _redact_password(url: str) -> str:
    """Return the URL without user, password, and everything after a `?` or `=`."""
    head, at, tail = url.rpartition("@")
    shown = f"...{at}{tail}" if at and ":" in head else url
    bare = re.split(r"[?=]", shown, maxsplit=1)[0]
    return shown if bare == shown else f"{bare}..."
