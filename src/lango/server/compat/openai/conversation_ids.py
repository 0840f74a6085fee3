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

FRONT_ENDS = {
    "X-OpenWebUI-Chat-Id": "X-OpenWebUI-User-Id",
    "X-Conversation-Id": "X-User-Id",
}
"""Headers with a conversation's id, each with the one that has the user's, where `user` of the body does not say.

Open WebUI sends the first (`ENABLE_FORWARD_USER_INFO_HEADERS`); LibreChat's documentation configures the second.
"""
METADATA = ("conversation_id", "thread_id", "session_id")
"""Members of `metadata` that name a conversation, as LangChain's and other applications call it."""

PREFIX = "conversation-"
"""How the ids of sessions begin that belong to such a conversation: no other request goes on in one of them."""


class Conversation(Struct, frozen=True):
    """A conversation as the client names it."""

    session_id: str
    """Of its session; where it may have several, how the ids of these begin."""
    several: bool = False
    """The client resends all of it: what is not as it was stored goes on in another session of the same name."""


def conversation_of(asked: ChatRequest, headers: Mapping[str, str]) -> Conversation | None:
    """Return the conversation that a request names, with its user; None where it names none."""
    for header, user_header in FRONT_ENDS.items():
        user = _text(asked.user) or headers.get(user_header, "")
        if (named := headers.get(header)) and user:
            return Conversation(f"{_name(user, named)}-", several=True)
    metadata = asked.metadata or {}
    user = _text(asked.user)
    for member in METADATA:
        if (named := _text(metadata.get(member))) and user:
            return Conversation(_name(user, named))
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _name(user: str, named: str) -> str:
    digest = hashlib.sha256(json.dumps([user, named]).encode()).hexdigest()
    return f"{PREFIX}{digest[:32]}"
