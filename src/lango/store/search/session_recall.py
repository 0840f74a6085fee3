"""Find messages of one session that have rare words of a question: the search behind automatic recall."""

from collections.abc import Sequence

from msgspec import Struct

from lango.sessions import SessionId, SessionRecord
from lango.store.codec.ids import expand
from lango.store.engine.database import Dialect, Operation, Statement
from lango.store.search import terms
from lango.store.search.index import INDEXED_CHARACTERS, user_hash
from lango.store.search.memory_entries import read_forgotten
from lango.store.search.recall import Memory, match_keys
from lango.store.sessions.lineage import RowRange, live_ranges, row_ranges
from lango.store.sessions.sessions import find_session

_MOST_MATCHES = 2_000  # looked at for one word; the newest first
_SHOWN_MATCHES = 256  # looked at beyond those to count: the newest are in the request, and are not counted
_CANDIDATES = 60
_INDEXED = "SELECT indexed_seq FROM search_progress WHERE session_key = $1"


class SessionWords(Struct, frozen=True):
    """How many messages of a session have each word of a question."""

    session: SessionRecord
    counts: tuple[int, ...]
    """Each up to the most that were to be counted."""
    indexed_seq: int
    """The newest message of the session itself that is in the index."""


def count_words(
    dialect: Dialect, name: SessionId, wanted: Sequence[terms.Term], before_seq: int, most: int
) -> Operation[SessionWords | None]:
    """Count up to `most` messages before `before_seq` that have each word; return None if there is no such session."""
    session = yield from find_session(name)
    if session is None:
        return None
    indexed = yield _INDEXED, (session.key,)
    places = list(row_ranges(session, 1, before_seq - 1))
    counts: list[int] = []
    if wanted and places:
        rows = yield _count_statement(dialect, user_hash(name.app_name, name.user_id), wanted, places, most)
        by_number: dict[int, int] = {row[0]: row[1] for row in rows}
        counts = [by_number.get(number, 0) for number in range(len(wanted))]
    return SessionWords(session, tuple(counts), indexed[0][0] if indexed else 0)


def find_in_session(
    dialect: Dialect, session: SessionRecord, wanted: Sequence[terms.Term], before_seq: int
) -> Operation[list[Memory]]:
    """Find the messages before `before_seq` with any of the words, without rewound and forgotten ones."""
    name = session.name
    places = list(row_ranges(session, 1, before_seq - 1))
    if not wanted or not places:
        return []
    rows = yield _find_statement(dialect, user_hash(name.app_name, name.user_id), wanted, places)
    forgotten = yield from read_forgotten(name.app_name, name.user_id)
    ranges = list(live_ranges(session.last_seq, session.rewinds))
    return [
        Memory(expand(event_id), author, text, created_at, name.id, seq)
        for _, seq, author, text, created_at, event_id in rows
        if expand(event_id) not in forgotten and any(first <= seq <= last for first, last in ranges)
    ]


def _within(places: Sequence[RowRange]) -> str:
    return " OR ".join(f"(m.session_key = {key} AND m.seq BETWEEN {first} AND {last})" for key, first, last in places)


def _newest_matches(number: int, most: int) -> str:
    """Select the newest messages of a user with a word, in SQLite.

    The limit makes SQLite search once. Without it, it would search again for each message of the session.
    """
    newest = f"SELECT rowid FROM search_words WHERE search_words MATCH ${number} ORDER BY rowid DESC LIMIT {most}"  # noqa: S608 - numbers
    return f"({newest}) f JOIN search_messages m ON m.id = f.rowid"


def _count_statement(
    dialect: Dialect, owner: str, wanted: Sequence[terms.Term], places: Sequence[RowRange], most: int
) -> Statement:
    within = _within(places)
    parts: list[str] = []
    for number in range(len(wanted)):
        if dialect == "postgres":
            found = f"search_messages m WHERE m.words @@ CAST(CAST(${number + 1} AS TEXT) AS tsquery) AND ({within})"
        else:
            found = f"{_newest_matches(number + 1, most + _SHOWN_MATCHES)} WHERE {within}"
        counted = f"SELECT 1 FROM {found} LIMIT {most}"  # noqa: S608 - numbers
        parts.append(f"SELECT {number}, COUNT(*) FROM ({counted}) c{number}")  # noqa: S608 - numbers
    return " UNION ALL ".join(parts), tuple(match_keys(dialect, owner, wanted))


def _find_statement(
    dialect: Dialect, owner: str, wanted: Sequence[terms.Term], places: Sequence[RowRange]
) -> Statement:
    """Select the messages with the most of the words, of these the newest."""
    within = _within(places)
    parts: list[str] = []
    for number in range(1, len(wanted) + 1):
        if dialect == "postgres":
            parts.append(
                f"SELECT m.session_key, m.seq FROM search_messages m "  # noqa: S608 - numbers
                f"WHERE m.words @@ CAST(CAST(${number} AS TEXT) AS tsquery) AND ({within})"
            )
        else:
            parts.append(f"SELECT m.session_key, m.seq FROM {_newest_matches(number, _MOST_MATCHES)} WHERE {within}")  # noqa: S608 - numbers
    sql = f"""
    SELECT w.session_key, w.seq, x.author, SUBSTR(x.content, 1, {INDEXED_CHARACTERS}), x.created_at, x.event_id FROM (
        SELECT session_key, seq, COUNT(*) AS matched FROM ({" UNION ALL ".join(parts)}) f GROUP BY session_key, seq
    ) w JOIN messages x ON x.session_key = w.session_key AND x.seq = w.seq WHERE x.seq > 0
    ORDER BY w.matched DESC, w.seq DESC LIMIT {_CANDIDATES}
    """  # noqa: S608 - constants
    return sql, tuple(match_keys(dialect, owner, wanted))
