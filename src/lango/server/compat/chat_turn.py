"""Submit the turn of a client that sends the whole conversation with each request, and describe its responses."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

from fastapi import Header
from starlette.responses import Response

from lango.config import ServerLimits, ServerSettings
from lango.errors import ConfigError, LangoError
from lango.messages import Message
from lango.server.compat.linked_files import FileLink, LinkedFiles, LoadUpload, load_links
from lango.server.compat.session_selection import NamedConversation, submit_carried_history, submit_to_named_session
from lango.server.compat.turn_answer import AnswerView, TurnAnswer
from lango.server.context import AgentUser
from lango.server.errors import ApiError, bad_request, to_api_error
from lango.server.json_body import JsonResponse
from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import SESSION_ID, Responses
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import ModelOptions, TurnRequest
from lango.threads import run_in_thread
from lango.tools.schema_checker import SchemaChecker
from lango.tools.tool import Tool

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


def describe_answer(description: str) -> Responses:
    """Describe an answer that is one object, or the events of a stream."""
    content = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": EVENT_STREAM}
    return {200: {"description": description, "content": content}}


def turn_headers(session_id: str) -> dict[str, str]:
    """Return the headers of the response to an accepted turn.

    The turn is stored: a client that retries the request would send the message twice. Headers are Latin-1; a client
    that sent another id knows it.
    """
    return {"x-should-retry": "false"} | ({"X-Session-Id": session_id} if session_id.isascii() else {})


@contextmanager
def errors_with_headers(headers: Mapping[str, str]) -> Generator[None]:
    """Add headers to the responses to errors: every response to an accepted turn carries them."""
    try:
        yield
    except LangoError as error:
        refused = to_api_error(error)
        refused.headers |= headers
        raise refused from error
    except ApiError as refused:
        refused.headers |= headers
        raise


async def answer_response(user: AgentUser, answer: TurnAnswer, view: AnswerView, *, stream: bool | None) -> Response:
    """Return the response with the answer to an accepted turn: whole at its end, or as a stream."""
    headers = turn_headers(answer.turn.session.name.id)
    if stream:
        timeout_s = user.settings.server.write_timeout_s
        return EventStreamResponse(answer.frames(view), timeout_s, view.encode_error, headers)
    with errors_with_headers(headers):
        return JsonResponse(view.body(*await answer.collect()), headers=headers)


class ChatBody(Protocol):
    """The body of such a request."""

    def check_supported(self) -> None:
        """Raise `ApiError` for parameters that cannot be followed here."""
        ...

    async def read_turn(self, settings: ServerSettings) -> tuple[list[Tool], ModelOptions]:
        """Return the client's tools that the model may call, and the options of the turn."""
        ...

    def file_links(self) -> list[FileLink]:
        """Return where the files of the user's messages are."""
        ...

    def read_conversation(self, limits: ServerLimits, linked: LinkedFiles) -> list[Message]:
        """Return the messages without the client's instructions."""
        ...


async def submit_chat(
    user: AgentUser,
    body: ChatBody,
    key: str | None,
    conversation: NamedConversation | None,
    load_upload: LoadUpload | None = None,
) -> TurnAnswer:
    """Submit the last message of a conversation, and return the answer. Raise an error for what cannot be followed."""
    settings = user.settings.server
    body.check_supported()
    tools, options = await body.read_turn(settings)
    request = TurnRequest(key, tools, options)
    await user.check_token_quota()
    linked = await load_links(body.file_links(), settings, load_upload)
    messages = await run_in_thread(body.read_conversation, settings.limits, linked)
    if conversation and not conversation.has_several_sessions:
        turn = await submit_to_named_session(user, conversation.session_id, messages, request)
    else:
        turn = await submit_carried_history(user, messages, request, conversation)
    return TurnAnswer(user, turn, {tool.name for tool in tools}, only_json=options.shapes_answer)


async def check_answer_schema(parameter: str, schema: Mapping[str, Any]) -> None:
    """Raise `ApiError`, which names the parameter of the request, for a schema that no answer can follow."""
    if schema.get("type") != "object":
        raise bad_request(f"{parameter}: the schema must have type object; put other values into a property")
    try:
        await run_in_thread(SchemaChecker, schema)
    except (ConfigError, RecursionError) as error:
        raise bad_request(f"{parameter}: the schema cannot be used: {error}") from error
