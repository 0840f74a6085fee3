"""Read what waits for a person across the sessions of a user.

Requests to a person are open calls with the user's name, and calls of long-running tools have it, too: two small
indexes, whatever the number and length of the user's sessions. Another kind of item is a class in `InboxItem` and a
function in `_READERS`, by the name of the call that asks.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.messages import ToolCall
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, SessionId, SessionRecord, StoredEvent
from lango.store.codec.ids import call_key
from lango.store.codec.rows import MESSAGE_COLUMNS, confirmation_of, row_to_event
from lango.store.engine.database import Operation, Row
from lango.store.sessions.lineage import is_live, key_of_message, live_ranges
from lango.store.sessions.sessions import SESSION_COLUMNS, row_to_session, with_lineage
from lango.store.sessions.titles import FIRST_WORDS_COLUMN, shorten_title, with_first_words
from lango.store.tool_calls.credential_requests import credential_request
from lango.store.tool_calls.input_requests import InputRequest, input_request
from lango.store.tool_calls.tool_questions import question_request

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


class _Item(Struct, frozen=True, kw_only=True, tag_field="kind"):
    session_id: str
    title: str
    """The title of the session."""
    turn: int | None
    """The turn that asked; None: a turn of the session that this one was forked from."""
    call_id: str
    """What the answer names."""
    waiting_since: float
    expires_at: float | None
    """An answer is accepted until then; None: it does not expire."""
    place: Place
    """Where it stands in the inbox, for the next page."""

    @property
    def id(self) -> str:
        """A short name of the item, for people."""
        _, session_key, asking = self.place
        return hashlib.sha256(f"{session_key}/{asking}".encode()).hexdigest()[:10]


class ApprovalItem(_Item, frozen=True, kw_only=True, tag="approval"):
    """A tool that runs with exactly these arguments once the user approves it."""

    tool: str
    arguments: Mapping[str, Any]
    hint: str = ""
    """What the tool itself says about its request."""
    payload: Any = None
    """What the tool shows besides."""


class InputItem(_Item, frozen=True, kw_only=True, tag="input"):
    """A request of a workflow, or of a running tool, for a value."""

    message: str
    schema: Mapping[str, Any] | None
    """The JSON schema of the value; None: any value."""
    payload: Any = None
    path: str = ""
    """The node that asks."""
    tool_call_id: str = ""
    """The running tool call that asks; empty: a workflow does."""


class ResultItem(_Item, frozen=True, kw_only=True, tag="result"):
    """A call of a long-running tool whose result is still to come."""

    tool: str
    arguments: Mapping[str, Any]


class CredentialItem(_Item, frozen=True, kw_only=True, tag="credential"):
    """A tool that needs a credential of the user."""

    auth_url: str
    """The address where the user allows the access; empty: the user gives a key, or a name and a password."""
    message: str = ""
    scopes: tuple[str, ...] = ()
    credential_kind: str = ""
    """The type of the scheme: `oauth2`, `openIdConnect`, `apiKey`, `http`."""
    scheme: str = ""
    """Of the kind `http`: `basic` asks for a name and a password, `bearer` for a token."""


InboxItem = ApprovalItem | InputItem | ResultItem | CredentialItem


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
            if waiting.question is not None:
                items.append(_question_item(waiting, waiting.question))
            elif (stored := messages.get(waiting.message)) is not None:
                items += _read_items(waiting, stored, messages.get(waiting.request, stored))
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


def _read_items(waiting: _Waiting, stored: StoredEvent, asking: StoredEvent) -> Iterator[InboxItem]:
    wanted = waiting.place[2] if waiting.about is None else waiting.about
    for call in stored.message.tool_calls if stored.message else ():
        if call_key(call.id) == wanted and call.id not in stored.client_call_ids:
            name = CONFIRMATION_CALL if waiting.about is not None else call.name
            yield _READERS.get(name, _result_item)(waiting, asking, call)
            return


def _question_item(waiting: _Waiting, question: str) -> InboxItem:
    return _requested_input(
        waiting, question_request(waiting.place[2], question, waiting.place[0], waiting.expires_at or 0.0)
    )


def _requested_input(waiting: _Waiting, request: InputRequest) -> InboxItem:
    return InputItem(
        **_common(waiting, request.call_id),
        message=request.message,
        schema=request.schema,
        payload=request.payload,
        path=request.path,
        tool_call_id=request.tool_call_id,
    )


def _common(waiting: _Waiting, call_id: str) -> dict[str, Any]:
    return {
        "session_id": waiting.session.name.id,
        "title": waiting.session.display_title,
        "turn": waiting.turn,
        "call_id": call_id,
        "waiting_since": waiting.place[0],
        "expires_at": waiting.expires_at,
        "place": waiting.place,
    }


def _approval_item(waiting: _Waiting, asking: StoredEvent, call: ToolCall) -> InboxItem:
    requests = asking.message.tool_calls if asking.message else ()
    asked = [confirmation_of(request) for request in requests if call_key(request.id) == waiting.place[2]]
    hint, payload = asked[0] if asked else ("", None)
    common = _common(waiting, call.id)
    return ApprovalItem(**common, tool=call.name, arguments=call.input or {}, hint=hint, payload=payload)


def _input_item(waiting: _Waiting, stored: StoredEvent, call: ToolCall) -> InboxItem:
    return _requested_input(waiting, input_request(stored, call, waiting.expires_at))


def _result_item(waiting: _Waiting, stored: StoredEvent, call: ToolCall) -> InboxItem:
    del stored
    return ResultItem(**_common(waiting, call.id), tool=call.name, arguments=call.input or {})


def _credential_item(waiting: _Waiting, stored: StoredEvent, call: ToolCall) -> InboxItem:
    request = credential_request(stored, call, waiting.expires_at)
    return CredentialItem(
        **_common(waiting, request.call_id),
        auth_url=request.auth_url,
        message=request.message,
        scopes=request.scopes,
        credential_kind=request.kind,
        scheme=request.scheme,
    )


_READERS: Mapping[str, Callable[[_Waiting, StoredEvent, ToolCall], InboxItem]] = {
    CONFIRMATION_CALL: _approval_item,
    INPUT_CALL: _input_item,
    CREDENTIAL_CALL: _credential_item,
}
"""How an item is read, by the name of the call that asks; every other call is one of a long-running tool."""
