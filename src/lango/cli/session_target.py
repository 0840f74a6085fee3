"""What `lango chat` and `lango run` share: the settings of the call, the session it goes on with, a turn to follow."""

import re
import uuid
from typing import TYPE_CHECKING

from msgspec import Struct

from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.runtime import Runtime


LOCAL_USER = "user"

_ID_CHARACTERS = 12
_ID_PREFIX = re.compile(r"[0-9a-f]{4,}")
_GENERATED_ID = re.compile(r"[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f-]{36}")
_LISTED_MATCHES = 5


class SessionTarget(Struct, frozen=True):
    """The session that a conversation is in."""

    session_id: str
    new: bool = False


async def choose_session(runtime: "Runtime", resume: str | None, go_on: bool) -> SessionTarget:
    """Return the session to go on with: the one named, the newest, or a new one."""
    if resume and go_on:
        raise UsageError("-c goes on with the newest session and -r with the one you name: use one of them")
    if resume:
        return await session_by_prefix(runtime, resume)
    if go_on:
        from lango.store.sessions.sessions import list_session_page

        newest = await runtime.store.read(list_session_page, runtime.app_name, LOCAL_USER, limit=1)
        if not newest:
            raise UsageError("there is no session to go on with yet")
        return SessionTarget(newest[0].name.id)
    return new_session()


def new_session() -> SessionTarget:
    """Return a session that is not there yet."""
    return SessionTarget(uuid.uuid4().hex[:_ID_CHARACTERS], new=True)


async def session_by_prefix(runtime: "Runtime", wanted: str) -> SessionTarget:
    """Find a session by its id, or the first characters of one of ours; a name that nobody has is a new session's."""
    from lango.store import SessionId
    from lango.store.sessions.sessions import find_session, list_sessions

    if await runtime.store.read(find_session, SessionId(runtime.app_name, LOCAL_USER, wanted)):
        return SessionTarget(wanted)
    if _ID_PREFIX.fullmatch(wanted):
        known = [record.name.id for record in await runtime.store.read(list_sessions, runtime.app_name, LOCAL_USER)]
        found = [id_ for id_ in known if id_.startswith(wanted) and _GENERATED_ID.fullmatch(id_)]
        if len(found) == 1:
            return SessionTarget(found[0])
        if found:
            some = ", ".join(found[:_LISTED_MATCHES]) + (" ..." if len(found) > _LISTED_MATCHES else "")
            raise UsageError(f"{len(found)} sessions begin with {wanted!r}: {some}; say more of the id")
    return SessionTarget(wanted, new=True)
