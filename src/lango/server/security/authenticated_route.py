"""Routes that know who calls before they read what was sent, and as long as they answer.

FastAPI reads a body before it asks for the caller: then anybody could make the server parse megabytes. These routes ask
first. And a stream may be open for hours: its caller is checked again every few seconds, so that a key that was
revoked, or a token that has expired, reads nothing any more.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from fastapi import Request
from starlette.responses import Response
from typing_extensions import override

from lango.server.errors import Refused, log_if_ours, told
from lango.server.json_body import JsonResponse, JsonRoute
from lango.server.security.auth import authenticate, authorization_of, current_caller
from lango.server.streaming.sse import Stream

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class AuthenticatedRoute(JsonRoute):
    """A route whose caller is known before its body is read, where it asks for one at all."""

    @override
    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()
        if not any(one.call is current_caller for one in self.dependant.dependencies):
            return handle

        async def handle_of_caller(request: Request) -> Response:
            await authenticate(request)
            response = await handle(request)
            if isinstance(response, Stream):
                stream = cast("Stream[Any]", response)
                stream.allowed_by(request.app.state.served.door, authorization_of(request))
            return cast("Response", response)

        return handle_of_caller


def route_with_errors(body_of: Callable[[Refused], Mapping[str, Any]]) -> type[AuthenticatedRoute]:
    """Make a kind of route whose errors have another body."""

    class RouteWithErrors(AuthenticatedRoute):
        @override
        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def handle_errors(request: Request) -> Response:
                try:
                    return await handle(request)
                except Exception as error:  # noqa: BLE001 - every error has an answer
                    refused = told(error)
                    log_if_ours(request, error)
                    return JsonResponse(body_of(refused), refused.status, refused.headers)

            return handle_errors

    return RouteWithErrors
