"""Store the requests of tools for a user's credential: each is answered once, in time, or gets no answer.

A request is an open call of its own, as an input request is. Its message holds the address that the user opens, and no
secret; the PKCE verifier and the answer are encrypted, in rows of their own, until the turn of the answer has ended.
`lango.store.tool_calls.approvals` closes requests without an answer.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.messages import ToolCall
from lango.sessions import SessionId, SessionRecord, StoredEvent
from lango.store.codec.ids import address_safe_id, call_key
from lango.store.engine.database import Operation
from lango.store.sessions.open_calls import CREDENTIAL_REQUEST
from lango.store.tool_calls.open_requests import answer_request, read_open_requests

_KEEP_ANSWER = "UPDATE credential_requests SET answer = $1, state_hash = NULL WHERE session_key = $2 AND call_id = $3"
_ANSWER_OF = "SELECT answer FROM credential_requests WHERE session_key = $1 AND call_id = $2"
_FORGET = "DELETE FROM credential_requests WHERE session_key = $1 AND call_id = $2"
_BY_STATE = """
SELECT s.app_name, s.user_id, s.id, r.call_id FROM credential_requests r
JOIN sessions s ON s.session_key = r.session_key WHERE r.state_hash = $1 AND s.app_name = $2
"""


class CredentialRequest(Struct, frozen=True):
    """A request for a credential of the user, who opens an address and allows the access, or gives a key."""

    call_id: str
    """The id with which clients answer: safe in an address."""
    kind: str
    """The type of the scheme: `oauth2`, `openIdConnect`, `apiKey`, `http`."""
    auth_url: str
    """The address where the user allows the access; empty: the user gives a key, or a name and a password."""
    scopes: tuple[str, ...]
    """What the access is for, in the words of the server that grants it."""
    message: str
    author: str
    path: str
    """The node of a workflow that requests it; empty: a tool of an agent."""
    requested_at: float
    expires_at: float | None
    seq: int
    invocation_id: str
    config: Mapping[str, Any]
    """ADK's authentication configuration, without secrets."""
    sealed: str | None = None
    """Encrypted: what the address was made with, such as the PKCE verifier."""
    scheme: str = ""
    """Of the kind `http`: `basic` asks for a name and a password, `bearer` for a token."""
    branch: str | None = None
    """The branch of the agent that waits: the answer belongs to it."""
    isolation_scope: str | None = None
    stored_id: str = ""
    """The id of the call in the stored message."""


class CredentialAnswer(Struct, frozen=True):
    """A user's answer to a credential request."""

    call_id: str
    seq: int
    """The message that made the request."""
    sealed: str = ""
    """Encrypted: ADK's credential as it was given."""


def state_hash(state: str) -> str:
    """Hash the OAuth state of an address: it is random, so a plain hash cannot be guessed."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def read_credential_requests(session: SessionRecord) -> Operation[list[CredentialRequest]]:
    """Read the credential requests that can still be answered, in order."""
    found = yield from read_open_requests(session, CREDENTIAL_REQUEST)
    return [credential_request(one.stored, one.call, one.expires_at, one.secret) for one in found]


def find_request_of_state(app_name: str, state: str) -> Operation[tuple[SessionId, str] | None]:
    """Return the session and the stored call id of the request whose address carries this OAuth state, if any."""
    for app, user_id, session_id, call_id in (yield _BY_STATE, (state_hash(state), app_name)):
        return SessionId(app, user_id, session_id), call_id
    return None


def credential_request(
    stored: StoredEvent, call: ToolCall, expires_at: float | None = None, sealed: str | None = None
) -> CredentialRequest:
    """Return the credential request of a call in a stored message."""
    arguments = call.input or {}
    config = _object(arguments.get("authConfig"))
    scheme = _object(config.get("authScheme"))
    auth_url = str(_oauth2(config).get("authUri") or "")
    node: Mapping[str, Any] = (stored.extra or {}).get("node_info") or {}
    return CredentialRequest(
        address_safe_id(call.id),
        str(scheme.get("type") or scheme.get("type_") or ""),
        auth_url if auth_url.startswith(("https://", "http://")) else "",  # a page makes it a link
        _scopes(scheme),
        str(scheme.get("description") or arguments.get("message") or ""),
        stored.message.author if stored.message else "",
        node.get("path", ""),
        stored.created_at,
        expires_at,
        stored.seq,
        stored.invocation_id,
        config,
        sealed,
        str(scheme.get("scheme") or "").lower(),
        (stored.extra or {}).get("branch"),
        (stored.extra or {}).get("isolation_scope"),
        call.id,
    )


def record_answer(key: int, name: SessionId, answer: CredentialAnswer) -> Operation[None]:
    """Record an answer, once and in time; raise `WaitNotOpen` for any other."""
    if not (yield from answer_request(key, CREDENTIAL_REQUEST, answer.call_id, answer.seq)):
        raise WaitNotOpen(f"the credential request {answer.call_id!r} of session {name.id!r} is not open any more")
    yield _KEEP_ANSWER, (answer.sealed, key, call_key(answer.call_id))


def read_answer(key: int, call_id: str) -> Operation[str | None]:
    """Return the answer to a request, encrypted, until its turn has ended; None: there is none."""
    rows = yield _ANSWER_OF, (key, call_key(call_id))
    return rows[0][0] if rows else None


def forget_request(key: int, call_id: str) -> Operation[None]:
    """Delete what was kept for a request whose answer has been used."""
    yield _FORGET, (key, call_key(call_id))


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _oauth2(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(config.get("exchangedAuthCredential")).get("oauth2"))


def _scopes(scheme: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scopes of an OAuth scheme: a list, or the keys of the flow that has some."""
    listed = scheme.get("scopes")
    if isinstance(listed, list):
        return tuple(map(str, cast("list[Any]", listed)))
    for flow in _object(scheme.get("flows")).values():
        if scopes := _object(_object(flow).get("scopes")):
            return tuple(scopes)
    return ()
