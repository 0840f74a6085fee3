"""List and read the caller's sessions and artifacts as resources of MCP. Imports `mcp`."""

import base64
from collections.abc import Callable, Sequence
from typing import TypeVar

from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from msgspec import DecodeError, json

from lango.runtime.artifacts import Artifact
from lango.server.context import AgentUser
from lango.sessions import USER_PREFIX, SessionInfo, as_datetime

T = TypeVar("T")

SESSION = UriTemplate.parse("lango://{agent}/sessions/{session}")
_ARTIFACT = UriTemplate.parse("lango://{agent}/sessions/{session}/artifacts/{name}")
_ARTIFACT_VERSION = UriTemplate.parse("lango://{agent}/sessions/{session}/artifacts/{name}/{version}")
_TEMPLATES = (
    (SESSION, "session", "A conversation with an agent, as a document.", "text/markdown"),
    (_ARTIFACT, "artifact", "The newest version of a file that an agent saved.", None),
    (_ARTIFACT_VERSION, "artifact-version", "A version of a file that an agent saved.", None),
)
_PAGE = 20
"""How many sessions a page of the list has, each with its artifacts."""
_MOST_RESOURCES = 500
"""A page ends after these: the protocol's SDK writes it on the event loop."""
_TEXT_TYPES = ("text/", "application/json", "application/xml")


def artifact_uri(agent: str, session_id: str, name: str, version: int) -> str:
    """Return the address of a version of an artifact."""
    return _ARTIFACT_VERSION.expand({"agent": agent, "session": session_id, "name": name, "version": str(version)})


def list_templates() -> ListResourceTemplatesResult:
    """List the forms of addresses."""
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(name=name, uri_template=str(template), description=about, mime_type=mime_type)
            for template, name, about, mime_type in _TEMPLATES
        ]
    )


async def list_resources(users: Sequence[AgentUser], cursor: str | None) -> ListResourcesResult:
    """List the sessions of the caller with each agent, the newest first, and their artifacts."""
    agent, place = _read_cursor(cursor)
    names = [user.runtime.app_name for user in users]
    at = names.index(agent) if agent in names else 0
    user = users[at]
    sessions = await user.sessions.list(user_id=user.id, after=place, limit=_PAGE + 1)
    found: list[Resource] = []
    shown = 0
    for session in sessions[:_PAGE]:
        if len(found) >= _MOST_RESOURCES:
            break
        found += await _resources(user, session)
        shown += 1
    if len(sessions) > shown:
        last = sessions[shown - 1]
        upcoming = json.encode((names[at], (last.updated_at, last.key))).decode()
    else:
        upcoming = json.encode((names[at + 1], None)).decode() if at + 1 < len(names) else None
    return ListResourcesResult(resources=found, next_cursor=upcoming)


def _read_cursor(cursor: str | None) -> tuple[str, tuple[float, int] | None]:
    if cursor is None:
        return "", None
    try:
        return json.decode(cursor, type=tuple[str, tuple[float, int] | None])
    except DecodeError as error:
        raise MCPError(INVALID_PARAMS, "cursor: send the nextCursor of the previous page") from error


async def _resources(user: AgentUser, session: SessionInfo) -> list[Resource]:
    """Return a session and the artifacts that belong to it; of very many, the first by their names."""
    of_session = {"agent": user.runtime.app_name, "session": session.name.id}
    conversation = Resource(
        name=session.name.id,
        title=session.display_title or None,
        uri=SESSION.expand(of_session),
        mime_type="text/markdown",
        description=f"A conversation with {user.runtime.app_name} of {as_datetime(session.updated_at):%Y-%m-%d %H:%M}.",
    )
    listed = await user.runtime.artifacts.list(session.name.id, user_id=user.id)
    own = [one for one in listed if not one.is_removed and not one.name.startswith(USER_PREFIX)]
    artifacts = [
        Resource(
            name=artifact.name,
            uri=_ARTIFACT.expand({**of_session, "name": artifact.name}),
            mime_type=artifact.mime_type,
            size=artifact.size,
        )
        for artifact in own[:_MOST_RESOURCES]
    ]
    return [conversation, *artifacts]


async def read_resource(user_of: Callable[[str], AgentUser], uri: str) -> ReadResourceResult:
    """Read a session as a document, or an artifact. Raise Lango's errors for one that the caller does not have."""
    if parts := _match(_ARTIFACT_VERSION, uri):
        version = parts["version"]
        if not (version.isascii() and version.isdigit() and len(version) < 16):
            raise MCPError(INVALID_PARAMS, f"uri: {version!r} is no version", {"uri": uri})
        return await _read_artifact(user_of(parts["agent"]), uri, parts, int(version))
    if parts := _match(_ARTIFACT, uri):
        return await _read_artifact(user_of(parts["agent"]), uri, parts, None)
    if parts := _match(SESSION, uri):
        user = user_of(parts["agent"])
        document = user.sessions.export_document(parts["session"], "markdown", user_id=user.id)
        text = "".join([part async for part in document])
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="text/markdown", text=text)])
    raise MCPError(INVALID_PARAMS, "uri: there is no such resource", {"uri": uri})


def _match(template: UriTemplate, uri: str) -> dict[str, str] | None:
    found = template.match(uri)
    return None if found is None else {name: str(value) for name, value in found.items()}


async def _read_artifact(user: AgentUser, uri: str, parts: dict[str, str], version: int | None) -> ReadResourceResult:
    artifacts, session_id, name = user.runtime.artifacts, parts["session"], parts["name"]
    artifact = await artifacts.resolve(session_id, name, version, user_id=user.id)
    data = b"".join([chunk async for chunk in artifacts.chunks(artifact)])
    mime_type = artifact.mime_type or "application/octet-stream"
    if (text := _as_text(artifact, data)) is not None:
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=text)])
    blob = base64.b64encode(data).decode()
    return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=mime_type, blob=blob)])


def _as_text(artifact: Artifact, data: bytes) -> str | None:
    if artifact.kind != "text" and not (artifact.mime_type or "").startswith(_TEXT_TYPES):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
