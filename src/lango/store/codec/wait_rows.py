"""Make the rows of waits from the calls that open them, and values from the rows.

A row has all that a list of waits shows and an answer needs, in `data`: no message is read for either, and an answer
fits its call even if the application's code has changed since.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, ValidationError

from lango.errors import SchemaError
from lango.json_values import as_object, convert
from lango.messages import RESERVED_PREFIX, Message, ToolCall
from lango.sessions import CLIENT_CALLS_KEY, CREDENTIAL_CALL, INPUT_CALL, REQUEST_CALLS, as_datetime
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import call_key
from lango.store.codec.rows import approval_subject, confirmation_of
from lango.store.engine.database import Row
from lango.waits import Wait
from lango.waits.pauses import AwaitedEvent, Pause, pause_of_call

REQUEST_KINDS = ("approval", "input", "credential")
"""The kinds of waits that a person answers and that a new message closes."""
RESULT_KINDS = ("long_running_result", "timer", "event")
"""The kinds of waits for the results of calls that the agent made: a new message does not close them."""
TIMED_KINDS = ("timer", "event")
"""The kinds of waits that end by themselves, in time or with an event."""
WAIT_COLUMNS = (
    "w.id, w.kind, w.turn, w.invocation_id, w.seq, w.about_id, w.about_seq, w.opened_at, w.expires_at, w.data, "
    "w.secret, w.answer, w.answered_at, w.answered_by, w.closed"
)
"""Of `waits w`."""


class StoredWait(Struct, frozen=True):
    """A wait, and what its answer needs."""

    wait: Wait
    call_id: str
    """The id of the call that asks, or waits for its result, as it is in the message."""
    seq: int
    """The message that opened it: the same call may ask again."""
    invocation_id: str
    branch: str | None
    """The branch of the agent or workflow that waits: the answer belongs to it."""
    isolation_scope: str | None
    from_code: bool
    """A node of a workflow made the call itself."""
    about_id: str | None
    about_seq: int | None
    """The `call_key` of the call to approve, and the message that made it."""
    config: Mapping[str, Any]
    """Of a credential: ADK's authentication configuration, without secrets."""
    secret: str | None
    """Of a credential, encrypted: what the address was made with."""
    answer: str | None
    is_answered: bool
    """An answer came in time, and its turn may be queued."""
    answered_by: str
    closed: str | None
    """Why it was closed, as in the table."""
    is_shared: bool = False
    """A fork shares the call, and not the secrets that its answer needs."""


class OpenedWait(Struct, frozen=True):
    """What a call of a message waits for."""

    kind: str
    data: str
    """JSON: `call_id`, the members of the value (`value`), and what an answer needs."""
    about_id: str | None = None
    """The call to approve."""
    pause: Pause | None = None
    """What else than a person ends the wait."""


def opened_wait(
    call: ToolCall,
    message: Message,
    extra: Mapping[str, Any] | None,
    *,
    long_running: bool = False,
    pause: Pause | None = None,
) -> OpenedWait | None:
    """Return what a call in a message waits for, or None if it waits for nothing.

    `long_running`: it is known that results of the call come from outside after it returned, or that a `pause` ends it.
    """
    extra = extra or {}
    arguments: Mapping[str, Any] = call.input or {}
    if pause is None and call.id in (extra.get("long_running_tool_ids") or ()):
        pause = pause_of_call(call.name, arguments)  # a node of a workflow made the call
    asker = {"author": message.author, "path": str(as_object(extra.get("node_info")).get("path", ""))}
    about = approval_subject(call)
    config: Mapping[str, Any] = {}
    value: dict[str, Any]
    if about:
        kind, (hint, payload) = "approval", confirmation_of(call)
        value = {"tool": str(about.get("name") or ""), "call_id": about["id"], "arguments": about.get("args") or {}}
        value |= {"hint": hint, "payload": payload}
    elif call.name == INPUT_CALL:
        kind, schema = "input", arguments.get("response_schema")
        value = asker | {
            "message": str(arguments.get("message") or ""),
            "schema": schema if isinstance(schema, dict) else None,
            "payload": arguments.get("payload"),
        }
    elif call.name == CREDENTIAL_CALL:
        kind, config = "credential", as_object(arguments.get("authConfig"))
        value = asker | _shown_of_scheme(config, arguments)
    elif _is_client_call(call, extra) or pause or (long_running and call.name not in REQUEST_CALLS):
        kind = "client_result" if _is_client_call(call, extra) else "long_running_result"
        value = {"tool": call.name, "call_id": call.id, "arguments": arguments}
        if pause is not None:
            kind = pause.kind
            value |= {"reason": pause.reason, "path": asker["path"] if "/" in asker["path"] else ""}
        if isinstance(pause, AwaitedEvent):
            value |= {"event": pause.event, "match": pause.match}
    else:
        return None
    answer_needs = {
        "branch": extra.get("branch"),
        "isolation_scope": extra.get("isolation_scope"),
        "from_code": bool(extra.get("from_code")),
        "config": config,
    }
    shown = {name: given for name, given in value.items() if given is not None}
    needed = {name: given for name, given in answer_needs.items() if given}
    data = dumps({"call_id": call.id, "value": shown} | needed)
    return OpenedWait(kind, data, call_key(about["id"]) if about else None, pause)


def _is_client_call(call: ToolCall, extra: Mapping[str, Any]) -> bool:
    marked = as_object(extra.get("custom_metadata")).get(CLIENT_CALLS_KEY) or ()
    is_open_after_turn = call.id in (extra.get("long_running_tool_ids") or ())
    return call.id in marked and is_open_after_turn and not call.name.startswith(RESERVED_PREFIX)


def row_to_wait(session_id: str, row: Row) -> StoredWait:
    """Decode a row of `WAIT_COLUMNS`."""
    id_, kind, turn, invocation_id, seq, about_id, about_seq, opened_at, expires_at, data, *answered = row
    secret, answer, answered_at, answered_by, closed = answered
    members: dict[str, Any] = loads(data) if data else {"call_id": id_, "value": {}}
    value = {
        "kind": kind,
        "id": id_,
        "session_id": session_id,
        "turn": turn,
        "opened_at": as_datetime(opened_at),
        "expires_at": None if expires_at is None else as_datetime(expires_at),
        **members["value"],
    }
    try:
        wait = convert(value, Wait)
    except ValidationError as error:
        raise SchemaError(
            f"a newer Lango stored a wait {kind!r} that this one cannot read: install a newer version"
        ) from error
    return StoredWait(
        wait,
        members["call_id"],
        seq,
        invocation_id,
        members.get("branch"),
        members.get("isolation_scope"),
        members.get("from_code", False),
        about_id,
        about_seq,
        members.get("config", {}),
        secret,
        answer,
        answered_at is not None,
        answered_by or "",
        closed,
        data is None,
    )


def _shown_of_scheme(config: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person sees of a request for a credential."""
    scheme = as_object(config.get("authScheme"))
    oauth2 = as_object(as_object(config.get("exchangedAuthCredential")).get("oauth2"))
    auth_url = str(oauth2.get("authUri") or "")
    return {
        "scheme_type": str(scheme.get("type") or scheme.get("type_") or ""),
        "scheme": str(scheme.get("scheme") or "").lower(),
        "auth_url": auth_url if auth_url.startswith(("https://", "http://")) else "",  # a page makes it a link
        "scopes": _scopes(scheme),
        "message": str(scheme.get("description") or arguments.get("message") or ""),
    }


def _scopes(scheme: Mapping[str, Any]) -> list[str]:
    """Return the scopes of an OAuth scheme: a list, or the keys of the flow that has some."""
    listed = scheme.get("scopes")
    if isinstance(listed, list):
        return list(map(str, cast("list[Any]", listed)))
    for flow in as_object(scheme.get("flows")).values():
        if scopes := as_object(as_object(flow).get("scopes")):
            return list(scopes)
    return []
