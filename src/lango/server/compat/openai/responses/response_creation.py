"""Store the turn of a request for a response, however the request came, in the session that it belongs to."""

from typing import Any

from msgspec.structs import replace

from lango.server.compat.client_instructions import client_instruction
from lango.server.compat.openai.responses.input_items import read_input
from lango.server.compat.openai.responses.response_ids import StoredResponse, find_response, response_of_item
from lango.server.compat.openai.responses.response_request import ResponseRequest
from lango.server.compat.openai.responses.response_view import ResponseView
from lango.server.compat.openai.responses.submission import (
    submit_after,
    submit_approvals,
    submit_history,
    submit_to_session,
)
from lango.server.context import ServerContext
from lango.server.errors import ApiError, bad_request, not_found
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.submissions import TurnRequest


async def submit_response(
    context: ServerContext,
    caller: Caller,
    body: ResponseRequest,
    session_id: str | None = None,
    key: str | None = None,
    *,
    unstored_id: str | None = None,
) -> StoredResponse:
    """Store the turn of a request in the session that it belongs to.

    `unstored_id` is a response that can be continued although it has `store: false`.
    """
    body.check_supported()
    await context.authenticator.check_token_quota(caller)
    turn = await _submit(context, caller, body, session_id, key, unstored_id)
    record = await context.runtime.stored_turns.read(turn.session, turn.turn)
    assert record
    return StoredResponse(turn.session, turn.turn, record)


async def _submit(
    context: ServerContext,
    caller: Caller,
    body: ResponseRequest,
    session_id: str | None,
    key: str | None,
    unstored_id: str | None,
) -> TurnRef:
    previous = await find_previous(context, caller, body.previous_response_id, unstored_id)
    read = await read_input(body.input, lambda item_id: load_item(context, caller, item_id))
    earlier = previous.parameters.get("_developer_messages", ()) if previous else ()
    developer_messages = [*earlier, *read.instructions]
    parameters = body.parameters() | ({"_developer_messages": developer_messages} if developer_messages else {})
    instruction = client_instruction([body.instructions or "", *developer_messages], context.settings.server)
    tools, options = await body.read_turn(context.runtime.app_name)
    request = TurnRequest(key, tools, replace(options, instruction=instruction, client_request=parameters))
    is_all_new = previous is not None or body.conversation is not None
    if is_all_new and (read.earlier_approvals or (read.approvals and read.messages)):
        raise bad_request("input: send an mcp_approval_response alone, and messages after its response")
    if read.approvals:
        return await submit_approvals(context, caller, read.approvals, request)
    if previous is not None:
        return await submit_after(context, caller, previous, read, request)
    if body.conversation_id is not None:
        await context.get_session(caller, body.conversation_id)
        return await submit_to_session(context, caller, body.conversation_id, read, request)
    if session_id is not None:
        return await submit_to_session(context, caller, session_id, read, request)
    return await submit_history(context, caller, read, request)


async def find_previous(
    context: ServerContext, caller: Caller, previous_id: str | None, unstored_id: str | None = None
) -> StoredResponse | None:
    """Find the response that a request continues. Raise `ApiError` if it names one that is not there."""
    if previous_id is None:
        return None
    found = await find_response(context, caller, previous_id, unstored_id)
    if found is None:
        raise ApiError(
            400,
            "previous_response_not_found",
            f"previous_response_id: there is no response {previous_id!r}, or it was deleted; send the history instead",
        )
    return found


async def load_item(context: ServerContext, caller: Caller, item_id: str) -> dict[str, Any]:
    """Load an output item of a stored response of the caller."""
    response_id = response_of_item(item_id)
    response = await find_response(context, caller, response_id) if response_id else None
    if response is not None:
        view = ResponseView(context, response)
        await view.read()
        for item in view.output:
            if item["id"] == item_id:
                return item
    raise not_found(f"input: there is no item {item_id!r}; send the whole item")
