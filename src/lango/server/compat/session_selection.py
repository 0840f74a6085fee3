"""Choose the session in which the turn of a request is stored whose client resends the conversation.

In a named session, the stored history counts. Otherwise the model reads the history in the request: in a session that
holds exactly that history, as a client sees it, or in a new session that starts with it.

A session is searched by the last user message of the history, and compared whole. The turn starts there only if the
session still has the compared revision and no running or queued turn; the store checks that in the transaction that
starts the turn. So two requests with the same history never share a session.
"""

import hashlib
import uuid
from collections.abc import Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import StaleSession, WaitNotOpen
from lango.messages import Message
from lango.server.compat.carried_history import to_history
from lango.server.compat.client_view import (
    VisibleMessage,
    VisibleStored,
    visible_carried,
    visible_session,
    visible_stored,
)
from lango.server.compat.inline_files import attachments_of_message
from lango.server.compat.resent_history import (
    check_all_answered,
    content_texts,
    idempotency_key,
    results_key,
    submit_end,
)
from lango.server.context import AgentUser, ServerContext
from lango.server.errors import bad_request
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo
from lango.submissions import SubmittedMessage, SubmittedResults, TurnRequest
from lango.threads import run_in_thread

SESSION_PREFIX = "conversation-"
"""Prefix of the ids of such sessions: no other request continues them."""


class NamedConversation(Struct, frozen=True):
    """The session id, or prefix of session ids, of a conversation that the client names."""

    session_id: str
    """With `has_several_sessions`, the prefix of their ids."""
    has_several_sessions: bool = False
    """The client resends the history: one that differs from the stored one gets another session with this prefix."""


_MAX_COMPARED = 20
"""How many sessions with the same newest user message are compared."""
_FIRST_PAGE, _PAGE = 20, 200


class _MatchingSession(Struct, frozen=True):
    """A session whose messages are the first `message_count` of the request."""

    session: SessionInfo
    message_count: int


async def submit_to_named_session(
    user: AgentUser, session_id: str, sent: Sequence[Message], request: TurnRequest
) -> TurnRef:
    """Submit a turn to a session that the client names. Only new parts of the resent history are read."""
    attempt = request.idempotency_key or uuid.uuid4().hex
    return await submit_end(user, session_id, sent, request, attempt, require_all=True)


async def submit_carried_history(
    user: AgentUser,
    sent: Sequence[Message],
    request: TurnRequest,
    conversation: NamedConversation | None = None,
    new_session_id: str | None = None,
    preferred_key: int | None = None,
) -> TurnRef:
    """Submit a turn whose model reads exactly the history in the request.

    `preferred_key` is the session that the client has the history from: it comes first, if it holds that history.
    """
    messages = await run_in_thread(to_history, sent)
    if sent[-1].role == "tool":
        _check_all_results(messages)
    once = None if request.idempotency_key is None else await run_in_thread(_OneTime.of, request, messages)
    if once:
        request = replace(request, idempotency_key=once.key, digest=once.digest)
    if once and (turn := await once.find(user)) is not None:
        return turn
    match = await _find_session(user, messages, conversation.session_id if conversation else "", preferred_key)
    if match is not None:
        try:
            return await _continue_session(user, messages, match, request)
        except (StaleSession, WaitNotOpen):
            pass  # another request was faster: this one continues in a new session
    if once and (turn := await once.find(user)) is not None:
        return turn  # the faster one was the same
    unique = once.key.rpartition(" ")[2][:32] if once else uuid.uuid4().hex
    session_id = new_session_id or (conversation.session_id if conversation else "chat-") + unique
    *history, last = messages
    if last.role == "tool":
        results = {call.id: call.output or {} for call in last.tool_calls}
        submission = SubmittedResults(results, history=history, request=request)
    else:
        submission = SubmittedMessage(last.content, attachments_of_message(last), history=history, request=request)
    return await user.submit(session_id, submission)


def _check_all_results(messages: Sequence[Message]) -> None:
    """Raise `ApiError` unless the history ends with the results of all calls of the last answer."""
    if messages[-1].role != "tool":
        raise bad_request(
            "messages: the tool messages answer none of the calls; send the call, or the X-Session-Id of its session"
        )
    answer, results = messages[-2:]
    check_all_answered([call.id for call in answer.tool_calls], [result.id for result in results.tool_calls])


async def _continue_session(
    user: AgentUser, messages: Sequence[Message], match: _MatchingSession, request: TurnRequest
) -> TurnRef:
    """Submit the turn to a session that holds the messages before it, if it still does."""
    last, request = messages[-1], replace(request, at_revision=match.session.revision)
    new = messages[match.message_count :]
    results = {item.id: item.output or {} for message in new for item in message.tool_calls}
    if last.role == "tool":
        key = request.idempotency_key or await results_key(user.context, match.session, results)
        submission = SubmittedResults(results, request=replace(request, idempotency_key=key))
    else:
        history = [item for item in new[:-1] if item.role == "user"]
        files = attachments_of_message(last)
        submission = SubmittedMessage(last.content, files, results=results, history=history, request=request)
    return await user.submit(match.session.name.id, submission)


class _OneTime(Struct, frozen=True):
    """A request that starts one turn, whatever session it is stored in, and however often it is sent."""

    key: str
    """The idempotency key as it is stored: no session's own keys are like it."""
    digest: str

    @classmethod
    def of(cls, request: TurnRequest, messages: Sequence[Message]) -> Self:
        """Return the request of a client's idempotency key."""
        key = request.idempotency_key or ""
        offered = [repr((tool.name, tool.description, tool.parameters)) for tool in request.client_tools or ()]
        return cls(
            f"history {hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}",
            idempotency_key("history", *content_texts(messages), *offered, repr(request.options)),
        )

    async def find(self, user: AgentUser) -> TurnRef | None:
        """Find the turn of an earlier attempt. Raise `IdempotencyKeyReused` if that was another request."""
        found = await user.runtime.turns.find_by_key_of_user(user.id, self.key)
        session = await user.sessions.find_by_key(found.session_key) if found else None
        if found is None or session is None:
            return None
        found.check(self.digest)
        return TurnRef(session, found.turn)


# -- finding the session -------------------------------------------------------------------------------------------


async def _find_session(
    user: AgentUser, messages: Sequence[Message], id_prefix: str, preferred_key: int | None
) -> _MatchingSession | None:
    """Return a session that holds all messages before the new ones.

    A session whose agent reads no more than a client sees comes first: others may hold tool results of another
    conversation that looks the same. One of those is returned only if it is the only match.
    """
    with_hidden_parts: list[_MatchingSession] = []
    for holds in _possible_lengths(messages):
        wanted = await run_in_thread(visible_carried, messages[:holds], user.runtime.shown_results)
        texts = [message.text for message in wanted if message.role == "user"]
        if not texts:
            continue
        found = await user.runtime.turns.sessions_with_input(user.id, texts[-1], id_prefix, limit=_MAX_COMPARED + 1)
        for session in sorted(found[:_MAX_COMPARED], key=lambda session: session.key != preferred_key):
            if not id_prefix and session.name.id.startswith(SESSION_PREFIX):
                continue  # belongs to a conversation that a client named
            hides = await _compare_session(user.context, session, wanted)
            if hides is False or (hides and session.key == preferred_key):
                return _MatchingSession(session, holds)
            if hides:
                with_hidden_parts.append(_MatchingSession(session, holds))
        if len(found) > _MAX_COMPARED:
            with_hidden_parts.clear()  # there may be more matches
            break
    return with_hidden_parts[0] if len(with_hidden_parts) == 1 else None


def _possible_lengths(messages: Sequence[Message]) -> list[int]:
    """Return how many messages a session may hold: all but the last, or all up to the newest answer."""
    answers = [position for position, message in enumerate(messages, 1) if message.role == "assistant"]
    return sorted({len(messages) - 1, *answers[-1:]}, reverse=True)


async def _compare_session(
    context: ServerContext, session: SessionInfo, wanted: Sequence[VisibleMessage]
) -> bool | None:
    """Whether a session with exactly the wanted messages has parts that a client cannot see, or None if they differ.

    Pages are read one by one, and only fingerprints of files are kept: the files of a session may exceed the memory.
    """
    wanted_user_messages = [view for view in wanted if view.role == "user"]
    stored: list[VisibleStored] = []
    before: int | None = None
    while page := await context.sessions.page(session, before=before, limit=_PAGE if stored else _FIRST_PAGE):
        views = [visible_stored(view) for view in page]
        for view in reversed(views):
            if view.message.role == "user" and (not wanted_user_messages or wanted_user_messages.pop() != view.message):
                return None
        stored[:0] = views
        before = page[0].seq
    seen, hides = visible_session(stored)
    return hides if seen == list(wanted) else None
