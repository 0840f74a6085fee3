"""Lease the right to observe a session, and store what the holder observed."""

from collections.abc import Sequence

from msgspec import Struct

from lango.store.codec.json_text import dumps, readable
from lango.store.codec.records import SessionId
from lango.store.engine.database import Operation
from lango.store.memory import observations, user_facts
from lango.store.memory.observations import BATCH_COLUMNS, Batch
from lango.store.memory.user_facts import Fact

_INSERT_BATCH = f"""
INSERT INTO observation_batches (session_key, {BATCH_COLUMNS})
SELECT $1, COALESCE(MAX(batch), 0) + 1, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT),
    CAST($6 AS BIGINT), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS BIGINT), CAST($10 AS BIGINT),
    CAST($11 AS BIGINT), CAST($12 AS DOUBLE PRECISION)
FROM observation_batches WHERE session_key = $1
RETURNING batch
"""  # noqa: S608
_INSERT_NOTE = """
INSERT INTO observations (session_key, batch, number, first_seq, last_seq, priority, day, text)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
# takes the session's row: none is there once the session is deleted
_LOCK = "UPDATE sessions SET epoch = epoch WHERE session_key = $1 RETURNING session_key"
_CLAIM = """
INSERT INTO observers (session_key, owner, claim, beat) VALUES ($1, $2, 1, 1)
ON CONFLICT (session_key) DO UPDATE SET owner = excluded.owner, claim = observers.claim + 1, beat = observers.beat + 1
WHERE observers.owner IS NULL OR observers.owner = excluded.owner RETURNING claim
"""
_HELD = "SELECT owner, claim, beat FROM observers WHERE session_key = $1"
_TAKE_OVER = """
UPDATE observers SET owner = $1, claim = claim + 1, beat = beat + 1
WHERE session_key = $2 AND claim = $3 AND beat = $4 RETURNING claim
"""
_BEAT = "UPDATE observers SET beat = beat + 1 WHERE session_key = $1 AND claim = $2 RETURNING claim"
_RELEASE = "UPDATE observers SET owner = NULL, beat = beat + 1 WHERE session_key = $1 AND claim = $2"


class Claim(Struct, frozen=True):
    """The right to observe a session; `beat` where somebody else has it."""

    session_key: int
    claim: int
    owner: str
    beat: int = 0
    held: bool = True
    """False: somebody else has it."""


def store_batch(
    held: Claim, name: SessionId, batch: Batch, learned: Sequence[Fact], now: float
) -> Operation[int | None]:
    """Store a batch and its facts under a claim; None: the claim was lost, and nothing is stored."""
    number = yield from add_batch(held, batch)
    # what a rewind took back while it was observed teaches nothing
    if number is not None and (yield from observations.holds(held.session_key, batch)):
        yield from user_facts.add(name.app_name, name.user_id, held.session_key, learned, now)
    return number


# -- who observes -----------------------------------------------------------------------------------------------------


def claim(key: int, owner: str) -> Operation[Claim | None]:
    """Take the right to observe a session, or say who has it; None: the session is gone.

    An owner observes a session once at a time: a right that it still has is one that it could not give back.
    """
    if not (yield _LOCK, (key,)):
        return None
    for [number] in (yield _CLAIM, (key, owner)):
        return Claim(key, number, owner)
    [[held_by, number, beat]] = yield _HELD, (key,)
    return Claim(key, number, held_by or "", beat, held=False)


def take_over(gone: Claim, owner: str) -> Operation[Claim | None]:
    """Take the right from somebody who is gone; None: they moved on."""
    for [number] in (yield _TAKE_OVER, (owner, gone.session_key, gone.claim, gone.beat)):
        return Claim(gone.session_key, number, owner)
    return None


def beat(held: Claim) -> Operation[bool]:
    """Say that the observer lives; False: it lost its claim."""
    return bool((yield _BEAT, (held.session_key, held.claim)))


def release(held: Claim) -> Operation[None]:
    """Give the right back."""
    yield _RELEASE, (held.session_key, held.claim)


def add_batch(held: Claim, batch: Batch) -> Operation[int | None]:
    """Store a batch whole, under a claim; return its number. None: the claim was lost, or the session is gone."""
    key = held.session_key
    if not (yield _LOCK, (key,)) or not (yield _BEAT, (key, held.claim)):
        return None
    return (yield from insert_batch(key, batch))


def insert_batch(key: int, batch: Batch) -> Operation[int]:
    """Write the rows of a batch."""
    [[number]] = yield (
        _INSERT_BATCH,
        (
            key,
            batch.generation,
            batch.first_seq,
            batch.last_seq,
            batch.floor_seq,
            batch.rewinds,
            dumps(list(batch.sources)) if batch.sources else None,
            readable(batch.model),
            batch.input_tokens,
            batch.output_tokens,
            batch.tokens,
            batch.created_at,
        ),
    )
    for at, note in enumerate(batch.observations, 1):
        values = (key, number, at, note.first_seq, note.last_seq, note.priority, note.day, readable(note.text))
        yield _INSERT_NOTE, values
    return number
