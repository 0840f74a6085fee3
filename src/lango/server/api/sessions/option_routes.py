"""Choose the model and the instruction of a session."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lango.runtime.sessions.session_options import SessionOptions
from lango.server.context import CurrentUser, ServerContext
from lango.server.schemas import COMMON_ERRORS, RequestBody, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_REFUSED = error_responses({422: "The settings do not allow it: the message says why; nothing is stored."})


class OptionsView(BaseModel):
    """What was chosen for the next turns of a session, and what may be chosen."""

    model: str | None
    """Null: the configured model."""
    instruction: str | None
    """Null: the agent's own instruction."""
    default_model: str
    models: list[str]
    """The models of the setting `agent.choices.models`; empty if none may be chosen."""
    may_set_instruction: bool
    """Whether the setting `agent.choices.instruction` is on."""


class OptionChanges(RequestBody):
    """What to choose; null chooses the configured value again. What is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": None}]})

    model: Annotated[str, Field(max_length=200)] | None = None
    instruction: Annotated[str, Field(max_length=20_000)] | None = None


@router.get("/{session_id}/options")
async def read_options(session_id: SessionIdPath, user: CurrentUser) -> OptionsView:
    """Read the model and the instruction that were chosen for a session."""
    return _view(user.context, await user.runtime.options.read(session_id, user_id=user.id))


@router.patch("/{session_id}/options", responses=_REFUSED)
async def change_options(session_id: SessionIdPath, changes: OptionChanges, user: CurrentUser) -> OptionsView:
    """Choose the model or the instruction of the next turns, where the settings allow it."""
    given = changes.model_dump(include=changes.model_fields_set)
    return _view(user.context, await user.runtime.options.change(session_id, given, user_id=user.id))


def _view(context: ServerContext, chosen: SessionOptions) -> OptionsView:
    allowed = context.runtime.options
    return OptionsView(
        model=chosen.model,
        instruction=chosen.instruction,
        default_model=context.runtime.model_name,
        models=[*allowed.models],
        may_set_instruction=allowed.with_instruction,
    )
