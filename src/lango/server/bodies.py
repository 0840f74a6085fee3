"""Read the body of a request as JSON, in bounded time: its values were counted by `security.middleware`."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from typing_extensions import override

from lango.json_input import TooManyValues, read_counted


class JsonRequest(Request):
    """A request whose JSON is read with the bounds of `lango.json_input`."""

    @override
    async def json(self) -> Any:
        try:
            return read_counted(await self.body())
        except TooManyValues as error:
            raise HTTPException(413, str(error)) from error
        except json.JSONDecodeError:  # orjson's errors are such ones, too
            raise
        except (ValueError, RecursionError) as error:  # half a character in UTF-8, too many levels
            raise json.JSONDecodeError("not JSON", "", 0) from error


class JsonRoute(APIRoute):
    """A route that reads its body so."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json
