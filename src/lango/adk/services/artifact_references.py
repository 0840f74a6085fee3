"""Load the artifacts that a request to a model refers to: no provider can read their addresses."""

from google.adk.artifacts import artifact_util
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from lango.adk.services.artifact_service import SqlArtifactService
from lango.errors import ReferenceRefused
from lango.sessions import SessionId
from lango.store.artifacts.references import check_reference


async def load_reference(service: SqlArtifactService, name: SessionId, uri: str) -> types.Part:
    """Load the artifact of an address that is used in a session.

    The model reads a sentence instead of an artifact of another session or user, or one that was deleted: a failure
    would repeat in every later turn of the session.
    """
    try:
        target = check_reference(uri, name.app_name, name.user_id, name.id)
        part = await service.load_artifact(
            app_name=name.app_name,
            user_id=name.user_id,
            session_id=name.id,
            filename=target.name,
            version=target.version,
        )
    except (ReferenceRefused, InputValidationError) as error:
        return types.Part(text=f"[this file cannot be loaded: {error}]")
    if part is None:
        return types.Part(text=f"[the file {target.name!r} was deleted]")
    return part


async def load_references(service: SqlArtifactService, name: SessionId, contents: list[types.Content]) -> None:
    """Replace the contents of a request that refer to artifacts; the session's own stay."""
    for place, content in enumerate(contents):
        parts = content.parts or []
        if any(artifact_util.is_artifact_ref(part) for part in parts):
            loaded = [await _loaded(service, name, part) for part in parts]
            contents[place] = content.model_copy(update={"parts": loaded})


async def _loaded(service: SqlArtifactService, name: SessionId, part: types.Part) -> types.Part:
    uri = part.file_data.file_uri if part.file_data else None
    if not uri or not artifact_util.is_artifact_ref(part):
        return part
    return await load_reference(service, name, uri)
