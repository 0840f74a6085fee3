"""Decide whether the process that holds leases is still alive: the only place that does.

Its heartbeat decides: if it does not grow for long enough, by our own monotonic clock, the owner is gone, whether it is
dead, suspended or cut off. A process of this machine that no longer exists is gone at once, and so is one that released
what it held. This process itself is alive, however long it could not send heartbeats.
"""

import functools
import os
import socket
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

GONE_AFTER_S = 4.0
SUSPENDED_AFTER_S = 15.0
"""How long a process of this machine that still exists may send no heartbeat: it is suspended, or very busy."""
_MAX_TRACKED = 1_000

_live_tokens: set[str] = set()

OwnerIsGone = Callable[[str, int], bool]
"""Whether an owner is gone: takes its name and its heartbeat."""


class Owner:
    """The identity of a runtime, which owns the turns that it runs or has queued."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self.name = "|".join([_machine_id(), str(os.getpid()), _process_started(os.getpid()), self._token])
        _live_tokens.add(self._token)

    def release(self) -> None:
        """Mark this runtime as gone."""
        _live_tokens.discard(self._token)


class LivenessMonitor:
    """Decides which owners are gone, from the heartbeats that it has seen."""

    def __init__(
        self,
        gone_after_s: float = GONE_AFTER_S,
        suspended_after_s: float = SUSPENDED_AFTER_S,
        *,
        back_at: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`back_at` returns when the database last came back: before that, no process could send heartbeats."""
        self._gone_after_s = gone_after_s
        self._suspended_after_s = suspended_after_s
        self._back_at = back_at
        self._last_heartbeats: dict[str, tuple[int, float]] = {}

    def is_gone(self, owner: str, heartbeat: int) -> bool:
        """Whether an owner is gone: dead, or without a heartbeat for too long. A released turn has no owner."""
        standing = standing_of_owner(owner)
        if standing in ("gone", "own"):
            return standing == "gone"
        last, since = self._last_heartbeats.get(owner, (None, 0.0))
        if last != heartbeat:
            self._drop_stale()
            self._last_heartbeats[owner] = (heartbeat, time.monotonic())
            return False
        limit_s = self._suspended_after_s if standing == "exists" else self._gone_after_s
        return time.monotonic() - max(since, self._back_at()) > limit_s

    def forget_others(self, owners: Collection[str]) -> None:
        """Forget all but some owners, those that hold something: the others send no heartbeats until they do again."""
        self._last_heartbeats = {owner: last for owner, last in self._last_heartbeats.items() if owner in owners}

    def _drop_stale(self) -> None:
        """Forget owners whose heartbeat has not grown for a long time."""
        if len(self._last_heartbeats) < _MAX_TRACKED:
            return
        since = time.monotonic() - 10 * self._gone_after_s
        self._last_heartbeats = {owner: last for owner, last in self._last_heartbeats.items() if last[1] > since}


def standing_of_owner(owner: str) -> Literal["own", "gone", "exists", "unknown"]:
    """Return what this machine knows of an owner: if it exists or is not known here, its heartbeat decides."""
    if not owner:
        return "gone"  # it was released
    machine, pid, started, token = [*owner.split("|"), "", "", "", ""][:4]
    if machine != _machine_id() or not pid.isdigit():
        return "unknown"
    if int(pid) == os.getpid() and started == _process_started(os.getpid()):
        return "own" if token in _live_tokens else "gone"
    return "exists" if _process_exists(int(pid)) and _process_started(int(pid)) == started else "gone"


def place_of_owner(owner: str) -> str:
    """Return the machine and the process of an owner, for people."""
    machine, pid, *_ = [*owner.split("|"), ""]
    return f"{machine.partition('/')[0]}, process {pid}"


@functools.cache
def _machine_id() -> str:
    """Identify where process ids are valid: two containers may have the same host name, and different processes."""
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
    """Return the start time of a process, if the system has it: pids are reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "dead" if fields[0] == "Z" else fields[19]
