"""The ids by which OpenAI clients name a conversation, beside `X-Session-Id`.

An id counts only with a user, since not every client makes ids that are unique among its users. Both together name
sessions of the caller: who calls is said by the key alone, and no name leads to a session of another caller.

- Front ends resend the whole conversation with each request, and send requests of their own under the same id: for a
  title, for tags, for what the user may ask next; and an answer may be made anew, or a message changed. So their id
  keeps conversations apart, and what the model reads is what the request carries.
- An application that names a conversation in `metadata` means one session, whose history is kept here.
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
"""Headers with a conversation's id, each with the one that has the user's, where `user` of the body does not say.

Open WebUI sends the first (`ENABLE_FORWARD_USER_INFO_HEADERS`); LibreChat's documentation configures the second.
"""
METADATA_KEYS = ("conversation_id", "thread_id", "session_id")
"""Members of `metadata` that name a conversation, as LangChain's and other applications call it."""

SESSION_PREFIX = "conversation-"
"""How the ids of sessions begin that belong to such a conversation: no other request goes on in one of them."""


class NamedConversation(Struct, frozen=True):
    """A conversation as the client names it."""

    session_id: str
    """Of its session; where it may have several, how the ids of these begin."""
    has_several_sessions: bool = False
    """The client resends all of it: what is not as it was stored goes on in another session of the same name."""


def named_conversation(request: ChatRequest, headers: Mapping[str, str]) -> NamedConversation | None:
    """Return the conversation that a request names, with its user; None where it names none."""
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
