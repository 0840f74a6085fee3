"""Choose the session in which a response's turn is stored, and submit the turn.

- With `previous_response_id`, the session of that response, if the response is the newest turn there and nothing has
  changed since; the store checks that in the transaction that starts the turn. Otherwise a fork at the end of that
  response, so that one response can be continued any number of times.
- With `conversation` or `X-Session-Id`, that session.
- Otherwise the session that holds exactly the history in the input, or a new one that starts with it, as in chat
  completions.

An `Idempotency-Key` names the new session, so that a repeated request finds its own turn.
"""

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.config import ServerSettings
from lango.errors import SessionExists, StaleSession, WaitNotOpen
from lango.messages import Message
from lango.server.compat.client_view import wait_id_of_approval
from lango.server.compat.inline_files import attachments_of_message
from lango.server.compat.openai.carried_history import read_history
from lango.server.compat.openai.chat_request import ChatMessage, ChatRequest
from lango.server.compat.openai.responses.input_items import Approval, ReadInput
from lango.server.compat.openai.responses.response_ids import StoredResponse, find_response, session_key_of_response
from lango.server.compat.openai.session_selection import submit_carried_history, submit_to_named_session
from lango.server.compat.resent_history import Results, check_all_answered, idempotency_key
from lango.server.context import ServerContext
from lango.server.errors import bad_request, not_found
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionRecord
from lango.submissions import ModelOptions, SubmittedAnswer, SubmittedMessage, SubmittedResults, TurnRequest
from lango.threads import run_in_thread
from lango.waits import Approve, Refuse

APPROVAL = "_approval"
"""Where the stored parameters of a response name the approval request that it answers."""


async def submit_approvals(
    context: ServerContext,
    caller: Caller,
    approvals: Sequence[Approval],
    request: TurnRequest,
) -> TurnRef:
    """Submit answers to approval requests, one turn after the other; return the last turn."""
    turn: TurnRef | None = None
    options = request.options or ModelOptions()
    for approval in approvals:
        # the session waits for the answer, whether the response itself was stored or not
        asked = await find_response(context, caller, approval.response_id, unstored_id=approval.response_id)
        if asked is None:
            raise not_found(f"input: response {approval.response_id!r} has no approval request")
        parameters = {**(options.client_request or {}), APPROVAL: to_builtins(approval)}
        session_id = asked.session.name.id
        submitted = SubmittedAnswer(
            await wait_id_of_approval(context, caller, session_id, approval.call_id),
            Approve() if approval.approved else Refuse(approval.reason),
            replace(request, options=replace(options, client_request=parameters)),
        )
        turn = await context.turns.submit(caller, session_id, submitted)
    assert turn
    return turn


async def submit_after(
    context: ServerContext, caller: Caller, previous: StoredResponse, read: ReadInput, request: TurnRequest
) -> TurnRef:
    """Submit a turn that continues from a response."""
    if previous.is_open:
        raise bad_request("previous_response_id: that response is still in progress; wait for it, or cancel it")
    session, key = previous.session, request.idempotency_key
    if key is not None and await context.runtime.stored_turns.find_by_key(session, key) is not None:
        return await _submit_new(context, caller, session, read, request)
    if await context.runtime.stored_turns.newest(session) == previous.turn:
        with suppress(StaleSession, WaitNotOpen):
            return await _submit_new(context, caller, session, read, request, at_revision=session.revision)
    return await _submit_new(context, caller, await _fork(context, caller, previous, request), read, request)


async def submit_to_session(
    context: ServerContext, caller: Caller, session_id: str, read: ReadInput, request: TurnRequest
) -> TurnRef:
    """Submit a turn to a session that the client names; of a resent history, only the new parts are read."""
    return await submit_to_named_session(context, caller, session_id, _as_chat_request(read.messages), request)


async def submit_history(context: ServerContext, caller: Caller, read: ReadInput, request: TurnRequest) -> TurnRef:
    """Submit a turn whose model reads exactly the history in the input."""
    return await submit_carried_history(
        context,
        caller,
        _as_chat_request(read.messages),
        request,
        new_session_id=_new_session_id(request),
        preferred_key=session_key_of_response(read.response_ids[-1]) if read.response_ids else None,
    )


def _new_session_id(request: TurnRequest) -> str:
    """Return the id of a new session for a request: the same for a repeated one."""
    if request.idempotency_key is None:
        return f"resp-{uuid.uuid4().hex}"
    return f"resp-{hashlib.sha256(request.idempotency_key.encode()).hexdigest()[:32]}"


def _as_chat_request(messages: list[ChatMessage]) -> ChatRequest:
    if not messages:
        raise bad_request("input: there is nothing to answer: send a message or a function_call_output")
    chat = ChatRequest(messages=messages)
    chat.check_supported()
    return chat


async def _fork(
    context: ServerContext, caller: Caller, previous: StoredResponse, request: TurnRequest
) -> SessionRecord:
    """Return a fork of a session at the end of a response; a repeated request gets the same one."""
    source, new_id = previous.session.name.id, _new_session_id(request)
    last = await context.runtime.stored_turns.last_message(previous.session, previous.turn, previous.record)
    try:
        return await context.sessions.fork(source, user_id=caller.user_id, at=last, new_id=new_id)
    except SessionExists:
        return await context.get_session(caller, new_id)


async def _submit_new(
    context: ServerContext,
    caller: Caller,
    session: SessionRecord,
    read: ReadInput,
    request: TurnRequest,
    at_revision: int | None = None,
) -> TurnRef:
    """Submit input that is all new to a session; a repeated request returns its turn."""
    request = replace(request, at_revision=at_revision)
    if (key := request.idempotency_key) is not None:
        digest = idempotency_key("input", *map(repr, read.messages))
        request = replace(request, digest=digest)
        known = await context.runtime.stored_turns.find_by_key(session, key)
        if known is not None:
            known.check(digest)
            return TurnRef(session, known.turn)
    open_calls = await context.runtime.stored_turns.client_calls(session)
    new = await run_in_thread(_new_input, read.messages, open_calls, context.settings.server)
    if not new.messages:
        submission = SubmittedResults(new.results, request=request)
    else:
        *history, last = new.messages
        files = attachments_of_message(last)
        submission = SubmittedMessage(last.content, files, results=new.results, history=history, request=request)
    return await context.turns.submit(caller, session.name.id, submission)


class _NewInput(Struct, frozen=True):
    """Input for a session: results of calls that wait there, and messages after them."""

    results: Results
    messages: list[Message]


def _new_input(sent: list[ChatMessage], open_calls: set[str], limits: ServerSettings) -> _NewInput:
    """Read input that is all new. Raise `ApiError` unless it ends with a message of the user, or is all results."""
    results = {
        message.tool_call_id or "": message.calls.result
        for message in sent
        if message.role == "tool" and message.tool_call_id in open_calls
    }
    others = [message for message in sent if not _is_about(message, open_calls)]
    if results and not others:
        check_all_answered(open_calls, results)
        return _NewInput(results, [])
    _check_results_have_calls(others)
    _as_chat_request(others)
    messages = read_history(others, limits)
    if messages[-1].role != "user":
        raise bad_request("input: function outputs must come before messages, or alone")
    return _NewInput(results, messages)


def _is_about(message: ChatMessage, open_calls: set[str]) -> bool:
    """Whether a message answers, or only repeats, calls that wait in the session."""
    if message.role == "tool":
        return message.tool_call_id in open_calls
    return bool(message.call_ids) and set(message.call_ids) <= open_calls and not message.text


def _check_results_have_calls(messages: Sequence[ChatMessage]) -> None:
    made = {call_id for message in messages for call_id in message.call_ids}
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in made:
            raise bad_request(f"input: no call {message.tool_call_id!r} is waiting for an output")
