"""Check that a session's rows agree with each other: derived columns are computed again and compared.

Nothing is repaired. Another program, a broken disk or a bad copy may have changed what `append` guarantees.
"""

from msgspec import Struct

from lango.sessions import STEERING, SessionId, SessionInfo
from lango.store.codec.json_text import dumps
from lango.store.codec.records import call_key
from lango.store.codec.rows import RESULT_ROLES, STATE_COLUMNS, calls_from_json, row_to_event, row_to_state_event
from lango.store.engine.database import Dialect, Operation, Row
from lango.store.sessions import sessions, state
from lango.store.sessions.window import read_rows

_PAGE = 200
_STATES = f"""
SELECT {STATE_COLUMNS} FROM state_events_with_lineage
WHERE session_key = $1 AND revision <= $2
ORDER BY seq, revision
"""  # noqa: S608 - constants
_NAMES = "SELECT app_name, user_id, id FROM sessions ORDER BY app_name, user_id, id"
_NEWEST = "SELECT MAX(seq) FROM messages WHERE session_key = $1"
_OPEN = "SELECT call_id, seq FROM open_calls WHERE session_key = $1 ORDER BY seq, call_id"
_RUNNING = "SELECT turn, epoch FROM turns WHERE session_key = $1 AND status = 'running'"
_OPEN_INDEX = "SELECT rowid FROM search_words LIMIT 1"
_ORPHANED_MESSAGES = """
SELECT COUNT(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_key = m.session_key)
    AND NOT EXISTS (SELECT 1 FROM shared_sessions s WHERE s.session_key = m.session_key)
"""
_WRONG_USES = """
SELECT c.hash, c.uses, COALESCE(u.uses, 0) FROM contents c LEFT JOIN (
    SELECT hash, COUNT(*) AS uses FROM (
        SELECT hash FROM message_contents UNION ALL SELECT hash FROM turn_contents
        UNION ALL SELECT hash FROM artifacts WHERE hash IS NOT NULL
    ) AS every_use GROUP BY hash
) u ON u.hash = c.hash WHERE c.uses <> COALESCE(u.uses, 0)
"""
_WRONG_SIZES = """
SELECT c.hash, c.size, COALESCE(k.size, 0) FROM contents c
LEFT JOIN (SELECT hash, SUM(LENGTH(data)) AS size FROM content_chunks GROUP BY hash) k ON k.hash = c.hash
WHERE c.size <> COALESCE(k.size, 0)
    AND (c.size >= 0 OR EXISTS (SELECT 1 FROM message_contents m WHERE m.hash = c.hash AND m.seq > 0))
"""  # an import stores a content in several transactions: until the last, its size is negative
_MISSING_CONTENTS = """
SELECT COUNT(*) FROM (
    SELECT hash FROM message_contents UNION SELECT hash FROM turn_contents
    UNION SELECT hash FROM artifacts WHERE hash IS NOT NULL
    UNION SELECT hash FROM content_chunks
) AS used WHERE NOT EXISTS (SELECT 1 FROM contents c WHERE c.hash = used.hash)
"""


class Problem(Struct, frozen=True):
    """An inconsistency of a session, or of the database."""

    what: str
    seq: int | None = None
    """The message that it is about, if any."""

    def __str__(self) -> str:
        """Return it as a sentence."""
        return self.what if self.seq is None else f"message {self.seq}: {self.what}"


class _Progress(Struct):
    """The values that the messages read so far lead to."""

    problems: list[Problem] = []
    next_seq: int = 1
    total_tokens: int = 0
    user_seq: int = 0
    calls: dict[str, int] = {}
    """Calls without a result, and the messages that made them."""
    made: set[tuple[str, int]] = set()
    results_without_ids: bool = False
    """Results of an older writer name no call, so which calls are open is unknown."""

    def add(self, what: str, seq: int | None = None) -> None:
        self.problems.append(Problem(what, seq))


def list_session_names() -> Operation[list[SessionId]]:
    """Read the names of all sessions, also of unreadable ones."""
    return [SessionId(*row) for row in (yield _NAMES, ())]


def check_session(name: SessionId) -> Operation[list[Problem]]:
    """Return the problems of a session. Raise `SessionNotFound`."""
    try:
        session = yield from sessions.get_session(name)
    except (ValueError, TypeError, AttributeError) as error:
        return [Problem(f"the session, or its state, cannot be read ({type(error).__name__})")]
    seen = _Progress()
    for first in range(1, session.last_seq + 1, _PAGE):
        for row in (yield from read_rows(session, first, min(first + _PAGE - 1, session.last_seq))):
            _check_message(seen, row)
    [[newest]] = yield _NEWEST, (session.key,)
    _check_end(seen, session, newest or 0)
    yield from _check_calls(seen, session)
    yield from _check_state(seen, session)
    for turn, epoch in (yield _RUNNING, (session.key,)):
        if epoch != session.epoch:
            seen.add(f"turn {turn} runs with epoch {epoch}; the session is at {session.epoch}")
    return seen.problems


def check_database(dialect: Dialect) -> Operation[list[Problem]]:
    """Return the problems of the database itself."""
    problems: list[Problem] = []
    if dialect == "sqlite":
        # a query makes FTS5 read its structure again: the pragma alone takes merges by other connections for damage
        yield _OPEN_INDEX, ()
        rows = yield "PRAGMA integrity_check(20)", ()
        problems += [Problem(f"SQLite finds: {finding}") for [finding] in rows if finding != "ok"]
    [[orphaned]] = yield _ORPHANED_MESSAGES, ()
    if orphaned:
        problems.append(Problem(f"{orphaned} messages belong to no session"))
    problems += [
        Problem(f"file {hash_} has a use count of {noted}, but {uses} rows use it")
        for hash_, noted, uses in (yield _WRONG_USES, ())
    ]
    problems += [
        Problem(f"file {hash_} has {found} of its {size} bytes") for hash_, size, found in (yield _WRONG_SIZES, ())
    ]
    [[missing]] = yield _MISSING_CONTENTS, ()
    return problems + ([Problem(f"{missing} files of messages and artifacts are missing")] if missing else [])


def _check_message(seen: _Progress, row: Row) -> None:
    seq, role, _, _, calls, tokens, total = row[:7]
    if seq != seen.next_seq:
        seen.add(_missing(seen.next_seq, seq - 1))
    seen.next_seq = seq + 1
    seen.user_seq = seq if role == "user" and STEERING not in (row[11] or "") else seen.user_seq
    try:
        if total != seen.total_tokens + tokens:
            seen.add(
                f"the stored total of tokens up to here is {total}; the messages have {seen.total_tokens + tokens}", seq
            )
        seen.total_tokens = total  # report an error once, not for all messages that follow
        row_to_event(row)
        _check_call_order(seen, seq, role, calls, row[-1])
    except Exception as error:  # noqa: BLE001 - the column may hold anything
        seen.add(f"it cannot be read ({type(error).__name__})", seq)


def _check_call_order(seen: _Progress, seq: int, role: str, calls: str | None, call_seq: int | None) -> None:
    seen.results_without_ids = seen.results_without_ids or (role in RESULT_ROLES and not calls)
    answered: list[int] = []
    for call in calls_from_json(calls) if calls else ():
        key = call_key(call.id)
        if call.output is not None or role in RESULT_ROLES:
            answered.append(seen.calls.pop(key, seq - 1))
        else:
            seen.calls[key] = seq
            seen.made.add((key, seq))
    if call_seq is None and answered and min(answered) != seq - 1:
        seen.add(f"it does not name the message of its call, {min(answered)}", seq)


def _missing(first: int, last: int) -> str:
    return f"message {first} is missing" if first == last else f"messages {first} to {last} are missing"


def _check_end(seen: _Progress, session: SessionInfo, newest: int) -> None:
    if newest > session.last_seq:
        seen.add(f"the session ends with message {session.last_seq}; there are messages up to {newest}")
    if seen.next_seq <= session.last_seq:
        seen.add(_missing(seen.next_seq, session.last_seq))
    elif seen.total_tokens != session.total_tokens:
        seen.add(
            f"the stored total of the session is {session.total_tokens} tokens; its messages have {seen.total_tokens}"
        )
    if seen.user_seq != session.user_seq:
        seen.add(f"the user's newest message is stored as {session.user_seq}, but is {seen.user_seq}")
    for at, first in session.rewinds:
        if not 1 <= first < at <= session.last_seq:
            seen.add(f"a rewind at message {at} goes back to message {first}")


def _check_calls(seen: _Progress, session: SessionInfo) -> Operation[None]:
    """Check that exactly the calls without a result are stored as open."""
    rows = yield _OPEN, (session.key,)
    noted: dict[str, int] = {row[0]: row[1] for row in rows}
    for call_id, seq in noted.items():
        if (call_id, seq) not in seen.made:
            seen.add(f"call {call_id!r} is stored as open, but the message has no such call", seq)
    if not seen.results_without_ids:
        for call_id, seq in seen.calls.items():
            if call_id not in noted:
                seen.add(f"call {call_id!r} has no result, and is not stored as open", seq)


def _check_state(seen: _Progress, session: SessionInfo) -> Operation[None]:
    for row in (yield _STATES, (session.key, session.revision)):
        try:
            row_to_state_event(row)
        except Exception as error:  # noqa: BLE001 - the column may hold anything
            seen.add(f"a change of the state after this message cannot be read ({type(error).__name__})", row[0])
    try:
        stored = yield from state.read_session_state(session.key)
        journaled = yield from state.read_state_at(session.key, session.last_seq)
    except Exception as error:  # noqa: BLE001 - the column may hold anything
        seen.add(f"the session's state cannot be read ({type(error).__name__})")
        return
    differing = [
        name for name in sorted({*stored, *journaled}) if dumps(stored.get(name)) != dumps(journaled.get(name))
    ]
    if differing:
        seen.add(f"the session's state differs from what its events set: {', '.join(differing)}")
