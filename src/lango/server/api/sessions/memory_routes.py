"""Read, correct, pin and delete the observations of a session and the facts about the user."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from lango.server.context import CurrentUser
from lango.server.json_body import large_response
from lango.server.schemas import COMMON_ERRORS, RecordView, RequestBody, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1", tags=["memory"], responses=COMMON_ERRORS)

FactId = Annotated[str, Path(pattern=r"^[0-9]{1,18}$", examples=["1"])]
NoteId = Annotated[str, Path(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$", examples=["3.1"])]


class Observation(BaseModel):
    """One observation and its source."""

    id: str
    """Its batch, a dot, and its number in the batch."""
    batch: int
    """Observations of one model reply share a batch and its token counts."""
    generation: int
    """0: made from messages; more: condensed from observations."""
    standing: Literal["current", "condensed", "rewound"]
    first_seq: int
    last_seq: int
    priority: Literal["pinned", "high", "medium", "low"]
    day: str
    text: str
    sources: list[int]
    """The batches from which it was condensed."""
    model: str
    input_tokens: int
    output_tokens: int
    created_at: datetime


class Memory(BaseModel):
    """The observations of a session."""

    observed_seq: int
    """The last message that was observed; 0: none."""
    tokens: int
    """Tokens of the part that the agent reads."""
    observations: list[Observation]


class Fact(RecordView):
    """A fact about the user across sessions, and its source."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str
    name: str
    text: str
    session_id: str
    first_seq: int
    last_seq: int
    day: str
    model: str
    created_at: datetime
    replaced_by: str | None = None
    pinned: bool = False
    """The user wrote or pinned it."""


class FactList(BaseModel):
    """The facts about the user."""

    facts: list[Fact]


class MemoryEdit(RequestBody):
    """What to change of a note or a fact."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"pinned": True}]})

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)] | None = None
    """What holds instead; a corrected item is pinned."""
    pinned: bool | None = None
    """Whether it is never condensed, and shown first."""


class EditResult(BaseModel):
    """Whether the item existed."""

    changed: bool


class ForgetResult(BaseModel):
    """Whether the item existed."""

    forgotten: bool


@router.get("/sessions/{session_id}/memory", response_model=Memory)
async def read_memory(
    session_id: SessionIdPath,
    user: CurrentUser,
    every: Annotated[bool, Query(alias="all", description="Include condensed and rewound observations.")] = False,
) -> Response:
    """Read the observations that the agent reads, each with its source messages."""
    memory = user.runtime.memory
    recalled = await memory.show(session_id, user_id=user.id)
    batches = await memory.history(session_id, user_id=user.id) if every else recalled.batches

    def shown() -> dict[str, Any]:
        notes = [
            Observation.model_validate(note).model_dump(mode="json") for batch in batches for note in batch.as_json()
        ]
        return {"observed_seq": recalled.observed_seq, "tokens": recalled.tokens, "observations": notes}

    return await large_response(shown)


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


@router.get("/memory", response_model=FactList)
async def read_facts(
    user: CurrentUser, every: Annotated[bool, Query(alias="all", description="Include replaced facts.")] = False
) -> Response:
    """Read the facts about the caller across sessions."""
    facts = await user.runtime.memory.facts(user_id=user.id, replaced=every)
    return await large_response(
        lambda: {"facts": [Fact.model_validate(fact).model_dump(mode="json") for fact in facts]}
    )


@router.patch("/memory/{fact_id}")
async def edit_fact(fact_id: FactId, edit: MemoryEdit, user: CurrentUser) -> EditResult:
    """Correct, pin or unpin a fact about the caller; the earlier text is kept behind it."""
    changed = await user.runtime.memory.edit_fact(int(fact_id), text=edit.text, pinned=edit.pinned, user_id=user.id)
    return EditResult(changed=changed is not None)


@router.delete("/memory/{fact_id}")
async def forget_fact(fact_id: FactId, user: CurrentUser) -> ForgetResult:
    """Delete a fact about the caller, and all that it replaced."""
    return ForgetResult(forgotten=await user.runtime.memory.forget(int(fact_id), user_id=user.id))
