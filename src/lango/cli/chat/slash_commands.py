"""What begins with a slash."""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from lango.cli.chat import resumed_session
from lango.cli.model_check import check_model, model_label, model_name
from lango.cli.session_target import USER, Place, find_session, new_place
from lango.cli.tables import make_table
from lango.cli.terminal_text import ago
from lango.cli.usage_report import usage_lines, usage_row
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.cli.chat.chat_session import Chat
    from lango.config import Settings


Work = Callable[["Chat", str], Awaitable[None]]

_LISTED = 20
_PAGE = 100

_OFF = "memory is off: `enabled = true` under [memory] in lango.toml turns it on"


class Leave(Exception):
    """/quit."""


class Command(Struct, frozen=True):
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
        return [(model, "") for model in known(chat.settings) if model.startswith(rest)]
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
    found = await chat.runtime.sessions.list(user_id=USER, limit=_LISTED + 1)
    if not found:
        chat.screen.say("no sessions yet")
        return
    now = time.time()
    rows = [
        {
            "id": one.name.id + (" *" if one.name.id == chat.place.session_id else ""),
            "title": one.shown_title,
            "messages": one.last_seq,
            "updated": ago(one.updated_at, now),
        }
        for one in found[:_LISTED]
    ]
    chat.listed = [(one.name.id, one.shown_title) for one in found]
    chat.screen.show(make_table(rows, cut=["title"]))
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


async def _fork(chat: "Chat", rest: str) -> None:
    back = _count(rest, 0, "/fork")
    question = await _question(chat, back) if back else None
    made = await chat.runtime.sessions.fork(
        chat.place.session_id,
        user_id=USER,
        at=question.seq - 1 if question else None,
        new_id=new_place().session_id,
    )
    chat.screen.say(f"session {made.name.id} goes on from here; {chat.place.session_id} stays as it is", "bold")
    await chat.arrive(Place(made.name.id))
    chat.draft = question.text if question else ""


async def _rewind(chat: "Chat", rest: str) -> None:
    question = await _question(chat, _count(rest, 1, "/rewind"))
    await chat.runtime.sessions.rewind(chat.place.session_id, before=question.seq, user_id=USER)
    chat.screen.say("taken back; the message is here to be changed and sent again", "bold")
    await chat.arrive(chat.place)
    chat.draft = question.text


class _Question(Struct, frozen=True):
    """A message of the user."""

    seq: int
    text: str


def _count(rest: str, default: int, name: str) -> int:
    if rest and not (rest.isdecimal() and int(rest)):
        raise UsageError(f"{name} takes how many turns to go back, such as {name} 2")
    return int(rest) if rest else default


async def _question(chat: "Chat", back: int) -> _Question:
    """Find the message that began a turn: 1 is the last one."""
    found, before = 0, None
    while page := await chat.runtime.sessions.messages(chat.place.session_id, user_id=USER, before=before, limit=_PAGE):
        for one in reversed(page):
            if one.message and resumed_session.is_asked(one):
                found += 1
                if found == back:
                    return _Question(one.seq, one.message.content)
        before = page[0].seq
    raise UsageError("there is nothing to go back to" if not found else f"there are only {found} turns to go back")


async def _usage(chat: "Chat", rest: str) -> None:
    del rest
    if chat.place.new:
        chat.screen.say("nothing was said yet")
        return
    usage = await chat.runtime.sessions.usage(chat.place.session_id, user_id=USER, limit=_LISTED)
    kept = ("turn", "status", "in", "out", "cost", "model s", "tools s", "tools")
    rows = [{name: value for name, value in usage_row(turn).items() if name in kept} for turn in usage.turns]
    if rows:
        chat.screen.show(make_table(rows, cut=["tools"]))
    for line in usage_lines(usage):
        chat.screen.say(line)


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
    questions = await resumed_session.open_questions(chat.runtime, session) if session else []
    if not questions:
        chat.screen.say("nothing waits for an approval")
    await chat.settle(questions)


async def _quit(chat: "Chat", rest: str) -> None:
    del chat, rest
    raise Leave


async def change(chat: "Chat", rest: str) -> None:
    """Say the model, or change it: it is asked first, so that a wrong name does not cost a message."""
    if not rest:
        chat.screen.say(model_label(chat.settings))
        chat.screen.say("/model provider/name changes it, such as /model openai/gpt-5-mini", "dim")
        return
    if chat.settings.store.url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise UsageError("the conversation is kept in memory only, and would be lost: choose the model with -m")
    agent = chat.settings.agent.model_copy(update={"model": rest})
    settings = chat.settings.model_copy(update={"agent": agent})
    doubt = await chat.interruptible(check_model(settings, rest))
    if doubt is None:
        chat.screen.say(f"stopped; the model is still {model_name(chat.settings)}", "yellow")
        return
    await chat.reopen(settings)
    chat.screen.say(f"from now on: {model_label(settings)}")
    if doubt:
        chat.screen.say(f"it did not answer a first question: {doubt}", "yellow")


async def show(chat: "Chat", rest: str) -> None:
    """Show the notes with the messages that they came from, and the facts."""
    del rest
    memory = chat.runtime.memory
    notes = [] if chat.place.new else (await memory.show(chat.place.session_id, user_id=USER)).as_json()
    for note in notes:
        chat.screen.say(f"[{note['priority']}] {note['day']} {note['text']}")
        chat.screen.say(f"    from messages {note['first_seq']} to {note['last_seq']}", "dim")
    facts = await memory.facts(user_id=USER)
    if facts:
        chat.screen.say("known of you in every conversation (`lango memory forget ID` deletes one):", "bold")
        chat.screen.show(make_table([{"id": str(one.id), "what": one.name, "is": one.text} for one in facts]))
    if not notes and not facts:
        chat.screen.say("nothing is remembered yet" if chat.settings.memory.enabled else _OFF)


COMMANDS = {
    "/help": Command("", "what there is", _help),
    "/model": Command("[NAME]", "say, or change, the model of the next turns", change),
    "/sessions": Command("", "list the conversations", _sessions),
    "/resume": Command("ID", "go on with another conversation", _resume),
    "/fork": Command("[N]", "go on in a copy of this conversation, without its last N turns", _fork),
    "/rewind": Command("[N]", "take back the last turn, or the last N", _rewind),
    "/usage": Command("", "what each turn took, and what the next request would keep", _usage),
    "/memory": Command("", "what is remembered of this conversation, and of you", show),
    "/clear": Command("", "an empty screen and a new conversation; this one is kept", _clear),
    "/open": Command("[N]", "show what a folded line holds: the newest, or that number", _open),
    "/approve": Command("", "answer a question that was left open", _approve),
    "/quit": Command("", "end; the conversation is kept", _quit),
}


def known(settings: "Settings") -> Iterable[str]:
    """Return names to complete: the models that the settings name, and those of this process."""
    from lango.providers.local.known_models import MODELS

    agent = settings.agent
    named = [settings.model, agent.fallback_model, settings.memory.model]
    named += [sub.model for sub in agent.sub_agents.values()]
    named += [f"local/{model.name}" for model in MODELS]
    return list(dict.fromkeys(name for name in named if name))
