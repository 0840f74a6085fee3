"""Serve the artifact routes of ADK's REST API, on the artifacts of the runtime."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from lango.errors import UsageError
from lango.server.compat.adk.adk_paths import SESSION_PATH, AdkRequestBody, IdPath, PathUser
from lango.server.errors import ApiError, bad_request, not_found
from lango.server.json_body import large_response
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter(include_in_schema=False)

_ARTIFACTS = SESSION_PATH + "/artifacts"
_ARTIFACT = _ARTIFACTS + "/{name:path}"
_NOT_FOUND = "Artifact not found"

Version = Annotated[int | None, Query(ge=0, le=2**62)]


class NewArtifact(AdkRequestBody):
    """An artifact to save."""

    filename: str
    artifact: dict[str, Any]
    custom_metadata: dict[str, Any] | None = None


@router.get(_ARTIFACTS)
async def list_artifacts(session_id: IdPath, user: PathUser) -> list[str]:
    """List the names of a session's artifacts, and of its user's."""
    await user.get_session(session_id)
    return [one.name for one in await user.runtime.artifacts.list(session_id, user_id=user.id)]


@router.post(_ARTIFACTS)
async def save_artifact(session_id: IdPath, new: NewArtifact, user: PathUser) -> Response:
    """Save the next version of an artifact; return its metadata."""
    session = await user.get_session(session_id)
    try:
        saved = await user.runtime.adk_rest.save_artifact(session, new.filename, new.artifact, new.custom_metadata)
    except UsageError as error:
        raise bad_request(str(error)) from error
    return await large_response(lambda: saved)


@router.get(_ARTIFACT + "/versions/{version}/metadata")
async def read_version_metadata(session_id: IdPath, name: str, version: str, user: PathUser) -> Response:
    """Read the metadata of a version; `latest` is the newest."""
    session = await user.get_session(session_id)
    number = _version_number(version)
    found = await user.runtime.adk_rest.artifact_metadata(session, name)
    shown = [one for one in found if number is None or one["version"] == number]
    if not shown:
        raise not_found("Artifact version not found")
    return await large_response(lambda: shown[-1])


@router.get(_ARTIFACT + "/versions/metadata")
async def list_version_metadata(session_id: IdPath, name: str, user: PathUser) -> Response:
    """Read the metadata of every version."""
    session = await user.get_session(session_id)
    found = await user.runtime.adk_rest.artifact_metadata(session, name)
    return await large_response(lambda: found)


@router.get(_ARTIFACT + "/versions/{version}")
async def load_version(session_id: IdPath, name: str, version: str, user: PathUser) -> Response:
    """Load a version; `latest` is the newest."""
    return await load_artifact(session_id, name, user, _version_number(version))


@router.get(_ARTIFACT + "/versions")
async def list_versions(session_id: IdPath, name: str, user: PathUser) -> list[int]:
    """List the numbers of the versions."""
    session = await user.get_session(session_id)
    found = await user.runtime.adk_rest.artifact_metadata(session, name)
    return [one["version"] for one in found]


@router.get(_ARTIFACT)
async def load_artifact(session_id: IdPath, name: str, user: PathUser, version: Version = None) -> Response:
    """Load an artifact as a part: the newest version, or another one."""
    session = await user.get_session(session_id)
    part = await user.runtime.adk_rest.load_artifact(session, name, version)
    if part is None:
        raise not_found(_NOT_FOUND)
    return await large_response(lambda: part)


@router.delete(_ARTIFACT)
async def delete_artifact(session_id: IdPath, name: str, user: PathUser) -> None:
    """Delete every version of an artifact, if there is one."""
    await user.get_session(session_id)
    await user.runtime.artifacts.delete(session_id, name, user_id=user.id)


def _version_number(text: str) -> int | None:
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ApiError(422, "BadRequest", "Invalid version ID")
    return int(text)
