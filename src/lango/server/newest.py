"""What of a client's newest messages is new, where the history is kept here and the client resends it all the same."""

from collections.abc import Sequence

from lango.messages import Message
from lango.server.compat.client_view import Seen, stored_view, user_view
from lango.server.compat.inline_files import files_of, mark_of
from lango.server.context import Served
from lango.server.errors import Refused
from lango.server.security.auth import Caller
from lango.store import SessionId, waiting

MOST_NEW = 100
"""How many messages of the user may come at once, after the last answer."""
_LOOKED_AT = 200  # messages


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
    page = await here.store.messages_page(session, limit=_LOOKED_AT)
    queued = await here.store.read(lambda: waiting.read(session.key))
    stored = [stored_view(one).seen for one in (*page, *(each.stored for each in queued))]
    known = [one for one in stored if one.role == "user"]
    sent = [user_view(one, map(mark_of, files_of(one))) for one in users]
    whole = len(page) < _LOOKED_AT
    for held in range(len(users) - 1, first, -1):
        if _ends_with(sent[:held], known, whole=whole):
            return users[held:-1]
    return users[first:-1]


def _ends_with(sent: Sequence[Seen], known: Sequence[Seen], *, whole: bool) -> bool:
    """Whether the stored messages end as some that were sent; with `whole`, these are all that are stored."""
    count = min(len(sent), len(known))
    return bool(count) and not (whole and len(sent) > len(known)) and sent[-count:] == known[-count:]
