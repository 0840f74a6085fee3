"""Create, list, read, rename, fork, rewind, delete, search, export and import sessions, and save them as test cases."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Body, Query, Request, Response
from msgspec import Struct
from msgspec.structs import asdict
from starlette.responses import StreamingResponse

from lango.errors import UsageError
from lango.runtime.sessions.sessions import Hit as SearchHit
from lango.server.api.paging import Cursor, PageSize, decode_cursor, encode_cursor
from lango.server.context import CurrentUser
from lango.server.errors import ApiError
from lango.server.json_body import large_response
from lango.server.openapi import EXPORT_EXAMPLE
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    SESSION_ID,
    AllAgents,
    NewFork,
    NewSession,
    NewTitle,
    Responses,
    RewindTo,
    Session,
    SessionIdPath,
    SessionPage,
    SessionWithState,
    error_responses,
)
from lango.server.security.auth import AuthenticatedRouter
from lango.server.security.middleware import max_message_bytes
from lango.sessions import SessionInfo

router = AuthenticatedRouter("/v1", tags=["sessions"], responses=COMMON_ERRORS)

_NDJSON = "application/x-ndjson"
_SENT_AT_ONCE = 20_000
_LINE_IN_BODIES = 2
"""The longest line of an import, in multiples of the largest message with files."""
ExportFormat = Annotated[Literal["jsonl", "markdown", "html"], Query()]
_EXPORTS = {"jsonl": (_NDJSON, "jsonl"), "markdown": ("text/markdown", "md"), "html": ("text/html", "html")}
"""The media type and the ending of a file, by format."""
_EXPORT_RESPONSES: Responses = {
    200: {
        "description": "The session as lines of JSON, the last of which shows that the export is complete; or a "
        "document.",
        "content": {
            _NDJSON: {"schema": {"type": "string"}, "example": EXPORT_EXAMPLE},
            "text/markdown": {"schema": {"type": "string"}},
            "text/html": {"schema": {"type": "string"}},
        },
    }
}
_IMPORT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {_NDJSON: {"schema": {"type": "string"}, "example": EXPORT_EXAMPLE}},
    }
}

_EVAL_SET_RESPONSES: Responses = {200: {"description": "An eval set with one case."}} | error_responses(
    {409: "The session has no message yet."}
)

NewSessionId = Annotated[str | None, Query(pattern=SESSION_ID)]
SearchQuery = Annotated[str, Query(max_length=1000, examples=["hello"])]


class FoundMessage(SearchHit, frozen=True, kw_only=True):
    """A message or a title that was found, and the agent of its session."""

    agent: str


class SearchHits(Struct, frozen=True):
    """The results of a search, the best first."""

    hits: Sequence[FoundMessage]


@router.post("/sessions", status_code=201, responses=CONFLICT, response_model=SessionWithState)
async def create_session(new: Annotated[NewSession, Body(default_factory=NewSession)], user: CurrentUser) -> Response:
    """Create a session; without a body, an empty one with a random id."""
    return await session_response(await user.sessions.create(new.id, user_id=user.id, state=new.state), 201)


@router.get("/sessions")
async def list_sessions(user: CurrentUser, cursor: Cursor = None, limit: PageSize = 50) -> SessionPage:
    """List the caller's sessions, the newest first."""
    place = decode_cursor(cursor)
    records = await user.sessions.list(user_id=user.id, after=place and place[:2], limit=limit + 1)
    page = records[:limit]
    more = encode_cursor(page[-1].updated_at, page[-1].key) if len(records) > limit else None
    return SessionPage(sessions=[Session.from_record(record) for record in page], next_cursor=more)


@router.get("/sessions/{session_id}", response_model=SessionWithState)
async def read_session(session_id: SessionIdPath, user: CurrentUser) -> Response:
    """Read a session and its state."""
    return await session_response(await user.sessions.read(session_id, user_id=user.id))


@router.delete("/sessions/{session_id}", status_code=204)
async def delete_session(session_id: SessionIdPath, user: CurrentUser) -> None:
    """Cancel the running turn of a session, and delete the session with all its data."""
    await user.delete_session(session_id)


async def session_response(record: SessionInfo, status: int = 200) -> Response:
    """Return a session with its state, which may be large, as a response."""
    return await large_response(lambda: SessionWithState.from_record(record).model_dump(mode="json"), status)


@router.get("/search")
async def search(
    user: CurrentUser, q: SearchQuery, limit: Annotated[int, Query(ge=1, le=100)] = 20, all_agents: AllAgents = False
) -> SearchHits:
    """Find messages and titles that contain every word; the last word may be a prefix."""
    found = [
        [FoundMessage(**asdict(hit), agent=runtime.app_name) for hit in hits]
        for runtime in user.runtimes(all_agents)
        for hits in [await runtime.sessions.search(q, user_id=user.id, limit=limit)]
    ]
    # the best of each agent first: their scores cannot be compared
    mixed = [hit for of_rank in zip_longest(*found) for hit in of_rank if hit is not None]
    return SearchHits(mixed[:limit])


@router.patch("/sessions/{session_id}")
async def rename_session(session_id: SessionIdPath, new: NewTitle, user: CurrentUser) -> Session:
    """Rename a session."""
    return Session.from_record(await user.sessions.rename(session_id, new.title, user_id=user.id))


@router.post("/sessions/{session_id}/fork", status_code=201, responses=CONFLICT, response_model=SessionWithState)
async def fork_session(
    session_id: SessionIdPath, new: Annotated[NewFork, Body(default_factory=NewFork)], user: CurrentUser
) -> Response:
    """Copy a session up to a message, with the state as it was then; without a body, copy all of it."""
    fork = await user.sessions.fork(session_id, user_id=user.id, at=new.at, new_id=new.id, title=new.title)
    return await session_response(fork, 201)


@router.post("/sessions/{session_id}/rewind", responses=CONFLICT, response_model=SessionWithState)
async def rewind_session(session_id: SessionIdPath, target: RewindTo, user: CurrentUser) -> Response:
    """Rewind the turn of a message and all later ones, and restore the state before it. Nothing is deleted."""
    return await session_response(await user.sessions.rewind(session_id, before=target.before, user_id=user.id))


@router.get("/sessions/{session_id}/export", response_class=StreamingResponse, responses=_EXPORT_RESPONSES)
async def export_session(
    session_id: SessionIdPath, user: CurrentUser, format: ExportFormat = "jsonl"
) -> StreamingResponse:
    """Export a session with all its data, as a backup or for an import, or its conversation as a document to share.

    The HTML page needs nothing else, and runs no script. What the session's events changed in `app:` state is exported
    for the users in the setting `server.operators` only.
    """
    if format == "jsonl":
        parts = user.sessions.export_lines(session_id, user_id=user.id, with_app_state=user.is_operator)
    else:
        parts = user.sessions.export_document(session_id, format, user_id=user.id)
    first = await anext(parts)  # raises for a missing session before the response starts

    async def all_parts() -> AsyncIterator[str]:
        together, size = [first], len(first)
        async for part in parts:
            together.append(part)
            size += len(part)
            if size > _SENT_AT_ONCE:
                yield "".join(together)
                together, size = [], 0
                await asyncio.sleep(0)  # otherwise a fast client would hold the event loop
        yield "".join(together)

    media_type, ending = _EXPORTS[format]
    return StreamingResponse(all_parts(), media_type=media_type, headers=_saved_as(f"{session_id}.{ending}"))


@router.get("/sessions/{session_id}/evalset", response_model=dict[str, Any], responses=_EVAL_SET_RESPONSES)
async def save_as_eval_set(session_id: SessionIdPath, user: CurrentUser) -> Response:
    """Return a session as a test case in ADK's eval-set format, for `lango eval` and `adk eval`."""
    await user.get_session(session_id)
    try:
        eval_set = await user.sessions.eval_set(session_id, user_id=user.id)
    except UsageError as error:
        raise ApiError(409, "NothingToSave", str(error)) from error
    response = await large_response(lambda: eval_set)
    response.headers.update(_saved_as(f"{session_id}.evalset.json"))
    return response


def _saved_as(name: str) -> dict[str, str]:
    """Return the header that makes a browser save a response under a name."""
    ascii_name = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)
    return {"Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"}


@router.post(
    "/sessions/import", status_code=201, responses=CONFLICT, openapi_extra=_IMPORT_BODY, response_model=SessionWithState
)
async def import_session(request: Request, user: CurrentUser, id: NewSessionId = None) -> Response:
    """Create a session from an export, under the same id or another: all of it, or nothing."""
    pieces = _with_bounded_lines(request.stream(), _LINE_IN_BODIES * max_message_bytes(user.settings.server.limits))
    imported = await user.sessions.import_lines(pieces, user_id=user.id, session_id=id)
    return await session_response(imported, 201)


async def _with_bounded_lines(pieces: AsyncIterable[bytes], longest: int) -> AsyncIterator[bytes]:
    """Yield the pieces of an export; refuse one with a line that would take too long to parse."""
    length = 0
    async for piece in pieces:
        first, *later = piece.split(b"\n")
        length += len(first)
        if max([length, *map(len, later)]) > longest:
            raise ApiError(413, "TooLarge", f"a line of the export has more than {longest} bytes")
        length = len(later[-1]) if later else length
        yield piece
