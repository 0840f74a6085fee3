"""Find what contains some of the words of a question: the search behind an agent's memory and automatic recall.

Unlike a user's search, which requires every word, a memory is asked with whole sentences. What contains the most words
of the question ranks first, of these the newest. Common English words do not count. Automatic recall looks for rare
words in one session.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.config import Language
from lango.sessions import SessionId, SessionInfo
from lango.store.engine.database import Dialect, Operation, Row, Statement
from lango.store.search import terms
from lango.store.search.index import INDEXED_CHARACTERS, user_hash
from lango.store.search.memory_entries import CANDIDATES, Memory, read_forgotten
from lango.store.search.query import SessionOfRow, match_expression, read_sessions_of_row
from lango.store.sessions.lineage import RowRange, is_live, key_of_message, live_ranges, row_ranges
from lango.store.sessions.sessions import find_session

_EXCERPT_CHARACTERS = 2_000
_EXCERPT_LEAD = 200
_LONGEST_PHRASE = 4
"""A run of so many characters of a script without spaces is one term; a longer one is a sentence."""

# with what an apostrophe leaves: "Ann's" and "that's" have no word in common
_COMMON_WORDS = frozenset(
    """
    a about am an and any are as at be been but by can could did do does for from had has have he her him his how i
    if in into is it its just may me my no not of on or our she should so some such than that the their them then
    there these they this to was we were what when where which who why will with would you your
    d didn doesn don isn ll m re s t ve wasn weren won wouldn
    """.split()  # noqa: SIM905
)

_FOUND = f"""
SELECT w.session_key, w.seq, x.author, SUBSTR(x.content, 1, {INDEXED_CHARACTERS}), x.created_at, x.event_id
"""
_RANKED = f"""
JOIN messages x ON x.session_key = w.session_key AND x.seq = w.seq
ORDER BY w.matched DESC, x.created_at DESC, w.session_key, w.seq LIMIT {CANDIDATES}
"""
_FIND_VECTORS = f"""
{_FOUND} FROM (
    SELECT session_key, seq,
        (SELECT COUNT(*) FROM UNNEST(CAST($1 AS TEXT[])) AS t(word) WHERE m.words @@ CAST(t.word AS tsquery)) AS matched
    FROM search_messages m WHERE m.seq > 0 AND m.words @@ CAST(CAST($2 AS TEXT) AS tsquery)
) w
{_RANKED}
"""  # noqa: S608 - constants
_MOST_MATCHES = 2_000  # looked at for one word; the newest first
_SHOWN_MATCHES = 256  # looked at beyond those to count: the newest are in the request, and are not counted
CANDIDATES_OF_SESSION = 80
_BESIDE = " UNION ALL ".join(f"SELECT {beside} AS beside" for beside in range(-2, 3))
"""A message and those before and after it, where its answer may stand."""
_RANGE = f"""
SELECT seq, author, SUBSTR(content, 1, {INDEXED_CHARACTERS}), created_at, event_id FROM messages
WHERE session_key = $1 AND seq BETWEEN $2 AND $3 AND (seq - $2) / 2 % $4 = 0
    AND role IN ('user', 'assistant') AND content <> '' ORDER BY seq
"""  # noqa: S608 - constants
_TIME_OF = "SELECT created_at FROM messages WHERE session_key = $1 AND seq = $2"
_INDEXED = "SELECT indexed_seq FROM search_progress WHERE session_key = $1"


def parse_question(text: str, language: Language | None = None) -> list[terms.Term]:
    """Split a question into the terms to look for, without common words; with a language, in all of their forms."""
    wanted: dict[terms.Term, None] = {}
    for term in terms.split_terms(text[:INDEXED_CHARACTERS], language):
        if term.run and len(term.text) > _LONGEST_PHRASE:
            pairs = (term.text[at : at + 2] for at in range(len(term.text) - 1))
            wanted.update((terms.Term(pair, run=True), None) for pair in pairs)
        elif term.run or term.text not in _COMMON_WORDS:
            wanted[term] = None
    return list(wanted)[: terms.MAX_TERMS]


def rank(memories: Iterable[Memory], wanted: Sequence[terms.Term], most: int) -> list[Memory]:
    """Return the memories with the most terms, of these the newest, cut to an excerpt around the first term.

    Equals keep their order. It takes CPU time: call it in a thread.
    """
    counted = [(count, memory) for memory in memories if (count := _count_terms(memory.text, wanted))]
    counted.sort(key=lambda pair: (-pair[0], -(pair[1].created_at or 0.0)))
    return [_excerpt(memory, wanted) for _, memory in counted[:most]]


def _count_terms(text: str, wanted: Sequence[terms.Term]) -> int:
    words = frozenset(terms.index_words(text[:INDEXED_CHARACTERS]))
    return sum(has_term(words, term) for term in wanted)


def has_term(words: frozenset[str], term: terms.Term) -> bool:
    """Whether a text with these words in the index has a term."""
    return all(_is_in(key, words, prefix=prefix) for key, prefix in term.keys)


def _is_in(key: str, words: frozenset[str], *, prefix: bool) -> bool:
    return any(word.startswith(key) for word in words) if prefix else key in words


def _excerpt(memory: Memory, wanted: Sequence[terms.Term]) -> Memory:
    text = memory.text
    if memory.content is not None or len(text) <= _EXCERPT_CHARACTERS:
        return memory
    marks = [spans[0][0] for term in wanted if (spans := terms.find_spans(text, [term]))]
    start = max(0, min([*marks, len(text)]) - _EXCERPT_LEAD)
    start = max(0, min(start, len(text) - _EXCERPT_CHARACTERS))
    end = start + _EXCERPT_CHARACTERS
    shown = ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
    return replace(memory, text=shown)


def find_messages(
    dialect: Dialect, app_name: str, user_id: str, wanted: Sequence[terms.Term]
) -> Operation[list[Memory]]:
    """Find the messages of a user's stored sessions with any of the terms; those with the most terms first."""
    rows = yield _find_statement_of_user(dialect, user_hash(app_name, user_id), wanted)
    found: list[Memory] = []
    sessions_by_key: dict[int, list[SessionOfRow]] = {}
    for key, seq, author, text, created_at, event_id in rows:
        if key not in sessions_by_key:
            sessions_by_key[key] = yield from read_sessions_of_row(key, app_name, user_id)
        shown_in = [session for session in sessions_by_key[key] if session.shows_message(seq)]
        if shown_in:  # a fork shares the message, which is one memory
            found.append(Memory(event_id, author, text, created_at, shown_in[0].id, seq))
    return found


def match_keys(dialect: Dialect, owner: str, wanted: Sequence[terms.Term]) -> list[str]:
    """Return one search expression per term: for SQLite of this user's messages, for PostgreSQL of any."""
    return [match_expression(dialect, "" if dialect == "postgres" else owner, [term]) for term in wanted]


def _find_statement_of_user(dialect: Dialect, owner: str, wanted: Sequence[terms.Term]) -> Statement:
    matches = match_keys(dialect, owner, wanted)
    if dialect == "postgres":
        either = " | ".join(f"({vector})" for vector in matches)
        return _FIND_VECTORS, (matches, f"'@{owner}' & ({either})")
    parts = " UNION ALL ".join(
        f"SELECT rowid AS id FROM search_words WHERE search_words MATCH ${number}"  # noqa: S608 - numbers
        for number in range(1, len(matches) + 1)
    )
    sql = f"""
    {_FOUND} FROM (
        SELECT m.session_key, m.seq, COUNT(*) AS matched FROM ({parts}) f JOIN search_messages m ON m.id = f.id
        WHERE m.seq > 0 GROUP BY m.session_key, m.seq
    ) w {_RANKED}
    """  # noqa: S608 - constants
    return sql, tuple(matches)


# -- one session ------------------------------------------------------------------------------------------------------


class SessionWords(Struct, frozen=True):
    """How many messages of a session have each word of a question."""

    session: SessionInfo
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
    dialect: Dialect,
    session: SessionInfo,
    weighted: Sequence[tuple[terms.Term, float]],
    first_seq: int,
    last_seq: int,
    most: int = CANDIDATES_OF_SESSION,
) -> Operation[list[Memory]]:
    """Find the messages of a range whose words weigh most, with those beside them; no rewound or forgotten ones."""
    places = list(row_ranges(session, first_seq, last_seq))
    if not weighted or not places:
        return []
    rows = yield _find_statement(
        dialect, user_hash(session.name.app_name, session.name.user_id), weighted, places, most
    )
    return (yield from _visible(session, rows))


def find_of_days(
    dialect: Dialect,
    session: SessionInfo,
    weighted: Sequence[tuple[terms.Term, float]],
    days: tuple[float, float],
    before_seq: int,
) -> Operation[list[Memory]]:
    """Find the messages of some days whose words weigh most, and others of these days, evenly spread."""
    first = yield from _first_seq_after(session, days[0], before_seq)
    last = (yield from _first_seq_after(session, days[1], before_seq)) - 1
    found = yield from find_in_session(dialect, session, weighted, first, last)
    step = 1 + (last - first) // CANDIDATES_OF_SESSION
    rows: list[Row] = []
    for place in row_ranges(session, first, last):
        rows += yield _RANGE, (*place, step)
    return found + (yield from _visible(session, rows))


def _first_seq_after(session: SessionInfo, at: float, before_seq: int) -> Operation[int]:
    """Return the first message that is not older than a time, or `before_seq`: a few steps, as times ascend."""
    low, high = 1, before_seq
    while low < high:
        middle = (low + high) // 2
        rows = yield _TIME_OF, (key_of_message(session, middle), middle)
        low, high = (low, middle) if rows and rows[0][0] >= at else (middle + 1, high)
    return low


def _visible(session: SessionInfo, rows: Sequence[Row]) -> Operation[list[Memory]]:
    name = session.name
    forgotten = yield from read_forgotten(name.app_name, name.user_id)
    ranges = live_ranges(session.last_seq, session.rewinds)
    return [
        Memory(event_id, author, text, created_at, name.id, seq)
        for seq, author, text, created_at, event_id in rows
        if event_id not in forgotten and is_live(seq, ranges)
    ]


def _within(places: Sequence[RowRange], table: str) -> str:
    """Return the condition that a message of `table` is at one of the places.

    A plus before the table keeps SQLite from using an index for the condition, which would read the whole session.
    """
    return " OR ".join(
        f"({table}.session_key = {key} AND {table}.seq BETWEEN {first} AND {last})" for key, first, last in places
    )


def _newest_matches(number: int, most: int) -> str:
    """Select the newest messages of a user with a word, in SQLite.

    The limit makes SQLite search once. Without it, it would search again for each message of the session.
    """
    newest = f"SELECT rowid FROM search_words WHERE search_words MATCH ${number} ORDER BY rowid DESC LIMIT {most}"  # noqa: S608 - numbers
    return f"({newest}) f JOIN search_messages m ON m.id = f.rowid"


def _count_statement(
    dialect: Dialect, owner: str, wanted: Sequence[terms.Term], places: Sequence[RowRange], most: int
) -> Statement:
    within = _within(places, "m" if dialect == "postgres" else "+m")
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
    dialect: Dialect, owner: str, weighted: Sequence[tuple[terms.Term, float]], places: Sequence[RowRange], most: int
) -> Statement:
    """Select the messages whose words weigh most, of these the newest, and the messages beside them."""
    within = _within(places, "m" if dialect == "postgres" else "+m")
    parts: list[str] = []
    for number, (_, weight) in enumerate(weighted, 1):
        if dialect == "postgres":
            found = f"search_messages m WHERE m.words @@ CAST(CAST(${number} AS TEXT) AS tsquery) AND ({within})"
        else:
            found = f"{_newest_matches(number, _MOST_MATCHES)} WHERE {within}"
        parts.append(f"SELECT m.session_key, m.seq, {weight:.4f} AS weight FROM {found}")  # noqa: S608 - numbers
    sql = f"""
    SELECT x.seq, x.author, SUBSTR(x.content, 1, {INDEXED_CHARACTERS}), x.created_at, x.event_id FROM (
        SELECT DISTINCT h.session_key, h.seq + n.beside AS seq FROM (
            SELECT session_key, seq FROM ({" UNION ALL ".join(parts)}) f WHERE seq > 0 GROUP BY session_key, seq
            ORDER BY SUM(weight) DESC, seq DESC LIMIT {most}
        ) h CROSS JOIN ({_BESIDE}) n
    ) w JOIN messages x ON x.session_key = w.session_key AND x.seq = w.seq
    WHERE x.role IN ('user', 'assistant') AND x.content <> '' AND ({_within(places, "+x")}) ORDER BY x.seq
    """  # noqa: S608 - constants
    return sql, tuple(match_keys(dialect, owner, [term for term, _ in weighted]))
