"""Walk folders and open files so that exchanged names cannot redirect them.

A file is opened without its content (`O_PATH`), checked, and then opened for reading through the same descriptor. That
also protects SQLite's files: opening and closing one of them for reading would drop SQLite's locks on it in this
process.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from lango.errors import ToolError

FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
MAX_FOLDER_DEPTH = 200
"""The depth to which folders are walked: each of them stays open during the walk."""
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_BY_NUMBER = "/proc/self/fd"
_O_PATH = getattr(os, "O_PATH", 0) if Path(_BY_NUMBER).is_dir() else 0
_SPECIAL = stat.S_ISUID | stat.S_ISGID

Check = Callable[[os.stat_result], None]


def open_checked(name: str, within: int, check: Check) -> BinaryIO:
    """Open a file of a folder for reading, after `check` accepted its status; it raises to reject the file."""
    if not _O_PATH:
        return _open_and_compare(name, within, check)
    descriptor = os.open(name, _O_PATH | NO_LINKS, dir_fd=within)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, "it is a symbolic link")
        check(status)
        # O_NONBLOCK: opening a pipe without a writer would block forever
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.fdopen(os.open(f"{_BY_NUMBER}/{descriptor}", flags), "rb")
    finally:
        os.close(descriptor)


def _open_and_compare(name: str, within: int, check: Check) -> BinaryIO:
    """Check a file by its name, open it, and raise if it is not the file that was checked."""
    status = os.stat(name, dir_fd=within, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link")
    check(status)
    file = os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK | NO_LINKS, dir_fd=within), "rb")
    if not os.path.samestat(status, os.fstat(file.fileno())):
        file.close()
        raise ToolError("it was replaced while being opened: try again")
    return file


class Folder(Struct):
    """A folder of a walk, open."""

    path: str
    """From the root; empty for the root itself."""
    descriptor: int
    entries: list["os.DirEntry[str]"]
    too_deep: bool = False
    """Its folders are not walked."""
    skip: set[str] = set()
    """Names that are not walked; the caller adds to it."""

    def path_of(self, entry: "os.DirEntry[str]") -> str:
        """Return the path of an entry from the root."""
        return f"{self.path}/{entry.name}" if self.path else entry.name


def folders(root: Path) -> Generator[Folder]:
    """Walk a folder and all its subfolders, each opened relative to its parent and never through a link."""
    opened = os.open(root, FOLDER)
    try:
        yield from folders_below(opened)
    finally:
        os.close(opened)


def folders_below(descriptor: int, path: str = "", max_depth: int = MAX_FOLDER_DEPTH) -> Iterator[Folder]:
    """Walk an open folder like `folders`; `path` is its path from the root."""
    entries: Any
    with os.scandir(descriptor) as entries:
        by_name: list[os.DirEntry[str]] = sorted(entries, key=lambda entry: entry.name)
    folder = Folder(path, descriptor, by_name, too_deep=max_depth <= 0)
    yield folder
    for entry in () if folder.too_deep else folder.entries:
        if entry.name in folder.skip or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):  # not readable, or replaced in between
            inner = os.open(entry.name, FOLDER, dir_fd=descriptor)
            try:
                yield from folders_below(inner, folder.path_of(entry), max_depth - 1)
            finally:
                os.close(inner)


def drop_setuid(root: Path, since: float) -> None:
    """Clear the setuid and setgid bits of files changed since a time: a command must not leave any.

    Folders that are nested too deeply to be walked are closed to other users.
    """
    for folder in folders(root):
        if folder.too_deep:
            os.fchmod(folder.descriptor, 0o700)
        for entry in folder.entries:
            with suppress(OSError):  # deleted in between
                if _is_special(entry.stat(follow_symlinks=False), since):
                    _drop(entry.name, folder.descriptor, since)


def _is_special(status: os.stat_result, since: float) -> bool:
    return bool(status.st_mode & _SPECIAL) and stat.S_ISREG(status.st_mode) and status.st_ctime >= since


def _drop(name: str, within: int, since: float) -> None:
    if not _O_PATH:
        mode = os.stat(name, dir_fd=within, follow_symlinks=False).st_mode
        os.chmod(name, stat.S_IMODE(mode) & ~_SPECIAL, dir_fd=within, follow_symlinks=False)
        return
    descriptor = os.open(name, _O_PATH | NO_LINKS, dir_fd=within)
    try:
        status = os.fstat(descriptor)
        if _is_special(status, since):  # still: the name may denote another file by now
            mode = stat.S_IMODE(status.st_mode) & ~_SPECIAL
            os.chmod(f"{_BY_NUMBER}/{descriptor}", mode)  # noqa: PTH101 - a descriptor
    finally:
        os.close(descriptor)
