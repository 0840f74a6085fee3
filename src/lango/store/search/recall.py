"""Find what contains some of the words of a question: the search behind an agent's memory.

Unlike a user's search, which requires every word, a memory is asked with whole sentences. What contains the most words
of the question ranks first, of these the newest. Common English words do not count.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.store.codec.ids import expand
from lango.store.engine.database import Dialect, Operation, Statement
from lango.store.search import terms
from lango.store.search.index import INDEXED_CHARACTERS, user_hash
from lango.store.search.query import SessionOfRow, read_sessions_of_row

CANDIDATES = 200
"""How many messages and memories are ranked exactly; the index ranks them before."""
_EXCERPT_CHARACTERS = 2_000
_EXCERPT_LEAD = 200
_LONGEST_PHRASE = 4
"""A run of so many characters of a script without spaces is one term; a longer one is a sentence."""

_COMMON_WORDS = frozenset(
    """
    a about am an and any are as at be been but by can could did do does for from had has have he her him his how i
    if in into is it its just may me my no not of on or our she should so some such than that the their them then
    there these they this to was we were what when where which who why will with would you your
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


class Memory(Struct, frozen=True):
    """Something that may be recalled: a message, a note, a fact, or a memory that was added."""

    id: str
    author: str
    text: str
    created_at: float | None
    session_id: str = ""
    seq: int = 0
    """The message in its session; 0: it is no message."""
    content: str | None = None
    """JSON of the content of a memory that was added; None: it is the text."""
    metadata: str | None = None


def parse_question(text: str) -> list[terms.Term]:
    """Split a question into the terms to look for, without common words."""
    wanted: dict[terms.Term, None] = {}
    for term in terms.split_terms(text[:INDEXED_CHARACTERS]):
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
    rows = yield _find_statement(dialect, user_hash(app_name, user_id), wanted)
    found: list[Memory] = []
    sessions_by_key: dict[int, list[SessionOfRow]] = {}
    for key, seq, author, text, created_at, event_id in rows:
        if key not in sessions_by_key:
            sessions_by_key[key] = yield from read_sessions_of_row(key, app_name, user_id)
        shown_in = [session for session in sessions_by_key[key] if session.shows_message(seq)]
        if shown_in:  # a fork shares the message, which is one memory
            found.append(Memory(expand(event_id), author, text, created_at, shown_in[0].id, seq))
    return found


def match_keys(dialect: Dialect, owner: str, wanted: Sequence[terms.Term]) -> list[str]:
    """Return one search expression per term: for SQLite of this user's messages, for PostgreSQL of any."""
    if dialect == "postgres":
        return [" & ".join(f"'{key}'" + (":*" if prefix else "") for key, prefix in term.keys) for term in wanted]
    return [
        f'user_hash : "{owner}" AND '
        + " AND ".join(f'words : "{key}"' + (" *" if prefix else "") for key, prefix in term.keys)
        for term in wanted
    ]


def _find_statement(dialect: Dialect, owner: str, wanted: Sequence[terms.Term]) -> Statement:
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
