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

from lango.server.errors import ApiError, log_server_fault, to_api_error
from lango.server.json_body import JsonResponse, JsonRoute
from lango.server.security.auth import authenticate_request, current_caller, read_authorization
from lango.server.streaming.sse import StreamResponse

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class AuthenticatedRoute(JsonRoute):
    """A route whose caller is known before its body is read, where it asks for one at all."""

    @override
    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()
        if not any(dependency.call is current_caller for dependency in self.dependant.dependencies):
            return handle

        async def handle_authenticated(request: Request) -> Response:
            await authenticate_request(request)
            response = await handle(request)
            if isinstance(response, StreamResponse):
                stream = cast("StreamResponse[Any]", response)
                stream.allowed_by(request.app.state.served.principal, read_authorization(request))
            return cast("Response", response)

        return handle_authenticated


def route_with_error_body(make_body: Callable[[ApiError], Mapping[str, Any]]) -> type[AuthenticatedRoute]:
    """Make a kind of route whose errors have another body."""

    class RouteWithErrorBody(AuthenticatedRoute):
        @override
        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def handle_errors(request: Request) -> Response:
                try:
                    return await handle(request)
                except Exception as error:  # noqa: BLE001 - every error has an answer
                    refused = to_api_error(error)
                    log_server_fault(request, error)
                    return JsonResponse(make_body(refused), refused.status, refused.headers)

            return handle_errors

    return RouteWithErrorBody
