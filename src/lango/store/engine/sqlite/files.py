"""Create a SQLite file with private permissions, and detect that it was deleted, replaced or overwritten.

SQLite continues to write to an open file that was deleted or replaced, and loses these writes when it is closed. So
each write first checks that the path still leads to the file that was opened.
"""

import os
from pathlib import Path
from typing import Any

import apsw

from lango.errors import StoreDamaged, StoreUnavailable, StoreUrlError

_PRIVATE_MODE = 0o600
_MAGIC = b"SQLite format 3\0"
STORE_ID_AT = 68  # offset in the first page of a database: SQLite's application id
LOG_HEADER, LOG_FRAME = 32, 24  # bytes before a log, and before each page in it
FileId = tuple[int, int]
"""The device and inode of a file: another file at the same path has others."""


def check_path(path: Path) -> None:
    """Raise `StoreUrlError` for a path that cannot be a database, before anything is created."""
    folder = path.parent
    if path.is_dir():
        raise StoreUrlError(f"{path} is a folder; name a file in it, such as sqlite:///{path}/lango.db")
    if not folder.is_dir():
        raise StoreUrlError(f"the folder {folder} does not exist: create it, or use another path for the store")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise StoreUrlError(
            f"no permission to write to the folder {folder}: change its permissions, or use another path"
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUrlError(f"no permission to read and write {path}: change its permissions, or use another path")


def is_read_only(path: str) -> bool:
    """Whether the file exists and is read-only for this process."""
    return os.access(path, os.R_OK) and not os.access(path, os.W_OK)


def create_private_file(path: Path) -> None:
    """Create the file, readable by this user alone; SQLite gives its log and lock files the same permissions."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE_MODE))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUrlError(
            f"{path} cannot be created ({error.strerror}): change the permissions of its folder, or use another path"
        ) from error


def file_id(path: str) -> FileId:
    """Return the file that a path leads to now. Raise `StoreUnavailable` if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called before every write
    except OSError as error:
        raise StoreUnavailable(f"{Path(path).name} was deleted while it was in use: {_ADVICE}") from error
    return status.st_dev, status.st_ino


_ADVICE = "writes have stopped; put the file back, or restart to use the current one"


def read_store_id(path: str) -> int:
    """Read the store's number from the header of the file itself, without the log or a cache.

    Through SQLite's own file: closing one that Python opened would drop the locks that SQLite holds in this process.
    And not as a database: where another connection writes its log into the file just now, the header is ahead of the
    rest, and SQLite would take that for damage.
    """
    opened: Any = apsw.VFSFile(
        "", str(Path(path).absolute()), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0]
    )
    try:
        header: bytes = opened.xRead(STORE_ID_AT + 4, 0)
    finally:
        opened.xClose()
    if header and not header.startswith(_MAGIC):
        raise apsw.NotADBError("file is not a database")
    return int.from_bytes(header[STORE_ID_AT:].ljust(4, b"\0"), "big", signed=True)


def check_not_overwritten(path: str, wanted: int) -> None:
    """Raise `StoreUnavailable` if the opened file was overwritten with another database, or emptied."""
    if read_store_id(path) != wanted:
        raise StoreUnavailable(f"{Path(path).name} was overwritten while it was in use: {_ADVICE}")


def check_log_size(path: str, frames: int, page_bytes: int) -> None:
    """Raise `StoreDamaged` if the log of an open database was truncated by another program."""
    size = Path(f"{path}-wal").stat().st_size
    if size < LOG_HEADER + frames * (LOG_FRAME + page_bytes) and frames:
        raise StoreDamaged(f"{Path(path).name}-wal was truncated while it was in use: restore it from a backup")


class OpenedFiles:
    """The file and the log of a database as they were when it was opened."""

    def __init__(self, path: str, store_id: int) -> None:
        self.store_id = store_id
        self._file = path, file_id(path)
        self._log = f"{path}-wal", file_id(f"{path}-wal")

    def check(self, *, with_log: bool) -> None:
        """Raise `StoreUnavailable` if one of them was deleted or replaced: writes to it would be lost.

        `with_log`: the caller holds the database open; closing it deletes its log.
        """
        for path, opened in (self._file, self._log) if with_log else (self._file,):
            if file_id(path) != opened:
                raise StoreUnavailable(f"{Path(path).name} was replaced by another file while it was in use: {_ADVICE}")
