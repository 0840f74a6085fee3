"""Condense observations that exceed their threshold, and check that nothing important is lost."""

import asyncio
from collections.abc import Sequence

from lango.errors import NothingNoted
from lango.history import count_tokens
from lango.memory.notes import note_format
from lango.memory.notes.key_terms import is_commitment, keeps_words, key_terms, missing_terms
from lango.memory.notes.note_format import MemoryModel, TokensUsed
from lango.memory.notes.superseded import CurrentNote, current_notes
from lango.memory.quote import note_line, observation_tokens
from lango.store.memory.observations import Batch, Observation, SessionMemory, UnobservedMessages

_MAX_SHARE = 0.9  # a reflection that saves less than a tenth is rejected


def may_save(memory: SessionMemory) -> bool:
    """Whether a reflection may save enough: even the shortest one keeps what `keep_what_matters` requires."""
    notes = [note for batch in memory.batches for note in batch.observations]
    least = sum(_least_tokens(current.note) for current in current_notes(notes))
    return least <= memory.tokens * _MAX_SHARE


def _least_tokens(note: Observation) -> int:
    whole = note.priority in ("pinned", "high") or is_commitment(note.text)
    return count_tokens(note_line(CurrentNote(note)) if whole else " ".join(key_terms(note.text))) + 1


async def condense_observations(model: MemoryModel, found: UnobservedMessages) -> Batch:
    """Return one batch that replaces the oldest batches, one generation above them. Raises `NothingNoted`."""
    sources = _batches_to_condense(found.memory.batches, model.context_tokens)
    before = [note for batch in sources for note in batch.observations]
    span = note_format.Span(sources[0].first_seq, sources[-1].last_seq)
    used = TokensUsed()
    shown = [note for note in before if note.priority != "pinned"]
    notes = await model.ask_for_notes(
        note_format.REFLECT_PROMPT, note_format.observations_as_lines(shown), span, used, lenient=False
    )
    days = {note.last_seq: note.day for note in before}
    condensed = note_format.notes_to_observations((note for note in notes if note.kind not in ("fact", "pinned")), days)
    kept = await asyncio.to_thread(keep_what_matters, before, condensed)
    tokens = await asyncio.to_thread(observation_tokens, kept)
    if not condensed or tokens > sum(source.tokens for source in sources) * _MAX_SHARE:
        raise NothingNoted(f"{model.name} did not make the notes shorter without losing what must be kept")
    return Batch(
        span.first_seq,
        span.last_seq,
        kept,
        generation=1 + max(source.generation for source in sources),
        floor_seq=sources[-1].floor_seq,
        rewinds=found.rewinds,
        sources=tuple(source.batch for source in sources),
        tokens=tokens,
        model=model.name,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
    )


def keep_what_matters(before: Sequence[Observation], condensed: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return condensed notes, with the notes that they dropped something of carried over unchanged.

    Kept are pinned notes, decisions, open promises and what is of high priority, and the names, numbers and dates of
    the other notes, each in a note that names the same messages. A note that a later one replaced may go. A condensed
    note with a name or a number that no source has is made up, and goes, too. It takes CPU time: call it in a thread.
    """
    current = [known.note for known in current_notes(before)]
    written = [note for note in condensed if not missing_terms(note.text, _texts_near(note, before))]
    carried = [note for note in current if note.priority == "pinned" or not _is_kept(note, written)]
    texts = {_folded(note.text) for note in carried}
    kept = [note for note in written if _folded(note.text) not in texts]
    return tuple(sorted((*kept, *carried), key=lambda note: (note.last_seq, note.first_seq)))


def _is_kept(note: Observation, condensed: Sequence[Observation]) -> bool:
    texts = _texts_near(note, condensed)
    if missing_terms(note.text, texts):
        return False
    return not (note.priority == "high" or is_commitment(note.text)) or keeps_words(note.text, texts)


def _texts_near(note: Observation, others: Sequence[Observation]) -> list[str]:
    return [one.text for one in others if one.first_seq <= note.last_seq and note.first_seq <= one.last_seq]


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _batches_to_condense(batches: Sequence[Batch], context_tokens: int | None) -> Sequence[Batch]:
    """Return all batches, or the oldest ones that a small model can read at once."""
    max_tokens = (context_tokens or 0) // 2
    for count in range(len(batches), 1, -1):
        if not max_tokens or sum(batch.tokens for batch in batches[:count]) <= max_tokens:
            return batches[:count]
    return batches[:2]
