"""Operations on calls of tools that the client runs: each waits in the store for its result, or for the next message.

Such a call is long-running: no turn's end closes it, and any process takes its result. Where the conversation goes on
without one, the call is closed with a result that says so, in the transaction of the message that went on.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from lango.messages import ToolCall
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import readable
from lango.store.codec.records import ClientResult, Entry, SessionId, SessionRecord, Stored
from lango.store.codec.rows import MESSAGE_COLUMNS, client_calls, from_message_row
from lango.store.engine.database import Operation
from lango.store.sessions.append import append
from lango.store.sessions.lineage import is_live, live_of, live_ranges
from lango.store.sessions.open_calls import closing

UNANSWERED = (
    "no result: the conversation went on before the client gave one. Whether the client did what was asked is unknown"
)
NO_RESULT = {"error": UNANSWERED, "outcome": "unknown"}
"""The result of a call that the client left without one."""

_OPEN = """
SELECT call_id, seq FROM open_calls
WHERE session_key = $1 AND long_running = 1 AND asks_about IS NULL ORDER BY seq
"""
_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM history WHERE session_key = $1 AND seq = $2"  # noqa: S608 - constants
_KEEP = """
INSERT INTO effects (session_key, call_id, epoch, name, effect, status, arguments, intended_at, finished_at, whole)
VALUES ($1, $2, $3, '', 'once', 'finished', '', $4, $4, $5)
ON CONFLICT (session_key, call_id, epoch) DO NOTHING
"""


class ClientCall(Struct, frozen=True):
    """A call that waits for the client, and the message that made it."""

    call: ToolCall
    made_by: Stored


def waiting(session: SessionRecord) -> Operation[list[ClientCall]]:
    """Read the calls that wait for the client, in order."""
    return (yield from _waiting(session.key, list(live_ranges(session.last_seq, session.rewinds))))


def are_open(key: int, call_ids: Collection[str]) -> Operation[bool]:
    """Whether every one of these calls still waits."""
    rows = yield _OPEN, (key,)
    return {call_key(call_id) for call_id in call_ids} <= {call_id for call_id, _ in rows}


def overtake(key: int, name: SessionId, revision: int, now: float, given: Mapping[str, ClientResult]) -> Operation[int]:
    """Close what waits for the client, with the result that was given or with none; return the new revision."""
    if not (yield _OPEN, (key,)):
        return revision
    found = yield from _waiting(key, (yield from live_of(key)))
    by_message: dict[int, list[ClientCall]] = {}
    for one in found:
        by_message.setdefault(one.made_by.seq, []).append(one)
    for calls in by_message.values():
        revision = (yield from append(key, name, revision, _closing(calls, given, revision, now))).revision
    return revision


def keep_wholes(key: int, epoch: int, results: Mapping[str, ClientResult], now: float) -> Operation[None]:
    """Keep the whole texts of results that the model is shown clipped, to be read in pieces."""
    for call_id, result in results.items():
        if result.whole is not None:
            yield _KEEP, (key, call_key(call_id), epoch, now, readable(result.whole))


def _waiting(key: int, live: list[tuple[int, int]]) -> Operation[list[ClientCall]]:
    by_seq: dict[int, set[str]] = {}
    for call_id, seq in (yield _OPEN, (key,)):
        by_seq.setdefault(seq, set()).add(call_id)
    found: list[ClientCall] = []
    for seq, open_ids in by_seq.items():
        if not is_live(seq, live):
            continue  # taken back: nobody reads the call any more
        for row in (yield _MESSAGE, (key, seq)):
            stored = from_message_row(row)
            own = client_calls(stored)
            calls = stored.message.tool_calls if stored.message else ()
            found += [ClientCall(one, stored) for one in calls if one.id in own and call_key(one.id) in open_ids]
    return found


def _closing(calls: list[ClientCall], given: Mapping[str, ClientResult], revision: int, now: float) -> Entry:
    """Make the message that closes calls: with what was given, else as unanswered."""
    made_by = calls[0].made_by
    none = ClientResult(NO_RESULT)
    results = tuple(ToolCall(one.call.id, one.call.name, output=given.get(one.call.id, none).output) for one in calls)
    return closing(f"client-{made_by.seq}-{revision}", made_by, results, now)
