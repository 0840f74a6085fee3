"""Describe in an answer what its turn waits for, for clients whose protocol has no other way to show it."""

from lango.events import ApprovalNeeded, CredentialNeeded, InputNeeded
from lango.server.compat.client_view import APPROVAL_NOTE, CREDENTIAL_NOTE, INPUT_NOTE
from lango.server.json_body import tool_value_text


def pause_note(event: ApprovalNeeded | InputNeeded | CredentialNeeded, session_id: str) -> str:
    """Return the note about a request that waits for an answer, and how to answer it."""
    match event:
        case InputNeeded() if event.tool_call_id:  # a running tool asks: the next message would wait for it
            where = f"POST /v1/sessions/{session_id}/inputs/{event.call_id}"
            return f"{INPUT_NOTE}{event.message}; answer with {where}]"
        case InputNeeded():  # the next message is the answer
            return f"{INPUT_NOTE}{event.message}]"
        case CredentialNeeded():
            where = event.auth_url or f"POST /v1/sessions/{session_id}/credentials/{event.call_id}"
            return f"{CREDENTIAL_NOTE}{event.message}; allow it at {where}]"
        case ApprovalNeeded():
            where = f"POST /v1/sessions/{session_id}/approvals/{event.call_id}"
            return f"{APPROVAL_NOTE}{event.name}({tool_value_text(event.arguments)}); answer with {where}]"
