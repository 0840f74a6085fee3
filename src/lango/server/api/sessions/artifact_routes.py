"""List, download, upload and delete the artifacts of a session and of a user."""

import re
from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import unquote

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor

from lango.errors import ArtifactNotFound
from lango.json_values import to_client_json
from lango.messages import MIME_TYPE, StoredBytes
from lango.runtime.artifacts import Artifact as StoredArtifact
from lango.runtime.artifacts import base_name
from lango.server.context import CurrentUser
from lango.server.errors import ApiError, bad_request
from lango.server.file_responses import file_response
from lango.server.json_body import large_response
from lango.server.schemas import COMMON_ERRORS, Responses, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import USER_PREFIX, as_datetime


class _AnyText(Convertor[str]):
    """The rest of an address, which may hold line breaks: Starlette's own path must not."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any_text", _AnyText())
router = AuthenticatedRouter("/v1", tags=["artifacts"], responses=COMMON_ERRORS)

_FILE: dict[str, Any] = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
_FILE_RESPONSES: Responses = {
    200: {"description": "The file."} | _FILE,
    206: {"description": "The range of the file that was asked for."} | _FILE,
}
_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "description": "The bytes of the file. Any Content-Type is accepted, and is the type of the artifact.",
        "required": True,
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "Hello!"}
        },
    }
}
_ADDRESS = re.compile(rb"/v1/(?:sessions/[^/]+/)?artifacts/([^?]*)")

Name = Annotated[str | None, Query(max_length=600, examples=["report.pdf"])]
NamePath = Annotated[str, Path(min_length=1, max_length=700, examples=["report.pdf"])]


class Artifact(BaseModel):
    """A version of an artifact."""

    name: str
    version: int
    belongs_to: str
    """`session`, or `user`: then it is in every session of the user."""
    mime_type: str | None
    bytes: int
    uri: str | None
    """Of an artifact that only names another place: it is downloaded from here if that is another artifact."""
    metadata: dict[str, Any]
    created_at: datetime

    @classmethod
    def from_stored(cls, stored: StoredArtifact) -> Self:
        """Convert a stored artifact."""
        return cls(
            name=stored.name,
            version=stored.version,
            belongs_to="user" if stored.name.startswith(USER_PREFIX) else "session",
            mime_type=stored.mime_type,
            bytes=stored.size,
            uri=stored.part["file_data"]["file_uri"] if stored.kind == "uri" else None,
            metadata=to_client_json(stored.metadata),
            created_at=as_datetime(stored.created_at),
        )


class ArtifactList(BaseModel):
    """Artifacts in the order of their names, or the versions of one of them."""

    artifacts: list[Artifact]


@router.get("/sessions/{session_id}/artifacts", response_model=ArtifactList)
async def list_artifacts(session_id: SessionIdPath, user: CurrentUser, name: Name = None) -> Response:
    """List the newest version of each artifact of the session and of its user; with `name`, all versions of that."""
    return await _list(user, session_id, name)


@router.get("/sessions/{session_id}/artifacts/{name:any_text}", response_class=Response, responses=_FILE_RESPONSES)
async def download_artifact(session_id: SessionIdPath, name: NamePath, user: CurrentUser, request: Request) -> Response:
    """Download an artifact: `/{name}` for its newest version, `/{name}/{version}` for another one.

    Write a slash in a name as `%2F`. An image is for display, any other type is a download. A `Range` is honoured.
    """
    return await _download(user, request, session_id, name)


@router.put("/sessions/{session_id}/artifacts/{name:any_text}", status_code=201, openapi_extra=_UPLOAD)
async def upload_artifact(session_id: SessionIdPath, name: NamePath, user: CurrentUser, request: Request) -> Artifact:
    """Save the body as the next version of an artifact. With `user:` before its name it belongs to the user."""
    return await _upload(user, request, session_id, name)


@router.delete("/sessions/{session_id}/artifacts/{name:any_text}", status_code=204)
async def delete_artifact(session_id: SessionIdPath, name: NamePath, user: CurrentUser, request: Request) -> None:
    """Delete every version of an artifact."""
    await _delete(user, request, session_id, name)


@router.get("/artifacts", response_model=ArtifactList)
async def list_user_artifacts(user: CurrentUser, name: Name = None) -> Response:
    """List the newest version of each artifact of the user; with `name`, all versions of that."""
    return await _list(user, None, name)


@router.get("/artifacts/{name:any_text}", response_class=Response, responses=_FILE_RESPONSES)
async def download_user_artifact(name: NamePath, user: CurrentUser, request: Request) -> Response:
    """Download an artifact of the user, like one of a session."""
    return await _download(user, request, None, name)


@router.put("/artifacts/{name:any_text}", status_code=201, openapi_extra=_UPLOAD)
async def upload_user_artifact(name: NamePath, user: CurrentUser, request: Request) -> Artifact:
    """Save the body as the next version of an artifact of the user."""
    return await _upload(user, request, None, name)


@router.delete("/artifacts/{name:any_text}", status_code=204)
async def delete_user_artifact(name: NamePath, user: CurrentUser, request: Request) -> None:
    """Delete every version of an artifact of the user."""
    await _delete(user, request, None, name)


async def _list(user: CurrentUser, session_id: str | None, name: str | None) -> Response:
    if name is None:
        found = await user.runtime.artifacts.list(session_id, user_id=user.id)
    else:
        found = await user.runtime.artifacts.versions(session_id, name, user_id=user.id)

    def view() -> dict[str, Any]:
        listed = ArtifactList(artifacts=[Artifact.from_stored(stored) for stored in found if not stored.is_removed])
        return listed.model_dump(mode="json")

    return await large_response(view)


async def _download(user: CurrentUser, request: Request, session_id: str | None, path: str) -> Response:
    name, version = _name_and_version(request, path)
    artifact = await user.runtime.artifacts.resolve(session_id, name, version, user_id=user.id)
    if artifact.hash is None:
        raise ApiError(
            409, "ArtifactElsewhere", f"artifact {name!r} has no content here: it refers to an external location"
        )
    data = StoredBytes(artifact.hash, artifact.size)
    shown_name, shown_type = base_name(name), artifact.mime_type or ""
    return file_response(user.sessions, shown_name, shown_type, data, request.headers, changes=version is None)


async def _upload(user: CurrentUser, request: Request, session_id: str | None, path: str) -> Artifact:
    name = _name_alone(request, path)
    mime_type = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if not MIME_TYPE.fullmatch(mime_type):
        raise bad_request("Content-Type: not a valid media type")
    body = await request.body()
    saved = user.runtime.artifacts
    version = await saved.save(session_id, name, body, mime_type=mime_type, user_id=user.id)
    return Artifact.from_stored(await saved.read(session_id, name, version, user_id=user.id))


async def _delete(user: CurrentUser, request: Request, session_id: str | None, path: str) -> None:
    name = _name_alone(request, path)
    if not await user.runtime.artifacts.delete(session_id, name, user_id=user.id):
        raise ArtifactNotFound(f"there is no artifact {name!r}")


def _name_alone(request: Request, path: str) -> str:
    name, version = _name_and_version(request, path)
    if version is not None:
        raise bad_request(f"name the artifact without a version, or write its name as {name}%2F{version}")
    return name


def _name_and_version(request: Request, path: str) -> tuple[str, int | None]:
    """Split the end of an address. Only the undecoded address shows which slashes belong to the name."""
    found = _ADDRESS.match(request.scope.get("raw_path") or b"")
    undecoded = found[1].decode("latin-1") if found else path
    try:
        segments = [unquote(segment, errors="strict") for segment in undecoded.split("/")]
    except UnicodeDecodeError as error:
        raise bad_request("name: not valid UTF-8") from error
    if len(segments) > 1 and segments[-1].isascii() and segments[-1].isdigit() and len(segments[-1]) < 16:
        return "/".join(segments[:-1]), int(segments[-1])
    return "/".join(segments), None
