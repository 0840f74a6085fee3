"""Decide which parts of the state belong to clients.

ADK keeps values of its own in the state of a session, and trusts what it finds there: credentials of users, tokens that
it got for them, how far a flow is. With a credential in the state, a tool acts under the identity that it names, even
the server's own. So clients, and imports, cannot write such a name or value, whichever protocol they use.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from lango.errors import StateRefused
from lango.sessions import APP_PREFIX

KEPT_IN_STATE = {"lango_credential": "kept"}
"""What a stored state shows of a credential that a tool keeps in it; see `lango.adk.services.state_credentials`."""

_RESERVED = re.compile(
    r"_*adk_.*"  # the default names of credentials, OAuth flows, recordings that replace the model, skills
    r"|_code_execut.*|_vmaas_.*|_antigravity_.*|sandbox_name"  # the sandbox that code runs in, and its files
    r"|mcp:.*|.*_existing_exchanged_credential|.*_token_cache",  # of MCP servers, OpenAPI documents and Google's tools
    re.DOTALL,
)
_SCOPE = re.compile(r"(temp|user|app):")
_SECRET_PARTS = {"oauth2", "http", "apiKey", "api_key", "serviceAccount", "service_account"}


def check_client_state(delta: Mapping[str, Any], credential_names: Collection[str] = ()) -> None:
    """Raise `StateRefused` if a client may not write a name or a value of this change.

    `credential_names` are those under which the agent's own tools look for credentials.
    """
    if refused := sorted(name for name, value in delta.items() if _is_reserved(name, value, credential_names)):
        names = ", ".join(name[:100] for name in refused[:5])
        raise StateRefused(f"clients cannot write credentials, or names that ADK reserves, into the state: {names}")


def without_reserved_state(delta: Mapping[str, Any], credential_names: Collection[str] = ()) -> dict[str, Any]:
    """Return a change of the state without the names and values that clients may not write."""
    return {name: value for name, value in delta.items() if not _is_reserved(name, value, credential_names)}


def without_app_state(delta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state, or a change of it, without what all users share: only operators read that."""
    return {name: value for name, value in delta.items() if not name.startswith(APP_PREFIX)}


def is_reserved_name(name: str) -> bool:
    """Whether ADK itself uses this name, in any scope."""
    return _RESERVED.fullmatch(_SCOPE.sub("", name, count=1)) is not None


def is_credential(value: Any) -> bool:
    """Whether a value is a credential of ADK as JSON."""
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return ("auth_type" in members or "authType" in members) and bool(members.keys() & _SECRET_PARTS)


def _is_reserved(name: str, value: Any, credential_names: Collection[str]) -> bool:
    is_known = name in credential_names or _SCOPE.sub("", name, count=1) in credential_names
    return is_known or is_reserved_name(name) or is_credential(value) or value == KEPT_IN_STATE
