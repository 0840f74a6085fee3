"""Lease the right to observe a session, and store the observations of the holder."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.json_values import storable_text
from lango.sessions import SessionId
from lango.store.codec.json_text import dumps
from lango.store.codec.rows import insert_rows
from lango.store.engine.database import Operation
from lango.store.memory import observations, user_facts
from lango.store.memory.observations import BATCH_COLUMNS, OBSERVATION_COLUMNS, Batch
from lango.store.memory.user_facts import Fact
from lango.store.sessions.sessions import lock_session

_NEXT_BATCH = "SELECT COALESCE(MAX(batch), 0) + 1 FROM observation_batches WHERE session_key = $1"
_ACQUIRE = """
INSERT INTO observer_leases (session_key, owner, epoch) VALUES ($1, $2, 1)
ON CONFLICT (session_key) DO UPDATE SET owner = excluded.owner, epoch = observer_leases.epoch + 1
WHERE observer_leases.owner IS NULL OR observer_leases.owner = excluded.owner RETURNING epoch
"""
_HOLDER = """
SELECT l.owner, l.epoch, o.heartbeat FROM observer_leases l LEFT JOIN owners o ON o.owner = l.owner
WHERE l.session_key = $1
"""
_TAKE_OVER = (
    "UPDATE observer_leases SET owner = $1, epoch = epoch + 1 WHERE session_key = $2 AND epoch = $3 RETURNING epoch"
)
_IS_HELD = "SELECT epoch FROM observer_leases WHERE session_key = $1 AND epoch = $2 AND owner IS NOT NULL"
_RELEASE = "UPDATE observer_leases SET owner = NULL WHERE session_key = $1 AND epoch = $2"


class ObserverLease(Struct, frozen=True):
    """The right to observe a session; `heartbeat` is that of another owner that holds it."""

    session_key: int
    epoch: int
    owner: str
    heartbeat: int = -1
    held: bool = True
    """False: another owner holds it."""


def store_batch(
    lease: ObserverLease, name: SessionId, batch: Batch, facts: Sequence[Fact], now: float
) -> Operation[int | None]:
    """Store a batch and its facts; return its number, or None if the lease was lost or the session was deleted."""
    key = lease.session_key
    if (yield from lock_session(key)) is None or not (yield _IS_HELD, (key, lease.epoch)):
        return None
    number = yield from _insert_batch(key, replace(batch, created_at=now))
    if (yield from observations.is_still_valid(key, batch)):  # no facts from messages that have been rewound
        yield from user_facts.add_facts(name.app_name, name.user_id, key, facts, now)
    return number


def acquire_observer_lease(key: int, owner: str) -> Operation[ObserverLease | None]:
    """Acquire the lease of a session, or return the lease of its holder; return None if the session was deleted.

    An owner that still holds the lease gets it again: it could not release it.
    """
    if (yield from lock_session(key)) is None:
        return None
    for [number] in (yield _ACQUIRE, (key, owner)):
        return ObserverLease(key, number, owner)
    [[held_by, number, last_heartbeat]] = yield _HOLDER, (key,)
    return ObserverLease(key, number, held_by or "", -1 if last_heartbeat is None else last_heartbeat, held=False)


def take_over_observer_lease(abandoned: ObserverLease, owner: str) -> Operation[ObserverLease | None]:
    """Take over the lease of an owner that is gone; return None if another one took it over."""
    for [number] in (yield _TAKE_OVER, (owner, abandoned.session_key, abandoned.epoch)):
        return ObserverLease(abandoned.session_key, number, owner)
    return None


def release_observer_lease(lease: ObserverLease) -> Operation[None]:
    """Release a lease."""
    yield _RELEASE, (lease.session_key, lease.epoch)


def _insert_batch(key: int, batch: Batch) -> Operation[int]:
    [[number]] = yield _NEXT_BATCH, (key,)
    made_from = batch.generation, batch.first_seq, batch.last_seq, batch.floor_seq, batch.rewinds
    sources = dumps(list(batch.sources)) if batch.sources else None
    spent = batch.input_tokens, batch.output_tokens, batch.tokens, batch.created_at
    row = (key, number, *made_from, sources, storable_text(batch.model), *spent)
    yield from insert_rows("observation_batches", BATCH_COLUMNS, [row])
    rows = [
        (key, number, at, note.first_seq, note.last_seq, note.priority, note.day, storable_text(note.text))
        for at, note in enumerate(batch.observations, 1)
    ]
    yield from insert_rows("observations", OBSERVATION_COLUMNS, rows)
    return number
