"""Let the model read an edited or regenerated conversation: continue the session from where the client changed it.

A client whose thread is one session shows an edit only by the conversation that it resends: a message of the user is
another one, or what followed it is gone. What the session holds from there on is kept in a fork, and rewound in the
session, so that the model reads what the client shows.
"""

from collections.abc import Sequence

from msgspec import Struct

from lango.errors import TurnRunning
from lango.messages import Message
from lango.server.compat.client_view import visible_stored, visible_user_message
from lango.server.context import AgentUser
from lango.sessions import SessionInfo

COMPARED_MESSAGES = 200
"""How many of a session's newest messages are compared with the history that a client resends."""


class Edit(Struct, frozen=True):
    """Where a client's conversation leaves the stored one."""

    before: int
    """The number of the first message that the client no longer shows."""
    history: Sequence[Message] = ()
    """What the client shows there instead, before the new message."""


def find_edit(sent: Sequence[Message], stored: Sequence[tuple[int, str]], *, is_complete: bool) -> Edit | None:
    """Compare a conversation, whose last message is new, with the user's messages in a session.

    `stored` has the number and text of each; with `is_complete`, these are all. Without an answer, the conversation
    may be only what is new. A client may leave out the beginning, and may have more messages than the session.
    """
    users = [at for at, message in enumerate(sent) if message.role == "user"]
    prior = [_text_of(sent[at]) for at in users[:-1]]
    texts = [text for _, text in stored]
    if not prior or all(message.role == "user" for message in sent) or ends_with(prior, texts, is_complete=is_complete):
        return None
    if not is_complete:
        found = (kept for kept in range(len(texts) - 1, 0, -1) if ends_with(prior, texts[:kept], is_complete=False))
        kept = next(found, None)
        return None if kept is None else Edit(stored[kept][0])
    kept, shown = 0, 0  # the stored messages that the client still shows, and where its own continue
    for position, text in enumerate(prior):
        if kept < len(texts) and text == texts[kept]:
            kept, shown = kept + 1, position + 1
    return None if kept == len(texts) else Edit(stored[kept][0], sent[users[shown] : -1])


def ends_with(sent: Sequence[object], known: Sequence[object], *, is_complete: bool) -> bool:
    """Whether the stored messages end like the sent ones; with `is_complete`, `known` are all stored messages."""
    count = min(len(sent), len(known))
    return bool(count) and not (is_complete and len(sent) > len(known)) and sent[-count:] == known[-count:]


async def apply_edit(
    user: AgentUser, session: SessionInfo, sent: Sequence[Message], sent_before: int | None
) -> Sequence[Message] | None:
    """Rewind a session to where a client edited its conversation, and keep the earlier one in a fork.

    Return what the client shows before the new message, or None if nothing is edited. `sent_before` is the number of
    the message that the client sent before with the id of the new one. While a turn runs or waits, nothing is edited:
    the message is queued behind it.
    """
    if await user.runtime.turns.is_busy(session):
        return None
    page = await user.sessions.page(session, limit=COMPARED_MESSAGES)
    stored = [(one.seq, visible_stored(one).message.text) for one in page if one.message and one.message.role == "user"]
    if sent_before is not None and any(seq == sent_before for seq, _ in stored):
        edit = Edit(sent_before)
    else:
        edit = find_edit(sent, stored, is_complete=len(page) < COMPARED_MESSAGES)
    if edit is None:
        return None
    kept = await user.sessions.fork(session.name.id, user_id=user.id)
    try:
        await user.sessions.rewind(session.name.id, before=edit.before, user_id=user.id)
    except TurnRunning:  # another request was faster
        await user.sessions.delete(kept.name.id, user_id=user.id)
        return None
    return edit.history


def _text_of(message: Message) -> str:
    return visible_user_message(message, ()).text
