"""Results of the client's tools, as conversations bring them: AG-UI's clients and OpenAI's send all of it each time.

What stands at the end is new. Results that stand further up are taken, too, if their calls still wait.
"""

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from lango.messages import Message
from lango.server.compat.client_view import Seen, stored_view, user_view
from lango.server.compat.inline_files import files_of, mark_of
from lango.server.context import Served
from lango.server.errors import Refused
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnOf
from lango.store import SessionId, SessionRecord, Turn
from lango.store.codec.rows import object_or_result
from lango.store.turns import queue, turns
from lango.tools import Tool

Results = Mapping[str, Mapping[str, Any]]
LEFT_OUT = "[a file stood here: of a result, only text is taken]"
"""Read by the model in the place of a picture or a file."""
_LOOKED_AT = 50  # messages: a call that waits, or was answered just now, is one of the newest

MOST_NEW = 100
"""How many messages of the user may come at once, after the last answer."""
_COMPARED_MESSAGES = 200  # messages


class Spoken(Struct, frozen=True):
    """A message as far as it is about calls: those that it makes, or the one that it answers."""

    makes: tuple[str, ...] = ()
    answers: str | None = None
    result: Mapping[str, Any] = {}


def read_result(text: str) -> dict[str, Any]:
    """Return what a client's tool returned: a JSON object as it is, any other text as the result."""
    try:
        return object_or_result(text)
    except RecursionError:
        return {"result": text}


def results_in(said: Iterable[Spoken]) -> dict[str, Mapping[str, Any]]:
    """Return what the client's tools returned; where the id of a call comes again, for the newest."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in said:
        if one.answers is not None:
            found[one.answers] = one.result
        for call_id in one.makes:
            found.pop(call_id, None)
    return found


def answered_last(said: Sequence[Spoken]) -> set[str]:
    """Return the calls that the messages at the end are the results of."""
    return {one.answers or "" for one in takewhile(lambda one: one.answers is not None, reversed(said))}


async def give(
    here: Served,
    user: Caller,
    session_id: str,
    results: Results,
    new: Collection[str],
    tools: Sequence[Tool],
    attempt: str,
    *,
    every: bool = False,
) -> TurnOf:
    """Take results. The same ones again are the same turn; where that one failed, a new attempt goes on from there.

    With `every`, refuse them while another call of the client's waits that has none.
    """
    session = await here.session(user, session_id)
    key = await results_key(here, session, new)
    for one in (key, await results_key(here, session, new, "again", attempt)):
        key, turn = one, await here.store.read(functools.partial(turns.same, session.key, one))
        record = await here.store.turn(Turn(session.key, turn)) if turn else None
        if turn and record and record.status in ("waiting", "running", "done"):
            return TurnOf(session, turn)
        if not turn:
            break
    waiting = {one.call.id for one in await here.store.client_calls(session)}
    if every and (left := waiting - results.keys()):
        missing = ", ".join(sorted(left))
        raise Refused(400, "BadRequest", f"messages: each call needs its tool message; there is none for {missing}")
    brought = {call_id: result for call_id, result in results.items() if call_id in waiting or call_id in new}
    return await here.turns.give(user, session_id, brought, key, tools)


async def results_key(here: Served, session: SessionRecord, calls: Collection[str], *more: str) -> str:
    """Return the idempotency key of the turn that brings the results of some calls: the same again are that turn."""
    about = "results", await _maker(here, session, calls), *sorted(calls), *more
    return f"results-{hashlib.sha256(json.dumps(about).encode()).hexdigest()}"


async def _maker(here: Served, session: SessionRecord, calls: Collection[str]) -> str:
    """Return the event that made some calls: some models count theirs from 1 again, and the newest is meant."""
    newest = await here.store.messages_page(session, limit=_LOOKED_AT)
    for one in reversed(newest):
        if one.message and one.message.role == "assistant" and any(call.id in calls for call in one.message.tool_calls):
            return one.event_id
    return ""


async def not_stored(
    here: Served, user: Caller, session_id: str, users: Sequence[Message], newest: int
) -> Sequence[Message]:
    """Return the user's messages before the last that its session does not hold yet.

    `users` are all that the client sends of the user; the last `newest` of them stand after its last answer. One of
    these may be stored: its turn failed, runs or waits, or its answer never came to the client.
    """
    if newest < 2:
        return ()
    if newest > MOST_NEW:
        raise Refused(400, "BadRequest", f"messages: at most {MOST_NEW} of the user's may come at once, not {newest}")
    first = len(users) - newest
    session = await here.store.session(SessionId(here.runtime.app_name, user.user_id, session_id))
    if session is None:
        return users[first:-1]
    page = await here.store.messages_page(session, limit=_COMPARED_MESSAGES)
    queued = await here.store.read(lambda: queue.read(session.key))
    stored = [stored_view(one).seen for one in (*page, *(each.stored for each in queued))]
    known = [one for one in stored if one.role == "user"]
    sent = [user_view(one, map(mark_of, files_of(one))) for one in users]
    whole = len(page) < _COMPARED_MESSAGES
    for held in range(len(users) - 1, first, -1):
        if _ends_with(sent[:held], known, whole=whole):
            return users[held:-1]
    return users[first:-1]


def _ends_with(sent: Sequence[Seen], known: Sequence[Seen], *, whole: bool) -> bool:
    """Whether the stored messages end as some that were sent; with `whole`, these are all that are stored."""
    count = min(len(sent), len(known))
    return bool(count) and not (whole and len(sent) > len(known)) and sent[-count:] == known[-count:]
