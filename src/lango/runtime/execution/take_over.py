"""Find turns whose process is gone, and take them over."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Literal

from lango.errors import StoreError
from lango.store import SessionId, Store
from lango.store.engine.outages import do_not_wait_for_database
from lango.store.sessions.sessions import find_session
from lango.store.turns.lease import Orphan, ResumeReason, TakenOver, forget_owner, read_orphans, take_over
from lango.turns.liveness import OwnerIsGone
from lango.turns.synchronization import Notifier

POLL_S = 0.25
_AT_ONCE = 8
"""How many turns are taken over side by side."""
_log = logging.getLogger("lango.runtime")

Resume = Callable[[SessionId, TakenOver, ResumeReason, float], Awaitable[None]]
"""Runs a turn that was taken over to its end. The last argument is the loop's time when its owner was found gone."""


class TakeOverLoop:
    """Takes over the open turns of an app whose owners are gone, from the start of a runtime to its end."""

    def __init__(
        self,
        store: Store,
        app_name: str,
        owner: str,
        is_gone: OwnerIsGone,
        on_crash: Literal["resume", "stop"],
        resume: Resume,
        is_wanted: Callable[[int], bool],
    ) -> None:
        """`is_wanted` returns whether the turns of a session, given by its key, are taken over by this runtime."""
        self._store = store
        self._app_name = app_name
        self._owner = owner
        self._is_gone = is_gone
        self._on_crash = on_crash
        self._resume = resume
        self._is_wanted = is_wanted
        self._changed = Notifier()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.stopping = False
        """Nothing more is taken over: the process stops."""

    def check_soon(self) -> None:
        """Check now: an owner may be gone."""
        self._changed.notify()

    async def run(self) -> None:
        """Take over turns as long as the runtime is open."""
        while not self.stopping:
            try:
                await self._take_over_orphans()
            except StoreError as error:
                self._store.outages.warn(f"turns of other processes could not be checked: {error}")
            await self._changed.wait(POLL_S)

    async def _take_over_orphans(self) -> None:
        found = await self._store.read(read_orphans, self._app_name, self._owner)
        orphans = [orphan for orphan in found if self._is_wanted(orphan.session_key)]
        # of each owner, even behind a live one: each call records the owner's heartbeat
        gone = {
            orphan.open_turn.owner: self._is_gone(orphan.open_turn.owner, orphan.open_turn.heartbeat)
            for orphan in orphans
        }
        abandoned = [orphan for orphan in orphans if gone[orphan.open_turn.owner]]
        if abandoned and self._store.outages.is_away:
            await self._store.write(forget_owner, "")  # any write: once one succeeds, silence counts from then on
            return
        sessions = [list(turns) for _, turns in groupby(abandoned, lambda orphan: orphan.session_key)]
        if sessions:
            detected_at = asyncio.get_running_loop().time()
            await asyncio.gather(*(self._take_over_session(turns, detected_at) for turns in sessions))
        for owner in (owner for owner, is_gone in gone.items() if is_gone and owner):
            await self._store.write(forget_owner, owner)

    async def _take_over_session(self, orphans: Sequence[Orphan], detected_at: float) -> None:
        """Take over the turns of one session, in order; those of different sessions side by side."""
        for orphan in orphans:
            async with self._slots:
                if not self.stopping:
                    await self._take_over(orphan, detected_at)

    async def _take_over(self, orphan: Orphan, detected_at: float) -> None:
        open_turn, name = orphan.open_turn, SessionId(self._app_name, orphan.user_id, orphan.session_id)
        if self._on_crash == "stop" and open_turn.owner:
            session = await self._store.read(find_session, name)
            if session is not None and await self._store.interrupt_turn(session, open_turn):
                _log.warning("interrupted turn %s of session %s: its process is gone", open_turn.turn, name.id)
            return
        reason: ResumeReason = "crash" if open_turn.owner else "handover"
        with do_not_wait_for_database():  # after an outage its owner may be there again
            taken = await self._store.write(take_over, orphan.session_key, open_turn, self._owner, reason, time.time())
        if taken is not None:
            _log.info("took over turn %s of session %s after a %s", open_turn.turn, name.id, reason)
            await self._resume(name, taken, reason, detected_at)
