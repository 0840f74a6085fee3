"""Move files that an earlier version stored in base64 in the rows of messages to chunks.

Such rows are readable as they are. The migration lists them, and they are moved one by one, each in a transaction of
its own, so that neither the upgrade nor any other writer waits for all of them.
"""

from lango.messages import StoredBytes
from lango.store.codec.json_text import dumps, loads
from lango.store.contents import SMALLEST_CONTENT, add_to_messages, blobs_of_parts, content_hash
from lango.store.engine.database import LockingRead, Operation
from lango.store.sessions.sessions import lock_session

_NEXT = "SELECT session_key, seq FROM inline_files ORDER BY session_key, seq LIMIT 1"
_DELETE_NEXT = "DELETE FROM inline_files WHERE session_key = $1 AND seq = $2 RETURNING seq"
# the messages of a deleted session whose forks still show them
_LOCK_SHARED = LockingRead("SELECT session_key FROM shared_sessions WHERE session_key = $1", "UPDATE")
_EXTRA = "SELECT extra FROM messages WHERE session_key = $1 AND seq = $2"
_SET_EXTRA = "UPDATE messages SET extra = $1 WHERE session_key = $2 AND seq = $3"


def has_inline_files() -> Operation[bool]:
    """Whether a message is left whose files are to be moved."""
    return bool((yield _NEXT, ()))


def move_next_inline_files() -> Operation[bool]:
    """Move the files of one message to chunks; False: no message is left."""
    for key, seq in (yield _NEXT, ()):
        # locked like for a deletion of the session, which must see what is moved here
        if (yield from lock_session(key)) is None:
            yield _LOCK_SHARED, (key,)
        if (yield _DELETE_NEXT, (key, seq)):  # else another process has moved them just now
            for [extra] in (yield _EXTRA, (key, seq)):
                yield from _move(key, seq, extra)
        return True
    return False


def _move(key: int, seq: int, text: str) -> Operation[None]:
    extra = loads(text)
    contents: dict[str, bytes] = {}
    for blob in blobs_of_parts(extra.get("parts")):
        data = blob.get("data")
        if isinstance(data, bytes) and not isinstance(data, StoredBytes) and len(data) >= SMALLEST_CONTENT:
            stored = StoredBytes(content_hash(data), len(data))
            contents[stored.hash] = data
            blob["data"] = stored
    if contents:
        yield from add_to_messages(key, {seq: contents})
        yield _SET_EXTRA, (dumps(extra), key, seq)
