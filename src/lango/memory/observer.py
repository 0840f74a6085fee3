"""Write observations for messages that are not observed yet, after the answer and under a lease per session."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from lango.config import MemorySettings
from lango.errors import NothingNoted
from lango.memory.notes import note_format, transcript
from lango.memory.notes.note_checks import check_notes, with_days_of_messages
from lango.memory.notes.note_format import MemoryModel, TokensUsed
from lango.memory.quote import observation_tokens
from lango.memory.reflector import condense_observations, may_save
from lango.memory.thresholds import MemoryThresholds
from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.memory.observations import Batch, SessionMemory, UnobservedMessages, find_floor, read_unobserved_of
from lango.store.memory.observer_lease import (
    ObserverLease,
    acquire_observer_lease,
    release_observer_lease,
    store_batch,
    take_over_observer_lease,
)
from lango.store.memory.user_facts import Fact, read_facts
from lango.turns.lease_holder import LeaseHolder
from lango.turns.liveness import OwnerIsGone

_log = logging.getLogger("lango.memory")

MAX_BATCHES = 10
"""Batches observed after one turn: a long session whose memory is new catches up over its next turns."""
FIRST_PAUSE_S = 30.0
MAX_PAUSE_S = 3_600.0
_KNOWN_FACTS = 50
_GROWTH_BEFORE_RETRY = 2


class Observer:
    """Observes sessions, each under a lease that only one process holds."""

    def __init__(
        self,
        store: Store,
        settings: MemorySettings,
        limits: MemoryThresholds,
        model: MemoryModel,
        leases: LeaseHolder,
        is_gone: OwnerIsGone,
    ) -> None:
        self._store = store
        self._settings = settings
        self._limits = limits
        self._model = model
        self._leases = leases
        self._owner = leases.owner.name
        self._is_gone = is_gone
        self._pauses: dict[SessionId, tuple[float, float]] = {}  # when each ends, and its length
        self._condense_at: dict[SessionId, int] = {}  # the size of notes that could not be condensed, and some more

    def use_model(self, model: MemoryModel, limits: MemoryThresholds) -> None:
        """Observe with another model, and its limits, from the next request on."""
        self._model = model
        self._limits = limits

    async def observe(self, name: SessionId) -> None:
        """Observe messages above the threshold, and condense observations above theirs.

        A failure is logged, and the session is observed again after a pause.
        """
        if self._pauses.get(name, (0.0, 0.0))[0] > time.monotonic():
            return
        try:
            found = await self._store.read(read_unobserved_of, name)
            if found is None or not self._is_due(name, found[1]):
                return
            async with self._lease(found[0]) as held:
                if held is not None:
                    await self._observe_batches(name, held)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - nothing waits for it, and a SystemExit would end the event loop
            self._pause(name, error)
        else:
            self._pauses.pop(name, None)

    def _is_due(self, name: SessionId, found: UnobservedMessages) -> bool:
        return found.tokens >= self._limits.observe_at_tokens or self._must_condense(name, found.memory)

    def _must_condense(self, name: SessionId, memory: SessionMemory) -> bool:
        return memory.tokens >= max(self._limits.reflect_at_tokens, self._condense_at.get(name, 0))

    def _pause(self, name: SessionId, error: BaseException) -> None:
        pause_s = min(MAX_PAUSE_S, self._pauses.get(name, (0.0, FIRST_PAUSE_S / 2))[1] * 2)
        self._pauses[name] = (time.monotonic() + pause_s, pause_s)
        _log.warning("session %s was not observed; trying again in %.0f s at the earliest: %s", name.id, pause_s, error)

    @asynccontextmanager
    async def _lease(self, session: SessionInfo) -> AsyncGenerator[ObserverLease | None]:
        """Hold the lease of a session during the body; yield None if another observer holds it."""
        lease = await self._store.write(acquire_observer_lease, session.key, self._owner)
        if lease is not None and not lease.held:
            gone = self._is_gone(lease.owner, lease.heartbeat)
            lease = await self._store.write(take_over_observer_lease, lease, self._owner) if gone else None
        if lease is None:
            yield None
            return
        with self._leases.held():
            try:
                yield lease
            finally:
                await asyncio.shield(self._store.write(release_observer_lease, lease))

    async def _observe_batches(self, name: SessionId, lease: ObserverLease) -> None:
        for _ in range(MAX_BATCHES):
            # again: it may have been observed before the lease
            found = await self._store.read(read_unobserved_of, name)
            if found is None or not found[1].messages or found[1].tokens < self._limits.observe_at_tokens:
                break
            if not await self._observe_batch(lease, *found):
                return
        found = await self._store.read(read_unobserved_of, name)
        if found is not None and self._must_condense(name, found[1].memory):
            await self._condense(lease, name, found[1])

    async def _condense(self, lease: ObserverLease, name: SessionId, found: UnobservedMessages) -> None:
        """Condense the observations, or leave them as they are until there are more: requests show the newest."""
        if not await asyncio.to_thread(may_save, found.memory):
            self._condense_at[name] = int(found.memory.tokens * _GROWTH_BEFORE_RETRY)
            return
        try:
            batch = await condense_observations(self._model, found)
        except Exception as error:  # noqa: BLE001 - messages must be observed also while notes cannot be condensed
            self._condense_at[name] = int(found.memory.tokens * _GROWTH_BEFORE_RETRY)
            _log.warning("the notes of session %s were not condensed: %s", name.id, error)
            return
        self._condense_at.pop(name, None)
        await self._store_batch(lease, name, batch)

    async def _observe_batch(self, lease: ObserverLease, session: SessionInfo, found: UnobservedMessages) -> bool:
        """Observe the next batch; return False if the lease was lost."""
        limits = self._limits
        await self._store.load_files(found.messages, transcript.is_text_file)
        shown = await asyncio.to_thread(transcript.next_batch, found.messages, limits.batch_tokens, limits.piece_tokens)
        span = note_format.Span(shown[0].seq, shown[-1].seq)
        known = await self._known_facts(session.name)
        used = TokensUsed()
        notes: list[note_format.Note] = []
        pieces = await asyncio.to_thread(transcript.pieces, shown, limits.batch_tokens, limits.piece_tokens)
        for piece in pieces:
            notes += await self._model.ask_for_notes(self._prompt(), f"{known}{piece}", span, used, lenient=True)
        notes = await asyncio.to_thread(check_notes, notes, shown)
        if pieces and not notes:
            raise NothingNoted(f"{self._model.name} returned no notes on messages {span.first_seq}-{span.last_seq}")
        days = {stored.seq: transcript.day_of(stored) for stored in shown}
        floor = await self._store.read(find_floor, session, span.last_seq, limits.keep_turns, limits.floor_tokens)
        notes = await asyncio.to_thread(with_days_of_messages, notes, shown)
        observations = note_format.notes_to_observations(notes, days)
        batch = Batch(
            span.first_seq,
            span.last_seq,
            observations,
            floor_seq=floor,
            rewinds=found.rewinds,
            tokens=await asyncio.to_thread(observation_tokens, observations),
            model=self._model.name,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
        )
        return await self._store_batch(lease, session.name, batch, self._facts(notes, days))

    def _prompt(self) -> str:
        facts_prompt = f"\n{note_format.FACTS_PROMPT}" if self._settings.user_facts else ""
        return note_format.OBSERVE_PROMPT + facts_prompt

    async def _known_facts(self, name: SessionId) -> str:
        """Return the user's facts as text, so that the model names a changed fact as before."""
        if not self._settings.user_facts:
            return ""
        facts = await self._store.read(read_facts, name.app_name, name.user_id)
        known = "\n".join(f"{fact.name}: {' '.join(fact.text.split())}" for fact in facts[-_KNOWN_FACTS:])
        return f"Facts known so far:\n{known}\n\nTranscript:\n" if known else ""

    def _facts(self, notes: Sequence[note_format.Note], days: dict[int, str]) -> list[Fact]:
        if not self._settings.user_facts:
            return []
        return [
            Fact(*named, note.first_seq, note.last_seq, days.get(note.last_seq, ""), self._model.name)
            for note in notes
            if note.kind == "fact" and (named := note_format.split_fact(note.text))
        ]

    async def _store_batch(
        self, lease: ObserverLease, name: SessionId, batch: Batch, facts: Sequence[Fact] = ()
    ) -> bool:
        stored = await self._store.write(store_batch, lease, name, batch, facts, time.time()) is not None
        if not stored:
            _log.warning("session %s is now observed by another process: these notes are not stored", name.id)
        return stored
