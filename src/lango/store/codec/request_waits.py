"""Make the value of a wait from the call in a message that opens it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

from lango.messages import Message, ToolCall
from lango.sessions import CREDENTIAL_CALL, INPUT_CALL
from lango.store.codec.ids import address_safe_id
from lango.store.codec.rows import approval_subject, confirmation_of
from lango.waits import ApprovalWait, CredentialWait, InputWait, Wait


class Common(TypedDict):
    """What waits of every kind have."""

    id: str
    session_id: str
    turn: int | None
    opened_at: datetime
    expires_at: datetime | None


def wait_of_request(
    call: ToolCall,
    message: Message | None,
    extra: Mapping[str, Any] | None,
    subject: ToolCall | None,
    *,
    session_id: str,
    turn: int | None,
    opened_at: datetime,
    expires_at: datetime | None,
) -> Wait | None:
    """Return the wait that a call of ADK opens, or None if the call is no request to a person.

    `message` and `extra` are of the event that makes the call; `subject` is the call that an approval is about.
    """
    common = Common(
        id=address_safe_id(call.id), session_id=session_id, turn=turn, opened_at=opened_at, expires_at=expires_at
    )
    arguments: Mapping[str, Any] = call.input or {}
    author = message.author if message else ""
    path = str(_object((extra or {}).get("node_info")).get("path", ""))
    match call.name:
        case _ if asked := approval_subject(call):
            about = subject or ToolCall(asked.get("id", ""), asked.get("name", ""), asked.get("args") or {})
            hint, payload = confirmation_of(call)
            shown = about.input or {}
            return ApprovalWait(
                **common, tool=about.name, call_id=about.id, arguments=shown, hint=hint, payload=payload
            )
        case _ if call.name == INPUT_CALL:
            schema: Any = arguments.get("response_schema")
            return InputWait(
                **common,
                message=str(arguments.get("message") or ""),
                schema=cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else None,
                payload=arguments.get("payload"),
                author=author,
                path=path,
            )
        case _ if call.name == CREDENTIAL_CALL:
            config = _object(arguments.get("authConfig"))
            scheme = _object(config.get("authScheme"))
            oauth2 = _object(_object(config.get("exchangedAuthCredential")).get("oauth2"))
            auth_url = str(oauth2.get("authUri") or "")
            return CredentialWait(
                **common,
                scheme_type=str(scheme.get("type") or scheme.get("type_") or ""),
                scheme=str(scheme.get("scheme") or "").lower(),
                auth_url=auth_url if auth_url.startswith(("https://", "http://")) else "",  # a page makes it a link
                scopes=_scopes(scheme),
                message=str(scheme.get("description") or arguments.get("message") or ""),
                author=author,
                path=path,
            )
        case _:
            return None


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _scopes(scheme: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scopes of an OAuth scheme: a list, or the keys of the flow that has some."""
    listed = scheme.get("scopes")
    if isinstance(listed, list):
        return tuple(map(str, cast("list[Any]", listed)))
    for flow in _object(scheme.get("flows")).values():
        if scopes := _object(_object(flow).get("scopes")):
            return tuple(scopes)
    return ()
