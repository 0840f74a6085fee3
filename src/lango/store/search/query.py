"""Search the messages and titles of one user's sessions.

A search first brings the index up to date, so that appending costs nothing. A message is indexed once, under the
session that it was written in, and is found in the forks that share it, too. Messages that a rewind removed stay in
the index, but are not found.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lango.sessions import SessionId
from lango.store.codec.rows import rewinds_from_json
from lango.store.engine.database import Dialect, Operation, Row
from lango.store.search import terms
from lango.store.search.index import INDEXED_CHARACTERS, user_hash
from lango.store.sessions import sessions
from lango.store.sessions.lineage import Range, is_live, live_ranges
from lango.store.sessions.titles import with_first_words

_SNIPPET_LENGTH = 240
_SNIPPET_LEAD = 60
_PAGE = 200
_MAX_PAGES = 20
_FOUND = f"""
SELECT m.session_key, m.seq, x.role, SUBSTR(x.content, 1, {INDEXED_CHARACTERS}), x.created_at, m.size
"""
_RANKED = f"""
LEFT JOIN messages x ON x.session_key = m.session_key AND x.seq = m.seq
ORDER BY m.size, COALESCE(x.created_at, 9e99) DESC, m.session_key, m.seq DESC LIMIT {_PAGE} OFFSET $2
"""
_FIND = f"""
{_FOUND} FROM (SELECT rowid FROM search_words WHERE search_words MATCH $1) w JOIN search_messages m ON m.id = w.rowid
{_RANKED}
"""  # noqa: S608 - constants
_FIND_VECTOR = f"""
{_FOUND} FROM (SELECT * FROM search_messages WHERE words @@ CAST(CAST($1 AS TEXT) AS tsquery)) m
{_RANKED}
"""  # noqa: S608 - constants
# the session that a row was written in, and the forks that share it
_SESSIONS_OF_ROW = """
SELECT s.id, s.title, s.last_seq, s.rewinds, s.updated_at, 0, s.last_seq FROM sessions s
WHERE s.session_key = $1 AND s.app_name = $2 AND s.user_id = $3
UNION ALL
SELECT s.id, s.title, s.last_seq, s.rewinds, s.updated_at, l.first_seq, l.last_seq
FROM session_lineage l JOIN sessions s ON s.session_key = l.session_key
WHERE l.source_key = $1 AND s.app_name = $2 AND s.user_id = $3
"""


class Hit(Struct, frozen=True):
    """A message that was found, or a title, whose `seq` is 0."""

    session_id: str
    title: str
    seq: int
    role: Literal["user", "assistant", "title"]
    created_at: float
    text: str
    """The part of the message around the first match."""
    marks: tuple[terms.Span, ...]
    """The matches in `text`, as ranges of characters."""


class SessionOfRow(Struct, frozen=True):
    """A session that shows a message: the one that it was written in, or a fork that shares it."""

    id: str
    title: str | None
    live: list[Range]
    """The ranges of its messages that no rewind removed."""
    updated_at: float
    first: int
    last: int

    def shows_message(self, seq: int) -> bool:
        """Whether the message is visible in the session."""
        return self.first <= seq <= self.last and is_live(seq, self.live)


def search(dialect: Dialect, app_name: str, user_id: str, query_text: str, limit: int) -> Operation[list[Hit]]:
    """Find messages and titles that contain all words: phrases first, then titles, then shorter and newer messages."""
    wanted = terms.parse_terms(query_text)
    if not wanted:
        return []
    query = match_expression(dialect, user_hash(app_name, user_id), wanted)
    hits: list[Hit] = []
    sessions_by_key: dict[int, list[SessionOfRow]] = {}
    for page in range(_MAX_PAGES):
        rows = yield (_FIND_VECTOR if dialect == "postgres" else _FIND), (query, page * _PAGE)
        for key, *row in sorted(rows, key=lambda row: not terms.is_phrase_in(row[3] or "", wanted)):
            if key not in sessions_by_key:
                sessions_by_key[key] = yield from read_sessions_of_row(key, app_name, user_id)
            hits += _hits(sessions_by_key[key], row, wanted)
        if len(hits) >= limit or len(rows) < _PAGE:
            break
    return (yield from _with_titles(app_name, user_id, hits[:limit]))


def read_sessions_of_row(key: int, app_name: str, user_id: str) -> Operation[list[SessionOfRow]]:
    """Read the sessions of a user that show rows of a session: itself first, then its forks, the newest first."""
    found = yield _SESSIONS_OF_ROW, (key, app_name, user_id)
    return sorted(map(_row_to_session, found), key=lambda session: (session.first > 0, -session.updated_at))


def _with_titles(app_name: str, user_id: str, hits: Sequence[Hit]) -> Operation[list[Hit]]:
    """Add the first words of the sessions without titles."""
    shown = {hit.session_id: hit.title for hit in hits}
    for id_ in [id_ for id_, title in shown.items() if not title]:
        session = yield from sessions.find_session(SessionId(app_name, user_id, id_))
        if session:
            shown[id_] = (yield from with_first_words(session)).display_title
    return [replace(hit, title=shown[hit.session_id]) for hit in hits]


def match_expression(dialect: Dialect, owner: str, wanted: Iterable[terms.Term]) -> str:
    """Return the expression that finds the rows of a user with all of some terms: words of letters and digits.

    On PostgreSQL, an empty `owner` finds those of any user.
    """
    if dialect == "postgres":
        words = [_vector_term(term) for term in wanted]
        return " & ".join([f"'@{owner}'", *words] if owner else words)
    return f'user_hash : "{owner}" AND ' + " AND ".join(map(_word_term, wanted))


def _vector_term(term: terms.Term) -> str:
    if term.stem:
        return "(" + " | ".join(f"'{form}'" for form in term.forms) + ")"
    return " & ".join(f"'{text}'" + (":*" if prefix else "") for text, prefix in term.keys)


def _word_term(term: terms.Term) -> str:
    if term.stem:
        return "words : (" + " OR ".join(f'"{form}"' for form in term.forms) + ")"
    return " AND ".join(f'words : "{text}"' + (" *" if prefix else "") for text, prefix in term.keys)


def _row_to_session(row: Row) -> SessionOfRow:
    id_, title, last_seq, rewinds, updated_at, first, last = row
    return SessionOfRow(id_, title, live_ranges(last_seq, rewinds_from_json(rewinds)), updated_at, first, last)


def _hits(holders: Sequence[SessionOfRow], row: Sequence[Any], wanted: Sequence[terms.Term]) -> list[Hit]:
    seq, role, text, created_at, _ = row
    if seq == 0:
        return [
            Hit(session.id, session.title, 0, "title", session.updated_at, session.title, tuple(marks))
            for session in holders
            if session.first == 0 and session.title and (marks := terms.find_spans(session.title, wanted))
        ]
    marks = terms.find_spans(text or "", wanted)
    if not marks:
        return []
    shown, places = _snippet(text, marks)
    return [
        Hit(session.id, session.title or "", seq, role, created_at, shown, places)
        for session in holders
        if session.shows_message(seq)
    ]


def _snippet(text: str, marks: list[terms.Span]) -> tuple[str, tuple[terms.Span, ...]]:
    """Cut out the part around the first match, on one line."""
    start = max(0, marks[0][0] - _SNIPPET_LEAD)
    end = min(len(text), start + _SNIPPET_LENGTH)
    start = max(0, min(start, end - _SNIPPET_LENGTH))
    left, right = ("…" if start else ""), ("…" if end < len(text) else "")
    shift = len(left) - start
    shown = left + "".join(" " if char.isspace() else char for char in text[start:end]) + right
    return shown, tuple((first + shift, min(last, end) + shift) for first, last in marks if first < end)
