"""Define the path, query and header parameters and the error responses that routes share."""

from typing import Annotated, Any

from fastapi import Header, Path, Query

from lango.server.errors import ApiError
from lango.server.schemas import EXAMPLE_ID, SESSION_ID, ErrorBody

COMMON_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": why}
    for status, why in {
        400: "The request is invalid; the message says why.",
        401: "A valid key is missing.",
        404: "There is no such session.",
        429: "The key's limit is reached; see Retry-After.",
        503: "Not available now; see Retry-After.",
    }.items()
}
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorBody, "description": "It conflicts with another change."}
}
EVENTS_GONE: dict[int | str, dict[str, Any]] = {
    410: {
        "model": ErrorBody,
        "description": "The events after that id are no longer kept: read the messages, then resume without it.",
    }
}
SessionIdPath = Annotated[str, Path(pattern=SESSION_ID, examples=[EXAMPLE_ID])]
CallIdPath = Annotated[str, Path(max_length=512, examples=["call_1"])]
PageSize = Annotated[int, Query(ge=1, le=200)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


def parse_last_event_id(last_id: str | None) -> int | None:
    """Parse the header Last-Event-ID; None: it was not sent."""
    if last_id is not None and not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise ApiError(400, "BadRequest", "Last-Event-ID: send the id of the last event that was read")
    return int(last_id) if last_id else None
