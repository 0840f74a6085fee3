"""Results of the client's tools, as conversations bring them: AG-UI's clients and OpenAI's send all of it each time.

What stands at the end is new. Results that stand further up are taken, too, if their calls still wait.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from lango.messages import Message
from lango.server.compat.client_view import VisibleMessage, visible_stored, visible_user_message
from lango.server.compat.inline_files import attachments_of_message, file_fingerprint
from lango.server.context import ServerContext
from lango.server.errors import ApiError
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.store import SessionId, SessionRecord
from lango.store.codec.rows import parse_result_text
from lango.store.sessions.sessions import find_session
from lango.store.sessions.window import read_message_page
from lango.store.turns import queue, turns
from lango.store.turns.client_calls import read_client_calls
from lango.store.turns.turns import read_turn
from lango.tools import Tool

Results = Mapping[str, Mapping[str, Any]]
FILE_LEFT_OUT = "[a file stood here: of a result, only text is taken]"
"""Read by the model in the place of a picture or a file."""
_RECENT_MESSAGES = 50  # messages: a call that waits, or was answered just now, is one of the newest

MAX_NEW_MESSAGES = 100
"""How many messages of the user may come at once, after the last answer."""
_COMPARED_MESSAGES = 200  # messages


class CallsInMessage(Struct, frozen=True):
    """A message as far as it is about calls: those that it makes, or the one that it answers."""

    call_ids: tuple[str, ...] = ()
    answered_call_id: str | None = None
    result: Mapping[str, Any] = {}


def parse_result(text: str) -> dict[str, Any]:
    """Return what a client's tool returned: a JSON object as it is, any other text as the result."""
    try:
        return parse_result_text(text)
    except RecursionError:
        return {"result": text}


def collect_results(messages: Iterable[CallsInMessage]) -> dict[str, Mapping[str, Any]]:
    """Return what the client's tools returned; where the id of a call comes again, for the newest."""
    found: dict[str, Mapping[str, Any]] = {}
    for message in messages:
        if message.answered_call_id is not None:
            found[message.answered_call_id] = message.result
        for call_id in message.call_ids:
            found.pop(call_id, None)
    return found


def calls_answered_at_end(messages: Sequence[CallsInMessage]) -> set[str]:
    """Return the calls that the messages at the end are the results of."""
    return {
        message.answered_call_id or ""
        for message in takewhile(lambda message: message.answered_call_id is not None, reversed(messages))
    }


async def submit_results(
    context: ServerContext,
    caller: Caller,
    session_id: str,
    results: Results,
    new: Collection[str],
    tools: Sequence[Tool],
    attempt: str,
    *,
    require_all: bool = False,
) -> TurnRef:
    """Take results. The same ones again are the same turn; where that one failed, a new attempt goes on from there.

    With `every`, refuse them while another call of the client's waits that has none.
    """
    session = await context.get_session(caller, session_id)
    key = await results_key(context, session, new)
    for candidate in (key, await results_key(context, session, new, "again", attempt)):
        key, turn = (
            candidate,
            await context.store.read(turns.find_by_idempotency_key, session.key, candidate),
        )
        record = await context.store.read(read_turn, session.key, turn) if turn else None
        if turn and record and record.status in ("queued", "running", "done"):
            return TurnRef(session, turn)
        if not turn:
            break
    open_calls = {candidate.call.id for candidate in await context.store.read(read_client_calls, session)}
    if require_all and (left := open_calls - results.keys()):
        missing = ", ".join(sorted(left))
        raise ApiError(400, "BadRequest", f"messages: each call needs its tool message; there is none for {missing}")
    taken = {call_id: result for call_id, result in results.items() if call_id in open_calls or call_id in new}
    return await context.turns.submit_results(caller, session_id, taken, key, tools)


async def results_key(context: ServerContext, session: SessionRecord, calls: Collection[str], *more: str) -> str:
    """Return the idempotency key of the turn that brings the results of some calls: the same again are that turn."""
    about = "results", await _event_of_calls(context, session, calls), *sorted(calls), *more
    return f"results-{hashlib.sha256(json.dumps(about).encode()).hexdigest()}"


async def _event_of_calls(context: ServerContext, session: SessionRecord, calls: Collection[str]) -> str:
    """Return the event that made some calls: some models count theirs from 1 again, and the newest is meant."""
    newest = await context.store.read(read_message_page, session, limit=_RECENT_MESSAGES)
    for stored in reversed(newest):
        if (
            stored.message
            and stored.message.role == "assistant"
            and any(call.id in calls for call in stored.message.tool_calls)
        ):
            return stored.event_id
    return ""


async def unstored_messages(
    context: ServerContext, caller: Caller, session_id: str, user_messages: Sequence[Message], newest: int
) -> Sequence[Message]:
    """Return the user's messages before the last that its session does not hold yet.

    `users` are all that the client sends of the user; the last `newest` of them stand after its last answer. One of
    these may be stored: its turn failed, runs or waits, or its answer never came to the client.
    """
    if newest < 2:
        return ()
    if newest > MAX_NEW_MESSAGES:
        raise ApiError(
            400, "BadRequest", f"messages: at most {MAX_NEW_MESSAGES} of the user's may come at once, not {newest}"
        )
    first = len(user_messages) - newest
    session = await context.store.read(find_session, SessionId(context.runtime.app_name, caller.user_id, session_id))
    if session is None:
        return user_messages[first:-1]
    page = await context.store.read(read_message_page, session, limit=_COMPARED_MESSAGES)
    queued = await context.store.read(queue.read_queued_messages, session.key)
    stored = [
        visible_stored(message).message for message in (*page, *(queued_message.message for queued_message in queued))
    ]
    stored_views = [message for message in stored if message.role == "user"]
    sent = [
        visible_user_message(message, map(file_fingerprint, attachments_of_message(message)))
        for message in user_messages
    ]
    is_complete = len(page) < _COMPARED_MESSAGES
    for held in range(len(user_messages) - 1, first, -1):
        if _ends_with(sent[:held], stored_views, is_complete=is_complete):
            return user_messages[held:-1]
    return user_messages[first:-1]


def _ends_with(sent: Sequence[VisibleMessage], known: Sequence[VisibleMessage], *, is_complete: bool) -> bool:
    """Whether the stored messages end as some that were sent; with `whole`, these are all that are stored."""
    count = min(len(sent), len(known))
    return bool(count) and not (is_complete and len(sent) > len(known)) and sent[-count:] == known[-count:]
