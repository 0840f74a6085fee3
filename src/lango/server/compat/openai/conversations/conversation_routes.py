"""Serve OpenAI's conversations: `/v1/conversations`, and the items in them.

A conversation is a session, with the same id. Its metadata and instructions are part of the session's state.
"""

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lango.messages import Message
from lango.server.compat.carried_history import to_history
from lango.server.compat.openai.completion import OpenAiErrorBody
from lango.server.compat.openai.conversations.conversation_items import (
    ConversationItem,
    make_items,
    read_items,
    shown_page,
)
from lango.server.compat.openai.openai_routes import Order
from lango.server.compat.openai.responses.input_items import InputItem, read_input
from lango.server.compat.openai.responses.response_request import Metadata
from lango.server.compat.openai.responses.stored_input import (
    INSTRUCTIONS,
    KeptInstruction,
    kept_instructions,
    new_instructions,
    to_state,
)
from lango.server.compat.openai.responses.submission import load_item
from lango.server.compat.resent_history import client_instruction
from lango.server.compat.session_selection import SESSION_PREFIX
from lango.server.context import AgentUser, CurrentUser
from lango.server.errors import ApiError, bad_request, not_found
from lango.server.json_body import JsonResponse, large_response
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import SessionInfo
from lango.threads import run_in_thread

METADATA = "conversation_metadata"
"""Where the state of a session has the metadata of its conversation."""
_MAX_NEW_ITEMS = 20
_ERRORS = error_responses(
    COMMON_ERROR_DESCRIPTIONS
    | {404: "You have no such conversation, or it has no such item.", 409: "A turn runs, or waits for an answer."},
    OpenAiErrorBody,
)
ItemIdPath = Annotated[str, Path(examples=["msg_in_1_1"])]
NewItems = Annotated[list[InputItem], Field(max_length=_MAX_NEW_ITEMS)]


class NewConversation(BaseModel):
    """A conversation to create."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"metadata": {"topic": "travel"}}]})

    items: NewItems | None = None
    metadata: Metadata | None = None


class NewMetadata(BaseModel):
    """The metadata of a conversation, in place of what it had."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"metadata": {"topic": "travel"}}]})

    metadata: Metadata | None


class AddedItems(BaseModel):
    """Items to add to a conversation."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"items": [{"role": "user", "content": "Hello!"}]}]}
    )

    items: Annotated[NewItems, Field(min_length=1)]


router = AuthenticatedRouter(
    "/v1/conversations",
    tags=["conversations"],
    responses=_ERRORS,
)


@router.post("", response_model=None)
async def create_conversation(
    user: CurrentUser, new: Annotated[NewConversation, Body(default_factory=NewConversation)]
) -> Response:
    """Create a conversation; with several agents, `?agent=NAME` names the one that it is with."""
    messages, instructions = await _read_items(user, new.items or (), after=0)
    state: dict[str, Any] = {METADATA: new.metadata} if new.metadata else {}
    state |= {INSTRUCTIONS: to_state(instructions)} if instructions else {}
    session_id = f"{SESSION_PREFIX}{uuid.uuid4().hex}"
    await user.runtime.turns.add_history(session_id, messages, user_id=user.id, first_state=state)
    return JsonResponse(_shown(await user.get_session(session_id)))


@router.get("/{session_id}", response_model=None)
async def read_conversation(session_id: SessionIdPath, user: CurrentUser) -> Response:
    """Describe a conversation: any of your sessions is one."""
    return JsonResponse(_shown(await user.get_session(session_id)))


@router.post("/{session_id}", response_model=None)
async def update_conversation(session_id: SessionIdPath, new: NewMetadata, user: CurrentUser) -> Response:
    """Replace the metadata of a conversation; not while a turn runs, whose agent reads them in its state."""
    await user.get_session(session_id)
    await user.sessions.change_state(session_id, {METADATA: new.metadata or {}}, user_id=user.id)
    return JsonResponse(_shown(await user.get_session(session_id)))


@router.delete("/{session_id}", response_model=None)
async def delete_conversation(session_id: SessionIdPath, user: CurrentUser) -> Response:
    """Cancel the running turn of a conversation, and delete it with all its items."""
    await user.delete_session(session_id)
    return JsonResponse({"id": session_id, "object": "conversation.deleted", "deleted": True})


@router.post("/{session_id}/items", response_model=None)
async def add_items(session_id: SessionIdPath, new: AddedItems, user: CurrentUser) -> Response:
    """Add items to a conversation, which the model reads with the next response. No turn starts."""
    session = await user.get_session(session_id)
    messages, instructions = await _read_items(user, new.items, after=session.last_seq)
    state = {INSTRUCTIONS: to_state([*kept_instructions(session), *instructions])} if instructions else {}
    before = session.last_seq
    if messages:
        before = await user.runtime.turns.add_history(
            session_id,
            messages,
            user_id=user.id,
            state_delta=state,
            at_revision=session.revision if state else None,
        )
    elif state:
        await user.sessions.change_state(session_id, state, user_id=user.id)
    user.sessions.changes.notify(session)
    changed = await user.get_session(session_id)
    added = {one.id for one in instructions}
    items = [item for item in await read_items(user, changed) if item.stored.seq > before or item.id in added]
    return JsonResponse(await shown_page(user, items, None, len(items), "asc"))


@router.get("/{session_id}/items", response_model=None)
async def list_items(
    session_id: SessionIdPath,
    user: CurrentUser,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Order = "desc",
) -> Response:
    """List the items of a conversation, the newest first; `after` is the id of the last item of a page."""
    items = await read_items(user, await user.get_session(session_id))
    page = await shown_page(user, items, after, limit, order)
    return await large_response(lambda: page)


@router.get("/{session_id}/items/{item_id}", response_model=None)
async def read_item(session_id: SessionIdPath, item_id: ItemIdPath, user: CurrentUser) -> Response:
    """Return an item of a conversation."""
    item = _find(await read_items(user, await user.get_session(session_id)), item_id)
    [shown] = await make_items(user, [item])
    return JsonResponse(shown)


@router.delete("/{session_id}/items/{item_id}", response_model=None)
async def delete_item(session_id: SessionIdPath, item_id: ItemIdPath, user: CurrentUser) -> Response:
    """Remove an instruction, or the newest item, unless others belong to it: a turn is rewound as a whole."""
    session = await user.get_session(session_id)
    kept = kept_instructions(session)
    left = [one for one in kept if one.id != item_id]
    if len(left) < len(kept):
        await user.sessions.change_state(session_id, {INSTRUCTIONS: to_state(left)}, user_id=user.id)
        user.sessions.changes.notify(session)
        return JsonResponse(_shown(session))
    items = [one for one in await read_items(user, session) if one.stored.message is not None]
    item = _find(items, item_id)
    _check_deletable(item, [other for other in items if other is not item])
    await user.sessions.rewind(session_id, before=item.stored.seq, user_id=user.id)
    user.sessions.changes.notify(session)
    rewound = await user.get_session(session_id)
    about = {name: session.state[name] for name in (METADATA, INSTRUCTIONS) if name in session.state}
    if any(rewound.state.get(name) != value for name, value in about.items()):  # the state is that before the item
        await user.sessions.change_state(session_id, about, user_id=user.id)
    return JsonResponse(_shown(session))


def _shown(session: SessionInfo) -> dict[str, Any]:
    return {
        "id": session.name.id,
        "object": "conversation",
        "created_at": int(session.created_at),
        "metadata": _metadata(session),
    }


def _metadata(session: SessionInfo) -> dict[str, Any]:
    kept = session.state.get(METADATA)
    return cast("dict[str, Any]", kept) if isinstance(kept, dict) else {}


def _find(items: Sequence[ConversationItem], item_id: str) -> ConversationItem:
    for item in items:
        if item.id == item_id:
            return item
    raise not_found(f"the conversation has no item {item_id!r}")


def _check_deletable(item: ConversationItem, others: Sequence[ConversationItem]) -> None:
    """Raise `ApiError` for an item whose deletion would remove others, or part a call from its result."""
    turn = item.stored.invocation_id
    if turn and (same := [other.id for other in others if other.stored.invocation_id == turn]):
        why = f"it belongs to a response, or to calls and their outputs, with {', '.join(same)}"
        hint = "delete the conversation, or rewind it with POST /v1/sessions/{id}/rewind"
    elif later := [other.id for other in others if other.stored.seq >= item.stored.seq]:
        why, hint = f"{len(later)} newer items follow it", f"only the newest can be deleted, which is {later[-1]}"
    else:
        return
    raise ApiError(400, "item_not_deletable", f"item {item.id!r} cannot be deleted alone: {why}; {hint}")


async def _read_items(
    user: AgentUser, items: Sequence[InputItem], *, after: int
) -> tuple[list[Message], list[KeptInstruction]]:
    """Read items to add after a message. Raise `ApiError` for those that no session can hold."""
    read = await read_input(user, items, lambda item_id: load_item(user, item_id))
    client_instruction(read.instruction_texts, user.settings.server)
    if read.approvals or read.earlier_approvals:
        raise bad_request("items: answer approval requests with POST /v1/responses")
    return await run_in_thread(lambda: (to_history(read.messages), new_instructions(read, after)))
