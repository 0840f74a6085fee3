"""Serve OpenAI's files: `/v1/files`.

An upload waits for its end on disk, as every body does, and is an artifact of its user then.
"""

import mimetypes
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from lango.server.compat.openai.completion import OpenAiErrorBody
from lango.server.compat.openai.files.uploaded_files import UploadedFiles
from lango.server.compat.openai.openai_routes import Order, item_page
from lango.server.context import CurrentUser
from lango.server.errors import bad_request
from lango.server.file_responses import file_response
from lango.server.json_body import JsonResponse
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter

_MAX_FIELDS = 10
_ERRORS = error_responses(COMMON_ERROR_DESCRIPTIONS | {404: "You have no such file."}, OpenAiErrorBody)
_TOO_LARGE = error_responses({413: "The file is too large, or your files are together."}, OpenAiErrorBody)
_CONTENT: Responses = {
    200: {
        "description": "The file.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    },
    206: {
        "description": "The range of the file that was asked for.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    },
}
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"enum": ["assistants", "user_data", "vision"]},
                    },
                }
            }
        },
    }
}
FileIdPath = Annotated[str, Path(examples=["file-0123456789abcdef0123456789abcdef"])]
router = AuthenticatedRouter("/v1/files", tags=["files"], responses=_ERRORS)


@router.post("", response_model=None, openapi_extra=_FORM, responses=_TOO_LARGE)
async def upload_file(request: Request, user: CurrentUser) -> Response:
    """Upload a file, for messages that refer to it by its id."""
    async with request.form(max_files=1, max_fields=_MAX_FIELDS) as form:
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile):
            raise bad_request("file: send a file in the field file of a form")
        if not isinstance(purpose, str):
            raise bad_request("purpose: send assistants, user_data or vision")
        if any(name.startswith("expires_after") for name in form):
            raise bad_request("expires_after: not supported; delete the file when you no longer need it")
        name = (file.filename or "").replace("\\", "/").rpartition("/")[2]
        mime_type = (file.content_type or "").partition(";")[0].strip().lower()
        if mime_type in ("", "application/octet-stream"):
            mime_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        data = await file.read()
    return JsonResponse((await UploadedFiles(user).save(name, mime_type, purpose, data)).shown())


@router.get("", response_model=None)
async def list_files(
    user: CurrentUser,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Order = "desc",
    purpose: str | None = None,
) -> Response:
    """List your files, the newest first; `after` is the id of the last file of a page."""
    found = [file for file in await UploadedFiles(user).list() if purpose in (None, file.purpose)]
    return JsonResponse(item_page([file.shown() for file in found], after, limit, order))


@router.get("/{file_id}", response_model=None)
async def read_file(file_id: FileIdPath, user: CurrentUser) -> Response:
    """Describe a file."""
    return JsonResponse((await UploadedFiles(user).get(file_id)).shown())


@router.get("/{file_id}/content", response_class=Response, responses=_CONTENT)
async def read_file_content(file_id: FileIdPath, user: CurrentUser, request: Request) -> Response:
    """Download a file. An image is for display, any other type is a download. A `Range` is honoured."""
    file = await UploadedFiles(user).get(file_id)
    return file_response(user.sessions, file.name, file.mime_type, file.stored_bytes, request.headers)


@router.delete("/{file_id}", response_model=None)
async def delete_file(file_id: FileIdPath, user: CurrentUser) -> Response:
    """Delete a file. Messages that were sent with it keep it."""
    await UploadedFiles(user).delete(file_id)
    return JsonResponse({"id": file_id, "object": "file", "deleted": True})
