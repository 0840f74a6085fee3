"""Store ADK artifacts in SQL: ADK's artifact service on the Lango store."""

import time
from typing import Any

from google.adk.artifacts import BaseArtifactService, artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from typing_extensions import override

from lango.adk.events.events_to_rows import dump_non_defaults
from lango.adk.services.stored_service import StoredService
from lango.adk.turn.turn_run import turn_of_session
from lango.errors import ReferenceRefused, SchemaError, Unstorable
from lango.messages import byte_size
from lango.sessions import SessionId
from lango.store import Store
from lango.store.artifacts import artifacts
from lango.store.artifacts.artifacts import USER_PREFIX, Artifact, NewArtifact, check_reference

_MAX_REFERENCES = 5
"""How many references to other artifacts a load follows, as ADK's own services do."""


class SqlArtifactService(StoredService, BaseArtifactService):
    """Stores artifacts in SQL for any ADK `Runner`: versioned, each content once, across processes.

    Use the same URL as for `SqlSessionService`, or its `store`: then the artifacts of a session follow its forks,
    rewinds, exports and deletion. In a turn of a Lango runtime, a save is fenced like every other write of the turn,
    and a turn that is run again after a crash does not save a version twice.

    An artifact with more than `max_bytes` is refused.
    """

    def __init__(self, url: str, *, store: Store | None = None, max_bytes: int | None = None) -> None:
        self._store = store or Store(url)
        self._max_bytes = max_bytes

    @override
    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        scope, name = _scope(app_name, user_id, session_id, filename)
        new = _part_to_artifact(scope, name, ensure_part(artifact), custom_metadata or {})
        size = 0 if new.data is None else byte_size(new.data)
        if self._max_bytes is not None and size > self._max_bytes:
            raise InputValidationError(f"artifact {name!r} has {size} bytes; the limit is {self._max_bytes}")
        turn = turn_of_session((session_id or "").strip())
        saver = turn.record.saver(name) if turn is not None and session_id is not None else None
        try:
            return await self._store.write_long(artifacts.save_artifact, scope, new, time.time(), saver)
        except Unstorable as error:
            raise InputValidationError(str(error)) from error

    @override
    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        session_id = session_id.strip() if session_id is not None else None
        for left in range(_MAX_REFERENCES, -1, -1):
            scope, name = _scope(app_name, user_id, session_id, filename)
            found = await self._store.read(artifacts.load_artifact, scope, name, version)
            if found is None:
                return None
            part = artifact_to_part(*found)
            if not artifact_util.is_artifact_ref(part):
                return part
            target = artifact_util.resolve_artifact_reference(
                file_uri=(part.file_data and part.file_data.file_uri) or "",
                app_name=app_name,
                user_id=user_id,
                session_id=session_id,
                remaining_depth=left,
            )
            filename, version = target.filename, target.version
            session_id = target.session_id
        return None

    @override
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        _check_scope(app_name, user_id, session_id)
        found = await self._store.read(artifacts.list_artifacts, app_name, user_id, session_id)
        return [artifact.name for artifact in found]

    @override
    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        scope, name = _scope(app_name, user_id, session_id, filename)
        await self._store.write_long(artifacts.delete_artifact, scope, name)

    @override
    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        scope, name = _scope(app_name, user_id, session_id, filename)
        return [artifact.version for artifact in await self._store.read(artifacts.list_versions, scope, name)]

    @override
    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        scope, name = _scope(app_name, user_id, session_id, filename)
        return [_metadata(scope, artifact) for artifact in await self._store.read(artifacts.list_versions, scope, name)]

    @override
    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        scope, name = _scope(app_name, user_id, session_id, filename)
        artifact = await self._store.read(artifacts.read_version, scope, name, version)
        return None if artifact is None else _metadata(scope, artifact)


def _scope(app_name: str, user_id: str, session_id: str | None, filename: str) -> tuple[SessionId, str]:
    """Return whose an artifact is, and its name. Raise `InputValidationError` for names that ADK does not allow.

    Without a session it is the user's, and gets the prefix of a user's artifact.
    """
    name = artifacts.stored_name(session_id, filename)
    _check_scope(app_name, user_id, None if name.startswith(USER_PREFIX) else session_id)
    try:
        artifacts.check_name(name)
    except Unstorable as error:
        raise InputValidationError(str(error)) from error
    return artifacts.scope_of(app_name, user_id, session_id, name), name


def _check_scope(app_name: str, user_id: str, session_id: str | None) -> None:
    artifact_util.validate_path_segment(app_name, "app_name")
    artifact_util.validate_path_segment(user_id, "user_id")
    if session_id is not None:
        artifact_util.validate_path_segment(session_id, "session_id")


def _part_to_artifact(scope: SessionId, name: str, part: types.Part, metadata: dict[str, Any]) -> NewArtifact:
    fields = dump_non_defaults(part)
    if part.inline_data is not None:
        if part.inline_data.data is None:
            raise InputValidationError("the inline_data of an artifact must have data")
        blob: dict[str, Any] = fields.pop("inline_data")
        blob.pop("data", None)
        mime_type = blob.pop("mime_type", None)
        rest = {**fields, "inline_data": blob} if blob else fields
        return NewArtifact(name, "bytes", mime_type, part.inline_data.data, rest, metadata)
    if part.text is not None:
        fields.pop("text", None)
        return NewArtifact(name, "text", "text/plain", part.text.encode("utf-8", "surrogatepass"), fields, metadata)
    if part.file_data is None:
        raise InputValidationError("an artifact is a part with inline_data, text or file_data")
    if not part.file_data.file_uri:
        raise InputValidationError("the file_data of an artifact must have a file_uri")
    if not artifact_util.is_artifact_ref(part):
        return NewArtifact(name, "uri", part.file_data.mime_type, None, fields, metadata)
    target = artifact_util.parse_artifact_uri(part.file_data.file_uri)
    if target is None:
        raise InputValidationError(f"{part.file_data.file_uri!r} is not the URI of an artifact")
    artifact_util.validate_artifact_reference_scope(
        app_name=scope.app_name, user_id=scope.user_id, session_id=scope.id or None, parsed_uri=target
    )
    return NewArtifact(name, "uri", None, None, fields, metadata)


def artifact_to_part(artifact: Artifact, data: bytes | None) -> types.Part:
    """Rebuild the part that was saved as an artifact."""
    fields = dict(artifact.part)
    match artifact.kind:
        case "bytes":
            fields["inline_data"] = {**fields.get("inline_data", {}), "mime_type": artifact.mime_type, "data": data}
        case "text":
            fields["text"] = (data or b"").decode("utf-8", "surrogatepass")
        case "uri":
            pass
        case kind:
            raise SchemaError(
                f"a newer Lango stored an artifact {kind!r} that this one cannot read: install a newer version"
            )
    return types.Part.model_validate(fields)


def _metadata(scope: SessionId, artifact: Artifact) -> ArtifactVersion:
    return ArtifactVersion(
        version=artifact.version,
        canonical_uri=artifact_util.get_artifact_uri(
            scope.app_name, scope.user_id, artifact.name, artifact.version, scope.id or None
        ),
        custom_metadata=dict(artifact.metadata),
        create_time=artifact.created_at,
        mime_type=artifact.mime_type,
    )


async def load_references(service: SqlArtifactService, name: SessionId, contents: list[types.Content]) -> None:
    """Replace the contents of a request that refer to artifacts: no provider can read their addresses.

    The session's own contents stay.
    """
    for place, content in enumerate(contents):
        parts = content.parts or []
        if any(artifact_util.is_artifact_ref(part) for part in parts):
            loaded = [await _load_reference(service, name, part) for part in parts]
            contents[place] = content.model_copy(update={"parts": loaded})


async def _load_reference(service: SqlArtifactService, name: SessionId, part: types.Part) -> types.Part:
    """Load the artifact that a part refers to; any other part stays.

    The model reads a sentence instead of an artifact of another session or user, or one that was deleted: a failure
    would repeat in every later turn of the session.
    """
    if part.file_data is None or not artifact_util.is_artifact_ref(part):
        return part
    try:
        target = check_reference(part.file_data.file_uri or "", name.app_name, name.user_id, name.id)
        place = {"app_name": name.app_name, "user_id": name.user_id, "session_id": name.id}
        loaded = await service.load_artifact(**place, filename=target.name, version=target.version)
    except (ReferenceRefused, InputValidationError) as error:
        return types.Part(text=f"[this file cannot be loaded: {error}]")
    return types.Part(text=f"[the file {target.name!r} was deleted]") if loaded is None else loaded
