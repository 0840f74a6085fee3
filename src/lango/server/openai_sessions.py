"""Which session a turn of an OpenAI client belongs to, where the client does not say."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Self

from msgspec import Struct

from lango.adk.attachments import stored_attachments
from lango.messages import Message
from lango.server.auth import Caller
from lango.server.files import mark_of
from lango.server.openai_input import ChatMessage
from lango.server.served import Served
from lango.store import SessionId, SessionRecord, Stored

ASKING = "\n\n[This needs approval: "
"""Where what is added for the client's eyes begins."""
_NEWEST_SESSIONS = 200
_PAGE = 200
_Turn = tuple[str, tuple[str, ...], str]


class _Said(Struct, frozen=True):
    """A message as far as it tells one conversation from another."""

    role: str
    text: str
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, sent: ChatMessage) -> Self:
        """Take what a client sends, without what was added for its eyes."""
        text = sent.text.partition(ASKING)[0].strip()
        return cls(sent.role, text, tuple(part.mark() for part in sent.others))

    @classmethod
    def of_stored(cls, stored: Stored, message: Message) -> Self:
        """Take what is stored."""
        files = stored_attachments(stored) if message.role == "user" else ()
        return cls(message.role, message.content, tuple(mark_of(file) for file in files))


async def session_of(here: Served, user: Caller, messages: Sequence[ChatMessage]) -> str:
    """Return the session that was told what comes before the last message, or a new one."""
    said = [_Said.of(one) for one in messages]
    return await _find_session(here, user, said) or await _new_session(here, user, said)


def _beginnings(said: Sequence[_Said]) -> dict[int, str]:
    """Return how the id begins of a session that began with a message, by the place of the message."""
    digest = hashlib.sha256()
    found: dict[int, str] = {}
    for place, one in enumerate(said):
        digest.update(json.dumps([one.role, one.text, *one.files]).encode())
        if one.role == "user":
            found[place] = f"chat-{digest.hexdigest()[:24]}-"
    return found


async def _new_session(here: Served, user: Caller, said: Sequence[_Said]) -> str:
    session_id = _beginnings(said)[len(said) - 1] + uuid.uuid4().hex[:12]
    await here.store.create_session(SessionId(here.runtime.app_name, user.user_id, session_id))
    return session_id


async def _find_session(here: Served, user: Caller, said: Sequence[_Said]) -> str | None:
    """Return the newest session that was told what the messages before the last one say, and no more."""
    began = {beginning: place for place, beginning in _beginnings(said[:-1]).items()}
    if not any(one.role == "assistant" for one in said):
        return None
    newest = await here.store.sessions_page(here.runtime.app_name, user.user_id, limit=_NEWEST_SESSIONS)
    for listed in newest:
        place = began.get(f"{listed.name.id.rpartition('-')[0]}-")
        session = await here.store.session(listed.name) if place is not None else None
        if session is None:
            continue
        resent = _answered(said[place:-1])
        if resent and resent == await _told(here, session, len(resent)):
            return listed.name.id
    return None


async def _told(here: Served, session: SessionRecord, count: int) -> list[_Turn]:
    """Return the answered messages of a session; where those are more than a count, not all of them.

    Read page by page, and of the files only the marks are kept: a session may hold more of them than fit in memory.
    """
    told: list[_Said] = []
    before: int | None = None
    while len(_answered(told)) <= count:
        page = await here.store.messages_page(session, before=before, limit=_PAGE)
        if not page:
            break
        told = [_Said.of_stored(one, one.message) for one in page if one.message] + told
        before = page[0].seq
    return _answered(told)


def _answered(said: Iterable[_Said]) -> list[_Turn]:
    """Return the messages that were answered, with their answers; one that failed may be sent again.

    What the assistant said between two messages is one answer: a client is told it as one.
    """
    turns: list[tuple[_Said, list[str]]] = []
    for one in said:
        if one.role == "user":
            turns.append((one, []))
        elif one.role == "assistant" and turns:
            turns[-1][1].append(one.text)
    found = [(asked.text.strip(), asked.files, "".join(answer).strip()) for asked, answer in turns]
    return [turn for turn in found if turn[2]]
