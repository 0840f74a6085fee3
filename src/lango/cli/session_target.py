"""Choose the session that `lango chat` or `lango run` continues."""

import re
import uuid
from typing import TYPE_CHECKING

from msgspec import Struct

from lango.cli.options import id_by_prefix
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.runtime import Runtime


LOCAL_USER = "user"

_ID_CHARACTERS = 12
_ID_PREFIX = re.compile(r"[0-9a-f]{4,}")
_GENERATED_ID = re.compile(r"[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f-]{36}")
_EVERY = 2**31


class SessionTarget(Struct, frozen=True):
    """The id of a session that may not exist yet."""

    session_id: str
    new: bool = False


async def choose_session(runtime: "Runtime", resume: str | None, continue_newest: bool) -> SessionTarget:
    """Return the named session, the newest, or a new one."""
    if resume and continue_newest:
        raise UsageError("-c continues the newest session and -r the one you name: use one of them")
    if resume:
        return await session_by_prefix(runtime, resume)
    if continue_newest:
        newest = await runtime.sessions.list(user_id=LOCAL_USER, limit=1)
        if not newest:
            raise UsageError("there is no session to continue")
        return SessionTarget(newest[0].name.id)
    return new_session()


def new_session() -> SessionTarget:
    """Return a session with a new id."""
    return SessionTarget(uuid.uuid4().hex[:_ID_CHARACTERS], new=True)


async def session_by_prefix(runtime: "Runtime", wanted: str) -> SessionTarget:
    """Find a session by its id, or by the first characters of a generated id; an unknown id makes a new session."""
    if await runtime.sessions.find(wanted, user_id=LOCAL_USER):
        return SessionTarget(wanted)
    if _ID_PREFIX.fullmatch(wanted):
        known = [record.name.id for record in await runtime.sessions.list(user_id=LOCAL_USER, limit=_EVERY)]
        found = id_by_prefix(wanted, filter(_GENERATED_ID.fullmatch, known), "sessions")
        return SessionTarget(found, new=found == wanted)
    return SessionTarget(wanted, new=True)
