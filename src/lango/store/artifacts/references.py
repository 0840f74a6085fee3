"""Follow artifacts that only name another artifact, by ADK's addresses: `artifact://apps/...`.

A reference stays within its user, and within its session unless it leads to an artifact of the user.
"""

from msgspec import Struct

from lango.errors import ReferenceRefused
from lango.sessions import SessionId
from lango.store.artifacts.artifacts import Artifact, read_version, scope_of
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation

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
    """Return the address that an artifact consists of, or None if it is no reference to another artifact."""
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
