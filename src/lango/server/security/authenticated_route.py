"""Authenticate a request before its body is read, and again while its stream is open.

FastAPI reads a body before it resolves the caller: then any client could make the server parse megabytes. These routes
authenticate first. A stream may be open for hours, so it repeats the check of its caller every few seconds: a revoked
key or an expired token ends it.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from typing_extensions import override

from lango.server.errors import ApiError, log_server_fault, to_api_error
from lango.server.json_body import JsonRequest, JsonResponse
from lango.server.security.auth import authenticate_request, current_caller

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class AuthenticatedRoute(APIRoute):
    """A route that authenticates its caller, where it has one, before it reads the body as a `JsonRequest`."""

    @override
    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()
        has_caller = any(dependency.call is current_caller for dependency in self.dependant.dependencies)

        async def handle_authenticated(request: Request) -> Response:
            if has_caller:
                await authenticate_request(request)
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_authenticated


def route_with_error_body(make_body: Callable[[ApiError], Mapping[str, Any]]) -> type[AuthenticatedRoute]:
    """Return a class of routes whose error responses have another body."""

    class RouteWithErrorBody(AuthenticatedRoute):
        @override
        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def handle_errors(request: Request) -> Response:
                try:
                    return await handle(request)
                except Exception as error:  # noqa: BLE001 - every error has a response
                    api_error = to_api_error(error)
                    log_server_fault(request, error)
                    return JsonResponse(make_body(api_error), api_error.status, api_error.headers)

            return handle_errors

    return RouteWithErrorBody
