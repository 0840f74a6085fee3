"""Who runs a turn, and whether it still lives.

The heartbeat of a turn decides: one that does not grow for long enough, by our own steady clock, has lost its owner,
whether that process is dead, stopped or cut off. Of a process of this machine that does not exist any more, this is
known at once; and this process itself lives, however long it was kept from its heartbeats.
"""

import functools
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

GONE_AFTER_S = 15.0
_MOST_SEEN = 1_000

_here: set[str] = set()

IsGone = Callable[[int, int, str, int], bool]
"""Whether the process of a turn is gone: the session's key, the turn, its owner, its beat."""


class Owner:
    """One runtime of one process."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self.name = "|".join([_machine(), str(os.getpid()), _started(os.getpid()), self._token])
        _here.add(self._token)

    def leave(self) -> None:
        """Say that this runtime runs nothing any more."""
        _here.discard(self._token)


class Watch:
    """Tells who is gone, from what it has seen itself."""

    def __init__(self, gone_after_s: float = GONE_AFTER_S, *, back_at: Callable[[], float] = lambda: 0.0) -> None:
        """`back_at`: when the database came back after it was away. Nobody could beat until then."""
        self._gone_after_s = gone_after_s
        self._back_at = back_at
        self._seen: dict[tuple[int, int], tuple[int, float]] = {}

    def is_gone(self, session_key: int, turn: int, owner: str, beat: int) -> bool:
        """Whether the process that owns a turn is gone: dead, or without a heartbeat for too long."""
        known = _is_gone_here(owner)
        if known is not None:
            return known
        last, since = self._seen.get((session_key, turn), (-1, 0.0))
        if last != beat:
            self._forget_old()
            self._seen[session_key, turn] = (beat, time.monotonic())
            return False
        return time.monotonic() - max(since, self._back_at()) > self._gone_after_s

    def _forget_old(self) -> None:
        """Turns that nobody asked about for long are over: what was seen of them is not kept for ever."""
        if len(self._seen) < _MOST_SEEN:
            return
        since = time.monotonic() - 10 * self._gone_after_s
        self._seen = {place: seen for place, seen in self._seen.items() if seen[1] > since}


def _is_gone_here(owner: str) -> bool | None:
    """Whether an owner is known to be gone, or is of this process and not; None: its heartbeat decides."""
    machine, pid, started, token = [*owner.split("|"), "", "", "", ""][:4]
    if machine != _machine() or not pid.isdigit():
        return None
    if int(pid) == os.getpid() and started == _started(os.getpid()):
        return token not in _here
    return True if not _exists(int(pid)) or _started(int(pid)) != started else None


@functools.cache
def _machine() -> str:
    """Where this process's number means something: two containers may have the same name and other processes."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text().strip() if boot.exists() else ""
    try:
        numbers = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        numbers = ""
    return f"{socket.gethostname()}/{started}/{numbers}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str:
    """When a process was started, where the system says it: pids are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "dead" if fields[0] == "Z" else fields[19]
