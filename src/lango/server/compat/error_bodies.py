"""Give the errors of each protocol its own shape: also those that occur before a route runs."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from lango.server.compat.a2a.a2a_routes import rest_error_body, rpc_error_body
from lango.server.compat.anthropic.message_view import anthropic_error_body
from lango.server.compat.openai.completion import openai_error_body
from lango.server.compat.openai.responses.response_view import response_error_body
from lango.server.errors import ApiError, error_body


def _adk_error_body(error: ApiError) -> Mapping[str, Any]:
    return {"detail": str(error)} | error_body(error)


_BY_PATH: tuple[tuple[re.Pattern[str], Callable[[ApiError], Mapping[str, Any]]], ...] = (
    (re.compile(r"/v1/(chat|models|embeddings|files)(/.*)?", re.DOTALL), openai_error_body),
    (re.compile(r"/v1/(responses|conversations)(/.*)?", re.DOTALL), response_error_body),
    (re.compile(r"/v1/messages(/.*)?", re.DOTALL), anthropic_error_body),
    (re.compile(r"/a2a/[^/]+|/mcp"), rpc_error_body),
    (re.compile(r"/a2a/[^/]+/v1/.*", re.DOTALL), rest_error_body),
    (re.compile(r"/(run|run_sse|list-apps|version|(apps|dev|agent-identity)/.*)", re.DOTALL), _adk_error_body),
)


def error_body_for(path: str, error: ApiError) -> Mapping[str, Any]:
    """Return the body of an error response to a request for a path."""
    for pattern, make_body in _BY_PATH:
        if pattern.fullmatch(path):
            return make_body(error)
    return error_body(error)
