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
from lango.memory.quote import cost_of
from lango.memory.thresholds import Limits
from lango.messages import Message
from lango.providers.protocol import Finish, Provider, Request, TextDelta, ThoughtDelta, closing
from lango.providers.reply_assembly import Assembler
from lango.store import SessionId, SessionRecord, Store
from lango.store.memory.observations import Batch, Recalled, Unobserved
from lango.store.memory.observer_lease import Claim
from lango.store.memory.user_facts import Fact

_log = logging.getLogger("lango.memory")

BEAT_S = 2.0
MAX_BATCHES = 10
"""How many batches are observed after one turn: a long session whose memory is new catches up over its next turns."""
FIRST_PAUSE_S = 30.0
MOST_PAUSE_S = 3_600.0
_LEAST_ANSWER_TOKENS = 200
_MOST_READ_CHARACTERS = 5 * note_format.MAX_ANSWER_CHARACTERS  # thoughts included
_SHRUNK = 0.9  # a reflection that saves less than a tenth is none

IsGone = Callable[[int, int, str, int], bool]


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
        self, store: Store, settings: MemorySettings, limits: Limits, model: MemoryModel, owner: str, is_gone: IsGone
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
            found = await self._store.memory.unobserved(name)
            if found is None or not self._is_due(found[1]):
                return
            async with self._claimed(found[0]) as held:
                if held is not None:
                    await self._work(name, held)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - nothing waits for it, and a SystemExit would end the event loop
            self._pause(name, error)
        else:
            self._pauses.pop(name, None)

    def _is_due(self, found: Unobserved) -> bool:
        return found.tokens >= self._limits.observe_at_tokens or self._must_reflect(found.recalled)

    def _must_reflect(self, recalled: Recalled) -> bool:
        return recalled.tokens >= self._limits.reflect_at_tokens

    def _pause(self, name: SessionId, error: BaseException) -> None:
        pause_s = min(MOST_PAUSE_S, self._pauses.get(name, (0.0, FIRST_PAUSE_S / 2))[1] * 2)
        self._pauses[name] = (time.monotonic() + pause_s, pause_s)
        _log.warning("session %s was not observed, next try in %.0f s at the earliest: %s", name.id, pause_s, error)

    @asynccontextmanager
    async def _claimed(self, session: SessionRecord) -> AsyncGenerator[Claim | None]:
        """Claim a session for as long as the body takes; None: somebody else has it."""
        held = await self._store.memory.claim(session, self._owner)
        if held is not None and not held.held:
            gone = self._is_gone(session.key, -held.claim, held.owner, held.beat)
            held = await self._store.memory.take_over(held, self._owner) if gone else None
        if held is None:
            yield None
            return
        beat = asyncio.create_task(self._beat(held))
        try:
            yield held
        finally:
            beat.cancel()
            await asyncio.shield(self._store.memory.release(held))

    async def _beat(self, held: Claim) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                if not await self._store.memory.beat(held):
                    return  # lost: what is being written will be refused
            except StoreError as error:
                _log.warning("an observer could not say that it lives: %s", error)

    async def _work(self, name: SessionId, held: Claim) -> None:
        for _ in range(MAX_BATCHES):
            found = await self._store.memory.unobserved(name)  # again: somebody may have observed it before the claim
            if found is None or not found[1].messages or found[1].tokens < self._limits.observe_at_tokens:
                break
            if not await self._observe_next(held, *found):
                return
        found = await self._store.memory.unobserved(name)
        if found is not None and self._must_reflect(found[1].recalled):
            await self._reflect(held, found[0], found[1])

    # -- observing ------------------------------------------------------------------------------------------------

    async def _observe_next(self, held: Claim, session: SessionRecord, found: Unobserved) -> bool:
        """Observe the next batch; False: the claim was lost."""
        limits = self._limits
        shown = await asyncio.to_thread(transcript.next_batch, found.messages, limits.batch_tokens, limits.piece_tokens)
        span = note_format.Span(shown[0].seq, shown[-1].seq)
        known = await self._known_facts(session.name)
        spent = _Spent()
        written: list[note_format.Note] = []
        pieces = await asyncio.to_thread(transcript.pieces, shown, limits.batch_tokens, limits.piece_tokens)
        for piece in pieces:
            written += await self._ask(self._observe_prompt(), f"{known}{piece}", span, spent, lenient=True)
        if pieces and not written:
            raise NothingNoted(f"{self._model.name} gave no notes on messages {span.first_seq}-{span.last_seq}")
        days = {one.seq: transcript.day_of(one) for one in shown}
        floor = await self._store.memory.floor(session, span.last_seq, limits.keep_turns, limits.floor_tokens)
        observed = note_format.observations(written, days)
        tokens = await asyncio.to_thread(cost_of, observed)
        batch = Batch(span.first_seq, span.last_seq, observed, floor_seq=floor, rewinds=found.rewinds, tokens=tokens)
        return await self._add(held, session.name, batch, spent, self._facts(written, days))

    def _observe_prompt(self) -> str:
        return f"{note_format.OBSERVE}\n{note_format.FACTS}" if self._settings.user_facts else note_format.OBSERVE

    async def _known_facts(self, name: SessionId) -> str:
        """Return what is known of the user, so that what changed keeps its name."""
        if not self._settings.user_facts:
            return ""
        facts = await self._store.memory.facts(name.app_name, name.user_id)
        known = "\n".join(f"{fact.name}: {' '.join(fact.text.split())}" for fact in facts[-50:])
        return f"Facts known so far:\n{known}\n\nTranscript:\n" if known else ""

    def _facts(self, written: Sequence[note_format.Note], days: dict[int, str]) -> list[Fact]:
        if not self._settings.user_facts:
            return []
        return [
            Fact(*named, note.first_seq, note.last_seq, days.get(note.last_seq, ""), self._model.name)
            for note in written
            if note.kind == "fact" and (named := note_format.named_fact(note.text))
        ]

    # -- reflecting -----------------------------------------------------------------------------------------------

    async def _reflect(self, held: Claim, session: SessionRecord, found: Unobserved) -> None:
        sources = self._reflected(found.recalled.batches)
        before = [note for batch in sources for note in batch.observations]
        span = note_format.Span(sources[0].first_seq, sources[-1].last_seq)
        spent = _Spent()
        written = await self._ask(note_format.REFLECT, note_format.as_lines(before), span, spent, lenient=False)
        days = {note.last_seq: note.day for note in before}
        condensed = note_format.observations((one for one in written if one.kind != "fact"), days)
        batch = Batch(
            span.first_seq,
            span.last_seq,
            condensed,
            generation=1 + max(source.generation for source in sources),
            floor_seq=sources[-1].floor_seq,
            rewinds=found.rewinds,
            sources=tuple(source.batch for source in sources),
            tokens=await asyncio.to_thread(cost_of, condensed),
        )
        if not condensed or batch.tokens > sum(source.tokens for source in sources) * _SHRUNK:
            raise NothingNoted(f"{self._model.name} did not make the notes shorter")
        await self._add(held, session.name, batch, spent)

    def _reflected(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return what is condensed: all of it, or the oldest that a small model can read at once."""
        most = (self._model.context_tokens or 0) // 2
        for count in range(len(batches), 1, -1):
            if not most or sum(batch.tokens for batch in batches[:count]) <= most:
                return batches[:count]
        return batches[:2]

    # -- asking ---------------------------------------------------------------------------------------------------

    async def _ask(
        self, prompt: str, shown: str, span: note_format.Span, spent: _Spent, *, lenient: bool
    ) -> list[note_format.Note]:
        """Ask the model for notes, twice at most: what is in no form at all is taken only at the end.

        None may be right: a piece of a long message can be noise, and must not hold up the rest.
        """
        for system, last in ((prompt, False), (prompt + note_format.AGAIN, True)):
            answer = await self._answer(system, shown + note_format.NOW, spent)
            read = functools.partial(note_format.read_notes, answer, span, system + note_format.NOW, shown=shown)
            if found := await asyncio.to_thread(read, lenient=lenient and last):
                return found
        return []

    async def _answer(self, system: str, shown: str, spent: _Spent) -> str:
        length = await asyncio.to_thread(count_tokens, shown)
        counted = length + count_tokens(system)
        request = Request(
            self._model.model,
            (Message("user", shown),),
            system=system,
            max_tokens=self._most_answer_tokens(length),
        )
        assembler = Assembler(self._model.provider.name)
        characters = 0
        async with closing(self._model.provider.stream(request)) as deltas:
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

    def _most_answer_tokens(self, shown_tokens: int) -> int | None:
        """A small model talks on and on: its notes are no longer than what they are about. Others may think first."""
        context = self._model.context_tokens
        return None if context is None else min(max(_LEAST_ANSWER_TOKENS, shown_tokens), context // 4)

    async def _add(self, held: Claim, name: SessionId, batch: Batch, spent: _Spent, facts: Sequence[Fact] = ()) -> bool:
        whole = replace(
            batch, model=self._model.name, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens
        )
        number = await self._store.memory.add(held, name, whole, facts)
        if number is None:
            _log.warning("session %s is observed by another process now: these notes are not kept", name.id)
        return number is not None
