"""Define the path, query and header parameters and the error responses that routes share."""

from typing import Annotated, Any

from fastapi import Header, Path, Query

from lango.server.errors import Refused
from lango.server.schemas import EXAMPLE_ID, SESSION_ID, Error

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": why}
    for status, why in {
        400: "The request is wrong; the message says how.",
        401: "A valid key is missing.",
        404: "There is no such session.",
        429: "The key's limit is reached; see Retry-After.",
        503: "Not now; see Retry-After.",
    }.items()
}
BUSY: dict[int | str, dict[str, Any]] = {409: {"model": Error, "description": "Somebody was faster."}}
GONE: dict[int | str, dict[str, Any]] = {
    410: {
        "model": Error,
        "description": "The events after that id are not kept any more: read the messages, then go on without it.",
    }
}
Id = Annotated[str, Path(pattern=SESSION_ID, examples=[EXAMPLE_ID])]
CallId = Annotated[str, Path(max_length=512, examples=["call_1"])]
Limit = Annotated[int, Query(ge=1, le=200)]
LastId = Annotated[str | None, Header(alias="Last-Event-ID")]


def read_last_id(last_id: str | None) -> int | None:
    """Read the header Last-Event-ID; None: it was not sent."""
    if last_id is not None and not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise Refused(400, "BadRequest", "Last-Event-ID: send the id of the last event that was read")
    return int(last_id) if last_id else None
