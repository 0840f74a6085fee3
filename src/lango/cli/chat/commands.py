"""What begins with a slash."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lango.cli.chat import models, replay
from lango.cli.tables import ago, make_table
from lango.cli.talking import USER, find_session, new_place
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.cli.chat.conversation import Chat

Work = Callable[["Chat", str], Awaitable[None]]

_LISTED = 20


class Leave(Exception):
    """/quit."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what may follow it, what it does."""

    takes: str
    does: str
    work: Work


def is_command(text: str) -> bool:
    """Whether a message is a command, and not one that begins with a path."""
    first = text.split(maxsplit=1)[0]
    return text.startswith("/") and "/" not in first[1:] and "\n" not in text.strip()


async def obey(chat: "Chat", text: str) -> bool:
    """Do a command; False: the conversation ends."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        chat.screen.say(f"there is no {name}; /help says what there is", "yellow")
        return True
    try:
        await command.work(chat, rest.strip())
    except Leave:
        return False
    return True


def complete(chat: "Chat", text: str) -> Iterable[tuple[str, str]]:
    """Say what a command that is being typed could become."""
    name, space, rest = text.partition(" ")
    if not space:
        return [(one, command.does) for one, command in COMMANDS.items() if one.startswith(name)]
    if name == "/model":
        return [(model, "") for model in models.known(chat.settings) if model.startswith(rest)]
    if name == "/resume":
        return [(id_, title) for id_, title in chat.listed if id_.startswith(rest)]
    return []


async def _help(chat: "Chat", rest: str) -> None:
    del rest
    rows = [{"command": f"{name} {one.takes}".strip(), "does": one.does} for name, one in COMMANDS.items()]
    chat.screen.show(make_table(rows))
    chat.screen.say()
    chat.screen.say("Enter sends; Alt-Enter, or a backslash at the end of a line, begins a new line.")
    chat.screen.say("Ctrl-C stops an answer; Ctrl-O opens the newest folded line; Ctrl-D ends.")


async def _sessions(chat: "Chat", rest: str) -> None:
    del rest
    found = await chat.runtime.store.sessions_page(chat.runtime.app_name, USER, limit=_LISTED + 1)
    if not found:
        chat.screen.say("no sessions yet")
        return
    now = time.time()
    rows = [
        {
            "": "*" if one.name.id == chat.place.session_id else "",
            "id": one.name.id,
            "messages": one.last_seq,
            "tokens": one.total_tokens,
            "updated": ago(one.updated_at, now),
        }
        for one in found[:_LISTED]
    ]
    chat.listed = [(one.name.id, ago(one.updated_at, now)) for one in found]
    chat.screen.show(make_table(rows))
    more = " These are the newest; `lango sessions list` shows all." if len(found) > _LISTED else ""
    chat.screen.say(f"/resume ID goes on with one; its first characters do.{more}", "dim")


async def _resume(chat: "Chat", rest: str) -> None:
    if not rest:
        await _sessions(chat, "")
        return
    place = await find_session(chat.runtime, rest)
    if place.new:
        raise UsageError(f"there is no session {rest!r}; /sessions shows what there is")
    chat.screen.say(f"session {place.session_id}", "bold")
    await chat.arrive(place)


async def _clear(chat: "Chat", rest: str) -> None:
    del rest
    old = chat.place
    chat.screen.clear()
    chat.begin(new_place())
    kept = "" if old.new else f"; the one before is kept: /resume {old.session_id}"
    chat.screen.say(f"new session {chat.place.session_id}{kept}", "dim")


async def _open(chat: "Chat", rest: str) -> None:
    if rest and not rest.isdecimal():
        raise UsageError("/open takes the number of a folded line, such as /open 1")
    chat.open_fold(int(rest) if rest else None)


async def _approve(chat: "Chat", rest: str) -> None:
    del rest
    session = await chat.runtime.store.session(chat.name)
    messages = await chat.runtime.store.messages_page(session, limit=replay.SHOWN_MESSAGES) if session else []
    questions = replay.open_questions(messages)
    if not questions:
        chat.screen.say("nothing waits for an approval")
    await chat.settle(questions)


async def _quit(chat: "Chat", rest: str) -> None:
    del chat, rest
    raise Leave


COMMANDS = {
    "/help": Command("", "what there is", _help),
    "/model": Command("[NAME]", "say, or change, the model of the next turns", models.change),
    "/sessions": Command("", "list the conversations", _sessions),
    "/resume": Command("ID", "go on with another conversation", _resume),
    "/clear": Command("", "an empty screen and a new conversation; this one is kept", _clear),
    "/open": Command("[N]", "show what a folded line holds: the newest, or that number", _open),
    "/approve": Command("", "answer a question that was left open", _approve),
    "/quit": Command("", "end; the conversation is kept", _quit),
}
