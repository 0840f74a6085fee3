"""Operations on the journal of effects: a call's intent, start and finish are rows.

After a crash the journal says, for every call that has no result, whether its tool never began, began and may have done
something, or finished with a result that did not become a message any more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.store.codec.ids import call_key
from lango.store.codec.json_text import dumps, loads, readable
from lango.store.codec.records import Stored
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import fence

Effect = Literal["none", "idempotent", "once"]
EffectStatus = Literal["intended", "started", "finished", "unknown"]
_STILL_OWN = "EXISTS (SELECT 1 FROM sessions s WHERE s.session_key = effects.session_key AND s.epoch = effects.epoch)"
_INTEND = """
INSERT INTO effects (session_key, call_id, epoch, name, effect, status, arguments, intended_at, approved, approved_by,
    approved_at)
VALUES ($1, $2, $3, $4, $5, 'intended', $6, $7, $8, $9, $10)
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""
_START = """
UPDATE effects SET status = 'started', started_at = $1
WHERE session_key = $2 AND call_id = $3 AND epoch = $4 AND status = 'intended' RETURNING call_id
"""
_FINISH = f"""
UPDATE effects SET status = $1, finished_at = $2, result = $3
WHERE session_key = $4 AND call_id = $5 AND epoch = $6 AND status = 'started' AND {_STILL_OWN}
"""  # noqa: S608 - constants
_KEEP = f"""
UPDATE effects SET whole = $1 WHERE session_key = $2 AND call_id = $3 AND epoch = $4 AND {_STILL_OWN}
"""  # noqa: S608
_READ = """
SELECT SUBSTR(whole, CAST($1 AS INTEGER), CAST($2 AS INTEGER)) FROM history_effects
WHERE session_key = $3 AND call_id = $4 AND whole IS NOT NULL ORDER BY epoch DESC LIMIT 1
"""
_OF_CALL = """
SELECT call_id, name, effect, status, arguments, started_at, finished_at, result, approved, approved_by
FROM history_effects
WHERE session_key = $1 AND call_id = $2 AND epoch >= $3 ORDER BY epoch DESC LIMIT 1
"""
_NOTE_ANSWER = """
UPDATE effects SET approved = $1, approved_by = $2, approved_at = $3 WHERE session_key = $4 AND call_id = $5
    AND epoch = (SELECT MAX(epoch) FROM effects WHERE session_key = $4 AND call_id = $5)
"""
_AT_ONCE = 50
_OF_CALLS = f"""
SELECT source_key, epoch, call_id, name, effect, status, arguments, started_at, finished_at, NULL, approved, approved_by
FROM history_effects WHERE session_key = $1
    AND call_id IN ({", ".join(f"${number + 2}" for number in range(_AT_ONCE))}) ORDER BY epoch
"""  # noqa: S608 - constants
_FIRST_SEQS = """
SELECT epoch, first_seq FROM turns WHERE session_key = $1 AND epoch >= $2 AND epoch <= $3 AND first_seq IS NOT NULL
"""

POLICY = "policy"
"""Who answered a question for approval, where nobody did."""


class EffectRecord(Struct, frozen=True):
    """What the journal says of a call."""

    call_id: str
    name: str
    effect: Effect
    status: EffectStatus
    arguments: str
    started_at: float | None
    finished_at: float | None
    result: Mapping[str, Any] | None
    approved: bool | None = None
    """None: nobody needed to be asked."""
    approved_by: str | None = None

    @property
    def duration_s(self) -> float | None:
        """How long the tool ran."""
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, self.finished_at - self.started_at)


class Approval(Struct, frozen=True):
    """Who let a call run, or did not."""

    approved: bool
    by: str


def intend(
    key: int,
    epoch: int,
    call_id: str,
    name: str,
    effect: Effect,
    arguments: str,
    now: float,
    approval: Approval | None = None,
) -> Operation[None]:
    """Note that a call is about to be made, and who allowed it, where somebody had to."""
    yield from fence(key, epoch)
    said = (None, None, None) if approval is None else (1 if approval.approved else 0, approval.by, now)
    yield _INTEND, (key, call_key(call_id), epoch, name, effect, arguments, now, *said)


def note_answer(key: int, call_id: str, by: str, now: float, *, approved: bool) -> Operation[None]:
    """Note who answered the question about a call."""
    yield _NOTE_ANSWER, (1 if approved else 0, by, now, key, call_key(call_id))


def start(key: int, epoch: int, call_id: str, now: float) -> Operation[bool]:
    """Note that the tool begins; False: this call began before, and must not begin again."""
    yield from fence(key, epoch)
    return bool((yield _START, (now, key, call_key(call_id), epoch)))


def finish(
    key: int, epoch: int, call_id: str, status: EffectStatus, result: Mapping[str, Any] | None, now: float
) -> Operation[None]:
    """Note how the tool ended, and its result, before the result becomes a message; nothing where the turn was lost."""
    yield _FINISH, (status, now, None if result is None else dumps(result), key, call_key(call_id), epoch)


def of_call(key: int, call_id: str, since_epoch: int = 0) -> Operation[EffectRecord | None]:
    """Read what the journal says of a call, by turns from an epoch on."""
    rows = yield _OF_CALL, (key, call_key(call_id), since_epoch)
    if not rows:
        return None
    return _record(rows[0])


Journal = Mapping[tuple[int, str], EffectRecord]
"""What is known of calls, by the message that holds the call or its result, and the call's `call_key`."""


def of_messages(key: int, messages: Sequence[Stored]) -> Operation[Journal]:
    """Read what the journal says of the calls in messages, without their results."""
    places = [(one.seq, call_key(call.id)) for one in messages if one.message for call in one.message.tool_calls]
    noted = yield from _noted(key, sorted({call_id for _, call_id in places}))
    again = [one for notes in noted.values() if len(notes) > 1 for one in notes]
    begins = yield from _begins(again)
    return {(seq, call_id): _of_message(seq, notes, begins) for seq, call_id in places if (notes := noted.get(call_id))}


class _Note(Struct, frozen=True):
    source_key: int
    epoch: int
    record: EffectRecord


def _noted(key: int, call_ids: list[str]) -> Operation[dict[str, list[_Note]]]:
    """Read every row of some calls, the oldest first."""
    noted: dict[str, list[_Note]] = {}
    for start in range(0, len(call_ids), _AT_ONCE):
        some = call_ids[start : start + _AT_ONCE]
        for source_key, epoch, *row in (yield _OF_CALLS, (key, *some, *(some[-1:] * (_AT_ONCE - len(some))))):
            noted.setdefault(row[0], []).append(_Note(source_key, epoch, _record(row)))
    return noted


def _begins(notes: Sequence[_Note]) -> Operation[dict[tuple[int, int], int]]:
    """Read where the turns that noted something begin."""
    begins: dict[tuple[int, int], int] = {}
    for source_key in {note.source_key for note in notes}:
        epochs = [note.epoch for note in notes if note.source_key == source_key]
        rows = yield _FIRST_SEQS, (source_key, min(epochs), max(epochs))
        begins |= {(source_key, epoch): first_seq for epoch, first_seq in rows}
    return begins


def _of_message(seq: int, notes: Sequence[_Note], begins: Mapping[tuple[int, int], int]) -> EffectRecord:
    """Choose among the turns that noted a call: an id may come again, and what was asked is run by a later turn."""
    place = max((n for n, one in enumerate(notes) if begins.get((one.source_key, one.epoch), 0) <= seq), default=0)
    record = notes[place].record
    asked = record.status in ("intended", "unknown") and record.approved_by not in (None, POLICY)
    return notes[place + 1].record if asked and place + 1 < len(notes) else record


def _record(row: Sequence[Any]) -> EffectRecord:
    *told, result, approved, approved_by = row
    return EffectRecord(
        *told,
        result=loads(result) if result else None,
        approved=None if approved is None else bool(approved),
        approved_by=approved_by,
    )


def keep_whole(key: int, epoch: int, call_id: str, text: str) -> Operation[None]:
    """Keep the whole text of a result that the model is shown clipped."""
    yield _KEEP, (readable(text), key, call_key(call_id), epoch)


def read_whole(key: int, call_id: str, offset: int, limit: int) -> Operation[str | None]:
    """Read a piece of a result that was clipped."""
    rows = yield _READ, (offset + 1, limit, key, call_key(call_id))
    return rows[0][0] if rows else None
