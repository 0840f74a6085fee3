"""Record the start and the result of each tool call, so that a crash cannot run a tool twice.

After a crash the journal shows for every call without a result whether its tool never started, started and may have had
an effect, or finished with a result that was not stored as a message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.json_values import storable_text
from lango.sessions import StoredEvent
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn, call_key
from lango.store.engine.database import Operation
from lango.store.sessions.open_calls import await_result
from lango.store.sessions.sessions import check_epoch, is_current_epoch
from lango.waits.pauses import Pause

Effect = Literal["none", "idempotent", "once"]
JournalStatus = Literal["intended", "started", "finished", "unknown"]
_INTEND = """
INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at, approved,
    approved_by, approved_at, grant_id)
VALUES ($1, $2, $3, $4, $5, 'intended', $6, $7, $8, $9, $10, $11)
ON CONFLICT (session_key, call_id, epoch) DO UPDATE SET approved = excluded.approved,
    approved_by = excluded.approved_by, approved_at = excluded.approved_at, grant_id = excluded.grant_id
WHERE tool_journal.status = 'intended' AND (tool_journal.grant_id IS NOT NULL OR excluded.grant_id IS NOT NULL)
"""  # an earlier run of the turn may have decided by a grant that has ended since
_START = """
UPDATE tool_journal SET status = 'started', started_at = $1
WHERE session_key = $2 AND call_id = $3 AND epoch = $4 AND status = 'intended' RETURNING call_id
"""
_FINISH = """
UPDATE tool_journal SET status = $1, finished_at = $2, result = $3, actions = $4
WHERE session_key = $5 AND call_id = $6 AND epoch = $7 AND status = 'started'
"""
_ADD_FINISHED = """
INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at, finished_at,
    result)
VALUES ($1, $2, $3, $4, 'none', 'finished', '', $5, $5, $6)
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""
_STORE_FULL_RESULT = "UPDATE tool_journal SET whole = $1 WHERE session_key = $2 AND call_id = $3 AND epoch = $4"
_COLUMNS = "name, effect, status, arguments, started_at, finished_at, approved, approved_by, grant_id"
_OF_TURN = f"""
SELECT call_id, {_COLUMNS}, result, actions FROM tool_journal WHERE session_key = $1 AND epoch = $2
"""  # noqa: S608 - constants
_OF_EARLIER_TURN = f"""
SELECT {_COLUMNS}, result, actions FROM tool_journal
WHERE session_key = $1 AND call_id = $2 AND epoch < $3
    AND epoch IN (SELECT first_epoch FROM turns WHERE session_key = $1 AND invocation_id = $4)
ORDER BY epoch DESC LIMIT 1
"""  # noqa: S608 - constants
_READ_FULL_RESULT = """
SELECT SUBSTR(whole, CAST($1 AS INTEGER), CAST($2 AS INTEGER)) FROM tool_journal_with_lineage
WHERE session_key = $3 AND call_id = $4 AND whole IS NOT NULL ORDER BY epoch DESC LIMIT 1
"""
_OF_CALL = f"""
SELECT {_COLUMNS}, result, NULL FROM tool_journal_with_lineage
WHERE session_key = $1 AND call_id = $2 AND epoch >= $3 ORDER BY epoch DESC LIMIT 1
"""  # noqa: S608 - constants
_RECORD_APPROVAL = """
UPDATE tool_journal SET approved = $1, approved_by = $2, approved_at = $3 WHERE session_key = $4 AND call_id = $5
    AND epoch = (SELECT MAX(epoch) FROM tool_journal WHERE session_key = $4 AND call_id = $5)
"""
_CALLS_PER_QUERY = 50
_OF_CALLS = f"""
SELECT call_id, source_key, epoch, {_COLUMNS}, NULL, NULL FROM tool_journal_with_lineage WHERE session_key = $1
    AND call_id IN ({", ".join(f"${number + 2}" for number in range(_CALLS_PER_QUERY))}) ORDER BY epoch
"""  # noqa: S608 - constants
_FIRST_SEQS = """
SELECT first_epoch, first_seq FROM turns
WHERE session_key = $1 AND first_epoch >= $2 AND first_epoch <= $3 AND first_seq IS NOT NULL
"""

_NODE_ATTEMPTS = """
SELECT call_id, COALESCE(result, '') LIKE '{"failure":{"module":%' FROM tool_journal
WHERE session_key = $1 AND epoch = $2 AND status = 'finished' AND call_id LIKE '%node:%#%'
"""
_FORGET_ATTEMPT = "DELETE FROM tool_journal WHERE session_key = $1 AND epoch = $2 AND call_id = $3"

DECIDED_BY_POLICY = "policy"
"""The `approved_by` of an approval that no user answered."""


class JournalEntry(Struct, frozen=True):
    """The entry of a step of a turn: a tool call, a node of a workflow, or a model call in a tool."""

    name: str
    effect: Effect
    status: JournalStatus
    arguments: str
    """A hash."""
    started_at: float | None
    finished_at: float | None
    approved: bool | None
    """None: no approval was needed."""
    approved_by: str | None
    grant_id: int | None
    """The grant that approved it, or None if a person or the settings did."""
    result: Any = None
    actions: Mapping[str, Any] = {}
    """What the tool did in addition to its result: state, transfers, artifacts."""

    @property
    def is_not_run(self) -> bool:
        """Whether the tool has done nothing: it never started, or only asked for an approval or a credential."""
        return self.status in ("intended", "unknown")

    @property
    def duration_s(self) -> float | None:
        """How long the tool ran."""
        return seconds_between(self.started_at, self.finished_at)


def seconds_between(start: float | None, end: float | None) -> float | None:
    """Return how long something took, or None if it has not started or not ended."""
    return None if start is None or end is None else max(0.0, end - start)  # the clock may have gone back


class ApprovalDecision(Struct, frozen=True):
    """Who let a call run, or did not."""

    approved: bool
    decided_by: str
    grant_id: int | None = None
    """The grant that let it run."""


def record_intent(
    turn: Turn,
    call_id: str,
    name: str,
    effect: Effect,
    arguments: str,
    now: float,
    approval: ApprovalDecision | None = None,
) -> Operation[None]:
    """Record that a tool is about to run, and who approved it."""
    key = turn.session_key
    yield from check_epoch(key, turn.epoch)
    decision: tuple[Any, ...] = (None, None, None, None)
    if approval is not None:
        decision = (1 if approval.approved else 0, approval.decided_by, now, approval.grant_id)
    yield _INTEND, (key, call_key(call_id), turn.first_epoch, name, effect, arguments, now, *decision)


def record_approval(key: int, call_id: str, by: str, now: float, *, approved: bool) -> Operation[None]:
    """Record the answer to an approval request."""
    yield _RECORD_APPROVAL, (1 if approved else 0, by, now, key, call_key(call_id))


def record_start(turn: Turn, call_id: str, now: float) -> Operation[bool]:
    """Record that the tool starts; return False if it was started before."""
    yield from check_epoch(turn.session_key, turn.epoch)
    return bool((yield _START, (now, turn.session_key, call_key(call_id), turn.first_epoch)))


def record_result(
    turn: Turn,
    call_id: str,
    result: Any,
    now: float,
    status: JournalStatus = "finished",
    actions: Mapping[str, Any] | None = None,
    *,
    awaits_result: bool = False,
    pause: Pause | None = None,
) -> Operation[None]:
    """Record how the tool ended, with its result, before the result becomes a message; not if the lease was lost.

    `awaits_result`: it is a long-running tool, and results may still come after the turn, or it waits for a `pause`.
    """
    values = status, now, None if result is None else dumps(result), dumps(actions) if actions else None
    if (yield from is_current_epoch(turn.session_key, turn.epoch)):
        yield _FINISH, (*values, turn.session_key, call_key(call_id), turn.first_epoch)
        if awaits_result:
            yield from await_result(turn.session_key, call_id, now, pause)


def record_finished_step(turn: Turn, step_id: str, name: str, result: Any, now: float) -> Operation[None]:
    """Record a step that has no effects and is known only when it has ended; not if the lease was lost."""
    if (yield from is_current_epoch(turn.session_key, turn.epoch)):
        yield _ADD_FINISHED, (turn.session_key, call_key(step_id), turn.first_epoch, name, now, dumps(result))


def forget_failed_nodes(key: int, epoch: int) -> Operation[None]:
    """Forget the failed attempts of function nodes that did not succeed later: they run again when their turn does."""
    attempts = [
        (call_id, call_id.rpartition("#")[0], failed) for call_id, failed in (yield _NODE_ATTEMPTS, (key, epoch))
    ]
    succeeded = {node for _, node, failed in attempts if not failed}
    for call_id, node, failed in attempts:
        if failed and node not in succeeded:
            yield _FORGET_ATTEMPT, (key, epoch, call_id)


def read_turn_entries(turn: Turn) -> Operation[dict[str, JournalEntry]]:
    """Read the journal entries of one turn, by the `call_key` of their steps."""
    rows = yield _OF_TURN, (turn.session_key, turn.first_epoch)
    return {call_id: _row_to_entry(row) for call_id, *row in rows}


def read_earlier_step(turn: Turn, step_id: str, invocation_id: str) -> Operation[JournalEntry | None]:
    """Read the newest entry of a step that an earlier turn of the same invocation made, before it paused."""
    rows = yield _OF_EARLIER_TURN, (turn.session_key, call_key(step_id), turn.first_epoch, invocation_id)
    return _row_to_entry(rows[0]) if rows else None


def read_journal_entry(key: int, call_id: str, since_epoch: int = 0) -> Operation[JournalEntry | None]:
    """Read the newest entry of a call, made by turns from an epoch on."""
    rows = yield _OF_CALL, (key, call_key(call_id), since_epoch)
    return _row_to_entry(rows[0]) if rows else None


JournalByCall = Mapping[tuple[int, str], JournalEntry]
"""Journal entries, by the message that holds the call or its result, and the call's `call_key`."""


def read_journal_entries(key: int, messages: Sequence[StoredEvent]) -> Operation[JournalByCall]:
    """Read the entries of the calls in messages, without their results."""
    places = [
        (event.seq, call_key(call.id)) for event in messages if event.message for call in event.message.tool_calls
    ]
    noted = yield from _entries_of_calls(key, sorted({call_id for _, call_id in places}))
    begins = yield from _first_seqs([turn for entries in noted.values() if len(entries) > 1 for turn, _ in entries])
    return {
        (seq, call_id): _entry_of_message(seq, entries, begins)
        for seq, call_id in places
        if (entries := noted.get(call_id))
    }


_TurnPlace = tuple[int, int]
"""The session that a turn ran in, and its first epoch."""
_EntryOfTurn = tuple[_TurnPlace, JournalEntry]


def _entries_of_calls(key: int, call_ids: list[str]) -> Operation[dict[str, list[_EntryOfTurn]]]:
    """Read every row of some calls, the oldest first."""
    noted: dict[str, list[_EntryOfTurn]] = {}
    for start in range(0, len(call_ids), _CALLS_PER_QUERY):
        some = call_ids[start : start + _CALLS_PER_QUERY]
        rows = yield _OF_CALLS, (key, *some, *(some[-1:] * (_CALLS_PER_QUERY - len(some))))
        for call_id, source_key, epoch, *columns in rows:
            noted.setdefault(call_id, []).append(((source_key, epoch), _row_to_entry(columns)))
    return noted


def _first_seqs(turns: Sequence[_TurnPlace]) -> Operation[dict[_TurnPlace, int]]:
    """Read the first messages of some turns."""
    begins: dict[_TurnPlace, int] = {}
    for key in {key for key, _ in turns}:
        epochs = [epoch for source_key, epoch in turns if source_key == key]
        rows = yield _FIRST_SEQS, (key, min(epochs), max(epochs))
        begins |= {(key, epoch): first_seq for epoch, first_seq in rows}
    return begins


def _entry_of_message(seq: int, entries: Sequence[_EntryOfTurn], begins: Mapping[_TurnPlace, int]) -> JournalEntry:
    """Choose among entries of one call id: ids may repeat, and a later turn may run an approved call."""
    place = max((n for n, (turn, _) in enumerate(entries) if begins.get(turn, 0) <= seq), default=0)
    entry = entries[place][1]
    not_run = entry.is_not_run and entry.approved_by not in (None, DECIDED_BY_POLICY)
    return entries[place + 1][1] if not_run and place + 1 < len(entries) else entry


def _row_to_entry(row: Sequence[Any]) -> JournalEntry:
    *columns, approved, approved_by, grant_id, result, actions = row
    return JournalEntry(
        *columns,
        approved=None if approved is None else bool(approved),
        approved_by=approved_by,
        grant_id=grant_id,
        result=loads(result) if result else None,
        actions=loads(actions) if actions else {},
    )


def store_full_result(turn: Turn, call_id: str, text: str) -> Operation[None]:
    """Store the full text of a result that the model sees clipped."""
    if (yield from is_current_epoch(turn.session_key, turn.epoch)):
        yield _STORE_FULL_RESULT, (storable_text(text), turn.session_key, call_key(call_id), turn.first_epoch)


def read_full_result(key: int, call_id: str, offset: int, limit: int) -> Operation[str | None]:
    """Read a part of the full text of a clipped result."""
    rows = yield _READ_FULL_RESULT, (offset + 1, limit, key, call_key(call_id))
    return rows[0][0] if rows else None
