"""Observing and reflecting: after the answer, never in its way; one at a time per session, across processes."""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from lango.config import MemorySettings
from lango.errors import NothingNoted, ProviderProtocolError, StoreError
from lango.history import count_tokens
from lango.memory import note_format, transcript
from lango.memory.quote import observation_tokens
from lango.memory.thresholds import MemoryThresholds
from lango.messages import Message
from lango.providers.protocol import Finish, Provider, Request, TextDelta, ThoughtDelta, closing_stream
from lango.providers.reply_assembly import ReplyAssembler
from lango.store import SessionId, SessionRecord, Store
from lango.store.memory.observations import Batch, SessionMemory, UnobservedMessages, find_floor, read_unobserved_of
from lango.store.memory.observer_lease import (
    ObserverLease,
    acquire_observer_lease,
    release_observer_lease,
    renew_observer_lease,
    store_batch,
    take_over_observer_lease,
)
from lango.store.memory.user_facts import Fact, read_facts

_log = logging.getLogger("lango.memory")

HEARTBEAT_S = 2.0
MAX_BATCHES = 10
"""How many batches are observed after one turn: a long session whose memory is new catches up over its next turns."""
FIRST_PAUSE_S = 30.0
MAX_PAUSE_S = 3_600.0
_LEAST_ANSWER_TOKENS = 200
_MOST_READ_CHARACTERS = 5 * note_format.MAX_ANSWER_CHARACTERS  # thoughts included
_SHRUNK = 0.9  # a reflection that saves less than a tenth is none

OwnerIsGone = Callable[[int, int, str, int], bool]


class MemoryModel(Struct, frozen=True):
    """The model that observes and reflects."""

    provider: Provider
    model: str
    context_tokens: int | None = None

    @property
    def name(self) -> str:
        """As a user writes it."""
        return f"{self.provider.name}/{self.model}"


class _Spent(Struct):
    """What the calls for one batch cost."""

    input_tokens: int = 0
    output_tokens: int = 0


class Observer:
    """Observes one session at a time, under a claim."""

    def __init__(
        self,
        store: Store,
        settings: MemorySettings,
        limits: MemoryThresholds,
        model: MemoryModel,
        owner: str,
        is_gone: OwnerIsGone,
    ) -> None:
        self._store = store
        self._settings = settings
        self._limits = limits
        self._model = model
        self._owner = owner
        self._is_gone = is_gone
        self._pauses: dict[SessionId, tuple[float, float]] = {}  # until when, and how long

    async def observe(self, name: SessionId) -> None:
        """Observe what passed the threshold, and reflect where that is due. What fails is logged, and tried later."""
        if self._pauses.get(name, (0.0, 0.0))[0] > time.monotonic():
            return
        try:
            found = await self._store.read(read_unobserved_of, name)
            if found is None or not self._is_due(found[1]):
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

    def _is_due(self, found: UnobservedMessages) -> bool:
        return found.tokens >= self._limits.observe_at_tokens or self.is_due(found.memory)

    def is_due(self, recalled: SessionMemory) -> bool:
        """Whether the notes are so long that they have to be condensed."""
        return recalled.tokens >= self._limits.reflect_at_tokens

    def _pause(self, name: SessionId, error: BaseException) -> None:
        pause_s = min(MAX_PAUSE_S, self._pauses.get(name, (0.0, FIRST_PAUSE_S / 2))[1] * 2)
        self._pauses[name] = (time.monotonic() + pause_s, pause_s)
        _log.warning("session %s was not observed, next try in %.0f s at the earliest: %s", name.id, pause_s, error)

    @asynccontextmanager
    async def _lease(self, session: SessionRecord) -> AsyncGenerator[ObserverLease | None]:
        """Claim a session for as long as the body takes; None: somebody else has it."""
        lease = await self._store.write(acquire_observer_lease, session.key, self._owner)
        if lease is not None and not lease.held:
            gone = self._is_gone(session.key, -lease.epoch, lease.owner, lease.heartbeat)
            lease = await self._store.write(take_over_observer_lease, lease, self._owner) if gone else None
        if lease is None:
            yield None
            return
        heartbeat = asyncio.create_task(self._heartbeat(lease))
        try:
            yield lease
        finally:
            heartbeat.cancel()
            await asyncio.shield(self._store.write(release_observer_lease, lease))

    async def _heartbeat(self, lease: ObserverLease) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                if not await self._store.write(renew_observer_lease, lease):
                    return  # lost: what is being written will be refused
            except StoreError as error:
                _log.warning("an observer could not say that it lives: %s", error)

    async def _observe_batches(self, name: SessionId, lease: ObserverLease) -> None:
        for _ in range(MAX_BATCHES):
            found = await self._store.read(
                read_unobserved_of, name
            )  # again: somebody may have observed it before the claim
            if found is None or not found[1].messages or found[1].tokens < self._limits.observe_at_tokens:
                break
            if not await self._observe_batch(lease, *found):
                return
        found = await self._store.read(read_unobserved_of, name)
        if found is not None and self.is_due(found[1].memory):
            await self.reflect(lease, found[0], found[1])

    # -- observing ------------------------------------------------------------------------------------------------

    async def _observe_batch(self, lease: ObserverLease, session: SessionRecord, found: UnobservedMessages) -> bool:
        """Observe the next batch; False: the claim was lost."""
        limits = self._limits
        shown = await asyncio.to_thread(transcript.next_batch, found.messages, limits.batch_tokens, limits.piece_tokens)
        span = note_format.Span(shown[0].seq, shown[-1].seq)
        known = await self._known_facts(session.name)
        spent = _Spent()
        written: list[note_format.Note] = []
        pieces = await asyncio.to_thread(transcript.pieces, shown, limits.batch_tokens, limits.piece_tokens)
        for piece in pieces:
            written += await self.ask_for_notes(self._observe_prompt(), f"{known}{piece}", span, spent, lenient=True)
        if pieces and not written:
            raise NothingNoted(f"{self._model.name} gave no notes on messages {span.first_seq}-{span.last_seq}")
        days = {stored.seq: transcript.day_of(stored) for stored in shown}
        floor = await self._store.read(find_floor, session, span.last_seq, limits.keep_turns, limits.floor_tokens)
        observed = note_format.notes_to_observations(written, days)
        tokens = await asyncio.to_thread(observation_tokens, observed)
        batch = Batch(span.first_seq, span.last_seq, observed, floor_seq=floor, rewinds=found.rewinds, tokens=tokens)
        return await self._store_batch(lease, session.name, batch, spent, self._facts(written, days))

    def _observe_prompt(self) -> str:
        return (
            f"{note_format.OBSERVE_PROMPT}\n{note_format.FACTS_PROMPT}"
            if self._settings.user_facts
            else note_format.OBSERVE_PROMPT
        )

    async def _known_facts(self, name: SessionId) -> str:
        """Return what is known of the user, so that what changed keeps its name."""
        if not self._settings.user_facts:
            return ""
        facts = await self._store.read(read_facts, name.app_name, name.user_id)
        known = "\n".join(f"{fact.name}: {' '.join(fact.text.split())}" for fact in facts[-50:])
        return f"Facts known so far:\n{known}\n\nTranscript:\n" if known else ""

    def _facts(self, written: Sequence[note_format.Note], days: dict[int, str]) -> list[Fact]:
        if not self._settings.user_facts:
            return []
        return [
            Fact(*named, note.first_seq, note.last_seq, days.get(note.last_seq, ""), self._model.name)
            for note in written
            if note.kind == "fact" and (named := note_format.split_fact(note.text))
        ]

    # -- reflecting -----------------------------------------------------------------------------------------------

    async def reflect(self, held: ObserverLease, session: SessionRecord, found: UnobservedMessages) -> None:
        """Condense the oldest notes into fewer, and store them as the next generation."""
        sources = self._batches_to_condense(found.memory.batches)
        before = [note for batch in sources for note in batch.observations]
        span = note_format.Span(sources[0].first_seq, sources[-1].last_seq)
        spent = _Spent()
        written = await self.ask_for_notes(
            note_format.REFLECT_PROMPT, note_format.observations_as_lines(before), span, spent, lenient=False
        )
        days = {note.last_seq: note.day for note in before}
        condensed = note_format.notes_to_observations((one for one in written if one.kind != "fact"), days)
        batch = Batch(
            span.first_seq,
            span.last_seq,
            condensed,
            generation=1 + max(source.generation for source in sources),
            floor_seq=sources[-1].floor_seq,
            rewinds=found.rewinds,
            sources=tuple(source.batch for source in sources),
            tokens=await asyncio.to_thread(observation_tokens, condensed),
        )
        if not condensed or batch.tokens > sum(source.tokens for source in sources) * _SHRUNK:
            raise NothingNoted(f"{self._model.name} did not make the notes shorter")
        await self._store_batch(held, session.name, batch, spent)

    def _batches_to_condense(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return what is condensed: all of it, or the oldest that a small model can read at once."""
        most = (self._model.context_tokens or 0) // 2
        for count in range(len(batches), 1, -1):
            if not most or sum(batch.tokens for batch in batches[:count]) <= most:
                return batches[:count]
        return batches[:2]

    # -- asking ---------------------------------------------------------------------------------------------------

    async def ask_for_notes(
        self, prompt: str, shown: str, span: note_format.Span, spent: _Spent, *, lenient: bool
    ) -> list[note_format.Note]:
        """Ask the model for notes, twice at most: what is in no form at all is taken only at the end.

        None may be right: a piece of a long message can be noise, and must not hold up the rest.
        """
        for system, last in ((prompt, False), (prompt + note_format.RETRY_PROMPT, True)):
            answer = await self._complete(system, shown + note_format.PROMPT_END, spent)
            read = functools.partial(
                note_format.parse_notes, answer, span, system + note_format.PROMPT_END, shown=shown
            )
            if found := await asyncio.to_thread(read, lenient=lenient and last):
                return found
        return []

    async def _complete(self, system: str, shown: str, spent: _Spent) -> str:
        length = await asyncio.to_thread(count_tokens, shown)
        counted = length + count_tokens(system)
        request = Request(
            self._model.model,
            (Message("user", shown),),
            system=system,
            max_tokens=self._max_answer_tokens(length),
        )
        assembler = ReplyAssembler(self._model.provider.name)
        characters = 0
        async with closing_stream(self._model.provider.stream(request)) as deltas:
            async for delta in deltas:
                assembler.add(delta)
                characters += len(delta.text) if isinstance(delta, TextDelta | ThoughtDelta) else 0
                if characters > _MOST_READ_CHARACTERS and not isinstance(delta, Finish):
                    assembler.add(Finish("length"))  # a model that goes on and on
                    break
        reply = assembler.reply()
        if reply.finish.reason in ("error", "safety"):
            raise ProviderProtocolError(
                f"no notes: {reply.finish.detail or reply.finish.reason}", provider=self._model.name
            )
        usage = reply.usage
        spent.input_tokens += counted if usage.input_tokens is None else usage.input_tokens
        text = reply.text[: note_format.MAX_ANSWER_CHARACTERS]
        if usage.output_tokens is None:
            spent.output_tokens += await asyncio.to_thread(count_tokens, text)
        else:
            spent.output_tokens += usage.output_tokens
        return text

    def _max_answer_tokens(self, shown_tokens: int) -> int | None:
        """A small model talks on and on: its notes are no longer than what they are about. Others may think first."""
        context = self._model.context_tokens
        return None if context is None else min(max(_LEAST_ANSWER_TOKENS, shown_tokens), context // 4)

    async def _store_batch(
        self, lease: ObserverLease, name: SessionId, batch: Batch, spent: _Spent, facts: Sequence[Fact] = ()
    ) -> bool:
        whole = replace(
            batch, model=self._model.name, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens
        )
        number = await self._store.write(store_batch, lease, name, whole, facts, time.time())
        if number is None:
            _log.warning("session %s is observed by another process now: these notes are not kept", name.id)
        return number is not None
