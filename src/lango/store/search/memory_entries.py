"""Store memories that an agent adds by ADK's memory service, with an index of their words."""

from collections.abc import Sequence

from msgspec import Struct

from lango.json_values import storable_text
from lango.store.codec.records import call_key
from lango.store.engine.database import Operation, Row
from lango.store.search import terms
from lango.store.search.index import INDEXED_CHARACTERS, user_hash
from lango.store.sessions.state import LOCK_USER_STATE

CANDIDATES = 200
"""How many messages and memories are ranked exactly; the index ranks them before."""
BATCH = 50
"""How many memories one transaction adds."""
_WORDS_PER_STATEMENT = 500
_NEXT = "SELECT COALESCE(MAX(number), 0) + 1 FROM memory_entries WHERE user_hash = $1"
_INSERT = """
INSERT INTO memory_entries (user_hash, number, memory_id, session_id, author, created_at, text, content, metadata)
SELECT CAST($1 AS TEXT), CAST($2 AS BIGINT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT),
    CAST($6 AS DOUBLE PRECISION), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM forgotten_memories WHERE user_hash = $1 AND memory_id = $3)
ON CONFLICT DO NOTHING RETURNING number
"""
_FIND = f"""
SELECT e.number, e.memory_id, e.author, e.created_at, e.session_id, e.text, e.content, e.metadata
FROM (
    SELECT number, COUNT(*) AS matched FROM memory_words WHERE user_hash = $1 AND (%s) GROUP BY number
) w JOIN memory_entries e ON e.user_hash = $1 AND e.number = w.number
ORDER BY w.matched DESC, COALESCE(e.created_at, 0) DESC, e.number LIMIT {CANDIDATES}
"""  # noqa: S608 - constants
_NUMBERS = "SELECT number FROM memory_entries WHERE user_hash = $1 AND memory_id = $2"
_NUMBERS_OF_SESSION = "SELECT number FROM memory_entries WHERE user_hash = $1 AND session_id = $2"
_DELETE_WORDS = "DELETE FROM memory_words WHERE user_hash = $1 AND number = $2"
_DELETE_ENTRY = "DELETE FROM memory_entries WHERE user_hash = $1 AND number = $2"
_FORGET = "INSERT INTO forgotten_memories (user_hash, memory_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_FORGOTTEN = "SELECT memory_id FROM forgotten_memories WHERE user_hash = $1"


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
    """JSON of the content of a memory that was added, or None if the content is the text."""
    metadata: str | None = None


def add_memories(app_name: str, user_id: str, memories: Sequence[Memory]) -> Operation[None]:
    """Add memories of a user; those that are there, or were deleted, stay as they are."""
    owner = user_hash(app_name, user_id)
    yield LOCK_USER_STATE, (app_name, user_id)
    [[number]] = yield _NEXT, (owner,)
    for memory in memories:
        text = storable_text(memory.text[:INDEXED_CHARACTERS])
        ids = call_key(memory.id), call_key(memory.session_id)
        values = storable_text(memory.author), memory.created_at, text, memory.content, memory.metadata
        if (yield _INSERT, (owner, number, *ids, *values)):
            yield from _add_words(owner, number, terms.index_words(text))
            number += 1


def _add_words(owner: str, number: int, words: Sequence[str]) -> Operation[None]:
    for start in range(0, len(words), _WORDS_PER_STATEMENT):
        some = words[start : start + _WORDS_PER_STATEMENT]
        rows = ", ".join(f"($1, $2, ${at})" for at in range(3, len(some) + 3))
        yield f"INSERT INTO memory_words (user_hash, number, word) VALUES {rows}", (owner, number, *some)  # noqa: S608


def find_memories(app_name: str, user_id: str, wanted: Sequence[terms.Term]) -> Operation[list[Memory]]:
    """Find the memories of a user with any of the terms, in the order in which they were added."""
    keys = list(dict.fromkeys(key for term in wanted for key in term.keys))
    either = " OR ".join(f"word {'LIKE' if prefix else '='} ${at}" for at, (_, prefix) in enumerate(keys, 2))
    words = (f"{key}%" if prefix else key for key, prefix in keys)  # letters and digits only
    rows = yield _FIND % either, (user_hash(app_name, user_id), *words)
    return [_row_to_memory(row) for row in sorted(rows, key=lambda row: row[0])]


def _row_to_memory(row: Row) -> Memory:
    _, memory_id, author, created_at, session_id, text, content, metadata = row
    return Memory(memory_id, author, text, created_at, session_id, content=content, metadata=metadata)


def delete_memory(app_name: str, user_id: str, memory_id: str) -> Operation[None]:
    """Delete a memory, and never add it again; a message of this id is no longer recalled."""
    owner, id_ = user_hash(app_name, user_id), call_key(memory_id)
    yield _FORGET, (owner, id_)
    yield from _delete_entries(owner, (yield _NUMBERS, (owner, id_)))


def delete_memories_of_session(app_name: str, user_id: str, session_id: str) -> Operation[None]:
    """Delete the memories that were added from a session."""
    owner = user_hash(app_name, user_id)
    yield from _delete_entries(owner, (yield _NUMBERS_OF_SESSION, (owner, call_key(session_id))))


def _delete_entries(owner: str, numbers: Sequence[Row]) -> Operation[None]:
    for [number] in numbers:
        yield _DELETE_WORDS, (owner, number)
        yield _DELETE_ENTRY, (owner, number)


def read_forgotten(app_name: str, user_id: str) -> Operation[set[str]]:
    """Read the ids of the memories of a user that were deleted."""
    rows = yield _FORGOTTEN, (user_hash(app_name, user_id),)
    return {memory_id for [memory_id] in rows}
