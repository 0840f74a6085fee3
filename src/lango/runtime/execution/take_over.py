"""Find turns whose process is gone, and take them over.

A tool can stop the event loop or end the process, and each process that resumes its turn dies, too. The tool journal
shows which turns had a step under way: these are suspects, and if there is none, all turns of the process are. The
others are resumed first and at once; the suspects follow one by one, so that at the next death fewer can have been the
cause. An attempt is charged only to a turn that alone can have been it.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from msgspec import Struct, field

from lango.config import AgentSettings
from lango.errors import StoreError
from lango.runtime.execution.replicas import Replicas
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.outages import wait_for_database
from lango.store.sessions.sessions import find_session
from lango.store.turns.lease import (
    CrashedTurn,
    Orphan,
    ResumeReason,
    TakenOver,
    any_open,
    forget_owner,
    read_crashed_turns,
    read_orphans,
    take_over,
)
from lango.turns.liveness import LivenessMonitor

POLL_S = 0.25
_AT_ONCE = 8
"""How many turns are taken over side by side."""
_FIRST_WINDOW_S = 0.5
_WINDOW_S = 60.0
"""How long a suspect is alone at most: after its first death it may well be innocent, later it has to be proven."""
_WAIT_FOR_OTHERS_S = 5.0
_LISTEN_AGAIN_S = 30.0
"""After how long without a released turn the store is watched again: the connection that listens may be lost."""
_SUSPICIONS_PER_ATTEMPT = 2
"""A turn that was suspected this often for each allowed attempt is charged, even if others are suspected, too."""
_log = logging.getLogger("lango.runtime")

Place = tuple[int, int]
"""The session and the number of a turn."""

Resume = Callable[[SessionId, TakenOver, ResumeReason, float], Awaitable["asyncio.Task[Any] | None"]]
"""Starts the run of a turn that was taken over, and returns its task, or None if the turn is not run. The last argument
is the loop's time when its owner was found gone."""


class Crash(Struct):
    """The death of a process, and the turns that it ran."""

    detected_at: float
    """By the clock of the event loop."""
    suspects: Mapping[Place, CrashedTurn]
    bystanders: Sequence[CrashedTurn]
    charged: frozenset[Place] = field(default_factory=frozenset[Place])

    def is_charged(self, place: Place) -> bool | None:
        """Return whether a suspect is charged an attempt, or None if the turn is a bystander."""
        return place in self.charged if place in self.suspects else None

    def delay_s(self, place: Place, retry_delay_s: float) -> float:
        """Return how long after the death a suspect is resumed: later each time."""
        suspicions = self.suspects[place].suspicions
        return retry_delay_s * 2 ** (suspicions - 1) if suspicions else 0.0

    def window_s(self, place: Place) -> float:
        """Return how long the next suspect waits for this one."""
        return _WINDOW_S if self.suspects[place].suspicions else _FIRST_WINDOW_S

    def waits_for_bystanders(self, place: Place, now: float) -> bool:
        """Whether a suspect still waits until the bystanders have ended."""
        return bool(self.bystanders) and now < self.detected_at + max(_WAIT_FOR_OTHERS_S, self.window_s(place))


def judge_crash(turns: Sequence[CrashedTurn], detected_at: float, max_attempts: int) -> Crash:
    """Decide which of the turns of a dead process are suspects, and which one is charged an attempt."""
    with_steps = [turn for turn in turns if turn.steps]
    candidates = with_steps or turns
    most = max((turn.suspicions for turn in candidates), default=0)
    # one that was suspected more often than the others was alone with new turns, and is the cause
    prime = [turn for turn in candidates if turn.suspicions == most]
    is_over = most + 1 >= max_attempts * _SUSPICIONS_PER_ATTEMPT
    suspects = {(turn.session_key, turn.turn): turn for turn in prime}
    return Crash(
        detected_at,
        suspects,
        [turn for turn in turns if (turn.session_key, turn.turn) not in suspects],
        frozenset(suspects) if len(prime) == 1 or is_over else frozenset(),
    )


class TakeOverLoop:
    """Takes over the open turns of an app whose owners are gone, from the start of a runtime to its end."""

    def __init__(
        self,
        store: Store,
        app_name: str,
        owner: str,
        liveness: LivenessMonitor,
        replicas: Replicas,
        agent: AgentSettings,
        resume: Resume,
        is_wanted: Callable[[int], bool],
    ) -> None:
        """`is_wanted` returns whether the turns of a session, given by its key, are taken over by this runtime."""
        self._store = store
        self._app_name = app_name
        self._owner = owner
        self._liveness = liveness
        self._replicas = replicas
        self._version = replicas.version
        self._agent = agent
        self._crashes: dict[str, Crash] = {}
        self._suspect: asyncio.Task[Any] | None = None
        self._suspect_until = 0.0
        """Until when no other suspect is resumed, unless this one has ended."""
        self._resume = resume
        self._is_wanted = is_wanted
        self._is_due = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.stopping = False
        """Nothing more is taken over: the process stops."""

    def check_soon(self) -> None:
        """Check now: an owner may be gone."""
        self._is_due.set()

    async def run(self) -> None:
        """Take over turns as long as the runtime is open."""
        while not self.stopping:
            self._is_due.clear()  # before the store is read: what is released from now on is looked for once more
            try:
                await self._take_over_orphans()
            except StoreError as error:
                self._store.outages.warn(f"turns of other processes could not be checked: {error}")
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._is_due.wait()

    async def watch_releases(self) -> None:
        """Check as soon as a process releases a turn."""
        while not self.stopping:
            async with self._store.watch_releases() as wait_for_release:
                while await wait_for_release(_LISTEN_AGAIN_S):
                    self.check_soon()

    async def _take_over_orphans(self) -> None:
        found = await self._store.read(read_orphans, self._app_name, self._owner)
        orphans = [orphan for orphan in found if self._is_wanted(orphan.session_key)]
        # of each owner, even behind a live one: each call notes the owner's heartbeat
        gone = {
            orphan.open_turn.owner: self._liveness.is_gone(orphan.open_turn.owner, orphan.open_turn.heartbeat)
            for orphan in orphans
        }
        # an idle owner is silent: its next turn is stored before its next heartbeat
        self._liveness.forget_others(gone)
        abandoned = await self._without_turns_of_other_versions(
            [orphan for orphan in orphans if gone[orphan.open_turn.owner]]
        )
        if abandoned and self._store.outages.is_away:
            await self._store.write(forget_owner, "")  # any write: once one succeeds, silence counts from then on
            return
        await self._judge_crashes({owner for owner, is_gone in gone.items() if is_gone and owner})
        suspects = [orphan for orphan in abandoned if self._is_suspect(orphan)]
        others = [orphan for orphan in abandoned if not self._is_suspect(orphan)]
        sessions = {key: list(turns) for key, turns in groupby(others, lambda orphan: orphan.session_key)}
        if sessions:
            detected_at = asyncio.get_running_loop().time()
            order = order_of_owner(self._owner, sessions)
            await asyncio.gather(*(self._take_over_session(sessions[key], detected_at) for key in order))
        await self._take_over_suspects(suspects)
        for owner in (owner for owner, is_gone in gone.items() if is_gone and owner):
            await self._store.write(forget_owner, owner)

    async def _without_turns_of_other_versions(self, abandoned: list[Orphan]) -> list[Orphan]:
        """Leave out the turns of another version of the app while a replica of that version lives: it takes them."""
        if all(orphan.version in ("", self._version) for orphan in abandoned):
            return abandoned
        elsewhere = await self._replicas.versions_elsewhere() - {self._version}
        return [orphan for orphan in abandoned if orphan.version not in elsewhere]

    async def _judge_crashes(self, gone: set[str]) -> None:
        """Find the suspects among the turns of each owner that is gone: once, before any of them is taken over."""
        self._crashes = {owner: crash for owner, crash in self._crashes.items() if owner in gone}
        for owner in gone - self._crashes.keys() if self._agent.on_crash == "resume" else ():
            now = asyncio.get_running_loop().time()
            crashed = await self._store.read(read_crashed_turns, owner)
            crash = self._crashes[owner] = judge_crash(crashed, now, self._agent.max_attempts)
            for suspect in crash.suspects.values():
                if suspect.steps and len(crashed) > 1:
                    names = ", ".join(sorted(set(suspect.steps)))
                    _log.warning("a process with %d turns died while %s was running", len(crashed), names)

    def _is_suspect(self, orphan: Orphan) -> bool:
        crash = self._crashes.get(orphan.open_turn.owner)
        return crash is not None and orphan.open_turn.status == "running" and _place(orphan) in crash.suspects

    async def _take_over_suspects(self, orphans: Sequence[Orphan]) -> None:
        """Take over one turn that may have made its process die, after the others of the process have ended.

        The next one follows when it has ended, or has run long enough.
        """
        loop = asyncio.get_running_loop()
        for orphan in sorted(orphans, key=lambda one: self._crash_of(one).suspects[_place(one)].suspicions):
            crash, place = self._crash_of(orphan), _place(orphan)
            if self._suspect is not None and not self._suspect.done() and loop.time() < self._suspect_until:
                return
            if self.stopping or loop.time() < crash.detected_at + crash.delay_s(place, self._agent.retry_delay_s):
                continue
            if crash.waits_for_bystanders(place, loop.time()) and await self._store.read(any_open, crash.bystanders):
                continue
            self._suspect = await self._take_over(orphan, crash.detected_at)
            self._suspect_until = loop.time() + crash.window_s(place)

    def _crash_of(self, orphan: Orphan) -> Crash:
        return self._crashes[orphan.open_turn.owner]

    async def _take_over_session(self, orphans: Sequence[Orphan], detected_at: float) -> None:
        """Take over the turns of one session, in order; those of different sessions side by side."""
        for orphan in orphans:
            async with self._slots:
                if not self.stopping:
                    await self._take_over(orphan, detected_at)

    async def _take_over(self, orphan: Orphan, detected_at: float) -> "asyncio.Task[Any] | None":
        open_turn, name = orphan.open_turn, SessionId(self._app_name, orphan.user_id, orphan.session_id)
        if self._agent.on_crash == "stop" and open_turn.owner:
            session = await self._store.read(find_session, name)
            if session is not None and await self._store.interrupt_turn(session, open_turn):
                _log.warning("interrupted turn %s of session %s: its process is gone", open_turn.turn, name.id)
            return None
        reason: ResumeReason = "crash" if open_turn.owner else "handover"
        is_charged = self._crash_of(orphan).is_charged(_place(orphan)) if self._is_suspect(orphan) else None
        place = orphan.session_key, open_turn, self._owner, reason
        with wait_for_database("none"):  # after an outage its owner may be there again
            taken = await self._store.write(take_over, *place, time.time(), is_charged)
        if taken is None:
            return None
        _log.info("took over turn %s of session %s after a %s", open_turn.turn, name.id, reason)
        return await self._resume(name, taken, reason, detected_at)


def order_of_owner(owner: str, session_keys: Iterable[int]) -> list[int]:
    """Return sessions in an order of this owner's own: replicas share the turns, and do not wait for the same locks."""
    return sorted(session_keys, key=lambda key: zlib.crc32(f"{owner} {key}".encode()))


def _place(orphan: Orphan) -> Place:
    return orphan.session_key, orphan.open_turn.turn
