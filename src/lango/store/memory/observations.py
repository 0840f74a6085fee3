"""Operations on observations: what holds now, what is not observed yet, and who observes it.

A batch covers a range of messages. Nothing of it is changed later. It holds as long as the rewinds since it was made
took back none of its messages; where one did, what it was condensed from holds again, as far as that is whole. The
batches that hold form a chain from the first message on, and what is after the chain is not observed.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lango.store.codec.json_text import dumps, loads, readable
from lango.store.codec.records import MESSAGE_COLUMNS, SessionRecord, Stored, from_message_row, rewinds_from_json
from lango.store.engine.database import Operation, Row
from lango.store.sessions.lineage import all_places, key_of
from lango.store.sessions.window import Range, live_ranges

Priority = Literal["high", "medium", "low"]
Standing = Literal["current", "condensed", "taken_back"]

MAX_BATCH_MESSAGES = 400
_RECENT_ROWS = 200

_BATCH_COLUMNS = (
    "batch, generation, first_seq, last_seq, floor_seq, rewinds, sources, model, input_tokens, output_tokens, tokens, "
    "created_at"
)
_BATCHES = f"SELECT {_BATCH_COLUMNS} FROM observation_batches WHERE session_key = $1 ORDER BY batch"  # noqa: S608 - constants
_NOTES = """
SELECT batch, number, first_seq, last_seq, priority, day, text FROM observations
WHERE session_key = $1 AND batch >= $2 AND batch <= $3 ORDER BY batch, number
"""
_TOTAL_AT = "SELECT total_tokens FROM messages WHERE session_key = $1 AND seq = $2"
_BUSY = """
SELECT 1 FROM turns WHERE session_key = $1 AND status = 'running'
UNION ALL SELECT 1 FROM open_calls WHERE session_key = $1 AND seq > $2
"""
_NEXT_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""  # noqa: S608
_BEFORE = """
SELECT seq, role, tokens FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq DESC LIMIT $4
"""
_INSERT_BATCH = f"""
INSERT INTO observation_batches (session_key, {_BATCH_COLUMNS})
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
_FORK_BATCHES = f"""
INSERT INTO observation_batches (session_key, {_BATCH_COLUMNS})
SELECT CAST($1 AS BIGINT), {_BATCH_COLUMNS} FROM observation_batches WHERE session_key = $2 AND last_seq <= $3
"""  # noqa: S608
_FORK_NOTES = """
INSERT INTO observations (session_key, batch, number, first_seq, last_seq, priority, day, text)
SELECT CAST($1 AS BIGINT), o.batch, o.number, o.first_seq, o.last_seq, o.priority, o.day, o.text
FROM observations o JOIN observation_batches b ON b.session_key = o.session_key AND b.batch = o.batch
WHERE o.session_key = $2 AND b.last_seq <= $3
"""
# takes the session's row: none is there once the session is deleted
_LOCK = "UPDATE sessions SET epoch = epoch WHERE session_key = $1 RETURNING session_key"
_REWINDS = "SELECT rewinds FROM sessions WHERE session_key = $1"
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


class Observation(Struct, frozen=True):
    """One thing that was noted, and the messages that it came from."""

    text: str
    first_seq: int
    last_seq: int
    priority: Priority = "medium"
    day: str = ""
    """Of its last message, UTC: 2026-11-15."""


class Batch(Struct, frozen=True):
    """What one answer of an observer (generation 0) or a reflector gave."""

    first_seq: int
    last_seq: int
    observations: tuple[Observation, ...] = ()
    generation: int = 0
    floor_seq: int = 0
    rewinds: int = 0
    sources: tuple[int, ...] = ()
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    created_at: float = 0.0
    batch: int = 0
    standing: Standing = "current"


class Recalled(Struct, frozen=True):
    """What an agent is given of a session's memory, and where its messages go on."""

    batches: tuple[Batch, ...] = ()
    facts: tuple[str, ...] = ()
    """What is known of the user from elsewhere."""

    @property
    def observed_seq(self) -> int:
        """The last message that was observed; 0: none."""
        return self.batches[-1].last_seq if self.batches else 0

    @property
    def floor_seq(self) -> int:
        """Where the window begins."""
        return self.batches[-1].floor_seq if self.batches else 1

    @property
    def tokens(self) -> int:
        """What the observations cost in a request."""
        return sum(batch.tokens for batch in self.batches)

    def as_json(self) -> list[dict[str, object]]:
        """Return the observations one by one, each with the batch that it belongs to: what every surface shows."""
        return [
            {
                "id": f"{batch.batch}.{number}",
                "batch": batch.batch,
                "generation": batch.generation,
                "standing": batch.standing,
                "first_seq": note.first_seq,
                "last_seq": note.last_seq,
                "priority": note.priority,
                "day": note.day,
                "text": note.text,
                "sources": list(batch.sources),
                "model": batch.model,
                "input_tokens": batch.input_tokens,
                "output_tokens": batch.output_tokens,
                "created_at": batch.created_at,
            }
            for batch in self.batches
            for number, note in enumerate(batch.observations, 1)
        ]


class Unobserved(Struct, frozen=True):
    """What was not observed yet: its tokens, and the next messages of it in order."""

    recalled: Recalled
    rewinds: int
    tokens: int = 0
    messages: tuple[Stored, ...] = ()


class Claim(Struct, frozen=True):
    """The right to observe a session; `beat` where somebody else has it."""

    session_key: int
    claim: int
    owner: str
    beat: int = 0
    held: bool = True
    """False: somebody else has it."""


# -- what holds -------------------------------------------------------------------------------------------------------


def recall(session: SessionRecord) -> Operation[Recalled]:
    """Read the batches that hold now, with their observations."""
    rows = yield _BATCHES, (session.key,)
    batches = chain([_batch(row) for row in rows], session.last_seq, session.rewinds)
    return Recalled(tuple((yield from _with_notes(session.key, batches))))


def history(session: SessionRecord) -> Operation[list[Batch]]:
    """Read every batch there ever was, the oldest first, and how it stands now."""
    rows = yield _BATCHES, (session.key,)
    batches = [_batch(row) for row in rows]
    current = {batch.batch for batch in chain(batches, session.last_seq, session.rewinds)}
    stood = [replace(batch, standing=_standing(batch, current, session.rewinds)) for batch in batches]
    return (yield from _with_notes(session.key, stood))


def chain(batches: Sequence[Batch], last_seq: int, rewinds: Sequence[Range]) -> list[Batch]:
    """Return the batches that hold: from the first message on, each where the one before ends, the widest first."""
    ranges = sorted(live_ranges(last_seq, rewinds))
    whole = [batch for batch in batches if _is_whole(batch, rewinds)]
    found: list[Batch] = []
    position = 0
    while (expected := next_live(ranges, position)) is not None:
        fitting = [batch for batch in whole if batch.first_seq == expected]
        if not fitting:
            break
        found.append(max(fitting, key=lambda batch: (batch.last_seq, batch.generation, batch.batch)))
        position = found[-1].last_seq
    return found


def next_live(ranges: Iterable[Range], after: int) -> int | None:
    """Return the first message after one that no rewind took back."""
    return next((max(first, after + 1) for first, last in ranges if last > after), None)


def _is_whole(batch: Batch, rewinds: Sequence[Range]) -> bool:
    """Whether the messages that a batch covers are the same as when it was made."""
    return _covered(batch, rewinds[: batch.rewinds]) == _covered(batch, rewinds)


def holds(key: int, batch: Batch) -> Operation[bool]:
    """Whether no rewind took back a message of a batch since it was made."""
    rows = yield _REWINDS, (key,)
    return bool(rows) and _is_whole(batch, rewinds_from_json(rows[0][0]))


def _covered(batch: Batch, rewinds: Sequence[Range]) -> list[Range]:
    end = max([batch.last_seq, *(at for at, _ in rewinds)])
    clipped = [(max(first, batch.first_seq), min(last, batch.last_seq)) for first, last in live_ranges(end, rewinds)]
    return sorted(one for one in clipped if one[0] <= one[1])


def _standing(batch: Batch, current: set[int], rewinds: Sequence[Range]) -> Standing:
    if batch.batch in current:
        return "current"
    return "condensed" if _is_whole(batch, rewinds) else "taken_back"


def _with_notes(key: int, batches: Sequence[Batch]) -> Operation[list[Batch]]:
    if not batches:
        return []
    numbers = [batch.batch for batch in batches]
    rows = yield _NOTES, (key, min(numbers), max(numbers))
    notes: dict[int, list[Observation]] = {}
    for number, _, first_seq, last_seq, priority, day, text in rows:
        notes.setdefault(number, []).append(Observation(text, first_seq, last_seq, priority, day))
    return [replace(batch, observations=tuple(notes.get(batch.batch, ()))) for batch in batches]


def _batch(row: Row) -> Batch:
    number, generation, first_seq, last_seq, floor_seq, rewinds, sources, model, input_, output, tokens, at = row
    return Batch(
        first_seq=first_seq,
        last_seq=last_seq,
        generation=generation,
        floor_seq=floor_seq,
        rewinds=rewinds,
        sources=tuple(loads(sources)) if sources else (),
        model=model,
        input_tokens=input_,
        output_tokens=output,
        tokens=tokens,
        created_at=at,
        batch=number,
    )


def fork(key: int, source_key: int, point: int) -> Operation[None]:
    """Give a fork what was observed of its past: batches that end before its point. The others go on beyond it."""
    yield _FORK_BATCHES, (key, source_key, point)
    yield _FORK_NOTES, (key, source_key, point)


# -- what is not observed yet -----------------------------------------------------------------------------------------


def unobserved(session: SessionRecord) -> Operation[Unobserved]:
    """Read what was not observed yet. A turn that runs, or waits for a person, is left alone until it is over."""
    recalled = yield from recall(session)
    busy = yield _BUSY, (session.key, session.user_seq)
    end = session.user_seq - 1 if busy else session.last_seq
    tokens = 0
    messages: list[Stored] = []
    ranges = sorted(live_ranges(session.last_seq, session.rewinds))
    for key, first, last in sorted(
        all_places(session, _clipped(ranges, recalled.observed_seq + 1, end)), key=lambda place: place[1]
    ):
        [[upper]] = yield _TOTAL_AT, (key, last)
        lower = yield _TOTAL_AT, (key_of(session, first - 1), first - 1)
        tokens += upper - (lower[0][0] if lower else 0)
        room = MAX_BATCH_MESSAGES - len(messages)
        if room > 0:
            rows = yield _NEXT_MESSAGES, (key, first, last, room)
            messages += [from_message_row(row) for row in rows]
    return Unobserved(recalled, len(session.rewinds), tokens, tuple(messages))


def floor_of(session: SessionRecord, last_seq: int, turns: int, max_tokens: int) -> Operation[int]:
    """Return where the last `turns` turns up to a message begin: fewer, where they cost more than `max_tokens`."""
    ranges = _clipped(live_ranges(session.last_seq, session.rewinds), 1, last_seq)
    rows: list[Row] = []
    for place in all_places(session, ranges):
        if len(rows) < _RECENT_ROWS:
            rows += yield _BEFORE, (*place, _RECENT_ROWS)
    floor, tokens, found = last_seq + 1, 0, 0
    for seq, role, cost in rows:
        tokens += cost
        if found == turns or tokens > max_tokens:
            break
        if role == "user":
            floor, found = seq, found + 1
    return floor


def _clipped(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    clipped = [(max(begin, first), min(end, last)) for begin, end in ranges]
    return [one for one in clipped if one[0] <= one[1]]


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
