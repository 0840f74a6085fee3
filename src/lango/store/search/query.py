"""Full-text search over one user's sessions.

Appending does not pay for it: an index beside the messages is brought up to date by whoever searches, some messages at
a time. A message is in the index once, under the session that it was written in; whoever shares it finds it, too. What
a rewind took back is in the index and is not found.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lango.store.codec.records import SessionId, rewinds_from_json
from lango.store.engine.database import Database, Dialect, Operation, Row
from lango.store.search import terms
from lango.store.sessions import sessions
from lango.store.sessions.titles import with_first_words
from lango.store.sessions.window import is_live, live_ranges

INDEXED_CHARACTERS = 10_000
"""Of a longer message, only the beginning is found."""
BATCH = 100
_BATCH_CHARACTERS = 50_000
_SHOWN = 240
_BEFORE = 60
_PAGE = 200
_MOST_PAGES = 20

_BEHIND = """
SELECT s.session_key, COALESCE(p.seq, 0), s.last_seq
FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.session_key
WHERE s.app_name = $1 AND s.user_id = $2
    AND (p.seq IS NULL OR p.seq < s.last_seq OR COALESCE(p.title, '') <> COALESCE(s.title, ''))
ORDER BY s.updated_at DESC
"""
# of sessions that are gone: what their forks still share
_BEHIND_SHARED = """
SELECT h.session_key, COALESCE(g.seq, 0), MAX(p.last_seq) FROM sessions s
JOIN session_pasts p ON p.session_key = s.session_key
JOIN shared_sessions h ON h.session_key = p.source_key AND h.deleted = 1
LEFT JOIN search_progress g ON g.session_key = h.session_key
WHERE s.app_name = $1 AND s.user_id = $2 AND s.forked_from IS NOT NULL
GROUP BY h.session_key, g.seq HAVING COALESCE(g.seq, 0) < MAX(p.last_seq)
"""
# takes the row: two that search at once do not do the same twice, and a delete comes before or after
LOCK = """
INSERT INTO search_progress (session_key, seq) VALUES ($1, 0)
ON CONFLICT (session_key) DO UPDATE SET seq = search_progress.seq RETURNING seq, title
"""
_IS_THERE = """
SELECT title FROM sessions WHERE session_key = $1
UNION ALL SELECT NULL FROM shared_sessions WHERE session_key = $1 AND deleted = 1
"""
_UNLOCK = "DELETE FROM search_progress WHERE session_key = $1"
_MESSAGES = f"""
SELECT seq, CASE WHEN role IN ('user', 'assistant') THEN SUBSTR(content, 1, {INDEXED_CHARACTERS}) ELSE '' END
FROM messages WHERE session_key = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT {BATCH}
"""  # noqa: S608 - constants
_DONE = "UPDATE search_progress SET seq = $1, title = $2 WHERE session_key = $3"
_FORGET_TITLE = "DELETE FROM search_messages WHERE session_key = $1 AND seq = 0"

_ADD_ROW = (
    "INSERT INTO search_messages (session_key, seq, size) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING id"
)
_ADD_WORDS = "INSERT INTO search_words (rowid, owner, words) VALUES ($1, $2, $3)"
_ADD_VECTOR = """
INSERT INTO search_messages (session_key, seq, size, words)
VALUES ($1, $2, $3, array_to_tsvector(CAST($4 AS TEXT[]))) ON CONFLICT DO NOTHING
"""
_CHANGES = "SELECT total_changes()"
_MERGE = "INSERT INTO search_words (search_words, rank) VALUES ('merge', $1)"
_MERGED_PAGES = 100
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
# whoever holds a row: the session that it was written in, and its forks
_HOLDERS = """
SELECT s.id, s.title, s.last_seq, s.rewinds, s.updated_at, 0, s.last_seq FROM sessions s
WHERE s.session_key = $1 AND s.app_name = $2 AND s.user_id = $3
UNION ALL
SELECT s.id, s.title, s.last_seq, s.rewinds, s.updated_at, p.first_seq, p.last_seq
FROM session_pasts p JOIN sessions s ON s.session_key = p.session_key
WHERE p.source_key = $1 AND s.app_name = $2 AND s.user_id = $3
"""


Indexing = Callable[[int, int], None]
"""Told how many messages that were new to the index are in it, and of how many."""


async def purge(database: Database) -> None:
    """Take the words of deleted messages out of the index: SQLite only marks them, until it merges their part of it."""
    if database.dialect == "sqlite":
        pages = -_MERGED_PAGES  # negative: merge all there is, not only where it would be due
        while await database.write(functools.partial(_merge, pages), long=True):
            pages = _MERGED_PAGES


def _merge(pages: int) -> Operation[bool]:
    """Merge a piece of the index; return whether there was one."""
    [[before]] = yield _CHANGES, ()
    yield _MERGE, (pages,)
    [[after]] = yield _CHANGES, ()
    return after - before >= 2  # as SQLite's manual says: less means that nothing was left to be done


class Hit(Struct, frozen=True):
    """A message that was found, or a title: that has number 0."""

    session_id: str
    title: str
    seq: int
    role: Literal["user", "assistant", "title"]
    created_at: float
    text: str
    """A piece of the message around the first word that was found."""
    marks: tuple[terms.Span, ...]
    """Where in `text` the words stand, in characters: from, to."""


class _Holder(Struct, frozen=True):
    id: str
    title: str | None
    last_seq: int
    rewinds: tuple[tuple[int, int], ...]
    updated_at: float
    first: int
    last: int

    def shows(self, seq: int) -> bool:
        """Whether the session holds this message, and did not take it back."""
        live = live_ranges(self.last_seq, self.rewinds)
        return self.first <= seq <= self.last and is_live(seq, live)


# -- keeping the index up to date ----------------------------------------------------------------------------------


async def update_index(database: Database, app_name: str, user_id: str, tell: Indexing | None = None) -> None:
    """Bring the index of a user's sessions up to date."""
    found = await database.read(lambda: behind(app_name, user_id))
    before, total = 0, sum(upto - done for _, done, upto in found)
    for key, first, upto in found:
        work = functools.partial(index_some, database.dialect, app_name, user_id, key, upto)
        done = -1
        while done < upto:  # some at a time: others write in between
            done = await database.write(work, long=True)
            if tell and total:  # else it is titles only
                tell(before + min(done, upto) - first, total)
        before += upto - first


def behind(app_name: str, user_id: str) -> Operation[list[tuple[int, int, int]]]:
    """Return the sessions of a user that have more than the index knows: from where, and up to where."""
    rows = yield _BEHIND, (app_name, user_id)
    shared = yield _BEHIND_SHARED, (app_name, user_id)
    return [(key, done, last) for key, done, last in [*rows, *shared]]


def index_some(dialect: Dialect, app_name: str, user_id: str, key: int, upto: int) -> Operation[int]:
    """Put some more messages of a session into the index; return up to where, `upto` at the end."""
    [[done, title]] = yield LOCK, (key,)
    there: list[Row] = yield _IS_THERE, (key,)
    if not there:
        yield _UNLOCK, (key,)
        return upto
    owner = _owner(app_name, user_id)
    newest_title: str | None = there[0][0]
    if newest_title != title:
        yield _FORGET_TITLE, (key,)
        yield from _add(dialect, owner, key, 0, newest_title or "")
    rows: list[Row] = yield _MESSAGES, (key, done, upto)
    taken = characters = 0
    for seq, text in rows:
        yield from _add(dialect, owner, key, seq, text)
        done, taken, characters = seq, taken + 1, characters + len(text)
        if characters > _BATCH_CHARACTERS:
            break
    if taken == len(rows) and len(rows) < BATCH:
        done = max(done, upto)
    yield _DONE, (done, newest_title, key)
    return done


def _add(dialect: Dialect, owner: str, key: int, seq: int, text: str) -> Operation[None]:
    found = terms.index_words(text)
    if not found:
        return
    size = len(found).bit_length() // 2 if seq else 0
    if dialect == "postgres":
        yield _ADD_VECTOR, (key, seq, size, [f"@{owner}", *found])
        return
    for [id_] in (yield _ADD_ROW, (key, seq, size)):
        yield _ADD_WORDS, (id_, owner, " ".join(found))


def _owner(app_name: str, user_id: str) -> str:
    """One word for a user: what is somebody else's is not even looked at."""
    return hashlib.sha256(f"{app_name}\0{user_id}".encode()).hexdigest()[:24]


# -- searching ---------------------------------------------------------------------------------------------------------


def search(dialect: Dialect, app_name: str, user_id: str, asked: str, limit: int) -> Operation[list[Hit]]:
    """Find messages and titles that hold every word, the best first, the newest first among equals.

    Better is where the words stand in a row, then a title, then a shorter message.
    """
    wanted = terms.terms(asked)
    if not wanted:
        return []
    query = (_vector_query if dialect == "postgres" else _match)(_owner(app_name, user_id), wanted)
    hits: list[Hit] = []
    holders: dict[int, list[_Holder]] = {}
    for page in range(_MOST_PAGES):
        rows = yield (_FIND_VECTOR if dialect == "postgres" else _FIND), (query, page * _PAGE)
        for key, *row in sorted(rows, key=lambda row: not terms.in_a_row(row[3] or "", wanted)):
            if key not in holders:
                found = yield _HOLDERS, (key, app_name, user_id)
                holders[key] = sorted(map(_holder, found), key=lambda one: (one.first > 0, -one.updated_at))
            hits += _hits(holders[key], row, wanted)
        if len(hits) >= limit or len(rows) < _PAGE:
            break
    return (yield from _with_titles(app_name, user_id, hits[:limit]))


def _with_titles(app_name: str, user_id: str, hits: Sequence[Hit]) -> Operation[list[Hit]]:
    """Say what the sessions are called that nobody named."""
    shown = {hit.session_id: hit.title for hit in hits}
    for id_ in [id_ for id_, title in shown.items() if not title]:
        record = yield from sessions.get(SessionId(app_name, user_id, id_))
        if record:
            shown[id_] = (yield from with_first_words(record)).shown_title
    return [replace(hit, title=shown[hit.session_id]) for hit in hits]


def _match(owner: str, wanted: Sequence[terms.Term]) -> str:
    """Spell a query for FTS5: every word is quoted, and holds nothing but letters and digits."""
    keys = [key for term in wanted for key in term.keys]
    spelt = " AND ".join(f'words : "{text}"' + (" *" if prefix else "") for text, prefix in keys)
    return f'owner : "{owner}" AND {spelt}'


def _vector_query(owner: str, wanted: Sequence[terms.Term]) -> str:
    keys = [key for term in wanted for key in term.keys]
    return " & ".join([f"'@{owner}'", *(f"'{text}'" + (":*" if prefix else "") for text, prefix in keys)])


def _holder(row: Row) -> _Holder:
    id_, title, last_seq, rewinds, updated_at, first, last = row
    return _Holder(id_, title, last_seq, rewinds_from_json(rewinds), updated_at, first, last)


def _hits(holders: Sequence[_Holder], row: Sequence[Any], wanted: Sequence[terms.Term]) -> list[Hit]:
    seq, role, text, created_at, _ = row
    if seq == 0:
        return [
            Hit(one.id, one.title, 0, "title", one.updated_at, one.title, tuple(marks))
            for one in holders
            if one.first == 0 and one.title and (marks := terms.spans(one.title, wanted))
        ]
    marks = terms.spans(text or "", wanted)
    if not marks:
        return []
    shown, places = _piece(text, marks)
    return [Hit(one.id, one.title or "", seq, role, created_at, shown, places) for one in holders if one.shows(seq)]


def _piece(text: str, marks: list[terms.Span]) -> tuple[str, tuple[terms.Span, ...]]:
    """Cut out a piece around the first mark, on one line."""
    start = max(0, marks[0][0] - _BEFORE)
    end = min(len(text), start + _SHOWN)
    start = max(0, min(start, end - _SHOWN))
    left, right = ("…" if start else ""), ("…" if end < len(text) else "")
    shift = len(left) - start
    shown = left + "".join(" " if char.isspace() else char for char in text[start:end]) + right
    return shown, tuple((first + shift, min(last, end) + shift) for first, last in marks if first < end)
