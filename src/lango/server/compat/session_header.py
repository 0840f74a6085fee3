"""Name the session of a request and of its response, in the header `X-Session-Id`."""

from typing import Annotated

from fastapi import Header

from lango.server.schemas import SESSION_ID

SessionIdHeader = Annotated[str | None, Header(alias="X-Session-Id", pattern=SESSION_ID)]


def turn_headers(session_id: str) -> dict[str, str]:
    """Return the headers of the response to an accepted turn.

    The turn is stored: a client that retries the request would send the message twice. Headers are Latin-1; a client
    that sent another id knows it.
    """
    return {"x-should-retry": "false"} | ({"X-Session-Id": session_id} if session_id.isascii() else {})
