"""Serve A2A per agent: its card, JSON-RPC at `/a2a/{agent}`, and REST below `/a2a/{agent}/v1`.

The maintained SDK parses requests and writes answers, also in the shapes of version 0.3; `task_handler` does what they
ask for. docs/howto/a2a.md says how tasks, contexts and waits map to turns, sessions and waits here.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.responses import Response

from lango.server.context import AgentUser, Context, CurrentUser, ServerContext
from lango.server.errors import ApiError
from lango.server.json_body import JsonResponse
from lango.server.schemas import Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.sse import EventStreamResponse, with_heartbeats

if TYPE_CHECKING:
    from lango.server.compat.a2a.task_handler import TaskHandler

router = AuthenticatedRouter(tags=["a2a"])

_CARD: Responses = {
    200: {"description": "The agent card.", "content": {"application/json": {"schema": {"type": "object"}}}}
} | error_responses(
    {404: "There is no such agent.", 501: "A2A's package is not installed here.", 503: "The agent cannot run now."}
)


def _check_installed() -> None:
    if find_spec("a2a") is None:
        message = 'A2A needs a package that is not installed here: pip install "lango-adk[a2a]"'
        raise ApiError(501, "MissingDependency", message)


# -- cards -----------------------------------------------------------------------------------------------------------


@router.get("/.well-known/agent-card.json", responses=_CARD)
async def default_card(request: Request, context: Context) -> Response:
    """Return the card of the agent that answers requests which name none."""
    return await _card_response(request, context)


@router.get("/a2a/{agent}/.well-known/agent-card.json", responses=_CARD)
async def agent_card(agent: str, request: Request, context: Context) -> Response:
    """Return the card of an agent; anyone may read it."""
    return await _card_response(request, context.agents.named(agent))


async def _card_response(request: Request, context: ServerContext) -> Response:
    _check_installed()
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    from lango.server.compat.a2a.cards import make_card

    return JsonResponse(agent_card_to_dict(await make_card(context, str(request.base_url))))


# -- operations ------------------------------------------------------------------------------------------------------


async def _given_status(request: Request) -> Any:
    """Return the status by which a client filters its tasks, as it was sent: the SDK drops an unknown one."""
    if request.method == "GET":
        return request.query_params.get("status")
    return (await request.json()).get("params", {}).get("status")  # the SDK has read the body, and keeps it


def _handler(request: Request, agent: str, user: AgentUser) -> "TaskHandler":
    """Return what answers the call of a user to an agent."""
    _check_installed()
    from lango.server.compat.a2a.task_handler import Call, TaskHandler

    named = AgentUser(user.context.agents.named(agent), user.caller)
    call = Call(named, str(request.base_url), lambda _: _given_status(request))
    return TaskHandler(lambda _: call)


@router.post("/a2a/{agent}", include_in_schema=False)
async def call(agent: str, request: Request, user: CurrentUser) -> Response:
    """Answer a JSON-RPC request of A2A 1.0 or 0.3."""
    handler = _handler(request, agent, user)
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

    dispatcher = JsonRpcDispatcher(handler, enable_v0_3_compat=True)
    return _to_response(user, await dispatcher.handle_requests(request))


async def _rest(request: Request, agent: str, user: AgentUser, operation: str) -> Response:
    handler = _handler(request, agent, user)
    from a2a.server.routes.rest_dispatcher import RestDispatcher

    answer = getattr(RestDispatcher(handler), operation)
    return _to_response(user, await answer(request))


def _add_rest_route(method: str, path: str, operation: str) -> None:
    async def endpoint(agent: str, request: Request, user: CurrentUser) -> Response:
        return await _rest(request, agent, user, operation)

    endpoint.__name__ = f"a2a_{operation.removeprefix('on_')}"
    endpoint.__doc__ = f"Answer A2A's REST operation `{operation.removeprefix('on_')}`."
    router.add_api_route(
        f"/a2a/{{agent}}/v1{path}",
        endpoint,
        methods=[method],
        include_in_schema=False,  # the protocol's own specification describes them
    )


for _method, _path, _operation in (
    ("POST", "/message:send", "on_message_send"),
    ("POST", "/message:stream", "on_message_send_stream"),
    ("POST", "/tasks/{id}:cancel", "on_cancel_task"),
    ("POST", "/tasks/{id}:subscribe", "on_subscribe_to_task"),
    ("GET", "/tasks/{id}:subscribe", "on_subscribe_to_task"),
    ("GET", "/tasks/{id}", "on_get_task"),
    ("GET", "/tasks", "list_tasks"),
    ("GET", "/extendedAgentCard", "handle_authenticated_agent_card"),
    ("POST", "/tasks/{id}/pushNotificationConfigs", "set_push_notification"),
    ("GET", "/tasks/{id}/pushNotificationConfigs", "list_push_notifications"),
    ("GET", "/tasks/{id}/pushNotificationConfigs/{push_id}", "get_push_notification"),
    ("DELETE", "/tasks/{id}/pushNotificationConfigs/{push_id}", "delete_push_notification"),
):
    _add_rest_route(_method, _path, _operation)


# -- errors that the SDK does not write -------------------------------------------------------------------------------

_STATUS_NAMES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


def rpc_error_body(error: ApiError) -> dict[str, Any]:
    """Return an error response of JSON-RPC."""
    code = -32600 if error.status < 500 and error.status != 429 else -32603
    fault = {"code": code, "message": str(error), "data": _error_info(error)}
    return {"jsonrpc": "2.0", "id": None, "error": fault}


def rest_error_body(error: ApiError) -> dict[str, Any]:
    """Return an error response of A2A's REST binding."""
    status = _STATUS_NAMES.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    return {
        "error": {"code": error.status, "status": status, "message": str(error), "details": _error_info(error)},
    }


def _error_info(error: ApiError) -> list[dict[str, str]]:
    return [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.type, "domain": "lango"}]


# -- streams ---------------------------------------------------------------------------------------------------------


def _to_response(user: AgentUser, answer: Response) -> Response:
    """Return the SDK's answer; a stream is sent as all streams here: with heartbeats, and only while access lasts."""
    from sse_starlette.sse import EventSourceResponse

    if not isinstance(answer, EventSourceResponse):
        return answer
    server = user.settings.server
    items: Any = getattr(answer, "body_iterator")  # noqa: B009 - its type is not complete
    frames = _frames(aiter(items), server.heartbeat_s)
    return EventStreamResponse(frames, server.write_timeout_s, _encode_error)


async def _frames(items: AsyncIterator[Any], heartbeat_s: float) -> AsyncGenerator[str | None, None]:
    """Yield server-sent events as text; None whenever no event came for a heartbeat."""
    from sse_starlette.event import ensure_bytes  # pyright: ignore[reportUnknownVariableType]

    async with aclosing(with_heartbeats(items, heartbeat_s)) as beating:
        async for item in beating:
            yield None if item is None else ensure_bytes(item, "\n").decode()


def _encode_error(error: ApiError) -> str:
    """Encode the end of a stream whose task continues: the client subscribes to it again."""
    return f": {error}\n\n"
