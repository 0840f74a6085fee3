"""Which session a turn of an OpenAI client belongs to, where the client does not say."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence

from lango.server.auth import Caller
from lango.server.openai_input import MOST_MESSAGES, ChatMessage
from lango.server.served import Served
from lango.store import SessionId

ASKING = "\n\n[This needs approval: "
"""Where what is added for the client's eyes begins."""
_NEWEST_SESSIONS = 200


def _beginnings(messages: Sequence[ChatMessage]) -> dict[int, str]:
    """Return how the id begins of a session that began with a message, by the place of the message."""
    digest = hashlib.sha256()
    found: dict[int, str] = {}
    for place, one in enumerate(messages):
        digest.update(json.dumps([one.role, _said(one.text)]).encode())
        if one.role == "user":
            found[place] = f"chat-{digest.hexdigest()[:24]}-"
    return found


async def new_session(here: Served, user: Caller, messages: Sequence[ChatMessage]) -> str:
    """Make the session that begins with the last message."""
    session_id = _beginnings(messages)[len(messages) - 1] + uuid.uuid4().hex[:12]
    await here.store.create_session(SessionId(here.runtime.app_name, user.user_id, session_id))
    return session_id


async def find_session(here: Served, user: Caller, messages: Sequence[ChatMessage]) -> str | None:
    """Return the newest session that was told what the messages before the last one say, and no more."""
    began = {beginning: place for place, beginning in _beginnings(messages[:-1]).items()}
    if not any(one.role == "assistant" for one in messages):
        return None
    newest = await here.store.sessions_page(here.runtime.app_name, user.user_id, limit=_NEWEST_SESSIONS)
    for listed in newest:
        place = began.get(f"{listed.name.id.rpartition('-')[0]}-")
        session = await here.store.session(listed.name) if place is not None else None
        if session is None:
            continue
        resent = _answered((one.role, _said(one.text)) for one in messages[place:-1])
        stored = await here.store.messages_page(session, limit=MOST_MESSAGES)
        told_here = _answered((one.message.role, one.message.content) for one in stored if one.message)
        if resent and resent == told_here:
            return listed.name.id
    return None


def _answered(said: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the messages that were answered, with their answers; one that failed may be sent again.

    What the assistant said between two messages is one answer: a client is told it as one.
    """
    turns: list[tuple[str, list[str]]] = []
    for role, text in said:
        if role == "user":
            turns.append((text, []))
        elif role == "assistant" and turns:
            turns[-1][1].append(text)
    pairs = [(asked.strip(), "".join(answer).strip()) for asked, answer in turns]
    return [pair for pair in pairs if pair[1]]


def _said(text: str) -> str:
    """Return a text without what was added for the client's eyes."""
    return text.partition(ASKING)[0].strip()
