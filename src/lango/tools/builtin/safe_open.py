"""Files by what they are, not by where they lie: walks and opens that no swap of names can lead elsewhere.

A place is opened without its content (`O_PATH`), looked at, and only then opened for reading, through the same
descriptor. That also leaves SQLite's files alone: to open and close one of those for reading would drop the locks that
SQLite holds on it in this process.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field

from lango.errors import ToolError

FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
DEEPEST = 200
"""How deeply folders are walked: each of them is open meanwhile."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_BY_NUMBER = "/proc/self/fd"
_O_PATH = getattr(os, "O_PATH", 0) if Path(_BY_NUMBER).is_dir() else 0
_SPECIAL = stat.S_ISUID | stat.S_ISGID

Check = Callable[[os.stat_result], None]


def open_checked(name: str, within: int, check: Check) -> BinaryIO:
    """Open a file of a folder for reading, after a check of what it is. The check raises to refuse it."""
    if not _O_PATH:
        return _open_and_compare(name, within, check)
    place = os.open(name, _O_PATH | _NO_LINKS, dir_fd=within)
    try:
        facts = os.fstat(place)
        if stat.S_ISLNK(facts.st_mode):
            raise OSError(errno.ELOOP, "it is a symbolic link")
        check(facts)
        # O_NONBLOCK: to open a pipe that nobody writes to would wait for ever
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.fdopen(os.open(f"{_BY_NUMBER}/{place}", flags), "rb")
    finally:
        os.close(place)


def _open_and_compare(name: str, within: int, check: Check) -> BinaryIO:
    """Check a file by its name, open it, and refuse it where it is not the one that was checked."""
    facts = os.stat(name, dir_fd=within, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link")
    check(facts)
    file = os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINKS, dir_fd=within), "rb")
    if not os.path.samestat(facts, os.fstat(file.fileno())):
        file.close()
        raise ToolError("it was replaced while it was opened: try again")
    return file


class Folder(Struct):
    """A folder that a walk has open."""

    path: str
    """From the root; empty for the root itself."""
    descriptor: int
    entries: list["os.DirEntry[str]"]
    too_deep: bool = False
    """Its folders are not walked."""
    skip: set[str] = field(default_factory=set[str])
    """Names that are not walked; whoever walks adds to it."""


def folders(root: Path) -> Generator[Folder]:
    """Walk a folder and all below, each opened from the one above and never through a link."""
    opened = os.open(root, FOLDER)
    try:
        yield from _below(opened, "", 0)
    finally:
        os.close(opened)


def _below(descriptor: int, path: str, depth: int) -> Iterator[Folder]:
    entries: Any
    with os.scandir(descriptor) as entries:
        folder = Folder(path, descriptor, list(entries), too_deep=depth >= DEEPEST)
    yield folder
    for entry in () if folder.too_deep else folder.entries:
        if entry.name in folder.skip or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):  # not ours to read, or no folder any more
            inner = os.open(entry.name, FOLDER, dir_fd=descriptor)
            try:
                yield from _below(inner, f"{path}/{entry.name}" if path else entry.name, depth + 1)
            finally:
                os.close(inner)


def drop_setuid(root: Path, since: float) -> None:
    """Take the setuid and setgid bits off files that changed since then: a command must not leave them behind.

    What is nested too deeply to be looked at is closed to other users.
    """
    for folder in folders(root):
        if folder.too_deep:
            os.fchmod(folder.descriptor, 0o700)
        for entry in folder.entries:
            with suppress(OSError):  # gone meanwhile
                if _is_special(entry.stat(follow_symlinks=False), since):
                    _drop(entry.name, folder.descriptor, since)


def _is_special(facts: os.stat_result, since: float) -> bool:
    return bool(facts.st_mode & _SPECIAL) and stat.S_ISREG(facts.st_mode) and facts.st_ctime >= since


def _drop(name: str, within: int, since: float) -> None:
    if not _O_PATH:
        mode = os.stat(name, dir_fd=within, follow_symlinks=False).st_mode
        os.chmod(name, stat.S_IMODE(mode) & ~_SPECIAL, dir_fd=within, follow_symlinks=False)
        return
    place = os.open(name, _O_PATH | _NO_LINKS, dir_fd=within)
    try:
        facts = os.fstat(place)
        if _is_special(facts, since):  # still: the name may lead to another file by now
            os.chmod(f"{_BY_NUMBER}/{place}", stat.S_IMODE(facts.st_mode) & ~_SPECIAL)  # noqa: PTH101 - a descriptor
    finally:
        os.close(place)
