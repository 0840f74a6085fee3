"""Check, before SQLite opens its log (`-wal`), that the log still holds all commits.

SQLite takes the first broken frame for the end of its log, as after a power failure, without an error. If frames were
damaged later, or the log was truncated or replaced, commits are lost silently. So the log is read here first and
compared with three facts: it is synced at each commit, so a power failure can break only its last transaction; the
`-shm` file that a killed process leaves has the number of frames; and the first page of the database has the store's
number.
"""

import math
import os
import shutil
import struct
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from lango.errors import StoreDamaged
from lango.store.engine.sqlite_file import LOG_FRAME, LOG_HEADER, STORE_ID_AT, read_store_id

_MAGIC = (0x377F0682, 0x377F0683)  # the second: checksums of big-endian words
_INDEX_HEADER = 48
_INDEX_VERSION = 3_007_000
_MOST_BYTES = 128_000_000
"""The checksums of a larger log are not computed: that takes seconds."""
_TRIES = 5
_MASK = 0xFFFFFFFF
_USUAL_PAGE = 4096
_OTHERS = "belongs to another database"
_OTHERS_OR_OLD = "and the -shm file do not belong together: one is another database's, or an old copy"
_FOREIGN = (_OTHERS, _OTHERS_OR_OLD)

_open_here: Counter[str] = Counter()
_lock = threading.Lock()


class _Index(Struct, frozen=True):
    """The index of the log in the `-shm` file."""

    frames: int
    checkpointed: int
    salts: bytes
    since_boot: bool
    """It was written since the machine started, so no power failure has left an old one."""


class _Log(Struct):
    """The contents of a log."""

    head: bytes
    head_is_whole: bool = False
    whole: int = 0
    """Frames up to the last commit that SQLite will read."""
    lost_commits: int = 0
    """Commits of the same log after a broken frame."""
    numbers: frozenset[int] = frozenset()
    """The numbers of stores in first pages."""


@contextmanager
def checked_log(path: str) -> Generator[None]:
    """Check the log of a database that is opened in the block, unless this process has it open already.

    Raises `StoreDamaged`. The `-shm` file is never opened here while this process uses it: closing it would drop the
    locks that SQLite holds on it.
    """
    real = os.path.realpath(path)
    with _lock:
        if not _open_here[real]:
            check_log(path)
        _open_here[real] += 1
    try:
        yield
    except BaseException:
        leave_log(path)
        raise


def leave_log(path: str) -> None:
    """Record that this process has closed a database."""
    real = os.path.realpath(path)
    with _lock:
        _open_here[real] -= 1
        if _open_here[real] <= 0:
            del _open_here[real]


def check_log(path: str) -> None:
    """Raise `StoreDamaged` if the log has lost commits, or belongs to another database."""
    problem = problem_of(path)
    if problem is not None:
        name = Path(path).name
        raise StoreDamaged(
            f"{name}-wal {problem}. What was stored last would be lost without a word, so nothing is opened: restore "
            f"{name} from a backup and delete {name}-wal and {name}-shm, or go on without what is lost with "
            "`lango db accept-loss`"
        )


def problem_of(path: str) -> str | None:
    """Return what is wrong with the log of a closed database; None: nothing is known to be."""
    for _ in range(_TRIES):  # another process may be writing it
        try:
            index, log = _index(path), _read(path)
        except FileNotFoundError:  # another process has closed the database, which deletes its log
            continue
        problem = _problem(path, index, log)
        if problem is None or (_index(path) == index and _head(path) == log.head):
            return problem
    return None


def accept_loss(path: str) -> str | None:
    """Drop the unreadable part of a log; return what was wrong with the log, None if nothing was.

    The log is kept beside it, as `-wal.damaged`.
    """
    problem = problem_of(path)
    if problem is None:
        return None
    log = Path(f"{path}-wal")
    if log.exists():
        shutil.copy2(log, f"{log}.damaged")
        if problem in _FOREIGN:
            log.unlink()
    Path(f"{path}-shm").unlink(missing_ok=True)
    opened: Any = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    with closing(opened) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return problem


def _problem(path: str, index: _Index | None, log: _Log) -> str | None:
    if log.numbers and (number := read_store_id(path)) and log.numbers - {number}:
        return _OTHERS
    if index is not None and index.frames <= index.checkpointed:
        return None
    if index is not None:
        if len(log.head) < LOG_HEADER:
            return f"is missing or cut off: it had {index.frames} frames"
        if not log.head_is_whole or log.head[16:24] == index.salts:
            lost = log.whole < index.frames
            return f"is damaged or cut off: {log.whole} of {index.frames} frames can be read" if lost else None
        if index.since_boot:
            return _OTHERS_OR_OLD
    return f"is damaged in the middle, before {log.lost_commits} commits" if log.lost_commits > 1 else None


# -- the log ----------------------------------------------------------------------------------------------------------


def _head(path: str) -> bytes:
    try:
        with Path(f"{path}-wal").open("rb") as file:
            return file.read(LOG_HEADER)
    except FileNotFoundError:
        return b""


def _read(path: str) -> _Log:
    log = _Log(_head(path))
    if len(log.head) < LOG_HEADER:
        return log
    magic, _, page, *_ = struct.unpack(">8I", log.head)
    page = page if 512 <= page <= 65_536 and not page & (page - 1) else _USUAL_PAGE
    order = ">" if magic == _MAGIC[1] else "<"
    sums = _checksum(log.head[:24], (0, 0), order)
    log.head_is_whole = magic in _MAGIC and struct.pack(">2I", *sums) == log.head[24:]
    size = Path(f"{path}-wal").stat().st_size
    if size > _MOST_BYTES:
        log.whole = (size - LOG_HEADER) // (LOG_FRAME + page)
        return log
    salts, intact = log.head[16:24], log.head_is_whole
    numbers: set[int] = set()
    for count, (head, body) in enumerate(_frames(path, page), 1):
        place, committed = struct.unpack(">2I", head[:8])
        if intact:
            sums = _checksum(body, _checksum(head[:8], sums, order), order)
            intact = head[8:16] == salts and struct.pack(">2I", *sums) == head[16:]
        if not intact:
            # a header is synced before any frame; without it, the log of the frames is unknown
            log.lost_commits += committed > 0 and (head[8:16] == salts or not log.head_is_whole)
            continue
        if committed:
            log.whole = count
        if place == 1:
            numbers.add(struct.unpack_from(">I", body, STORE_ID_AT)[0])
    log.numbers = frozenset(numbers - {0})
    return log


def _frames(path: str, page: int) -> Iterator[tuple[bytes, bytes]]:
    with Path(f"{path}-wal").open("rb") as file:
        file.seek(LOG_HEADER)
        while len(frame := file.read(LOG_FRAME + page)) == LOG_FRAME + page:
            yield frame[:LOG_FRAME], frame[LOG_FRAME:]


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """Return SQLite's checksum of some bytes, continued from another."""
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, two in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


# -- the index of the log ---------------------------------------------------------------------------------------------


def _index(path: str) -> _Index | None:
    """Read the index that the last process left; None: there is none, or it is broken."""
    try:
        with Path(f"{path}-shm").open("rb") as file:
            data = file.read(2 * _INDEX_HEADER + 8)
            written_at = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    first, second = data[:_INDEX_HEADER], data[_INDEX_HEADER : 2 * _INDEX_HEADER]
    if len(data) < 2 * _INDEX_HEADER + 8 or first != second:
        return None
    version, ready, frames, *sums = struct.unpack("=I8xB3xI20x2I", first)
    if version != _INDEX_VERSION or not ready or _checksum(first[:40], (0, 0), "=") != tuple(sums):
        return None
    [checkpointed] = struct.unpack_from("=I", data, 2 * _INDEX_HEADER)
    return _Index(frames, checkpointed, first[32:40], written_at > _started_at())


def _started_at() -> float:
    """Return the time when this machine started; infinity if it is unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() - time.clock_gettime(clock) if clock is not None else math.inf
