"""List what waits for the caller across all sessions, and list and revoke the grants of a session."""

from datetime import datetime
from typing import Annotated, Any, Literal, assert_never
from urllib.parse import quote

from fastapi import Path
from msgspec.structs import replace
from pydantic import BaseModel, Field

from lango.json_output import printable_text, to_client_json
from lango.server.api.paging import InboxCursor, PageSize, decode_inbox_cursor, encode_cursor
from lango.server.api.turns.pending_schemas import Grant, GrantList
from lango.server.context import Context
from lango.server.schemas import COMMON_ERRORS, MAX_INTEGER, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter, CurrentCaller
from lango.sessions import as_datetime
from lango.store.tool_calls import inbox
from lango.store.tool_calls.inbox import Place, read_inbox

router = AuthenticatedRouter("/v1", tags=["inbox"], responses=COMMON_ERRORS)

GrantIdPath = Annotated[int, Path(ge=1, le=MAX_INTEGER, examples=[1])]


class HowToAnswer(BaseModel):
    """The request that answers an item; `body` is an example."""

    method: Literal["POST"] = "POST"
    path: str
    body: dict[str, Any]


class InboxItem(BaseModel):
    """Something that waits for the caller."""

    id: str
    """A short name, for people."""
    session_id: str
    title: str
    """The title of the session."""
    turn: int | None
    """The turn that asked; null: a turn of the session that this one was forked from."""
    call_id: str
    waiting_since: datetime
    expires_at: datetime | None
    """An answer is accepted until then; null: it does not expire."""
    answer: HowToAnswer


class WaitingApproval(InboxItem):
    """A tool that runs with exactly these arguments once the caller approves it."""

    kind: Literal["approval"] = "approval"
    tool: str
    arguments: dict[str, Any]
    hint: str
    """What the tool itself says about its request."""
    payload: Any
    """What the tool shows besides, and gets back with the answer unless that has a payload of its own."""


class WaitingInput(InboxItem):
    """A request of a workflow, or of a running tool, for a value."""

    kind: Literal["input"] = "input"
    message: str
    input_schema: Annotated[dict[str, Any] | None, Field(serialization_alias="schema")]
    """The JSON schema of the value; null: any value."""
    payload: Any
    """What the workflow shows besides the message."""
    path: str
    """The node that asks."""
    tool_call_id: str
    """The running tool call that asks; empty: a workflow does."""


class WaitingResult(InboxItem):
    """A call of a long-running tool whose result is still to come."""

    kind: Literal["result"] = "result"
    tool: str
    arguments: dict[str, Any]


class WaitingCredential(InboxItem):
    """A tool that needs a credential of the caller."""

    kind: Literal["credential"] = "credential"
    auth_url: str
    """The address where the caller allows the access; empty: the caller gives a key, or a name and a password."""
    message: str
    scopes: list[str]
    credential_kind: str
    """`oauth2`, `openIdConnect`, `apiKey` or `http`."""
    scheme: str
    """Of the kind `http`: `basic` asks for a name and a password, `bearer` for a token."""


AnyItem = Annotated[WaitingApproval | WaitingInput | WaitingResult | WaitingCredential, Field(discriminator="kind")]


class InboxPage(BaseModel):
    """A page of what waits for the caller, the newest first."""

    items: list[AnyItem]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; null: this is the last one."""


@router.get("/inbox")
async def list_inbox(
    caller: CurrentCaller,
    context: Context,
    cursor: InboxCursor = None,
    limit: PageSize = 50,
) -> InboxPage:
    """List what waits for the caller in all sessions: approvals, inputs, credentials, results; the newest first."""
    after = None if cursor is None else _decode_place(cursor)
    found = await context.store.read(read_inbox, context.runtime.app_name, caller.user_id, after=after, limit=limit + 1)
    more = encode_cursor(*found[limit - 1].place) if len(found) > limit else None
    return InboxPage(items=[_to_view(item) for item in found[:limit]], next_cursor=more)


@router.get("/sessions/{session_id}/grants")
async def list_grants(session_id: SessionIdPath, caller: CurrentCaller, context: Context) -> GrantList:
    """List the grants of a session, the newest first, with those that have ended."""
    grants = await context.runtime.grants.list(session_id, user_id=caller.user_id)
    shown = [
        replace(grant, tool=to_client_json(grant.tool), arguments=to_client_json(grant.arguments)) for grant in grants
    ]
    return GrantList(grants=[Grant.model_validate(grant) for grant in shown])


@router.delete("/sessions/{session_id}/grants/{grant_id}", status_code=204)
async def revoke_grant(
    session_id: SessionIdPath, grant_id: GrantIdPath, caller: CurrentCaller, context: Context
) -> None:
    """Revoke a grant: later calls of its tool ask again."""
    await context.runtime.grants.revoke(session_id, grant_id, user_id=caller.user_id)


def _to_view(item: inbox.InboxItem) -> AnyItem:
    common: dict[str, Any] = {
        "id": item.id,
        "session_id": item.session_id,
        "title": item.title,
        "turn": item.turn,
        "call_id": to_client_json(item.call_id),
        "waiting_since": as_datetime(item.waiting_since),
        "expires_at": None if item.expires_at is None else as_datetime(item.expires_at),
    }
    match item:
        case inbox.ApprovalItem():
            how = _how(item, "approvals", {"approved": True})
            shown = {"tool": item.tool, "arguments": item.arguments, "hint": item.hint, "payload": item.payload}
            return WaitingApproval(**common, answer=how, **to_client_json(shown))
        case inbox.InputItem():
            how = _how(item, "inputs", {"value": "..."})
            shown = {
                "message": item.message,
                "input_schema": item.schema,
                "payload": item.payload,
                "path": item.path,
                "tool_call_id": item.tool_call_id,
            }
            return WaitingInput(**common, answer=how, **to_client_json(shown))
        case inbox.ResultItem():
            how = _how(item, "results", {"result": {"status": "..."}})
            shown = {"tool": to_client_json(item.tool), "arguments": to_client_json(item.arguments)}
            return WaitingResult(**common, answer=how, **shown)
        case inbox.CredentialItem():
            value = {"username": "...", "password": "..."} if item.scheme == "basic" else "..."
            shown = {
                "auth_url": item.auth_url,
                "message": item.message,
                "scopes": [*item.scopes],
                "credential_kind": item.credential_kind,
                "scheme": item.scheme,
            }
            how = _how(item, "credentials", {"value": value})
            return WaitingCredential(**common, answer=how, **to_client_json(shown))
        case _:
            assert_never(item)


def _how(item: inbox.InboxItem, kind: str, body: dict[str, Any]) -> HowToAnswer:
    session, call = quote(item.session_id, safe=""), quote(to_client_json(item.call_id), safe="")
    return HowToAnswer(path=f"/v1/sessions/{session}/{kind}/{call}", body=body)


def _decode_place(cursor: str) -> Place:
    since, key, asking = decode_inbox_cursor(cursor)
    return since, key, printable_text(asking[:200])
