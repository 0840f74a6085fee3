"""Choose the session in which a response's turn is stored, and submit the turn.

A turn with `previous_response_id` continues the session of that response if the response is the newest turn there and
nothing has changed since; the store checks that in the transaction that starts the turn. Otherwise it continues a fork
at the end of that response, so that one response can be continued any number of times.
"""

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.errors import SessionExists, StaleSession, WaitNotOpen
from lango.messages import Message
from lango.server.compat.carried_history import to_history
from lango.server.compat.client_view import wait_id_of_approval
from lango.server.compat.inline_files import attachments_of_message
from lango.server.compat.openai.responses.input_items import Approval, ReadInput, read_input
from lango.server.compat.openai.responses.response_ids import (
    APPROVAL,
    StoredResponse,
    find_response,
    response_of_item,
    session_key_of_response,
)
from lango.server.compat.openai.responses.response_request import ResponseRequest
from lango.server.compat.openai.responses.response_view import ResponseView
from lango.server.compat.openai.responses.stored_input import kept_instructions
from lango.server.compat.resent_history import (
    Results,
    check_all_answered,
    check_last,
    client_instruction,
    content_texts,
    idempotency_key,
)
from lango.server.compat.session_selection import submit_carried_history, submit_to_named_session
from lango.server.context import AgentUser
from lango.server.errors import ApiError, bad_request, not_found
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo
from lango.submissions import ModelOptions, SubmittedAnswer, SubmittedMessage, SubmittedResults, TurnRequest
from lango.threads import run_in_thread
from lango.waits import Approve, Refuse


async def submit_response(
    user: AgentUser,
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
    await user.check_token_quota()
    turn = await _submit(user, body, session_id, key, unstored_id)
    record = await user.runtime.turns.read(turn.session, turn.turn)
    assert record
    return StoredResponse(turn.session, turn.turn, record)


async def _submit(
    user: AgentUser, body: ResponseRequest, session_id: str | None, key: str | None, unstored_id: str | None
) -> TurnRef:
    previous = await find_previous(user, body.previous_response_id, unstored_id)
    read = await read_input(user, body.input, lambda item_id: load_item(user, item_id))
    conversation = None if body.conversation_id is None else await user.get_session(body.conversation_id)
    earlier = previous.parameters.get("_developer_messages", ()) if previous else ()
    earlier = [one.text for one in kept_instructions(conversation)] if conversation else earlier
    developer_messages = [*earlier, *read.instruction_texts]
    parameters = body.parameters() | ({"_developer_messages": developer_messages} if developer_messages else {})
    instruction = client_instruction([body.instructions or "", *developer_messages], user.settings.server)
    tools, options = await body.read_turn(user.runtime.app_name)
    request = TurnRequest(key, tools, replace(options, instruction=instruction, client_request=parameters))
    is_all_new = previous is not None or body.conversation is not None
    if is_all_new and (read.earlier_approvals or (read.approvals and read.messages)):
        raise bad_request("input: send an mcp_approval_response alone, and messages after its response")
    if read.approvals:
        return await _submit_approvals(user, read.approvals, request)
    if previous is not None:
        return await _submit_after(user, previous, read, request)
    _check_answerable(read.messages)
    session_id = body.conversation_id or session_id
    if session_id is not None:
        return await submit_to_named_session(user, session_id, read.messages, request)
    preferred_key = session_key_of_response(read.response_ids[-1]) if read.response_ids else None
    return await submit_carried_history(
        user, read.messages, request, new_session_id=_new_session_id(request), preferred_key=preferred_key
    )


async def find_previous(
    user: AgentUser, previous_id: str | None, unstored_id: str | None = None
) -> StoredResponse | None:
    """Find the response that a request continues. Raise `ApiError` if it names one that is not there."""
    if previous_id is None:
        return None
    found = await find_response(user, previous_id, unstored_id)
    if found is None:
        raise ApiError(
            400,
            "previous_response_not_found",
            f"previous_response_id: there is no response {previous_id!r}, or it was deleted; send the history instead",
        )
    return found


async def load_item(user: AgentUser, item_id: str) -> dict[str, Any]:
    """Load an output item of a stored response of the caller."""
    response_id = response_of_item(item_id)
    response = await find_response(user, response_id) if response_id else None
    if response is not None:
        view = ResponseView(user, response)
        await view.read()
        for item in view.body["output"]:
            if item["id"] == item_id:
                return item
    raise not_found(f"input: there is no item {item_id!r}; send the whole item")


async def _submit_approvals(user: AgentUser, approvals: Sequence[Approval], request: TurnRequest) -> TurnRef:
    """Submit answers to approval requests, one turn after the other; return the last turn."""
    turn: TurnRef | None = None
    options = request.options or ModelOptions()
    for approval in approvals:
        # the session waits for the answer, whether the response itself was stored or not
        asked = await find_response(user, approval.response_id, unstored_id=approval.response_id)
        if asked is None:
            raise not_found(f"input: response {approval.response_id!r} has no approval request")
        parameters = {**(options.client_request or {}), APPROVAL: to_builtins(approval)}
        session_id = asked.session.name.id
        submitted = SubmittedAnswer(
            await wait_id_of_approval(user, session_id, approval.call_id),
            Approve() if approval.approved else Refuse(approval.reason),
            replace(request, options=replace(options, client_request=parameters)),
        )
        turn = await user.submit(session_id, submitted)
    assert turn
    return turn


async def _submit_after(user: AgentUser, previous: StoredResponse, read: ReadInput, request: TurnRequest) -> TurnRef:
    """Submit a turn that continues from a response."""
    if previous.is_open:
        raise bad_request("previous_response_id: that response is still in progress; wait for it, or cancel it")
    session, key = previous.session, request.idempotency_key
    if key is not None and await user.runtime.turns.find_by_key(session, key) is not None:
        return await _submit_new(user, session, read, request)
    if await user.runtime.turns.newest(session) == previous.turn:
        with suppress(StaleSession, WaitNotOpen):
            return await _submit_new(user, session, read, request, at_revision=session.revision)
    return await _submit_new(user, await _fork(user, previous, request), read, request)


def _new_session_id(request: TurnRequest) -> str:
    """Return the id of a new session for a request: the same for a repeated one."""
    if request.idempotency_key is None:
        return f"resp-{uuid.uuid4().hex}"
    return f"resp-{hashlib.sha256(request.idempotency_key.encode()).hexdigest()[:32]}"


def _check_answerable(messages: Sequence[Message]) -> None:
    if not messages:
        raise bad_request("input: there is nothing to answer: send a message or a function_call_output")
    check_last(messages)


async def _fork(user: AgentUser, previous: StoredResponse, request: TurnRequest) -> SessionInfo:
    """Return a fork of a session at the end of a response; a repeated request gets the same one."""
    source, new_id = previous.session.name.id, _new_session_id(request)
    last = await user.runtime.turns.last_message(previous.session, previous.turn, previous.record)
    try:
        return await user.sessions.fork(source, user_id=user.id, at=last, new_id=new_id)
    except SessionExists:
        return await user.get_session(new_id)


async def _submit_new(
    user: AgentUser, session: SessionInfo, read: ReadInput, request: TurnRequest, at_revision: int | None = None
) -> TurnRef:
    """Submit input that is all new to a session; a repeated request returns its turn."""
    request = replace(request, at_revision=at_revision)
    if (key := request.idempotency_key) is not None:
        digest = idempotency_key("input", *await run_in_thread(content_texts, read.messages))
        request = replace(request, digest=digest)
        known = await user.runtime.turns.find_by_key(session, key)
        if known is not None:
            known.check(digest)
            return TurnRef(session, known.turn)
    open_calls = await user.runtime.turns.client_calls(session)
    new = await run_in_thread(_new_input, read.messages, open_calls)
    if not new.messages:
        submission = SubmittedResults(new.results, request=request)
    else:
        *history, last = new.messages
        files = attachments_of_message(last)
        submission = SubmittedMessage(last.content, files, results=new.results, history=history, request=request)
    return await user.submit(session.name.id, submission)


class _NewInput(Struct, frozen=True):
    """Input for a session: results of calls that wait there, and messages after them."""

    results: Results
    messages: list[Message]


def _new_input(sent: Sequence[Message], open_calls: set[str]) -> _NewInput:
    """Read input that is all new. Raise `ApiError` unless it ends with a message of the user, or is all results."""
    results = {
        call.id: call.output or {}
        for message in sent
        for call in message.tool_calls
        if message.role == "tool" and call.id in open_calls
    }
    others = [message for message in sent if not _is_about(message, open_calls)]
    if results and not others:
        check_all_answered(open_calls, results)
        return _NewInput(results, [])
    made = {call.id for message in others for call in message.tool_calls if message.role != "tool"}
    for message in others:
        if message.role == "tool" and (call_id := message.tool_calls[0].id) not in made:
            raise bad_request(f"input: no call {call_id!r} is waiting for an output")
    _check_answerable(others)
    messages = to_history(others)
    if messages[-1].role != "user":
        raise bad_request("input: function outputs must come before messages, or alone")
    return _NewInput(results, messages)


def _is_about(message: Message, open_calls: set[str]) -> bool:
    """Whether a message answers, or only repeats, calls that wait in the session."""
    ids = {call.id for call in message.tool_calls}
    return bool(ids) and ids <= open_calls and not message.content
