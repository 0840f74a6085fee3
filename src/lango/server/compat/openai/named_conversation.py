"""Read the conversation and user that a chat request names: together they name a session."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.session_selection import SESSION_PREFIX, NamedConversation

CONVERSATION_HEADERS = {
    "X-OpenWebUI-Chat-Id": "X-OpenWebUI-User-Id",
    "X-Conversation-Id": "X-User-Id",
}
"""Headers with a conversation id, each with the header of the user, unless the body has `user`.

Open WebUI sends the first (`ENABLE_FORWARD_USER_INFO_HEADERS`); LibreChat's documentation configures the second.
"""
METADATA_KEYS = ("conversation_id", "thread_id", "session_id")
"""Keys in `metadata` for a conversation id, as in LangChain and other applications."""


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
