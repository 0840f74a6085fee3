"""Derive a session id from the conversation id that a client sends.

A conversation id counts only together with a user, because some clients' ids are not unique among their users. Both
together name sessions of the caller, whom the key alone identifies: no id leads to a session of another caller.

- Front ends resend the whole conversation with each request, and send requests for titles, tags and suggestions under
  the same id; users regenerate answers and edit messages. So the id only separates conversations, and the model reads
  the history in the request.
- An application that names a conversation in `metadata` means one session, whose history is stored here.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.server.compat.openai.chat_request import ChatRequest

CONVERSATION_HEADERS = {
    "X-OpenWebUI-Chat-Id": "X-OpenWebUI-User-Id",
    "X-Conversation-Id": "X-User-Id",
}
"""Headers with a conversation id, each with the header of the user, unless the body has `user`.

Open WebUI sends the first (`ENABLE_FORWARD_USER_INFO_HEADERS`); LibreChat's documentation configures the second.
"""
METADATA_KEYS = ("conversation_id", "thread_id", "session_id")
"""Keys in `metadata` for a conversation id, as in LangChain and other applications."""

SESSION_PREFIX = "conversation-"
"""Prefix of the ids of such sessions: no other request continues them."""


class NamedConversation(Struct, frozen=True):
    """The session id, or prefix of session ids, of a conversation that the client names."""

    session_id: str
    """With `has_several_sessions`, the prefix of their ids."""
    has_several_sessions: bool = False
    """The client resends the history: one that differs from the stored one gets another session with this prefix."""


def named_conversation(request: ChatRequest, headers: Mapping[str, str]) -> NamedConversation | None:
    """Return the conversation that a request names together with a user, or None."""
    for header, user_header in CONVERSATION_HEADERS.items():
        user = _text_or_empty(request.user) or headers.get(user_header, "")
        if (conversation_id := headers.get(header)) and user:
            return NamedConversation(f"{_session_id(user, conversation_id)}-", has_several_sessions=True)
    metadata = request.metadata or {}
    user = _text_or_empty(request.user)
    for member in METADATA_KEYS:
        if (conversation_id := _text_or_empty(metadata.get(member))) and user:
            return NamedConversation(_session_id(user, conversation_id))
    return None


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _session_id(user: str, conversation_id: str) -> str:
    digest = hashlib.sha256(json.dumps([user, conversation_id]).encode()).hexdigest()
    return f"{SESSION_PREFIX}{digest[:32]}"
