"""Let the artifacts of a session follow its forks, rewinds and deletion.

Versions are rows without bytes, so a fork copies the rows of the versions that it shows, and the bytes are shared.
Which versions belong to the session at a message follows from the message after which each was saved.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import astuple, replace

from lango.messages import StoredBytes, content_hash
from lango.sessions import SessionId, SessionInfo
from lango.store.artifacts.artifacts import (
    COLUMNS,
    REMOVED_TYPE,
    Artifact,
    insert_version,
    move_references,
    read_all_versions,
)
from lango.store.codec.json_text import loads
from lango.store.contents import release, use_again, use_contents
from lango.store.engine.database import LARGEST, Operation
from lango.store.sessions.lineage import is_live, live_ranges, row_ranges

_SCOPE = "app_name = $1 AND user_id = $2 AND session_id = $3"
_COPY = f"""
INSERT INTO artifacts (app_name, user_id, session_id, {COLUMNS})
SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), {COLUMNS} FROM artifacts
WHERE app_name = $4 AND user_id = $5 AND session_id = $6 AND after_seq < $7
"""  # noqa: S608 - constants
_USES = f"SELECT hash, COUNT(*) FROM artifacts WHERE {_SCOPE} AND hash IS NOT NULL GROUP BY hash"  # noqa: S608
_DELETE = f"DELETE FROM artifacts WHERE {_SCOPE} RETURNING hash"  # noqa: S608
_SAVED = """
SELECT seq, extra FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND extra LIKE '%"artifact_delta"%'
ORDER BY seq
"""
_RENAME = """
UPDATE artifacts SET app_name = $1, user_id = $2, session_id = $3
WHERE app_name = $4 AND user_id = $5 AND session_id = $6
"""


def copy_to_fork(new: SessionId, session: SessionInfo, point: int) -> Operation[None]:
    """Give a fork at message `point` the versions that were saved before that message was stored.

    If it is the newest message, the fork gets all of them.
    """
    yield from release((yield from delete_artifacts(new)))  # of a session that was never stored here
    before = LARGEST if point >= session.last_seq else point
    yield _COPY, (*astuple(new), *astuple(session.name), before)
    for hash_, uses in sorted((yield _USES, astuple(new)), key=lambda row: row[0]):
        yield from use_again(hash_, uses)
    yield from move_references(new)


def rewind_artifacts(session: SessionInfo, first: int, now: float) -> Operation[dict[str, int]]:
    """Restore the artifacts of a session as they were before message `first`; return their new versions.

    Nothing is deleted: the earlier version is saved again, or an empty one if there was none, as ADK's rewind does.
    """
    changed: dict[str, Artifact | None] = {}
    newest: dict[str, Artifact] = {}
    for artifact in (yield from read_all_versions(session.name)):
        newest[artifact.name] = artifact
        if artifact.after_seq < first:
            changed[artifact.name] = artifact
        else:
            changed.setdefault(artifact.name, None)
    again = [
        replace(before or _removed(name), after_seq=session.last_seq, created_at=now)
        for name, before in sorted(changed.items())
        if before is not newest[name] and not (before is None and newest[name].is_removed)
    ]
    # the content of an earlier version is stored, but perhaps not that of the empty one
    contents = [(artifact.hash, artifact.size) for artifact in again]
    yield from use_contents((hash_, StoredBytes(hash_, size) if size else b"") for hash_, size in contents if hash_)
    restored: dict[str, int] = {}
    for artifact in again:
        restored[artifact.name] = yield from insert_version(session.name, artifact)
    return restored


def _removed(name: str) -> Artifact:
    """Return the empty version that marks an artifact as removed."""
    return Artifact(name, 0, "bytes", REMOVED_TYPE, content_hash(b""), 0, {}, {}, 0, 0.0)


def read_saved_versions(session: SessionInfo, first: int, last: int) -> Operation[dict[int, Mapping[str, int]]]:
    """Read which versions of artifacts the events between two messages saved, by the number of each event."""
    live = live_ranges(session.last_seq, session.rewinds)
    saved: dict[int, Mapping[str, int]] = {}
    for place in row_ranges(session, first, last):
        for seq, extra in (yield _SAVED, place):
            actions: Mapping[str, Any] = loads(extra).get("actions") or {}
            if is_live(seq, live) and not actions.get("rewind_before_invocation_id"):
                saved[seq] = actions.get("artifact_delta") or {}
    return saved


def delete_artifacts(name: SessionId) -> Operation[Counter[str]]:
    """Delete the artifacts of a session; those of its user stay. Return the uses of contents, to be released."""
    deleted = yield _DELETE, astuple(name)
    return Counter(str(hash_) for [hash_] in deleted if hash_ is not None)


def rename_artifacts(old: SessionId, new: SessionId) -> Operation[None]:
    """Give the artifacts of a session to another name of it, which has none."""
    yield _RENAME, (*astuple(new), *astuple(old))
    yield from move_references(new)
