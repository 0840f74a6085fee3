"""What one does with whole conversations: name, fork, take back."""

from fastapi import APIRouter

from lango.server.auth import User
from lango.server.schemas import NewFork, NewTitle, Rewind, Session, SessionWithState
from lango.server.served import Here
from lango.server.sessions import BUSY, ERRORS, Id

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=ERRORS)


@router.patch("/{session_id}")
async def rename_session(session_id: Id, new: NewTitle, user: User, here: Here) -> Session:
    """Name a session."""
    return Session.of(await here.sessions.rename(session_id, new.title, user_id=user.user_id))


@router.post("/{session_id}/fork", status_code=201, responses=BUSY)
async def fork_session(session_id: Id, new: NewFork, user: User, here: Here) -> SessionWithState:
    """Make a session with the same past, up to a message, and the state as it was then."""
    made = await here.sessions.fork(session_id, user_id=user.user_id, at=new.at, new_id=new.id, title=new.title)
    return SessionWithState.of(made)


@router.post("/{session_id}/rewind", responses=BUSY)
async def rewind_session(session_id: Id, what: Rewind, user: User, here: Here) -> SessionWithState:
    """Take back the turn that holds a message, and all after it; the state is as it was before. Nothing is deleted."""
    return SessionWithState.of(await here.sessions.rewind(session_id, before=what.before, user_id=user.user_id))
