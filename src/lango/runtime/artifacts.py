"""List, read, save and delete the artifacts of an app's sessions and users."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Self

from lango.errors import ArtifactNotFound, ArtifactRefused, Unstorable
from lango.messages import FILE_NAME, ArtifactFile, Attachment, StoredBytes
from lango.sessions import USER_PREFIX, SessionId
from lango.store import Store
from lango.store.artifacts import artifacts
from lango.store.artifacts.artifacts import (
    REMOVED_TYPE,
    SCHEME,
    Artifact,
    NewArtifact,
    check_reference,
    resolve_version,
)
from lango.store.contents import read_pieces
from lango.store.sessions.sessions import get_session


class Artifacts:
    """The artifacts of one app. Each belongs to a session, or to a user if its name begins with `user:`.

    Without a session, a method is about the artifacts of the user, and their names need no prefix.
    """

    def __init__(self, store: Store, app_name: str, max_bytes: int | None = None) -> None:
        """An artifact with more than `max_bytes` is refused."""
        self._store = store
        self._app_name = app_name
        self._max_bytes = max_bytes

    def of_app(self, app_name: str) -> Self:
        """Return the artifacts of another app in the same store."""
        return type(self)(self._store, app_name, self._max_bytes)

    async def list(self, session_id: str | None, *, user_id: str = "user") -> Sequence[Artifact]:
        """List the newest version of each artifact of a session and of its user, by name."""
        await self._check_session(session_id, user_id)
        return await self._store.read(artifacts.list_artifacts, self._app_name, user_id, session_id)

    async def versions(self, session_id: str | None, name: str, *, user_id: str = "user") -> Sequence[Artifact]:
        """List every version of an artifact, the oldest first. Raise `ArtifactNotFound` if there is none."""
        scope, name = await self._scope(session_id, user_id, name)
        found = await self._store.read(artifacts.list_versions, scope, name)
        if not found:
            raise _not_found(name, None)
        return found

    async def read(
        self, session_id: str | None, name: str, version: int | None = None, *, user_id: str = "user"
    ) -> Artifact:
        """Read a version of an artifact without its bytes, or the newest. Raise `ArtifactNotFound`."""
        scope, name = await self._scope(session_id, user_id, name)
        artifact = await self._store.read(artifacts.read_version, scope, name, version)
        if artifact is None or artifact.is_removed:
            raise _not_found(name, version)
        return artifact

    async def resolve(
        self, session_id: str | None, name: str, version: int | None = None, *, user_id: str = "user"
    ) -> Artifact:
        """Read a version of an artifact like `read`, or the one that it refers to (`artifact://...`).

        Raise `ReferenceRefused` for a reference to another session or user.
        """
        artifact = await self.read(session_id, name, version, user_id=user_id)
        scope = SessionId(self._app_name, user_id, "")
        found = await self._store.read(resolve_version, scope, session_id, artifact)
        if found is None or found.is_removed:
            raise ArtifactNotFound(f"artifact {name!r} refers to an artifact that does not exist")
        return found

    async def load_attachment(self, session_id: str, file: ArtifactFile, *, user_id: str = "user") -> Attachment:
        """Load an artifact as a file of a message. Raise `ReferenceRefused`, `ArtifactNotFound`."""
        name, version = file.name, file.version
        if name.startswith(SCHEME):
            target = check_reference(name, self._app_name, user_id, session_id)
            name, version = target.name, target.version
        artifact = await self.resolve(session_id, name, version, user_id=user_id)
        data = b"".join([chunk async for chunk in self.chunks(artifact)])
        shown_name = base_name(name)
        valid_name = shown_name if FILE_NAME.fullmatch(shown_name) else "artifact"
        return Attachment(valid_name, artifact.mime_type or "application/octet-stream", data)

    async def load(
        self, session_id: str | None, name: str, version: int | None = None, *, user_id: str = "user"
    ) -> bytes:
        """Load the bytes of an artifact; those of a text are UTF-8. References are followed as by `resolve`."""
        artifact = await self.resolve(session_id, name, version, user_id=user_id)
        return b"".join([chunk async for chunk in self.chunks(artifact)])

    async def chunks(self, artifact: Artifact, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        """Load the bytes of an artifact piece by piece: all, or those from `start` to before `end`.

        Raise `ArtifactNotFound` if it has none, or was deleted.
        """
        if artifact.hash is None:
            raise ArtifactNotFound(f"artifact {artifact.name!r} has no content here: it refers to an external location")
        data = StoredBytes(artifact.hash, artifact.size)
        for piece in read_pieces(data, start, artifact.size if end is None else end):
            chunk = await self._store.read(piece)
            if chunk is None:
                raise ArtifactNotFound(f"artifact {artifact.name!r} was deleted while it was read")
            yield chunk

    async def save(
        self,
        session_id: str | None,
        name: str,
        data: bytes | str,
        *,
        mime_type: str = "application/octet-stream",
        metadata: Mapping[str, Any] | None = None,
        user_id: str = "user",
    ) -> int:
        """Save the next version of an artifact, bytes or text, and return its number.

        Raise `ArtifactRefused` if it is too large, `Unstorable` for a name that no artifact can have.
        """
        name = artifacts.stored_name(session_id, name)
        artifacts.check_name(name)
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if self._max_bytes is not None and len(content) > self._max_bytes:
            raise ArtifactRefused(
                f"artifact {name!r} has {len(content)} bytes; the limit is {self._max_bytes} "
                "(setting store.max_artifact_bytes)"
            )
        kind, shown_type = ("text", "text/plain") if isinstance(data, str) else ("bytes", mime_type)
        if not content and shown_type == REMOVED_TYPE:
            raise Unstorable(
                f"ADK marks a removed artifact with an empty {REMOVED_TYPE}: give the artifact another type"
            )
        new = NewArtifact(name, kind, shown_type, content, metadata=metadata or {})
        scope, _ = await self._scope(session_id, user_id, name)
        return await self._store.write_long(artifacts.save_artifact, scope, new, time.time(), needs_session=True)

    async def delete(self, session_id: str | None, name: str, *, user_id: str = "user") -> bool:
        """Delete every version of an artifact; return False if there is none."""
        scope, name = await self._scope(session_id, user_id, name)
        return await self._store.write_long(artifacts.delete_artifact, scope, name)

    async def _check_session(self, session_id: str | None, user_id: str) -> None:
        if session_id is not None:
            await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))

    async def _scope(self, session_id: str | None, user_id: str, name: str) -> tuple[SessionId, str]:
        await self._check_session(session_id, user_id)
        name = artifacts.stored_name(session_id, name)
        return artifacts.scope_of(self._app_name, user_id, session_id, name), name


def base_name(name: str) -> str:
    """Return the name of an artifact as the name of a file, without folders."""
    return name.removeprefix(USER_PREFIX).replace("\\", "/").rpartition("/")[2] or "artifact"


def _not_found(name: str, version: int | None) -> ArtifactNotFound:
    return ArtifactNotFound(f"there is no artifact {name!r}" + ("" if version is None else f" of version {version}"))
