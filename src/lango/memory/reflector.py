"""Condense observations that exceed their threshold."""

import asyncio
from collections.abc import Sequence

from lango.errors import NothingNoted
from lango.memory import note_format
from lango.memory.note_model import MemoryModel, TokensUsed
from lango.memory.quote import observation_tokens
from lango.store.memory.observations import Batch, UnobservedMessages

_MAX_SHARE = 0.9  # a reflection that saves less than a tenth is rejected


async def condense_observations(model: MemoryModel, found: UnobservedMessages) -> Batch:
    """Return one batch that replaces the oldest batches, one generation above them. Raises `NothingNoted`."""
    sources = _batches_to_condense(found.memory.batches, model.context_tokens)
    before = [note for batch in sources for note in batch.observations]
    span = note_format.Span(sources[0].first_seq, sources[-1].last_seq)
    used = TokensUsed()
    notes = await model.ask_for_notes(
        note_format.REFLECT_PROMPT, note_format.observations_as_lines(before), span, used, lenient=False
    )
    days = {note.last_seq: note.day for note in before}
    condensed = note_format.notes_to_observations((note for note in notes if note.kind != "fact"), days)
    tokens = await asyncio.to_thread(observation_tokens, condensed)
    if not condensed or tokens > sum(source.tokens for source in sources) * _MAX_SHARE:
        raise NothingNoted(f"{model.name} did not make the notes shorter")
    return Batch(
        span.first_seq,
        span.last_seq,
        condensed,
        generation=1 + max(source.generation for source in sources),
        floor_seq=sources[-1].floor_seq,
        rewinds=found.rewinds,
        sources=tuple(source.batch for source in sources),
        tokens=tokens,
        model=model.name,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
    )


def _batches_to_condense(batches: Sequence[Batch], context_tokens: int | None) -> Sequence[Batch]:
    """Return all batches, or the oldest ones that a small model can read at once."""
    max_tokens = (context_tokens or 0) // 2
    for count in range(len(batches), 1, -1):
        if not max_tokens or sum(batch.tokens for batch in batches[:count]) <= max_tokens:
            return batches[:count]
    return batches[:2]
