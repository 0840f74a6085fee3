"""Which session a turn of an OpenAI client is stored in.

With a named session, the history in the store counts. Without one, the model reads what the request carries: in a
session that holds just that to its last message, as a client sees it, or else in a new one that begins with it.

A session is looked for by the last user message that is carried, and compared whole. The turn begins there only if the
session is still at the revision that was compared and no other turn of it runs or waits; the store checks that in the
transaction that begins the turn. So two requests that carry the same history never share a session.
"""

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from msgspec import Struct

from lango.errors import CallNotWaiting, StaleSession
from lango.messages import Message
from lango.server.compat.client_view import Seen, StoredView, carried_view, stored_view, whole_view
from lango.server.compat.inline_files import files_of
from lango.server.compat.openai.carried_history import read_history, read_user
from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.conversation_ids import PREFIX, Conversation
from lango.server.compat.resent_history import answered_last, give, not_stored, results_in, results_key
from lango.server.context import Served
from lango.server.errors import Refused
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnOf
from lango.store import SessionRecord
from lango.store.sessions.client_history import find_sessions
from lango.tools import Tool

_MOST_COMPARED = 20
"""So many sessions whose newest user message is the same are compared."""
_FIRST_PAGE, _PAGE = 20, 200


class _Place(Struct, frozen=True):
    """A session, and how many of the carried messages it holds: all that it holds."""

    session: SessionRecord
    holds: int


async def submit_named(
    here: Served, user: Caller, session_id: str, asked: ChatRequest, tools: Sequence[Tool], key: str | None
) -> TurnOf:
    """Store a turn in a session that the client names. Of what it resends, only what is new is read.

    These are the user's messages at the end, and results of calls that still wait, wherever they stand.
    """
    spoken = await asyncio.to_thread(lambda: [one.spoken for one in asked.messages])  # ten thousand results, perhaps
    results = results_in(spoken)
    if asked.brings_results:
        attempt = key or uuid.uuid4().hex
        return await give(here, user, session_id, results, answered_last(spoken), tools, attempt, every=True)
    sent = [one for one in asked.messages if one.role not in ("system", "developer")]
    newest = sum(1 for _ in takewhile(lambda one: one.role == "user", reversed(sent)))
    users = [one for one in (sent if newest > 1 else sent[-1:]) if one.role == "user"]
    read = [read_user(one, here.settings.server, last=one is sent[-1]) for one in users]
    history = await not_stored(here, user, session_id, read, newest)
    last = read[-1]
    return await here.turns.submit(
        user,
        session_id,
        last.content,
        key,
        files_of(last),
        client_tools=tools,
        results=results,
        history=history,
    )


async def submit_carried(
    here: Served,
    user: Caller,
    asked: ChatRequest,
    tools: Sequence[Tool],
    key: str | None,
    conversation: Conversation | None = None,
) -> TurnOf:
    """Store a turn whose model reads what the request carries, and nothing else."""
    said = await asyncio.to_thread(read_history, asked.messages, here.settings.server)
    if asked.brings_results:
        _check_results(said)
    place = await _find(here, user, said, conversation.session_id if conversation else "")
    if place is not None:
        try:
            return await _go_on(here, user, said, place, tools, key)
        except (StaleSession, CallNotWaiting):
            pass  # another request was faster: this conversation goes on in a session of its own
    session_id = (conversation.session_id if conversation else "chat-") + uuid.uuid4().hex
    *history, last = said
    if last.role == "tool":
        results = {one.id: one.output or {} for one in last.tool_calls}
        return await here.turns.give(user, session_id, results, None, tools, history=history)
    return await here.turns.submit(
        user, session_id, last.content, key, files_of(last), client_tools=tools, history=history
    )


def _check_results(said: Sequence[Message]) -> None:
    """Raise `Refused` unless the carried messages end with the results of all calls of the answer before them."""
    if said[-1].role != "tool":
        raise Refused(
            400, "BadRequest", "messages: these tool messages answer no call before them; send it, or its X-Session-Id"
        )
    left = {one.id for one in said[-2].tool_calls} - {one.id for one in said[-1].tool_calls}
    if left:
        missing = ", ".join(sorted(left))
        raise Refused(400, "BadRequest", f"messages: each call needs its tool message; there is none for {missing}")


async def _go_on(
    here: Served, user: Caller, said: Sequence[Message], place: _Place, tools: Sequence[Tool], key: str | None
) -> TurnOf:
    """Store the turn in a session that holds the messages before it, if it still does."""
    session_id, revision, last = place.session.name.id, place.session.revision, said[-1]
    new = said[place.holds :]
    results = {one.id: one.output or {} for message in new for one in message.tool_calls}
    if last.role == "tool":
        key = await results_key(here, place.session, results)
        return await here.turns.give(user, session_id, results, key, tools, at_revision=revision)
    return await here.turns.submit(
        user,
        session_id,
        last.content,
        key,
        files_of(last),
        client_tools=tools,
        results=results,
        history=[one for one in new[:-1] if one.role == "user"],
        at_revision=revision,
    )


# -- finding the session -------------------------------------------------------------------------------------------


async def _find(here: Served, user: Caller, said: Sequence[Message], id_prefix: str) -> _Place | None:
    """Return a session that holds all that comes before the turn, or before what the client says since an answer.

    Of several that a client cannot tell apart, one whose agent reads no more than a client sees: the others may hold
    what an agent's tools returned in another conversation. One of those is taken only if it is the only one.
    """
    hiding: list[_Place] = []
    for holds in _points(said):
        wanted = await asyncio.to_thread(carried_view, said[:holds], here.runtime.shown_results)
        texts = [one.text for one in wanted if one.role == "user"]
        if not texts:
            continue
        found = await here.store.read(
            partial(find_sessions, here.runtime.app_name, user.user_id, texts[-1], id_prefix, limit=_MOST_COMPARED + 1)
        )
        for session in found[:_MOST_COMPARED]:
            if not id_prefix and session.name.id.startswith(PREFIX):
                continue  # the client named that conversation
            hides = await _compare(here, session, wanted)
            if hides is False:
                return _Place(session, holds)
            if hides:
                hiding.append(_Place(session, holds))
        if len(found) > _MOST_COMPARED:
            hiding.clear()  # there may be more of them
            break
    return hiding[0] if len(hiding) == 1 else None


def _points(said: Sequence[Message]) -> list[int]:
    """Return how many of the messages a session may hold: all but the last, or all up to the newest answer."""
    answers = [place for place, one in enumerate(said, 1) if one.role == "assistant"]
    return sorted({len(said) - 1, *answers[-1:]}, reverse=True)


async def _compare(here: Served, session: SessionRecord, wanted: Sequence[Seen]) -> bool | None:
    """Whether a session that holds just what is wanted hides more from a client; None: it holds something else.

    Read page by page, and of the files only the marks are kept: a session may hold more of them than fit in memory.
    """
    asked = [one for one in wanted if one.role == "user"]
    stored: list[StoredView] = []
    before: int | None = None
    while page := await here.store.messages_page(session, before=before, limit=_PAGE if stored else _FIRST_PAGE):
        views = [stored_view(one) for one in page]
        for one in reversed(views):
            if one.seen.role == "user" and (not asked or asked.pop() != one.seen):
                return None
        stored[:0] = views
        before = page[0].seq
    seen, hides = whole_view(stored)
    return hides if seen == list(wanted) else None
