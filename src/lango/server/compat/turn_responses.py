"""Share what the routes have that answer with a turn: the header of its session, and how responses are described."""

from typing import Annotated

from fastapi import Header

from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import SESSION_ID, Responses

SessionIdHeader = Annotated[str | None, Header(alias="X-Session-Id", pattern=SESSION_ID)]
"""Names the session of a request, and of its response."""
TURN_ERRORS = {
    409: "It conflicts with another change.",
    413: "The request, or a file in it, is too large.",
    422: "The Idempotency-Key was used before, with another request: use another one.",
    500: "The turn failed; the message says why.",
    504: "The turn took too long.",
}
"""The errors of such a route, by status."""


def answer_response(description: str) -> Responses:
    """Describe an answer that is one object, or the events of a stream."""
    content = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": EVENT_STREAM}
    return {200: {"description": description, "content": content}}


def turn_headers(session_id: str) -> dict[str, str]:
    """Return the headers of the response to an accepted turn.

    The turn is stored: a client that retries the request would send the message twice. Headers are Latin-1; a client
    that sent another id knows it.
    """
    return {"x-should-retry": "false"} | ({"X-Session-Id": session_id} if session_id.isascii() else {})
