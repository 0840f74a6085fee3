"""Read the turns that are queued behind a running one."""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.messages import Message, StoredBytes, byte_size
from lango.sessions import SessionInfo, StoredEvent
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import ClientResult, NewEvent
from lango.store.codec.rows import calls_from_json, calls_to_json, event_to_row
from lango.store.contents import hold_for_turn, release_of_turn
from lango.store.engine.database import LARGEST, Operation
from lango.store.sessions.lineage import is_live, live_ranges
from lango.store.sessions.sessions import find_running_turn
from lango.store.turns.event_log import close_log
from lango.store.turns.turns import OpenTurn
from lango.store.waits.waits import reopen
from lango.store.webhooks.deliveries import HAS_WEBHOOKS, report_end

# the message of a steered turn belongs to the turn that took it in, and readers follow that one
_NEXT_TURNS = """
SELECT turn, first_seq FROM turns WHERE session_key = $1 AND turn > $2 AND status <> 'steered' ORDER BY turn LIMIT $3
"""
_NEXT_OF_RUN = """
SELECT turn, first_seq FROM turns
WHERE session_key = $1 AND turn > $2 AND status <> 'steered' AND invocation_id = $3 ORDER BY turn LIMIT $4
"""
_NEWEST_TURNS = """
SELECT turn, first_seq FROM turns
WHERE session_key = $1 AND turn < $2 AND status <> 'steered' ORDER BY turn DESC LIMIT $3
"""
# a turn that was withdrawn has no events
_NEWEST_STARTED = """
SELECT turn, first_seq FROM turns
WHERE session_key = $1 AND turn < $2 AND status <> 'steered' AND (epoch IS NOT NULL OR status <> 'cancelled')
ORDER BY turn DESC LIMIT $3
"""
_TURNS_PER_QUERY = 50

# from the first open turn on: the other turns of a long session are not scanned
_OPEN_TURNS = """
SELECT t.turn, t.status, COALESCE(t.owner, ''), COALESCE(o.heartbeat, -1)
FROM turns t LEFT JOIN owners o ON o.owner = t.owner
WHERE t.session_key = $1 AND t.turn < $2 AND t.status IN ('queued', 'running')
    AND t.turn >= (SELECT MIN(turn) FROM turns WHERE session_key = $1 AND status IN ('queued', 'running'))
ORDER BY t.turn
"""
TURN = "SELECT status, epoch, first_epoch, queued_input, owner FROM turns WHERE session_key = $1 AND turn = $2"
ANY_AHEAD = "SELECT 1 FROM turns WHERE session_key = $1 AND turn < $2 AND status IN ('queued', 'running') LIMIT 1"
WITHDRAW = f"""
UPDATE turns SET status = 'cancelled', ended_at = $1, queued_input = NULL
WHERE session_key = $2 AND turn = $3 AND status = 'queued' RETURNING turn, {HAS_WEBHOOKS}
"""  # noqa: S608 - constants

NEWEST_TURNS_READ = 200
"""How many of the newest turns are scanned for open ones, however long the session is."""

_QUEUED_MESSAGES = """
SELECT turn, queued_input FROM turns
WHERE session_key = $1 AND turn > (SELECT MAX(turn) FROM turns WHERE session_key = $1) - $2 AND status = 'queued'
ORDER BY turn
"""


def is_same_input(entry: NewEvent, digest: str | None) -> bool:
    """Whether an input is that of an earlier turn, by its digest.

    An input without content only repeats the request.
    """
    return entry.message is None or entry.message.role == "event" or digest is None or digest == input_digest(entry)


def input_digest(entry: NewEvent) -> str:
    """Return a hash of a turn's input, which is stored for longer than the input.

    Results that came with a message are not part of it: those of calls that no longer wait are left out of a retry.
    """
    row = event_to_row(entry)
    content = dumps([row.role, row.content, row.tool_calls, row.state_delta, row.extra])
    return hashlib.sha256(content.encode()).hexdigest()


def hold_input(key: int, turn: int, entry: NewEvent) -> Operation[str]:
    """Store the files of a queued turn's input, and return the rest of the input as text."""
    contents = {hash_: data for event in (*entry.preceding, entry) for hash_, data in event.contents.items()}
    if contents:
        yield from hold_for_turn(key, turn, contents)
    return dumps(_event_to_json(entry))


def release_input(key: int, turn: int, entry: NewEvent) -> Operation[None]:
    """Release the files of a turn's input that is no longer queued. Messages that use them are stored before."""
    if any(event.contents for event in (*entry.preceding, entry)):
        yield from release_of_turn(key, turn)


def _event_to_json(entry: NewEvent) -> dict[str, Any]:
    message = entry.message or Message("user")
    return {
        "event_id": entry.event_id,
        "created_at": entry.created_at,
        "invocation_id": entry.invocation_id,
        "tokens": entry.tokens,
        "role": message.role,
        "author": message.author,
        "content": message.content,
        "tool_calls": calls_to_json(message.tool_calls),
        "extra": dict(entry.extra or {}),
        "contents": {hash_: StoredBytes(hash_, byte_size(data)) for hash_, data in entry.contents.items()},
        "state_delta": dict(entry.state_delta or {}),
        "results": {
            call_id: [item.output, item.full_text, item.will_continue] for call_id, item in entry.client_results.items()
        },
        "before": [_event_to_json(item) for item in entry.preceding],
    }


def decode_input(text: str) -> NewEvent:
    """Decode the input of a queued turn."""
    return _event_from_json(loads(text))


def _event_from_json(members: Mapping[str, Any]) -> NewEvent:
    return NewEvent(
        event_id=members["event_id"],
        created_at=members["created_at"],
        invocation_id=members["invocation_id"],
        tokens=members["tokens"],
        message=Message(members["role"], members["content"], calls_from_json(members["tool_calls"]), members["author"]),
        extra=members["extra"],
        contents=members["contents"],
        state_delta=members.get("state_delta") or None,
        client_results={call_id: ClientResult(*item) for call_id, item in members.get("results", {}).items()},
        preceding=tuple(_event_from_json(item) for item in members.get("before", ())),
    )


def find_newest_turn(session: SessionInfo) -> Operation[int | None]:
    """Return the newest turn of a session that no rewind removed."""
    return (yield from _first_live_turn(session, _NEWEST_TURNS, LARGEST))


def find_next_turn(session: SessionInfo, turn: int, invocation_id: str | None = None) -> Operation[int | None]:
    """Return the next turn of a session that no rewind removed; with an invocation, the next one that continues it."""
    if invocation_id is None:
        return (yield from _first_live_turn(session, _NEXT_TURNS, turn))
    return (yield from _first_live_turn(session, _NEXT_OF_RUN, turn, invocation_id))


def _first_live_turn(session: SessionInfo, turns_from: str, start: int, *more: str) -> Operation[int | None]:
    live = live_ranges(session.last_seq, session.rewinds)
    while rows := (yield turns_from, (session.key, start, *more, _TURNS_PER_QUERY if session.rewinds else 1)):
        for turn, first_seq in rows:
            # without a message it is queued or never ran; beyond that it started after the session was read
            if first_seq is None or first_seq > session.last_seq or is_live(first_seq, live):
                return turn
        start = rows[-1][0]
    return None


def withdraw(key: int, turn: int, now: float) -> Operation[bool]:
    """Withdraw a queued turn of a locked session; return False if it is no longer queued."""
    rows = yield TURN, (key, turn)
    withdrawn = yield WITHDRAW, (now, key, turn)
    if not withdrawn:
        return False
    [[_, _, _, message, _]] = rows
    entry = decode_input(message)
    yield from reopen(key, entry)
    yield from release_input(key, turn, entry)
    yield from close_log(key, turn)
    if withdrawn[0][1]:
        yield from report_end(key, turn, "cancelled")
    return True


def read_open_turns(key: int, before: int = LARGEST) -> Operation[list[OpenTurn]]:
    """Read the open turns before a turn, in order."""
    return [OpenTurn(*row) for row in (yield _OPEN_TURNS, (key, before))]


def is_next(key: int, turn: int) -> Operation[bool]:
    """Whether no open turn is ahead of a turn, or it is no longer queued."""
    if not (yield ANY_AHEAD, (key, turn)):
        return True
    return not any(status == "queued" for [status, *_] in (yield TURN, (key, turn)))


class QueuedMessage(Struct, frozen=True):
    """The message of a queued turn, as it will be stored; its `seq` is 0 until then."""

    turn: int
    message: StoredEvent


def read_queued_messages(key: int) -> Operation[list[QueuedMessage]]:
    """Read the messages of a session's queued turns, in order."""
    rows = yield _QUEUED_MESSAGES, (key, NEWEST_TURNS_READ)
    found: list[QueuedMessage] = []
    for turn, message in rows:
        entry = decode_input(message)
        stored = StoredEvent(
            0, entry.event_id, entry.created_at, entry.message, invocation_id=entry.invocation_id, extra=entry.extra
        )
        found.append(QueuedMessage(turn, stored))
    return found


def find_current_turn(session: SessionInfo) -> Operation[int | None]:
    """Return the running turn, else the first queued one, else the newest that was neither withdrawn nor rewound."""
    running = yield from find_running_turn(session.key)
    if running is not None:
        return running
    for turn, _ in (yield _QUEUED_MESSAGES, (session.key, NEWEST_TURNS_READ)):
        return turn
    return (yield from _first_live_turn(session, _NEWEST_STARTED, LARGEST))
