"""Store the bytes of files in chunks, once for each content, and count the rows that use them.

A content is known by its SHA-256. The row of a content is locked while its number of uses changes, so of a release and
a new use at the same time the second one sees the first. Several contents are changed in the order of their hashes, so
that no two transactions deadlock.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from lango.errors import Unstorable
from lango.messages import StoredBytes
from lango.sessions import StoredEvent
from lango.store.engine.database import LARGEST, Operation

CHUNK_BYTES = 256 * 1024
SMALLEST_CONTENT = 1024
"""Fewer bytes stay in the row of their message: reading them elsewhere would cost more."""

_USE = """
INSERT INTO contents (hash, size, uses) VALUES ($1, $2, 1)
ON CONFLICT (hash) DO UPDATE SET uses = contents.uses + 1 RETURNING uses, size
"""
_LOCK = "UPDATE contents SET size = size WHERE hash = $1"
_COMPLETE = "UPDATE contents SET size = $1 WHERE hash = $2"
_INCOMPLETE = -1
"""The size of a content whose chunks are stored by several transactions, until the last of them."""
_USE_AGAIN = "UPDATE contents SET uses = uses + $1 WHERE hash = $2 RETURNING size"
_RELEASE = "UPDATE contents SET uses = uses - $1 WHERE hash = $2 RETURNING uses"
_INSERT_CHUNK = """
INSERT INTO content_chunks (hash, number, data) VALUES ($1, $2, $3) ON CONFLICT (hash, number) DO NOTHING
"""
_DELETE = "DELETE FROM contents WHERE hash = $1"
_DELETE_CHUNKS = "DELETE FROM content_chunks WHERE hash = $1"
_SIZE = "SELECT size FROM contents WHERE hash = $1"
_CHUNK_PART = """
SELECT SUBSTR(data, CAST($1 AS INTEGER), CAST($2 AS INTEGER)) FROM content_chunks WHERE hash = $3 AND number = $4
"""
_CHUNKS = "SELECT data FROM content_chunks WHERE hash = $1 ORDER BY number"
_ADD_TO_MESSAGE = "INSERT INTO message_contents (session_key, seq, hash) VALUES ($1, $2, $3)"
_OF_MESSAGES = """
SELECT hash, COUNT(*) FROM message_contents WHERE session_key = $1 AND seq >= $2 AND seq <= $3 GROUP BY hash
"""
_DELETE_OF_MESSAGES = "DELETE FROM message_contents WHERE session_key = $1 AND seq >= $2 AND seq <= $3"
_SOME_OF_MESSAGES = """
SELECT seq, hash FROM message_contents WHERE session_key = $1 AND seq <= $2 ORDER BY seq, hash LIMIT 100
"""
_DELETE_OF_MESSAGE = "DELETE FROM message_contents WHERE session_key = $1 AND seq = $2 AND hash = $3"
_ADD_TO_TURN = "INSERT INTO turn_contents (session_key, turn, hash) VALUES ($1, $2, $3)"
_DELETE_OF_TURN = "DELETE FROM turn_contents WHERE session_key = $1 AND turn = $2 RETURNING hash"
_DELETE_OF_TURNS = "DELETE FROM turn_contents WHERE session_key = $1 RETURNING hash"


def use_content(hash_: str, data: bytes) -> Operation[None]:
    """Count one more use of a content, and store it if it is new. `StoredBytes` must be stored already."""
    if isinstance(data, StoredBytes):
        yield from use_again(hash_, 1)
        return
    [[uses, size]] = yield _USE, (hash_, len(data))
    if uses == 1 or size == _INCOMPLETE:
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            yield _INSERT_CHUNK, (hash_, number, data[start : start + CHUNK_BYTES])
    if size == _INCOMPLETE:
        yield _COMPLETE, (len(data), hash_)


def use_chunk(hash_: str, number: int, data: bytes, size: int | None) -> Operation[None]:
    """Store a chunk of a content whose hash was checked; the first one counts a use, the last one has its `size`."""
    yield (_USE, (hash_, _INCOMPLETE)) if number == 0 else (_LOCK, (hash_,))
    if data:
        yield _INSERT_CHUNK, (hash_, number, data)
    if size is not None:
        yield _COMPLETE, (size, hash_)


def use_contents(contents: Iterable[tuple[str, bytes]]) -> Operation[None]:
    """Count one more use of each of some contents, in the order of their hashes."""
    for hash_, data in sorted(contents, key=lambda content: content[0]):
        yield from use_content(hash_, data)


def use_again(hash_: str, uses: int) -> Operation[None]:
    """Count further uses of a stored content."""
    if not (yield _USE_AGAIN, (uses, hash_)):
        raise Unstorable("a file of this event was deleted from the store: load it before its session is deleted")


def release(uses: Mapping[str, int]) -> Operation[None]:
    """Count uses of contents less, and delete a content that has none left. A transaction calls it once."""
    for hash_, count in sorted(uses.items()):
        [[left]] = yield _RELEASE, (count, hash_)
        if left <= 0:
            yield _DELETE, (hash_,)
            yield _DELETE_CHUNKS, (hash_,)


def add_to_messages(key: int, contents: Mapping[int, Mapping[str, bytes]]) -> Operation[None]:
    """Store the contents of messages' files, by the messages and by their hashes."""
    yield from use_contents((hash_, data) for each in contents.values() for hash_, data in each.items())
    for seq, each in contents.items():
        for hash_ in each:
            yield _ADD_TO_MESSAGE, (key, seq, hash_)


def release_some(key: int, last_seq: int) -> Operation[bool]:
    """Release a few of the contents that a session's messages use, up to one; return whether there may be more.

    Message 0 means an import, which holds the contents until its rows use them.
    """
    rows = yield _SOME_OF_MESSAGES, (key, last_seq)
    for seq, hash_ in rows:
        yield _DELETE_OF_MESSAGE, (key, seq, hash_)
    yield from release(Counter(str(hash_) for _, hash_ in rows))
    return bool(rows)


def delete_of_messages(key: int, first: int = 0, last: int = LARGEST) -> Operation[Counter[str]]:
    """Delete the notes of which contents a session's own messages use; return the uses, to be released."""
    rows = yield _OF_MESSAGES, (key, first, last)
    yield _DELETE_OF_MESSAGES, (key, first, last)
    return Counter[str]({str(hash_): int(count) for hash_, count in rows})


def hashes_of_messages(key: int, first: int, last: int) -> Operation[list[str]]:
    """Return the hashes of the contents of a session's own messages."""
    return [hash_ for hash_, _ in (yield _OF_MESSAGES, (key, first, last))]


def hold_for_turn(key: int, turn: int, contents: Mapping[str, bytes]) -> Operation[None]:
    """Store the contents of a queued turn's files, by their hashes, until the turn starts or is withdrawn."""
    yield from use_contents(contents.items())
    for hash_ in contents:
        yield _ADD_TO_TURN, (key, turn, hash_)


def release_of_turn(key: int, turn: int) -> Operation[None]:
    """Release the contents that are held for a queued turn. A transaction releases contents once."""
    yield from release(Counter(str(hash_) for [hash_] in (yield _DELETE_OF_TURN, (key, turn))))


def delete_of_turns(key: int) -> Operation[Counter[str]]:
    """Delete the notes of which contents a session's queued turns hold; return the uses, to be released."""
    return Counter(str(hash_) for [hash_] in (yield _DELETE_OF_TURNS, (key,)))


def read_content(hash_: str) -> Operation[bytes | None]:
    """Read a whole content; return None if it does not exist, or was deleted."""
    if not (yield _SIZE, (hash_,)):
        return None
    return b"".join([data for [data] in (yield _CHUNKS, (hash_,))])


def read_pieces(data: StoredBytes, start: int, end: int) -> Iterator[Callable[[], Operation[bytes | None]]]:
    """Yield an operation for each chunk of a content that reads what lies between two bytes of the content."""
    for number in range(start // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
        first = number * CHUNK_BYTES
        yield partial(read_chunk, data.hash, number, max(start - first, 0), min(end - first, CHUNK_BYTES))


def read_chunk(hash_: str, number: int, start: int = 0, end: int = CHUNK_BYTES) -> Operation[bytes | None]:
    """Read a chunk of a content, or a part of it; return None if it does not exist, or was deleted."""
    rows = yield _CHUNK_PART, (start + 1, end - start, hash_, number)
    return bytes(rows[0][0]) if rows else None


def blobs_of_event(stored: StoredEvent) -> list[dict[str, Any]]:
    """Return the objects with bytes in a stored message: its files, and the files of the results in it.

    `lango.adk.events.events_to_rows` describes the layout of its parts.
    """
    holders = _objects((stored.extra or {}).get("parts"))
    for part in [*holders]:
        holders += [inner for result in _objects([part.get("result")]) for inner in _objects(result.get("parts"))]
    return [blob for holder in holders for blob in _objects([holder.get("inline_data")])]


def contents_of_event(stored: StoredEvent) -> list[StoredBytes]:
    """Return the contents that hold those files of a stored message that are not loaded."""
    return [blob["data"] for blob in blobs_of_event(stored) if isinstance(blob.get("data"), StoredBytes)]


def _objects(items: Any) -> list[dict[str, Any]]:
    found = cast("list[Any]", items) if isinstance(items, list) else []
    return [cast("dict[str, Any]", item) for item in found if isinstance(item, dict)]
