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
from lango.server.errors import Refused
from lango.server.files import mark_of
from lango.server.openai_input import ChatMessage, ChatRequest
from lango.server.served import Served
from lango.store import SessionRecord, Stored
from lango.store.records import client_calls

ASKING = "\n\n[This needs approval: "
"""Where what is added for the client's eyes begins."""
_NEWEST_SESSIONS = 200
_PAGE = 200


class _Said(Struct, frozen=True):
    """A message as far as it tells one conversation from another."""

    role: str
    text: str
    files: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    """Of the client's tools."""

    @classmethod
    def of(cls, sent: ChatMessage) -> Self:
        """Take what a client sends, without what was added for its eyes."""
        text = sent.text.partition(ASKING)[0].strip()
        return cls(sent.role, text, tuple(part.mark() for part in sent.others), sent.call_ids)

    @classmethod
    def of_stored(cls, stored: Stored, message: Message) -> Self:
        """Take what is stored."""
        files = stored_attachments(stored) if message.role == "user" else ()
        clients = client_calls(stored)
        calls = tuple(call.id for call in message.tool_calls if call.id in clients)
        return cls(message.role, message.content, tuple(mark_of(file) for file in files), calls)


class _Turn(Struct, frozen=True):
    """A message that was answered, with all that the client was told."""

    text: str
    files: tuple[str, ...]
    answer: str
    calls: tuple[str, ...]

    def begins(self, turn: "_Turn") -> bool:
        """Whether a turn is this one, and may have gone on since."""
        asked = (self.text, self.files) == (turn.text, turn.files)
        return asked and turn.answer.startswith(self.answer) and turn.calls[: len(self.calls)] == self.calls


async def session_of(here: Served, user: Caller, asked: ChatRequest) -> str:
    """Return the session that was told what comes before the last message, or what a new one is called.

    Results of calls need the session that waits for them, or that has had them already: raise `Refused` without one.
    """
    said = [_Said.of(one) for one in asked.messages]
    if not asked.brings_results:
        return await _find_session(here, user, said[:-1]) or _new_session(said)
    while said and said[-1].role == "tool":
        said.pop()
    found = await _find_session(here, user, said, goes_on=True)
    if found is None:
        message = "no session waits for these results; send the X-Session-Id of the answer that made the calls"
        raise Refused(404, "SessionNotFound", message)
    return found


def _beginnings(said: Sequence[_Said]) -> dict[int, str]:
    """Return how the id begins of a session that began with a message, by the place of the message."""
    digest = hashlib.sha256()
    found: dict[int, str] = {}
    for place, one in enumerate(said):
        digest.update(json.dumps([one.role, one.text, *one.files]).encode())
        if one.role == "user":
            found[place] = f"chat-{digest.hexdigest()[:24]}-"
    return found


def _new_session(said: Sequence[_Said]) -> str:
    return _beginnings(said)[len(said) - 1] + uuid.uuid4().hex[:12]


async def _find_session(here: Served, user: Caller, said: Sequence[_Said], *, goes_on: bool = False) -> str | None:
    """Return the newest session that was told what the messages say, and no more, unless in the turn that goes on."""
    began = {beginning: place for place, beginning in _beginnings(said).items()}
    if not any(one.role == "assistant" for one in said):
        return None
    newest = await here.store.sessions_page(here.runtime.app_name, user.user_id, limit=_NEWEST_SESSIONS)
    for listed in newest:
        place = began.get(f"{listed.name.id.rpartition('-')[0]}-")
        session = await here.store.session(listed.name) if place is not None else None
        if session is None:
            continue
        resent = _answered(said[place:])
        told = await _told(here, session, len(resent)) if resent else []
        if resent and (resent == told or (goes_on and _may_have_gone_on(resent, told))):
            return listed.name.id
    return None


def _may_have_gone_on(resent: Sequence[_Turn], told: Sequence[_Turn]) -> bool:
    return len(resent) == len(told) and resent[:-1] == told[:-1] and resent[-1].begins(told[-1])


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
    turns: list[tuple[_Said, list[_Said]]] = []
    for one in said:
        if one.role == "user":
            turns.append((one, []))
        elif one.role == "assistant" and turns:
            turns[-1][1].append(one)
    found = [_turn(asked, answers) for asked, answers in turns]
    return [turn for turn in found if turn.answer or turn.calls]


def _turn(asked: _Said, answers: Sequence[_Said]) -> _Turn:
    # what a client is told before a call and after it are two messages to it, with or without the space between them
    answer = "".join("".join(one.text for one in answers).split())
    return _Turn(asked.text.strip(), asked.files, answer, tuple(id_ for one in answers for id_ in one.calls))
