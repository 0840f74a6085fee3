"""Read what waits for a person across the sessions of a user.

Requests to a person are open calls with the user's name, and calls of long-running tools have it, too: two small
indexes, whatever the number and length of the user's sessions.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lango.messages import ToolCall
from lango.sessions import SessionId, SessionRecord, StoredEvent, as_datetime
from lango.store.codec.ids import address_safe_id, call_key
from lango.store.codec.json_text import loads
from lango.store.codec.request_waits import wait_of_request
from lango.store.codec.rows import MESSAGE_COLUMNS, row_to_event
from lango.store.engine.database import Operation, Row
from lango.store.sessions.lineage import is_live, key_of_message, live_ranges
from lango.store.sessions.sessions import SESSION_COLUMNS, row_to_session, with_lineage
from lango.store.sessions.titles import FIRST_WORDS_COLUMN, shorten_title, with_first_words
from lango.store.tool_calls.tool_questions import ToolQuestion
from lango.typed_values import convert
from lango.waits import InboxItem, LongRunningWait, QuestionWait, Wait

Place = tuple[float, int, str]
"""Where an item stands in the inbox: since when it waits, the key of its session, and the key of its call."""

_FIRST_PLACE: Place = (float("inf"), 0, "")
_WAITING = f"""
SELECT * FROM (
    SELECT o.asked_at AS since, o.session_key AS in_session, o.call_id AS asking, o.seq, o.approves_call_id AS about,
        o.approves_call_seq AS about_seq, o.expires_at, o.turn, NULL AS question,
        {SESSION_COLUMNS}, {FIRST_WORDS_COLUMN}
    FROM open_calls o JOIN sessions s ON s.session_key = o.session_key
    WHERE o.app_name = $1 AND o.user_id = $2 AND o.answered_at IS NULL AND o.seq > s.user_seq
        AND (o.expires_at IS NULL OR o.expires_at > (SELECT now FROM database_clock))
        AND (o.asked_at, o.session_key, o.call_id) < ($3, $4, $5)
    ORDER BY o.asked_at DESC, o.session_key DESC, o.call_id DESC LIMIT $6
) AS requests
UNION ALL
SELECT * FROM (
    SELECT l.created_at AS since, l.session_key AS in_session, l.call_id AS asking, l.seq, NULL AS about,
        CAST(NULL AS BIGINT) AS about_seq, CAST(NULL AS DOUBLE PRECISION), l.turn, NULL AS question,
        {SESSION_COLUMNS}, {FIRST_WORDS_COLUMN}
    FROM long_running_calls l JOIN sessions s ON s.session_key = l.session_key
    WHERE l.app_name = $1 AND l.user_id = $2 AND l.settled = 0
        AND (l.created_at, l.session_key, l.call_id) < ($3, $4, $5)
    ORDER BY l.created_at DESC, l.session_key DESC, l.call_id DESC LIMIT $6
) AS results
UNION ALL
SELECT * FROM (
    SELECT q.asked_at AS since, q.session_key AS in_session, q.question_id AS asking, s.last_seq AS seq, NULL AS about,
        CAST(NULL AS BIGINT) AS about_seq, q.expires_at, q.turn, q.question, {SESSION_COLUMNS}, {FIRST_WORDS_COLUMN}
    FROM tool_questions q JOIN sessions s ON s.session_key = q.session_key AND s.epoch = q.epoch
    WHERE q.app_name = $1 AND q.user_id = $2 AND q.answer IS NULL
        AND q.expires_at > (SELECT now FROM database_clock)
        AND (q.asked_at, q.session_key, q.question_id) < ($3, $4, $5)
    ORDER BY q.asked_at DESC, q.session_key DESC, q.question_id DESC LIMIT $6
) AS questions
ORDER BY 1 DESC, 2 DESC, 3 DESC LIMIT $6
"""  # noqa: S608 - constants
_COLUMNS_BEFORE_SESSION = 9
_MESSAGES_PER_QUERY = 50
_PAIRS = ((2 * number + 1, 2 * number + 2) for number in range(_MESSAGES_PER_QUERY))
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS}, session_key FROM messages
WHERE (session_key, seq) IN (VALUES {", ".join(f"(CAST(${a} AS BIGINT), CAST(${b} AS BIGINT))" for a, b in _PAIRS)})
"""  # noqa: S608 - constants


class _Waiting(Struct, frozen=True):
    """A row of the inbox: the call that asks, or waits for its result."""

    place: Place
    seq: int
    about: str | None
    about_seq: int | None
    expires_at: float | None
    turn: int | None
    question: str | None
    """What a running tool asks; None: a call in a message asks."""
    session: SessionRecord

    @property
    def message(self) -> tuple[int, int]:
        """The message to read: that of the call which is to be approved, or that of the call itself."""
        seq = self.seq if self.about_seq is None else self.about_seq
        return key_of_message(self.session, seq), seq

    @property
    def request(self) -> tuple[int, int]:
        """The message of the call that asks."""
        return key_of_message(self.session, self.seq), self.seq


def read_inbox(
    app_name: str, user_id: str, *, after: Place | None = None, limit: int = 50
) -> Operation[list[InboxItem]]:
    """Read what waits for a user, the newest first, after a place."""
    items: list[InboxItem] = []
    place: Place | None = after or _FIRST_PLACE
    while place is not None and len(items) < limit:
        found, place = yield from _read_waiting(app_name, user_id, place, limit)
        places = {place for waiting in found for place in (waiting.message, waiting.request)}
        messages = yield from _read_messages(sorted(places))
        for waiting in found:
            wait: Wait | None = None
            if waiting.question is not None:
                wait = _question(waiting, waiting.question)
            elif (stored := messages.get(waiting.message)) is not None:
                wait = _to_wait(waiting, stored, messages.get(waiting.request, stored))
            if wait is not None:
                items.append(InboxItem(wait, waiting.session.display_title, waiting.place))
    return items[:limit]


def read_inbox_places(app_name: str, user_id: str, limit: int) -> Operation[tuple[Place, ...]]:
    """Read where the newest items stand: they differ when something starts or stops waiting."""
    found, _ = yield from _read_waiting(app_name, user_id, _FIRST_PLACE, limit)
    return tuple(waiting.place for waiting in found)


def _read_waiting(
    app_name: str, user_id: str, after: Place, limit: int
) -> Operation[tuple[list[_Waiting], Place | None]]:
    """Read a page of what waits, without what a rewind removed; and the place to read on from, if there is more."""
    if not SessionId(app_name, user_id, "").is_storable:
        return [], None
    rows: list[Row] = yield _WAITING, (app_name, user_id, *after, limit)
    sessions: dict[int, SessionRecord] = {}
    for row in rows:
        columns = row[_COLUMNS_BEFORE_SESSION:]
        if row[1] not in sessions:
            sessions[row[1]] = row_to_session(columns[:-1], first_words=shorten_title(columns[-1]))
    for session in (yield from with_lineage(list(sessions.values()))):
        named = (yield from with_first_words(session)) if session.forked_from or session.rewinds else session
        sessions[session.key] = named
    found = [
        _Waiting((row[0], row[1], row[2]), *row[3:_COLUMNS_BEFORE_SESSION], session=session)
        for row in rows
        if is_live(row[3], live_ranges((session := sessions[row[1]]).last_seq, session.rewinds))
    ]
    return found, ((rows[-1][0], rows[-1][1], rows[-1][2]) if len(rows) == limit else None)


def _read_messages(places: Sequence[tuple[int, int]]) -> Operation[dict[tuple[int, int], StoredEvent]]:
    """Read messages by the session that holds their rows, and their number."""
    messages: dict[tuple[int, int], StoredEvent] = {}
    for start in range(0, len(places), _MESSAGES_PER_QUERY):
        some = [*places[start : start + _MESSAGES_PER_QUERY]]
        some += some[-1:] * (_MESSAGES_PER_QUERY - len(some))
        for *columns, key in (yield _MESSAGES, tuple(value for place in some for value in place)):
            stored = row_to_event(columns)
            messages[key, stored.seq] = stored
    return messages


def _to_wait(waiting: _Waiting, stored: StoredEvent, asking: StoredEvent) -> Wait | None:
    """Return the wait of a row, or None if its call is the client's, or not in the message."""
    made = {call_key(call.id): call for call in _calls(stored) if call.id not in stored.client_call_ids}
    subject = made.get(waiting.place[2] if waiting.about is None else waiting.about)
    if subject is None:
        return None
    asked = {call_key(call.id): call for call in _calls(asking)}.get(waiting.place[2], subject)
    common = _common(waiting)
    wait = wait_of_request(asked, asking.message, asking.extra, subject, **common)
    return wait or LongRunningWait(
        **common, id=address_safe_id(subject.id), tool=subject.name, call_id=subject.id, arguments=subject.input or {}
    )


def _calls(stored: StoredEvent) -> tuple[ToolCall, ...]:
    return stored.message.tool_calls if stored.message else ()


def _question(waiting: _Waiting, question: str) -> QuestionWait:
    asked = convert(loads(question), ToolQuestion)
    return QuestionWait(
        **_common(waiting),
        id=waiting.place[2],
        message=asked.message,
        schema=asked.schema,
        payload=asked.payload,
        call_id=asked.tool_call_id,
    )


def _common(waiting: _Waiting) -> dict[str, Any]:
    return {
        "session_id": waiting.session.name.id,
        "turn": waiting.turn,
        "opened_at": as_datetime(waiting.place[0]),
        "expires_at": None if waiting.expires_at is None else as_datetime(waiting.expires_at),
    }
