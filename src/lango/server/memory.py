"""What was observed of a session, with its sources; what is known of a user, to look at and to delete."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from lango.server.auth import User
from lango.server.schemas import EXAMPLE_ID, SESSION_ID, Error
from lango.server.served import Here
from lango.store.facts import Fact as StoredFact
from lango.store.observations import Batch, Recalled

router = APIRouter(
    prefix="/v1",
    tags=["memory"],
    responses={
        401: {"model": Error, "description": "A valid key is missing."},
        404: {"model": Error, "description": "There is no such session."},
    },
)

Id = Annotated[str, Path(pattern=SESSION_ID, examples=[EXAMPLE_ID])]
FactId = Annotated[str, Path(pattern=r"^[0-9]{1,18}$", examples=["1"])]


class Observation(BaseModel):
    """One thing that was noted, and where it came from."""

    id: str
    """Its batch, a dot, its number in there."""
    batch: int
    """Those of one answer of the model: its tokens were paid once for all of them."""
    generation: int
    """0: noted from messages; more: condensed from notes."""
    standing: Literal["current", "condensed", "taken_back"]
    first_seq: int
    last_seq: int
    priority: Literal["high", "medium", "low"]
    day: str
    text: str
    sources: list[int]
    """The batches that it was condensed from."""
    model: str
    input_tokens: int
    output_tokens: int
    created_at: datetime


class Memory(BaseModel):
    """What was observed of a session."""

    observed_seq: int
    """The last message that was observed; 0: none."""
    tokens: int
    """What the agent is given of it costs."""
    observations: list[Observation]


class Fact(BaseModel):
    """What holds for the user across sessions, and where it was said."""

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

    @classmethod
    def of(cls, fact: StoredFact) -> Self:
        """Show a fact."""
        return cls(
            id=str(fact.id),
            name=fact.name,
            text=fact.text,
            session_id=fact.session_id,
            first_seq=fact.first_seq,
            last_seq=fact.last_seq,
            day=fact.day,
            model=fact.model,
            created_at=datetime.fromtimestamp(fact.created_at, UTC),
            replaced_by=None if fact.replaced_by is None else str(fact.replaced_by),
        )


class Facts(BaseModel):
    """What is known of the user."""

    facts: list[Fact]


class Forgotten(BaseModel):
    """Whether there was such a fact."""

    forgotten: bool


@router.get("/sessions/{session_id}/memory")
async def read_memory(
    session_id: Id,
    user: User,
    here: Here,
    every: Annotated[
        bool, Query(alias="all", description="Also what was condensed, and what a rewind took back.")
    ] = False,
) -> Memory:
    """Read what the agent is given of what was observed, each note with the messages that it came from."""
    session = await here.session(user, session_id)
    recalled = await here.store.memory.recall(session)
    batches = await here.store.memory.history(session) if every else recalled.batches
    return Memory(observed_seq=recalled.observed_seq, tokens=recalled.tokens, observations=_shown(batches))


@router.get("/memory")
async def read_facts(
    user: User,
    here: Here,
    every: Annotated[bool, Query(alias="all", description="Also what was replaced.")] = False,
) -> Facts:
    """Read what is known of the caller across sessions."""
    found = await here.runtime.memory.facts(user_id=user.user_id, replaced=every)
    return Facts(facts=[Fact.of(fact) for fact in found])


@router.delete("/memory/{fact_id}")
async def forget(fact_id: FactId, user: User, here: Here) -> Forgotten:
    """Delete a fact of the caller, and all that was known under its name before."""
    return Forgotten(forgotten=await here.runtime.memory.forget(int(fact_id), user_id=user.user_id))


def _shown(batches: "list[Batch] | tuple[Batch, ...]") -> list[Observation]:
    return [Observation.model_validate(one) for one in Recalled(tuple(batches)).as_json()]
