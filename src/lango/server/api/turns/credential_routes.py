"""List and delete credentials, and take the user back from an OAuth server."""

import html
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from msgspec import Struct
from pydantic import BaseModel
from starlette.responses import HTMLResponse

from lango.errors import LangoError
from lango.runtime.access import StoredCredential
from lango.server.context import AgentUser, Context, CurrentUser
from lango.server.errors import not_found
from lango.server.schemas import COMMON_ERRORS
from lango.server.security.auth import AuthenticatedRouter, Caller
from lango.submissions import SubmittedAnswer
from lango.waits import Credential

_PAGE_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

router = AuthenticatedRouter("/v1", tags=["credentials"], responses=COMMON_ERRORS)
callback_router = APIRouter(prefix="/v1", tags=["credentials"])


class CredentialList(Struct, frozen=True):
    """The credentials of the caller, the oldest first."""

    credentials: Sequence[StoredCredential]


class DeletedCredentials(BaseModel):
    """How many credentials were deleted."""

    deleted: int


@router.get("/credentials")
async def list_credentials(user: CurrentUser) -> CredentialList:
    """List the credentials that the caller gave to tools. Their secrets cannot be read."""
    return CredentialList(await user.runtime.credentials.list(user_id=user.id))


@router.delete("/credentials")
async def delete_all_credentials(user: CurrentUser) -> DeletedCredentials:
    """Delete every credential of the caller: the next use of each tool asks again."""
    return DeletedCredentials(deleted=await user.runtime.credentials.delete_all(user_id=user.id))


@router.delete("/credentials/{key:path}", status_code=204)
async def delete_credential(key: Annotated[str, Path(max_length=600, examples=["account"])], user: CurrentUser) -> None:
    """Delete a credential: the next use of its tool asks again. It is not revoked at the server that granted it."""
    if not await user.runtime.credentials.delete(key, user_id=user.id):
        raise not_found(f"there is no credential {key!r}")


@callback_router.get(
    "/oauth/callback",
    response_class=HTMLResponse,
    responses={
        404: {"description": "The link is invalid, or has expired.", "content": {"text/html": {}}},
        409: {"description": "The credential could not be used.", "content": {"text/html": {}}},
    },
)
async def finish_authorization(
    context: Context,
    state: Annotated[str, Query(max_length=1000)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
    error: Annotated[str, Query(max_length=1000)] = "",
) -> HTMLResponse:
    """Receive the user whom an OAuth server sends back, and continue the turn that waits for the access.

    It needs no API key: the state is known only to the user who was shown the address, is bound to one request of one
    session, and counts once.
    """
    found = None
    for one in context.agents.contexts.values() if state else ():
        if found := await one.runtime.credentials.find_wait(state):
            context = one
            break
    if found is None:
        return _page("This link is not valid", "Ask the agent again, and open the new link.", 404)
    name, wait_id = found
    if error or not code:
        await context.runtime.cancel_wait(name.id, wait_id, user_id=name.user_id)
        return _page("Access denied", "You can close this page. The agent continues without it.", 200)
    try:
        answer = SubmittedAnswer(wait_id, Credential({"code": code, "state": state}))
        await AgentUser(context, Caller(name.user_id)).submit(name.id, answer)
    except LangoError as failure:
        return _page("The access could not be saved", str(failure), 409)
    whose = f"the agent {name.app_name} may use it for the user {name.user_id}"
    return _page("Access granted", f"You can close this page: {whose}, and continues now.", 200)


def _page(title: str, text: str, status: int) -> HTMLResponse:
    """Return a page without scripts, styles or links; no other page learns its address."""
    shown = f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>"
    headers = {"Content-Security-Policy": _PAGE_POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    document = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><body>{shown}</body></html>'
    )
    return HTMLResponse(document, status, headers)
