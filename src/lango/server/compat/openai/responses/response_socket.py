"""Serve responses over a WebSocket at `/v1/responses`, OpenAI's and Open Responses' WebSocket mode.

A client sends `{"type": "response.create", ...}` with the parameters of `POST /v1/responses`, and gets the events of
that response's stream; with `stream_id`, each event repeats it. docs/howto/openai-responses.md has the rules.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError
from typing_extensions import override

from lango.errors import LangoError
from lango.events import Queued
from lango.server.compat.openai.responses.response_request import ResponseRequest
from lango.server.compat.openai.responses.response_view import ResponseView, response_error_body
from lango.server.compat.openai.responses.submission import submit_response
from lango.server.context import Context, ServerContext
from lango.server.errors import ApiError, bad_request, describe_problems, to_api_error
from lango.server.sockets import CONNECTION_ERRORS, SocketConnection, read_message

_log = logging.getLogger("lango.server")

router = APIRouter()

MAX_AGE_S = 3600.0
"""How long a socket stays open, as the specification has it."""
_MAX_WAITING = 8
"""How many requests of one socket are read before their turn comes."""
_CREATE = "response.create"


@router.websocket("/v1/responses")
async def serve_responses(socket: WebSocket, context: Context) -> None:
    """Create the responses that a client asks for, one after the other, until it disconnects."""
    await _ResponseSocket(socket, context).serve()


class _Request:
    """A message of the client."""

    def __init__(self, text: str) -> None:
        """Raise `ApiError` for a message that is not a JSON object."""
        message = read_message(text)
        if not isinstance(message, dict):
            raise bad_request(f'send an object with "type": "{_CREATE}"')
        self._fields = cast("dict[str, Any]", message)
        stream_id = self._fields.pop("stream_id", None)
        self.echoed: dict[str, Any] = {} if stream_id is None else {"stream_id": stream_id}

    @property
    def previous_id(self) -> Any:
        """The id of the response that it continues."""
        return self._fields.get("previous_response_id")

    def to_body(self) -> ResponseRequest:
        """Return the request as it has its fields over HTTP. Raise `ApiError` for an invalid one."""
        fields = dict(self._fields)
        if (kind := fields.pop("type", None)) != _CREATE:
            raise bad_request(
                f'type: {kind!r} is not supported; send "{_CREATE}", and new input with the next response'
            )
        if fields.pop("generate", None) is False:
            raise bad_request("generate: false is not supported; send the request with its input")
        if fields.get("background"):
            raise bad_request("background: not supported on a WebSocket; send the request with POST")
        if fields.pop("stream", None) is False:
            raise bad_request("stream: a WebSocket always streams; send the request with POST")
        try:
            return ResponseRequest.model_validate(fields)
        except ValidationError as error:
            problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
            raise bad_request(describe_problems(problems)) from error


class _ResponseSocket(SocketConnection):
    """One socket, with one response at a time."""

    def __init__(self, socket: WebSocket, context: ServerContext) -> None:
        super().__init__(socket, context)
        self._requests: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING)
        self._worker: asyncio.Task[None] | None = None
        self._newest_id: str | None = None
        """The newest response, if it can be continued."""

    @override
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [self._worker] if self._worker else []

    @override
    async def _receive_all(self) -> None:
        """Read requests while others run, so that the end of the connection is noticed."""
        self._worker = asyncio.create_task(self._answer_all())
        try:
            async with asyncio.timeout(MAX_AGE_S):
                while (text := await self._receive()) is not None:
                    await self._requests.put(text)
        except TimeoutError:
            age = f"{MAX_AGE_S / 60:g} minutes"
            error = ApiError(
                400, "websocket_connection_limit_reached", f"a WebSocket is closed after {age}: open another one"
            )
            await self._send_error(error, {})
            await self._socket.close(1000)

    async def _answer_all(self) -> None:
        try:
            while True:
                await self._answer(await self._requests.get())
        except CONNECTION_ERRORS:
            self._disconnect()
        except Exception:  # noqa: BLE001 - the client learns of it by the close
            _log.exception("a WebSocket of /v1/responses failed")
            await self._socket.close(1011)

    async def _answer(self, text: str) -> None:
        """Send the events of one response, or the error of a request that is refused."""
        request: _Request | None = None
        continued = self._newest_id
        try:
            request = _Request(text)
            user = await self._authenticate()
            body = request.to_body()
            response = await submit_response(user, body, unstored_id=continued)
            self._newest_id = None
            last = await self._send_events(ResponseView(user, response), request.echoed)
            if last != "response.failed":
                self._newest_id = response.id
        except (LangoError, ApiError) as error:
            if request is None or request.previous_id == self._newest_id:
                self._newest_id = None
            await self._send_error(error, request.echoed if request else {})

    async def _send_events(self, view: ResponseView, echoed: Mapping[str, Any]) -> str:
        """Send the events of a response; return the type of the last one."""
        last = ""
        async with aclosing(view.events()) as events:
            async for event in events:
                if event is None or isinstance(event, Queued) or event["type"] == "error":
                    continue  # a socket has its own pings, and `response.failed` follows the error
                last = str(event["type"])
                await self._send(json.dumps({**event, **echoed}))
        return last

    async def _send_error(self, error: Exception, echoed: Mapping[str, Any]) -> None:
        api_error = to_api_error(error)
        body = {"type": "error", "status": api_error.status, **response_error_body(api_error), **echoed}
        await self._send(json.dumps(body))
