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
_MAX_TRACKED_TURNS = 1_000

_live_tokens: set[str] = set()

OwnerIsGone = Callable[[int, int, str, int], bool]
"""Whether the process of a turn is gone: the session's key, the turn, its owner, its beat."""


class Owner:
    """One runtime of one process."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self.name = "|".join([_machine_id(), str(os.getpid()), _process_started(os.getpid()), self._token])
        _live_tokens.add(self._token)

    def release(self) -> None:
        """Say that this runtime runs nothing any more."""
        _live_tokens.discard(self._token)


class LivenessMonitor:
    """Tells who is gone, from what it has seen itself."""

    def __init__(self, gone_after_s: float = GONE_AFTER_S, *, back_at: Callable[[], float] = lambda: 0.0) -> None:
        """`recovered_at`: when the database came back after it was away. Nobody could beat until then."""
        self._gone_after_s = gone_after_s
        self._back_at = back_at
        self._last_heartbeats: dict[tuple[int, int], tuple[int, float]] = {}

    def is_gone(self, session_key: int, turn: int, owner: str, heartbeat: int) -> bool:
        """Whether the process that owns a turn is gone: dead, or without a heartbeat for too long."""
        known = _known_locally(owner)
        if known is not None:
            return known
        last, since = self._last_heartbeats.get((session_key, turn), (-1, 0.0))
        if last != heartbeat:
            self._drop_stale()
            self._last_heartbeats[session_key, turn] = (heartbeat, time.monotonic())
            return False
        return time.monotonic() - max(since, self._back_at()) > self._gone_after_s

    def _drop_stale(self) -> None:
        """Turns that nobody asked about for long are over: what was seen of them is not kept for ever."""
        if len(self._last_heartbeats) < _MAX_TRACKED_TURNS:
            return
        since = time.monotonic() - 10 * self._gone_after_s
        self._last_heartbeats = {place: last for place, last in self._last_heartbeats.items() if last[1] > since}


def _known_locally(owner: str) -> bool | None:
    """Whether an owner is known to be gone, or is of this process and not; None: its heartbeat decides."""
    machine, pid, started, token = [*owner.split("|"), "", "", "", ""][:4]
    if machine != _machine_id() or not pid.isdigit():
        return None
    if int(pid) == os.getpid() and started == _process_started(os.getpid()):
        return token not in _live_tokens
    return True if not _process_exists(int(pid)) or _process_started(int(pid)) != started else None


@functools.cache
def _machine_id() -> str:
    """Where this process's number means something: two containers may have the same name and other processes."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text().strip() if boot.exists() else ""
    try:
        numbers = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        numbers = ""
    return f"{socket.gethostname()}/{started}/{numbers}"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _process_started(pid: int) -> str:
    """When a process was started, where the system says it: pids are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "dead" if fields[0] == "Z" else fields[19]
