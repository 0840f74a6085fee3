"""Ask the user of an MCP client for what a turn waits for, by forms and addresses. Imports `mcp`."""

from collections.abc import Mapping
from typing import Any

from mcp_types import (
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from msgspec import json

from lango.server.compat.wait_answers import question_text, value_to_answer
from lango.waits import Answer, ApprovalWait, CredentialWait, Decline, InputWait, QuestionWait, Refuse, Wait

_VALUE = "value"
"""The field of a form that asks for one value."""
_PRIMITIVES = frozenset({"string", "integer", "number", "boolean"})
_APPROVAL = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Let the tool run"},
        "reason": {"type": "string", "title": "Why not", "description": "The agent reads it."},
    },
    "required": ["approved"],
}


def to_request(wait: Wait, client: ClientCapabilities | None) -> ElicitRequest | None:
    """Return the request that asks the user for an answer, or None if the client cannot, or the protocol must not.

    A form must not ask for a secret, so a key or a password is not asked for.
    """
    able = client.elicitation if client else None
    if able is None:
        return None
    takes_forms = able.form is not None or able.url is None
    match wait:
        case CredentialWait(auth_url=url) if url and able.url is not None:
            asked = wait.message or "A tool needs access to one of your accounts."
            return ElicitRequest(params=ElicitRequestURLParams(message=asked, url=url, elicitation_id=wait.id))
        case QuestionWait(payload={"url": str(url)}) if able.url is not None:
            return ElicitRequest(params=ElicitRequestURLParams(message=wait.message, url=url, elicitation_id=wait.id))
        case ApprovalWait() if takes_forms:
            schema = _APPROVAL
        case InputWait() | QuestionWait() if takes_forms:
            schema = _form(wait.schema)
        case _:
            return None
    return ElicitRequest(params=ElicitRequestFormParams(message=question_text(wait), requested_schema=schema))


def to_answer(wait: Wait, result: ElicitResult) -> Answer | None:
    """Return the user's answer, or None if there is none. Raise `InvalidAnswer` if it does not fit an approval."""
    match result.action, wait:
        case "accept", CredentialWait():  # the user was sent to the address: the answer comes from there
            return None
        case "accept", InputWait() | QuestionWait():
            content = result.content or {}
            return value_to_answer(wait, content.get(_VALUE) if _fields(wait.schema) is None else content)
        case "accept", _:
            return value_to_answer(wait, result.content)
        case "decline", ApprovalWait():
            return Refuse()
        case "decline", QuestionWait():
            return Decline()
        case _:
            return None


def _form(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a schema as a form can have it: an object of plain values; any other value is asked for in one field."""
    fields = _fields(schema)
    if schema is not None and fields is not None:
        return {"type": "object", "properties": fields, "required": schema.get("required", [])}
    field = _plain(schema) if schema else {"type": "string"}
    if field is None:
        field = {"type": "string", "description": f"JSON that fits {json.encode(schema).decode()}"}
    return {"type": "object", "properties": {_VALUE: field}, "required": [_VALUE]}


def _fields(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of a schema that is an object of plain values, or None."""
    if schema is None or schema.get("type") != "object":
        return None
    fields = {name: _plain(field) for name, field in schema.get("properties", {}).items()}
    return None if None in fields.values() else fields


def _plain(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a plain value as the protocol has it, or None for another one; forms know no null."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        schema = {name: one for name, one in schema.items() if name not in ("anyOf", "default")} | choices[0]
    return dict(schema) if schema.get("type") in _PRIMITIVES else None
