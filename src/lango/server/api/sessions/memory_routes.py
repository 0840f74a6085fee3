"""Read, correct, pin and delete the observations of a session and the facts about the user."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, StringConstraints

from lango.memory.runtime_memory import Fact, ListedNote
from lango.server.context import CurrentUser
from lango.server.schemas import COMMON_ERRORS, RequestBody, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1", tags=["memory"], responses=COMMON_ERRORS)

FactId = Annotated[str, Path(pattern=r"^[0-9]{1,18}$", examples=["1"])]
NoteId = Annotated[str, Path(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$", examples=["3.1"])]


class SessionNotes(Struct, frozen=True):
    """The observations of a session."""

    observed_seq: int
    """The last message that was observed; 0: none."""
    tokens: int
    """Tokens of the part that the agent reads."""
    observations: Sequence[ListedNote]


class FactList(Struct, frozen=True):
    """The facts about the user."""

    facts: Sequence[Fact]


class MemoryEdit(RequestBody):
    """What to change of a note or a fact."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"pinned": True}]})

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)] | None = None
    """The new text; a corrected item is pinned."""
    pinned: bool | None = None
    """Whether it is never condensed, and shown first."""


class EditResult(BaseModel):
    """Whether the item existed."""

    changed: bool


class ForgetResult(BaseModel):
    """Whether the item existed."""

    forgotten: bool


@router.get("/sessions/{session_id}/memory")
async def read_memory(
    session_id: SessionIdPath,
    user: CurrentUser,
    every: Annotated[bool, Query(alias="all", description="Include condensed and rewound observations.")] = False,
) -> SessionNotes:
    """Read the observations that the agent reads, each with its source messages."""
    memory = user.runtime.memory
    current = await memory.show(session_id, user_id=user.id)
    listed = await memory.show(session_id, user_id=user.id, every=True) if every else current
    return SessionNotes(current.observed_seq, current.tokens, listed.notes)


@router.patch("/sessions/{session_id}/memory/{note_id}")
async def edit_note(session_id: SessionIdPath, note_id: NoteId, edit: MemoryEdit, user: CurrentUser) -> EditResult:
    """Correct, pin or unpin an observation of a session."""
    await user.get_session(session_id)
    changed = await user.runtime.memory.edit_note(
        session_id, note_id, text=edit.text, pinned=edit.pinned, user_id=user.id
    )
    return EditResult(changed=changed is not None)


@router.delete("/sessions/{session_id}/memory/{note_id}")
async def forget_note(session_id: SessionIdPath, note_id: NoteId, user: CurrentUser) -> ForgetResult:
    """Delete an observation of a session, and stop recalling its messages."""
    await user.get_session(session_id)
    forgotten = await user.runtime.memory.forget_note(session_id, note_id, user_id=user.id)
    return ForgetResult(forgotten=forgotten)


@router.get("/memory")
async def read_facts(
    user: CurrentUser, every: Annotated[bool, Query(alias="all", description="Include replaced facts.")] = False
) -> FactList:
    """Read the facts about the caller across sessions."""
    return FactList(await user.runtime.memory.facts(user_id=user.id, replaced=every))


@router.patch("/memory/{fact_id}")
async def edit_fact(fact_id: FactId, edit: MemoryEdit, user: CurrentUser) -> EditResult:
    """Correct, pin or unpin a fact about the caller; the earlier text is kept behind it."""
    changed = await user.runtime.memory.edit_fact(int(fact_id), text=edit.text, pinned=edit.pinned, user_id=user.id)
    return EditResult(changed=changed is not None)


@router.delete("/memory/{fact_id}")
async def forget_fact(fact_id: FactId, user: CurrentUser) -> ForgetResult:
    """Delete a fact about the caller, and all that it replaced."""
    return ForgetResult(forgotten=await user.runtime.memory.forget(int(fact_id), user_id=user.id))
