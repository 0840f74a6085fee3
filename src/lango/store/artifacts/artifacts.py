"""Save, read, list and delete artifacts: named files with versions, of a session or of a user.

The bytes are in `lango.store.contents`. An artifact whose name begins with `user:` belongs to the user, in every
session. Versions are numbered 0, 1, 2, ... A rewind does not delete versions: it saves the earlier one again, or an
empty version, which counts as removed.

An artifact may only name another one, by ADK's addresses: `artifact://apps/...`. Such a reference stays within its
user, and within its session unless it leads to an artifact of the user.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import astuple

from lango.errors import ReferenceRefused, SessionNotFound, Unstorable
from lango.messages import byte_size, content_hash
from lango.sessions import SessionId, check_id, is_id
from lango.store.codec.json_text import dumps, loads
from lango.store.contents import read_content, release, use_content
from lango.store.engine.database import LockingRead, Operation, Row
from lango.store.sessions.sessions import check_epoch

USER_PREFIX = "user:"
REMOVED_TYPE = "application/octet-stream"
"""The type of the empty version with which a rewind removes an artifact, as in ADK."""
_DRIVE = re.compile(r"[A-Za-z]:")
Kind = Literal["bytes", "text", "uri"]

COLUMNS = "name, version, kind, mime_type, hash, size, part, metadata, after_seq, created_at"
_SCOPE = "app_name = $1 AND user_id = $2 AND session_id = $3"
# shared: saves of one session do not wait for each other, but its deletion, forks and rewinds wait for them
_LOCK_SESSION = LockingRead("SELECT last_seq FROM sessions WHERE app_name = $1 AND user_id = $2 AND id = $3", "SHARE")
_NEXT = f"SELECT COALESCE(MAX(version), -1) + 1 FROM artifacts WHERE {_SCOPE} AND name = $4"  # noqa: S608 - constants
_INSERT = f"""
INSERT INTO artifacts (app_name, user_id, session_id, {COLUMNS}, saved_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (app_name, user_id, session_id, name, version) DO NOTHING RETURNING version
"""  # noqa: S608
_VERSIONS = f"SELECT {COLUMNS} FROM artifacts WHERE {_SCOPE} AND name = $4 ORDER BY version"  # noqa: S608
_VERSION = f"SELECT {COLUMNS} FROM artifacts WHERE {_SCOPE} AND name = $4 AND version = $5"  # noqa: S608
_NEWEST = f"""
SELECT {COLUMNS} FROM artifacts WHERE {_SCOPE} AND name = $4 ORDER BY version DESC LIMIT 1
"""  # noqa: S608
_ALL = f"SELECT {COLUMNS} FROM artifacts WHERE {_SCOPE}"  # noqa: S608
_NEWEST_OF_EACH = f"""
SELECT {COLUMNS} FROM artifacts a WHERE {_SCOPE} AND version = (SELECT MAX(version) FROM artifacts b
    WHERE b.app_name = a.app_name AND b.user_id = a.user_id AND b.session_id = a.session_id AND b.name = a.name)
"""  # noqa: S608
_SAVED_BY = f"""
SELECT version, hash FROM artifacts WHERE {_SCOPE} AND name = $4 AND saved_by = $5 ORDER BY version DESC LIMIT 1
"""  # noqa: S608
_NEWEST_SAVED_BY = f"""
SELECT version, hash, saved_by FROM artifacts WHERE {_SCOPE} AND name = $4 ORDER BY version DESC LIMIT 1
"""  # noqa: S608
# what it returns is released: of two deletions at once, only one gets each row
_DELETE = f"DELETE FROM artifacts WHERE {_SCOPE} AND name = $4 RETURNING hash"  # noqa: S608


class Artifact(Struct, frozen=True):
    """One version of an artifact, without its content."""

    name: str
    version: int
    kind: str
    """A `Kind`, or one that only a newer version of Lango knows."""
    mime_type: str | None
    hash: str | None
    size: int
    part: Mapping[str, Any]
    """The other fields of ADK's part."""
    metadata: Mapping[str, Any]
    after_seq: int
    """The session's newest message when it was saved."""
    created_at: float

    @property
    def is_removed(self) -> bool:
        """Whether a rewind removed the artifact with this version."""
        return self.kind == "bytes" and self.size == 0 and self.mime_type == REMOVED_TYPE and not self.part


class NewArtifact(Struct, frozen=True):
    """A version of an artifact to be saved."""

    name: str
    kind: Kind
    mime_type: str | None = None
    data: bytes | None = None
    """The content; None for a uri, which is in `part`."""
    part: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}


class Saver(Struct, frozen=True):
    """The step of a turn that saves an artifact."""

    session_key: int
    epoch: int | None
    """The epoch of the turn's lease: a turn that lost its lease saves nothing."""
    turn_epoch: int | None
    """The epoch of the turn's first run, the same in every run."""
    step: str = ""
    """The tool call or node, and the number of its save; empty: a callback, which may run again."""
    runs_again: bool = False
    """Whether the turn is run again, after a crash."""

    @property
    def key(self) -> str:
        """The same text in every run of the turn."""
        return f"{self.session_key}:{self.turn_epoch}:{self.step}"


def stored_name(session_id: str | None, name: str) -> str:
    """Return the name under which an artifact is stored; without a session it is the user's."""
    return name if session_id is not None or name.startswith(USER_PREFIX) else USER_PREFIX + name


def check_name(name: str) -> None:
    """Raise `Unstorable` for a name that no artifact can have: it must be safe as the name of a downloaded file."""
    bare = name.removeprefix(USER_PREFIX)
    segments = bare.replace("\\", "/").split("/")
    if not bare.strip() or not segments[0] or ".." in segments or _DRIVE.match(bare):
        raise Unstorable(f"{name!r} is not a valid artifact name: use a relative path without '..' and drive letters")
    check_id("the name of an artifact", name)


def scope_of(app_name: str, user_id: str, session_id: str | None, name: str) -> SessionId:
    """Return whose an artifact is: the session's, or with an empty id the user's."""
    return SessionId(app_name, user_id, "" if session_id is None or name.startswith(USER_PREFIX) else session_id)


def save_artifact(
    scope: SessionId, new: NewArtifact, now: float, saver: Saver | None = None, *, needs_session: bool = False
) -> Operation[int]:
    """Save the next version of an artifact and return its number.

    A turn that is run again gets the version that the same step saved before. Raise `FencedWrite` if the turn of the
    `saver` lost its lease. With `needs_session`, raise `SessionNotFound` if the session does not exist: ADK's
    services save artifacts without one.
    """
    scope.check()
    check_name(new.name)
    hash_ = None if new.data is None else content_hash(new.data)
    newest_seq = yield from _lock_session(scope, needs_session=needs_session)
    if saver is not None:
        yield from check_epoch(saver.session_key, saver.epoch)
        known = (yield from _saved_before(scope, new.name, hash_, saver)) if saver.runs_again else None
        if known is not None:
            return known
    if hash_ is not None and new.data is not None:
        yield from use_content(hash_, new.data)
    size = 0 if new.data is None else byte_size(new.data)
    saved = Artifact(new.name, 0, new.kind, new.mime_type, hash_, size, new.part, new.metadata, newest_seq, now)
    return (yield from insert_version(scope, saved, saver.key if saver else None))


def _lock_session(scope: SessionId, *, needs_session: bool = False) -> Operation[int]:
    """Lock the session of an artifact, if it has one, and return its newest message."""
    for [last_seq] in (yield _LOCK_SESSION, astuple(scope)) if scope.id else ():
        return last_seq
    if needs_session and scope.id:
        raise SessionNotFound(f"there is no session {scope.id!r}, or it was deleted")
    return 0


def insert_version(scope: SessionId, artifact: Artifact, saved_by: str | None = None) -> Operation[int]:
    """Insert an artifact as the next version of its name, without regard to its own version, and return the version."""
    key = (*astuple(scope), artifact.name)
    texts = (dumps(each) if each else None for each in (artifact.part, artifact.metadata))
    content = artifact.kind, artifact.mime_type, artifact.hash, artifact.size, *texts
    while True:
        [[version]] = yield _NEXT, key
        if (yield _INSERT, (*key, version, *content, artifact.after_seq, artifact.created_at, saved_by)):
            return version  # else another process has saved this version just now


def _saved_before(scope: SessionId, name: str, hash_: str | None, saver: Saver) -> Operation[int | None]:
    """Return the version that the same step saved in an earlier run of the turn.

    A callback is not a step, and may not be repeated from its start: the version counts only while it is the
    newest.
    """
    key = (*astuple(scope), name)
    if saver.step:
        rows = yield _SAVED_BY, (*key, saver.key)
        return rows[0][0] if rows and rows[0][1] == hash_ else None
    for version, newest_hash, saved_by in (yield _NEWEST_SAVED_BY, key):
        if saved_by == saver.key and newest_hash == hash_:
            return version
    return None


def read_version(scope: SessionId, name: str, version: int | None = None) -> Operation[Artifact | None]:
    """Read a version of an artifact without its content; the newest one if `version` is None."""
    key = (*astuple(scope), name)
    if not _is_storable(scope, name):
        return None
    if version is None:
        rows = yield _NEWEST, key
    else:
        rows = (yield _VERSION, (*key, version)) if 0 <= version < 2**62 else []
    return row_to_artifact(rows[0]) if rows else None


def load_artifact(
    scope: SessionId, name: str, version: int | None = None
) -> Operation[tuple[Artifact, bytes | None] | None]:
    """Read a version of an artifact with its content; return None if there is none, or a rewind removed it."""
    artifact = yield from read_version(scope, name, version)
    if artifact is None or artifact.is_removed:
        return None
    return artifact, None if artifact.hash is None else (yield from read_content(artifact.hash))


def list_versions(scope: SessionId, name: str) -> Operation[Sequence[Artifact]]:
    """Read all versions of an artifact, the oldest first."""
    if not _is_storable(scope, name):
        return []
    rows = yield _VERSIONS, (*astuple(scope), name)
    return [row_to_artifact(row) for row in rows]


def list_artifacts(app_name: str, user_id: str, session_id: str | None) -> Operation[Sequence[Artifact]]:
    """Read the newest version of each artifact of a user and, with a session, of the session, by name."""
    found: list[Artifact] = []
    for id_ in {"", SessionId("", "", session_id or "").id}:
        if SessionId(app_name, user_id, id_).is_storable:
            rows = yield _NEWEST_OF_EACH, (app_name, user_id, id_)
            found += [artifact for artifact in map(row_to_artifact, rows) if not artifact.is_removed]
    return sorted(found, key=lambda artifact: artifact.name)  # here: the databases order text differently


def read_all_versions(scope: SessionId) -> Operation[list[Artifact]]:
    """Read every version of every artifact of a session, by name and version."""
    rows = yield _ALL, astuple(scope)
    return sorted(map(row_to_artifact, rows), key=lambda artifact: (artifact.name, artifact.version))


def delete_artifact(scope: SessionId, name: str) -> Operation[bool]:
    """Delete all versions of an artifact; return whether there was one."""
    key = (*astuple(scope), name)
    if not _is_storable(scope, name):
        return False
    yield from _lock_session(scope)
    deleted = yield _DELETE, key
    yield from release(Counter(str(hash_) for [hash_] in deleted if hash_ is not None))
    return bool(deleted)


def _is_storable(scope: SessionId, name: str) -> bool:
    return scope.is_storable and is_id(name)


def row_to_artifact(row: Row) -> Artifact:
    """Decode a row of `COLUMNS`."""
    *about, part, metadata, after_seq, created_at = row
    return Artifact(
        *about,
        part=loads(part) if part else {},
        metadata=loads(metadata) if metadata else {},
        after_seq=after_seq,
        created_at=created_at,
    )


# -- references --------------------------------------------------------------------------------------------------------

SCHEME = "artifact://"
_MAX_REFERENCES = 5
"""How many references in a row are followed, as in ADK."""
_MAX_VERSION_DIGITS = 15
_REFERENCES = """
SELECT name, version, part FROM artifacts
WHERE app_name = $1 AND user_id = $2 AND session_id = $3 AND kind = 'uri' AND part LIKE '%artifact://%'
"""
_SET_PART = """
UPDATE artifacts SET part = $1 WHERE app_name = $2 AND user_id = $3 AND session_id = $4 AND name = $5 AND version = $6
"""


class Reference(Struct, frozen=True):
    """The address of a version of an artifact."""

    app_name: str
    user_id: str
    session_id: str | None
    """None: an artifact of the user."""
    name: str
    version: int

    @property
    def uri(self) -> str:
        """The address, as ADK writes it."""
        session = "" if self.session_id is None else f"/sessions/{self.session_id}"
        place = f"{self.app_name}/users/{self.user_id}{session}"
        return f"{SCHEME}apps/{place}/artifacts/{self.name}/versions/{self.version}"


def parse_reference(uri: str) -> Reference | None:
    """Parse the address of an artifact; return None if it is not one."""
    apps, _, rest = uri.removeprefix(SCHEME).partition("/")
    app_name, _, rest = rest.partition("/users/")
    place, _, rest = rest.partition("/artifacts/")
    user_id, in_session, session_id = place.partition("/sessions/")
    name, _, version = rest.rpartition("/versions/")
    is_number = version.isascii() and version.isdigit() and len(version) <= _MAX_VERSION_DIGITS
    complete = app_name and user_id and name and is_number and (session_id or not in_session)
    if not (uri.startswith(SCHEME) and apps == "apps" and complete):
        return None
    return Reference(app_name, user_id, session_id if in_session else None, name, int(version))


def check_reference(uri: str, app_name: str, user_id: str, session_id: str | None) -> Reference:
    """Parse a reference that is used in a session, or by a user. Raise `ReferenceRefused` if it leads elsewhere."""
    target = parse_reference(uri)
    if target is None:
        raise ReferenceRefused("not the URI of an artifact: use artifact://apps/APP/users/USER/...")
    if (target.app_name, target.user_id) != (app_name, user_id) or target.session_id not in (None, session_id):
        raise ReferenceRefused("a reference to an artifact must stay within its session and its user")
    return target


def reference_of(artifact: Artifact) -> str | None:
    """Return the address that an artifact consists of, or None if it is not a reference to another artifact."""
    uri = str(artifact.part.get("file_data", {}).get("file_uri", "")) if artifact.kind == "uri" else ""
    return uri if uri.startswith(SCHEME) else None


def resolve_version(scope: SessionId, session_id: str | None, artifact: Artifact) -> Operation[Artifact | None]:
    """Follow references from an artifact to the one that they lead to; return None if that one does not exist.

    Raise `ReferenceRefused` if they lead to another user or session, or further than ADK follows them.
    """
    found: Artifact | None = artifact
    for _ in range(_MAX_REFERENCES):
        if found is None or (uri := reference_of(found)) is None:
            return found
        target = check_reference(uri, scope.app_name, scope.user_id, session_id)
        place = scope_of(scope.app_name, scope.user_id, target.session_id, target.name)
        found = yield from read_version(place, target.name, target.version)
    if found is not None and reference_of(found) is not None:
        raise ReferenceRefused(
            f"the references from artifact {artifact.name!r} form a circle, or a chain of more than {_MAX_REFERENCES}"
        )
    return found


def move_references(new: SessionId) -> Operation[None]:
    """Let the references of a fork or import, which led to artifacts of the session that it was, lead to its own."""
    scope = (new.app_name, new.user_id, new.id)
    for name, version, text in (yield _REFERENCES, scope):
        part = loads(text)
        target = parse_reference(str(part["file_data"].get("file_uri", "")))
        if target is not None and target.session_id is not None:
            moved = Reference(*scope, target.name, target.version)
            part["file_data"]["file_uri"] = moved.uri
            yield _SET_PART, (dumps(part), *scope, name, version)
