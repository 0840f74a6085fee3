"""Find the new messages and tool results in a conversation that a client resends whole.

Clients of AG-UI and OpenAI send the whole conversation each time. Its end is new. Earlier results of client tools are
used, too, if their calls still wait.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from lango.config import ServerSettings
from lango.messages import Message, ToolCall
from lango.server.compat.client_view import visible_stored, visible_user_message
from lango.server.compat.edited_history import COMPARED_MESSAGES, ends_with
from lango.server.compat.inline_files import attachments_of_message, file_fingerprint
from lango.server.context import AgentUser, ServerContext
from lango.server.errors import ApiError, bad_request
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo
from lango.submissions import SubmittedMessage, SubmittedResults, TurnRequest
from lango.threads import run_in_thread

Results = Mapping[str, Mapping[str, Any]]
FILE_LEFT_OUT = "[file omitted: only text is kept from tool results]"
"""Shown to the model instead of a file in a result."""
_RECENT_MESSAGES = 50  # a call that waits, or was just answered, is one of the newest

_MAX_NEW_MESSAGES = 100
"""How many messages of the user may follow the last answer in one request."""


def result_message(call_id: str, result: Mapping[str, Any]) -> Message:
    """Return the result of a client's tool as a message; the name of the tool is in its call."""
    return Message("tool", tool_calls=(ToolCall(call_id, "", output=result),))


def check_last(messages: Sequence[Message]) -> None:
    """Raise `ApiError` unless a conversation ends with a message of the user, or with the result of a client's tool."""
    last = messages[-1] if messages else Message("assistant")
    if last.role != "tool" and (last.role != "user" or not (last.content or last.media)):
        raise bad_request(
            "messages: the last message must be the user's, with a text or a file, or the result of a client's tool"
        )


def results_of(messages: Iterable[Message]) -> dict[str, Mapping[str, Any]]:
    """Return the results of client tools by call id; of a repeated id, that of the newest call."""
    found: dict[str, Mapping[str, Any]] = {}
    for message in messages:
        for call in message.tool_calls:
            if message.role == "tool":
                found[call.id] = call.output or {}
            else:
                found.pop(call.id, None)
    return found


async def submit_end(
    user: AgentUser,
    session_id: str,
    messages: Sequence[Message],
    request: TurnRequest,
    attempt: str,
    *,
    require_all: bool = False,
    state_delta: Mapping[str, Any] | None = None,
) -> TurnRef:
    """Submit the end of a conversation: results of client tools, or the user's messages that the session lacks.

    Results of calls that still wait are used wherever they are. `attempt` tells a retry of failed results from the
    request before.
    """
    results = await run_in_thread(results_of, messages)  # there may be thousands
    last = messages[-1]
    if last.role == "tool":
        at_end = takewhile(lambda message: message.role == "tool", reversed(messages))
        new = {call.id for message in at_end for call in message.tool_calls}
        return await submit_results(user, session_id, results, new, request, attempt, require_all=require_all)
    history = await _unstored_messages(user, session_id, messages)
    files = attachments_of_message(last)
    message = SubmittedMessage(last.content, files, state_delta or {}, results, history, request)
    return await user.submit(session_id, message)


async def submit_results(
    user: AgentUser,
    session_id: str,
    results: Results,
    new: Collection[str],
    request: TurnRequest,
    attempt: str,
    *,
    require_all: bool = False,
) -> TurnRef:
    """Submit results of client tool calls as a turn.

    The same results again return the same turn; if that turn failed, a new attempt continues from there. With
    `require_all`, raise `ApiError` if another client tool call waits without a result.
    """
    session = await user.get_session(session_id)
    key = await results_key(user.context, session, new)
    for candidate in (key, await results_key(user.context, session, new, "again", attempt)):
        key = candidate
        known = await user.runtime.turns.find_by_key(session, key)
        record = await user.runtime.turns.read(session, known.turn) if known else None
        if known and record and record.status in ("queued", "running", "done"):
            return TurnRef(session, known.turn)
        if not known:
            break
    open_calls = await user.runtime.turns.client_calls(session)
    if require_all:
        check_all_answered(open_calls, results.keys())
    taken = {call_id: result for call_id, result in results.items() if call_id in open_calls or call_id in new}
    submitted = SubmittedResults(taken, request=replace(request, idempotency_key=key))
    return await user.submit(session_id, submitted)


def check_all_answered(calls: Collection[str], answered: Collection[str]) -> None:
    """Raise `ApiError` if a client tool call has no result."""
    if missing := ", ".join(sorted(set(calls).difference(answered))):
        raise bad_request(f"messages: each tool call needs its result; there is none for {missing}")


async def results_key(context: ServerContext, session: SessionInfo, calls: Collection[str], *more: str) -> str:
    """Return an idempotency key for the results of some calls: the same results again are the same turn."""
    return idempotency_key("results", await _event_of_calls(context, session, calls), *sorted(calls), *more)


def idempotency_key(kind: str, *parts: str) -> str:
    """Return an idempotency key that depends on all parts. A part may be a whole message, so it is only hashed."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d " % len(content))
        digest.update(content)
    return f"{kind}-{digest.hexdigest()}"


async def _event_of_calls(context: ServerContext, session: SessionInfo, calls: Collection[str]) -> str:
    """Return the id of the newest event with one of these calls: some models reuse call ids."""
    newest = await context.sessions.page(session, limit=_RECENT_MESSAGES)
    for stored in reversed(newest):
        if (
            stored.message
            and stored.message.role == "assistant"
            and any(call.id in calls for call in stored.message.tool_calls)
        ):
            return stored.event_id
    return ""


def content_texts(messages: Iterable[Message]) -> list[str]:
    """Return texts that are the same for the same messages. Only the hashes of files are in them."""
    messages = list(messages)
    files = [file_fingerprint(file) for message in messages for file in attachments_of_message(message)]
    return [*(repr(replace(message, media=())) for message in messages), *files]


async def _unstored_messages(user: AgentUser, session_id: str, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the user's messages before the last one that the session does not hold yet.

    Some of those after the last answer may be stored: their turn failed, is running or queued, or its answer did not
    reach the client.
    """
    newest = sum(1 for _ in takewhile(lambda message: message.role == "user", reversed(messages)))
    if newest < 2:
        return ()
    if newest > _MAX_NEW_MESSAGES:
        raise bad_request(f"messages: at most {_MAX_NEW_MESSAGES} new user messages are accepted at once, not {newest}")
    user_messages = [message for message in messages if message.role == "user"]
    first = len(user_messages) - newest
    session = await user.find_session(session_id)
    if session is None:
        return user_messages[first:-1]
    page = await user.sessions.page(session, limit=COMPARED_MESSAGES)
    queued = await user.runtime.turns.queued(session)
    stored = [visible_stored(message).message for message in (*page, *(entry.message for entry in queued))]
    stored_views = [message for message in stored if message.role == "user"]
    sent = [
        visible_user_message(message, map(file_fingerprint, attachments_of_message(message)))
        for message in user_messages
    ]
    is_complete = len(page) < COMPARED_MESSAGES
    for held in range(len(user_messages) - 1, first, -1):
        if ends_with(sent[:held], stored_views, is_complete=is_complete):
            return user_messages[held:-1]
    return user_messages[first:-1]


def client_instruction(texts: Iterable[str], settings: ServerSettings) -> str:
    """Join the instructions of a client to one text. Raise `ApiError` if there are any and the settings refuse them."""
    instruction = "\n\n".join(text for text in texts if text.strip())
    if instruction and not settings.client_instructions:
        raise ApiError(
            400,
            "ClientInstructionsRefused",
            "messages: this server accepts no instructions from clients; remove system and developer messages, "
            "instructions and context (setting server.client_instructions)",
        )
    return instruction
