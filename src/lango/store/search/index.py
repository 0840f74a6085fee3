"""Bring the search index of a user's sessions up to date, a batch of messages at a time."""

import functools
import hashlib
from collections.abc import Callable

from lango.config import Language
from lango.store.engine.database import Dialect, Operation, Row
from lango.store.engine.urls import Database
from lango.store.search import terms

INDEXED_CHARACTERS = 10_000
"""Only the beginning of a longer message is indexed."""
BATCH = 100
_BATCH_CHARACTERS = 50_000
_SESSIONS_TO_INDEX = """
SELECT s.session_key, COALESCE(p.indexed_seq, 0), s.last_seq
FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.session_key
WHERE s.app_name = $1 AND s.user_id = $2
    AND (p.indexed_seq IS NULL OR p.indexed_seq < s.last_seq OR COALESCE(p.indexed_title, '') <> COALESCE(s.title, ''))
ORDER BY s.updated_at DESC
"""
# rows of deleted sessions that forks share
_SHARED_TO_INDEX = """
SELECT h.session_key, COALESCE(p.indexed_seq, 0), MAX(l.last_seq) FROM sessions s
JOIN session_lineage l ON l.session_key = s.session_key
JOIN shared_sessions h ON h.session_key = l.source_key AND h.deleted = 1
LEFT JOIN search_progress p ON p.session_key = h.session_key
WHERE s.app_name = $1 AND s.user_id = $2 AND s.forked_from IS NOT NULL
GROUP BY h.session_key, p.indexed_seq HAVING COALESCE(p.indexed_seq, 0) < MAX(l.last_seq)
"""
# locks the row: two searches do not index the same message, and a deletion comes before or after
LOCK_PROGRESS = """
INSERT INTO search_progress (session_key, indexed_seq) VALUES ($1, 0)
ON CONFLICT (session_key) DO UPDATE SET indexed_seq = search_progress.indexed_seq RETURNING indexed_seq, indexed_title
"""
_TITLE = """
SELECT title FROM sessions WHERE session_key = $1
UNION ALL SELECT NULL FROM shared_sessions WHERE session_key = $1 AND deleted = 1
"""
_DELETE_PROGRESS = "DELETE FROM search_progress WHERE session_key = $1"
_MESSAGES = f"""
SELECT seq, CASE WHEN role IN ('user', 'assistant') THEN SUBSTR(content, 1, {INDEXED_CHARACTERS}) ELSE '' END
FROM messages WHERE session_key = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT {BATCH}
"""  # noqa: S608 - constants
_SET_PROGRESS = "UPDATE search_progress SET indexed_seq = $1, indexed_title = $2 WHERE session_key = $3"
_DELETE_TITLE = "DELETE FROM search_messages WHERE session_key = $1 AND seq = 0"

_ADD_ROW = (
    "INSERT INTO search_messages (session_key, seq, size) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING id"
)
_ADD_WORDS = "INSERT INTO search_words (rowid, user_hash, words) VALUES ($1, $2, $3)"
_ADD_VECTOR = """
INSERT INTO search_messages (session_key, seq, size, words)
VALUES ($1, $2, $3, array_to_tsvector(CAST($4 AS TEXT[]))) ON CONFLICT DO NOTHING
"""
_CHANGES = "SELECT total_changes()"
_MERGE = "INSERT INTO search_words (search_words, rank) VALUES ('merge', $1)"
_MERGED_PAGES = 100
IndexProgress = Callable[[int, int], None]
"""Called with the number of messages that were added to the index so far, and of all new ones."""


async def purge_index(database: Database) -> None:
    """Remove the words of deleted messages from the index: SQLite only marks them until it merges their segment."""
    if database.dialect == "sqlite":
        pages = -_MERGED_PAGES  # negative: merge everything
        while await database.write(functools.partial(_merge, pages), long=True):
            pages = _MERGED_PAGES


def _merge(pages: int) -> Operation[bool]:
    """Merge a part of the index; return whether anything was merged."""
    [[before]] = yield _CHANGES, ()
    yield _MERGE, (pages,)
    [[after]] = yield _CHANGES, ()
    return after - before >= 2  # by SQLite's manual, less means that nothing was left to merge


async def update_index(
    database: Database,
    app_name: str,
    user_id: str,
    progress: IndexProgress | None = None,
    language: Language = "english",
) -> None:
    """Bring the index of a user's sessions up to date, with the stems of a language."""
    found = await database.read(lambda: sessions_to_index(app_name, user_id))
    before, total = 0, sum(upto - done for _, done, upto in found)
    for key, first, upto in found:
        work = functools.partial(index_batch, database.dialect, app_name, user_id, key, upto, language)
        done = -1
        while done < upto:  # in batches, so that other writers come in between
            done = await database.write(work, long=True)
            if progress and total:  # otherwise only titles are new
                progress(before + min(done, upto) - first, total)
        before += upto - first


def sessions_to_index(app_name: str, user_id: str) -> Operation[list[tuple[int, int, int]]]:
    """Return the sessions of a user with messages that are not indexed: after which, and up to which."""
    rows = yield _SESSIONS_TO_INDEX, (app_name, user_id)
    shared = yield _SHARED_TO_INDEX, (app_name, user_id)
    return [(key, done, last) for key, done, last in [*rows, *shared]]


def index_batch(
    dialect: Dialect, app_name: str, user_id: str, key: int, upto: int, language: Language = "english"
) -> Operation[int]:
    """Index a batch of a session's messages; return the last one, which is `upto` at the end."""
    [[done, title]] = yield LOCK_PROGRESS, (key,)
    there: list[Row] = yield _TITLE, (key,)
    if not there:
        yield _DELETE_PROGRESS, (key,)
        return upto
    owner = user_hash(app_name, user_id)
    newest_title: str | None = there[0][0]
    if newest_title != title:
        yield _DELETE_TITLE, (key,)
        yield from _add(dialect, owner, key, 0, newest_title or "", language)
    rows: list[Row] = yield _MESSAGES, (key, done, upto)
    taken = characters = 0
    for seq, text in rows:
        yield from _add(dialect, owner, key, seq, text, language)
        done, taken, characters = seq, taken + 1, characters + len(text)
        if characters > _BATCH_CHARACTERS:
            break
    if taken == len(rows) and len(rows) < BATCH:
        done = max(done, upto)
    yield _SET_PROGRESS, (done, newest_title, key)
    return done


def _add(dialect: Dialect, owner: str, key: int, seq: int, text: str, language: Language) -> Operation[None]:
    found = terms.index_words(text)
    if not found:
        return
    size = len(found).bit_length() // 2 if seq else 0
    found += terms.index_stems(text, language) if seq else []
    if dialect == "postgres":
        yield _ADD_VECTOR, (key, seq, size, [f"@{owner}", *found])
        return
    for [id_] in (yield _ADD_ROW, (key, seq, size)):
        yield _ADD_WORDS, (id_, owner, " ".join(found))


def user_hash(app_name: str, user_id: str) -> str:
    """Return the term that marks the messages of a user in the index."""
    return hashlib.sha256(f"{app_name}\0{user_id}".encode()).hexdigest()[:24]
