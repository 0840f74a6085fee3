"""Read messages: all, one, a page, or the newest that fit a token budget.

The window is one query that finds its start by the running totals, at the same cost for a session of any length.
Rewinds split a session into live ranges, each of which takes a query; so does the lineage of a fork. Where not
everything fits, a large result counts with its share of the budget at most, and takes another query.
"""

from collections.abc import Container, Sequence
from itertools import chain

from msgspec.structs import replace

from lango.history import count_tokens
from lango.history.budget_window import RESULT_SHARE, first_valid_start
from lango.history.token_clipping import clip_results, clip_to_tokens, equal_share, estimate_tokens
from lango.sessions import (
    APP_PREFIX,
    CREDENTIAL_CALL,
    INPUT_CALL,
    REQUEST_PREFIX,
    USER_PREFIX,
    SessionId,
    SessionInfo,
    StoredEvent,
)
from lango.store.codec.rows import (
    BEGINS_TURN,
    MESSAGE_COLUMNS,
    RESULT_ROLES,
    STATE_COLUMNS,
    row_to_event,
    row_to_state_event,
)
from lango.store.engine.database import LARGEST, Operation, Row
from lango.store.sessions.lineage import (
    Range,
    RowRange,
    all_row_ranges,
    is_live,
    key_of_message,
    live_ranges,
    row_ranges,
    total_tokens_at,
)
from lango.store.sessions.sessions import find_session
from lango.store.sessions.state import read_state_at

_RECENT = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND created_at >= $4
ORDER BY seq DESC LIMIT $5
"""  # noqa: S608 - constants
_LAST_USER_MESSAGE = f"""
SELECT MAX(seq) FROM messages_with_lineage WHERE session_key = $1 AND seq <= $2 AND {BEGINS_TURN}
"""  # noqa: S608 - constants
_CALLS_ANSWERED_LATER = """
SELECT call_seq FROM messages WHERE session_key = $1 AND seq > $2 AND call_seq IS NOT NULL AND call_seq <= $2
"""
_STATE_EVENTS = f"""
SELECT {STATE_COLUMNS} FROM state_events_with_lineage
WHERE session_key = $1 AND revision > 0 AND revision <= $2 AND created_at >= $3 ORDER BY revision DESC LIMIT $4
"""  # noqa: S608
# Running totals only grow, so the start of the window is found by bisection: some twenty lookups of the primary key,
# at any length of the session, and no index on the totals that every append would have to update.
_WINDOW = f"""
WITH RECURSIVE half (low, high) AS (
    SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT)
    UNION ALL
    SELECT CASE WHEN m.total_tokens < $3 THEN m.seq + 1 ELSE half.low END,
           CASE WHEN m.total_tokens < $3 THEN half.high ELSE m.seq END
    FROM half JOIN messages m ON m.session_key = $4 AND m.seq = (half.low + half.high) / 2
    WHERE half.low < half.high
)
SELECT {MESSAGE_COLUMNS} FROM messages
WHERE session_key = $4 AND seq >= (SELECT MAX(low) FROM half) AND seq <= $2 ORDER BY seq
"""  # noqa: S608
_MESSAGE = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq = $2"  # noqa: S608
_MESSAGES_IN_RANGE = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq
"""  # noqa: S608
_OPEN_CALLS = """
SELECT seq FROM open_calls WHERE session_key = $1 AND (long_running = 1 OR seq > $2) GROUP BY seq ORDER BY seq
"""

_OPEN = """
SELECT seq FROM open_calls WHERE session_key = $1
UNION SELECT about_seq FROM waits WHERE session_key = $1 AND closed IS NULL AND about_seq IS NOT NULL
"""

MOST_MESSAGES = 1_000
"""The most messages of a window without another limit: those of a few tokens, or none, are many within a budget."""
_MOST_CHARACTERS_PER_TOKEN = 8  # JSON has two to four
_SEQ, _ROLE, _CALLS, _TOKENS, _TOTAL, _CALL_SEQ = 0, 1, 4, 5, 6, 12

_MESSAGES_PAGE = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND role <> 'event'
ORDER BY seq DESC LIMIT $4
"""  # noqa: S608 - constants


def read_session_events(
    name: SessionId, newest: int | None = None, since: float | None = None
) -> Operation[tuple[SessionInfo, list[StoredEvent]] | None]:
    """Read a session with all its events, or the `newest` ones, or those not older than `since`."""
    session = yield from find_session(name)
    return None if session is None else (session, (yield from read_events(session, newest, since)))


def read_session_window(
    name: SessionId, budget_tokens: int, max_messages: int | None = None, until: int | None = None
) -> Operation[tuple[SessionInfo, list[StoredEvent]] | None]:
    """Read a session with the newest messages that fit a token budget, at most `max_messages`.

    With `until`, read it as it was when that message was the newest.
    """
    session = yield from find_session_at(name, until)
    if session is None:
        return None
    as_it_was = until is not None
    return session, (yield from read_window(session, budget_tokens, max_messages, as_it_was=as_it_was))


def find_session_at(name: SessionId, until: int | None) -> Operation[SessionInfo | None]:
    """Find a session as it was when the message `until` was the newest, or as it is now if `until` is None."""
    session = yield from find_session(name)
    if session is None or until is None:
        return session
    user_seq = session.user_seq
    if user_seq > until:
        [[user_seq]] = yield _LAST_USER_MESSAGE, (session.key, until)
    shared = {name: value for name, value in session.state.items() if name.startswith((USER_PREFIX, APP_PREFIX))}
    state = shared | (yield from read_state_at(session.key, until, before_state_events=True))
    return replace(session, last_seq=until, user_seq=user_seq or 0, state=state)


def read_events(
    session: SessionInfo, newest: int | None = None, since: float | None = None
) -> Operation[list[StoredEvent]]:
    """Read all events in order, also those that only change state; or the `newest`, or those not older than `since`."""
    limit = LARGEST if newest is None else newest
    start = float("-inf") if since is None else since
    if newest is None and since is None:
        messages = yield from read_rows(session, 1, session.last_seq)
    else:
        messages = yield from _recent_rows(session, start, limit)
    changes = (yield _STATE_EVENTS, (session.key, session.revision, start, limit))[::-1]
    if not changes:
        return [row_to_event(row) for row in messages]
    # a state event follows the message that was the newest when it happened
    merged = sorted(
        chain(((row[_SEQ], 0, row) for row in messages), ((row[0], 1, row) for row in changes)),
        key=lambda item: item[:2],
    )
    found = [row_to_state_event(row) if is_state else row_to_event(row) for _, is_state, row in merged]
    return found[-limit:] if newest else found


def read_rows(session: SessionInfo, first: int, last: int) -> Operation[list[Row]]:
    """Read a range of messages in order, also of the lineage."""
    rows: list[Row] = []
    for place in row_ranges(session, first, last):
        rows[:0] = yield _MESSAGES_IN_RANGE, place
    return rows


def _recent_rows(session: SessionInfo, since: float, limit: int) -> Operation[list[Row]]:
    rows: list[Row] = []
    for place in row_ranges(session, 1, session.last_seq):
        if len(rows) < limit:
            rows += yield _RECENT, (*place, since, limit - len(rows))
    return rows[::-1]


def read_window(
    session: SessionInfo,
    budget_tokens: int,
    max_messages: int | None = None,
    first_seq: int = 1,
    *,
    as_it_was: bool = False,
) -> Operation[list[StoredEvent]]:
    """Read the newest messages that fit the budget, and older ones that a request needs.

    Messages before `first_seq` are observed, and are not read. `as_it_was`: `session` is an earlier state of the
    session (`find_session_at`). Where not everything fits, results and arguments of
    finished calls are clipped to their share of the budget.
    """
    ranges = live_ranges(session.last_seq, session.rewinds)
    share = budget_tokens // RESULT_SHARE
    rows: list[Row] = []
    left, room = budget_tokens, max_messages or MOST_MESSAGES
    for key, begin, last in all_row_ranges(session, ranges):
        if last < first_seq:
            break
        first = max(begin, first_seq)
        fitting, left = yield from _rows_within_budget(session, (key, max(first, last - room + 1), last), left, share)
        rows[:0] = fitting
        room -= len(fitting)
        if not fitting or fitting[0][_SEQ] > first:  # cut here
            rows = _drop_partial_start(rows) or (yield from _newest_message_with_call(session, ranges))
            break
    rows = yield from _with_required_rows(session, ranges, rows, as_it_was=as_it_was)
    stored = [row_to_event(row) for row in rows]
    tokens = [_plausible_tokens(row) for row in rows]
    if sum(tokens) <= budget_tokens:
        return stored
    large = [at for at, row in enumerate(rows) if row[_CALLS] and tokens[at] > share]
    if any(tokens[at] > row[_TOKENS] for at, row in enumerate(rows)):  # the stored counts are too low
        large = [at for at, row in enumerate(rows) if row[_CALLS]]
        share = min(share, equal_share([tokens[at] for at in large], budget_tokens))
    if any(rows[at][_ROLE] not in RESULT_ROLES for at in large):
        needed = {seq for [seq] in (yield _OPEN, (session.key,))}
        large = [at for at in large if _may_be_clipped(stored[at], session.user_seq, needed)]
    for at in large:
        if tokens[at] > share:
            stored[at] = _clip(stored[at], share)
    return stored


def _plausible_tokens(row: Row) -> int:
    """Return the tokens of a row; estimate them if its count is far too low for its calls, as in some imports."""
    calls = row[_CALLS] or ""
    return estimate_tokens(calls) if row[_TOKENS] < len(calls) // _MOST_CHARACTERS_PER_TOKEN else row[_TOKENS]


def _may_be_clipped(stored: StoredEvent, user_seq: int, needed: Container[int]) -> bool:
    """Whether a message has no call that is still to run, since a call runs with these arguments.

    Approval requests are not clipped either: ADK runs the call that they contain.
    """
    assert stored.message
    if stored.message.role in RESULT_ROLES:
        return True
    asks = any(call.name.startswith(REQUEST_PREFIX) for call in stored.message.tool_calls)
    return stored.seq < user_seq and stored.seq not in needed and not asks


def _clip(stored: StoredEvent, max_tokens: int) -> StoredEvent:
    """Clip the large results and arguments of a message, as in every request to a model."""
    assert stored.message
    [message] = clip_to_tokens([stored.message], max_tokens) or [clip_results(stored.message, max_tokens)]
    tokens = count_tokens(message)
    return replace(stored, message=message, tokens=tokens, clipped_tokens=max(0, stored.tokens - tokens))


def _rows_within_budget(
    session: SessionInfo, place: RowRange, budget: int, share: int
) -> Operation[tuple[list[Row], int]]:
    """Read the end of one live range that fits the budget, and say how many tokens are left of that.

    A large result counts as its share. What that saves goes to the messages before it: as a window has few shares, this
    takes few queries.
    """
    key, first, last = place
    rows: list[Row] = []
    end = last
    while end >= first:
        if rows:
            total = rows[0][_TOTAL] - rows[0][_TOKENS]
        else:
            total = yield from total_tokens_at(session, last)
        bound = total - budget
        # >= and not >: an event without tokens stands on the bound itself
        found = yield _WINDOW, (first, end, max(bound, 0), key)
        fitting = [row for row in found if row[_TOTAL] - row[_TOKENS] >= bound]
        edge = found[len(found) - len(fitting) - 1] if len(found) > len(fitting) else None
        if edge is not None and _is_large(edge, share) and sum(_cost(row, share) for row in fitting) + share <= budget:
            fitting.insert(0, edge)
        budget -= sum(_cost(row, share) for row in fitting)
        rows[:0] = fitting
        end = rows[0][_SEQ] - 1 if rows else last
        if not any(_is_large(row, share) for row in fitting):
            break
    return rows, budget


def _is_large(row: Row, share: int) -> bool:
    return row[_TOKENS] > share and row[_ROLE] in RESULT_ROLES


def _cost(row: Row, share: int) -> int:
    return share if _is_large(row, share) else row[_TOKENS]


def _drop_partial_start(rows: list[Row]) -> list[Row]:
    """Drop leading rows of a cut window: a result without its call, or a call without all its results."""
    if rows and rows[0][_ROLE] not in RESULT_ROLES and not rows[0][_CALLS]:
        return rows
    return rows[first_valid_start([message for row in rows if (message := row_to_event(row).message)]) :]


def _newest_message_with_call(session: SessionInfo, ranges: Sequence[Range]) -> Operation[list[Row]]:
    """Read the newest message although it does not fit, a result with its call; it is clipped later."""
    first, last = ranges[0]
    [newest] = yield _MESSAGE, (key_of_message(session, last), last)
    start = max(_seq_of_call_row(newest), first) if newest[_ROLE] in RESULT_ROLES else last
    return (yield from read_rows(session, start, last))


def _seq_of_call_row(result: Row) -> int:
    """Return the message of a result's call: the one in its row, else the message before."""
    return result[_SEQ] - 1 if result[_CALL_SEQ] is None else result[_CALL_SEQ]


def _with_required_rows(
    session: SessionInfo, ranges: Sequence[Range], rows: list[Row], *, as_it_was: bool
) -> Operation[list[Row]]:
    """Add the rows before the window that a request needs.

    These are the calls that wait for a result, the calls whose result lies in the window, and, while a turn is under
    way, the message of the user that it answers. A workflow that gets its input, and a tool that gets its
    credential, need everything since that message: ADK reads there what has run.
    """
    if not rows or rows[0][_SEQ] == 1:
        return rows
    newest = row_to_event(rows[-1]).message if rows[-1][_ROLE] in RESULT_ROLES else None
    if newest is not None and any(call.name in (INPUT_CALL, CREDENTIAL_CALL) for call in newest.tool_calls):
        before = yield from read_rows(session, session.user_seq, rows[0][_SEQ] - 1)
        rows = [*(row for row in before if is_live(row[_SEQ], ranges)), *rows]
    open_calls = yield _OPEN_CALLS, (session.key, session.user_seq)
    answered_later = (yield _CALLS_ANSWERED_LATER, (session.key, session.last_seq)) if as_it_was else []
    wanted = {seq for [seq] in (*open_calls, *answered_later)} | {
        row[_CALL_SEQ] for row in rows if row[_CALL_SEQ] is not None
    }
    if rows[-1][_ROLE] in (*RESULT_ROLES, "system") or rows[-1][_CALLS]:
        wanted.add(session.user_seq)
    earlier: list[Row] = []
    for seq in sorted(wanted - {row[_SEQ] for row in rows}):
        if is_live(seq, ranges):
            earlier += yield _MESSAGE, (key_of_message(session, seq), seq)
    return sorted([*earlier, *rows], key=lambda row: row[_SEQ]) if earlier else rows


def read_message(session: SessionInfo, seq: int) -> Operation[StoredEvent | None]:
    """Read a message, unless a rewind removed it."""
    live = is_live(seq, live_ranges(session.last_seq, session.rewinds))
    rows = (yield _MESSAGES_PAGE, (key_of_message(session, seq), seq, seq, 1)) if live else []
    return row_to_event(rows[0]) if rows else None


def read_message_page(
    session: SessionInfo, *, before: int | None = None, limit: int = 50
) -> Operation[list[StoredEvent]]:
    """Read the newest messages before a sequence number, in order, without those that a rewind removed."""
    end = session.last_seq if before is None else min(before - 1, session.last_seq)
    rows: list[Row] = []
    for key, first, last in all_row_ranges(session, live_ranges(session.last_seq, session.rewinds)):
        if len(rows) < limit and first <= end:
            rows += yield _MESSAGES_PAGE, (key, first, min(last, end), limit - len(rows))
    return [row_to_event(row) for row in reversed(rows)]
