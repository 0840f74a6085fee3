"""What begins with a slash."""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from lango.cli.chat import resumed_session
from lango.cli.model_check import check_model, model_label, model_name
from lango.cli.session_target import LOCAL_USER, SessionTarget, new_session, session_by_prefix
from lango.cli.tables import make_table
from lango.cli.terminal_text import format_age
from lango.cli.usage_report import summary_lines, turn_row
from lango.errors import UsageError
from lango.store.sessions.sessions import find_session

if TYPE_CHECKING:
    from lango.cli.chat.chat_session import ChatSession
    from lango.config import Settings


CommandFunction = Callable[["ChatSession", str], Awaitable[None]]

_MAX_LISTED = 20
_PAGE = 100

_MEMORY_OFF = "memory is off: `enabled = true` under [memory] in lango.toml turns it on"


class QuitChat(Exception):
    """/quit."""


class Command(Struct, frozen=True):
    """A command: what may follow it, what it does."""

    arguments: str
    help: str
    run: CommandFunction


def is_command(text: str) -> bool:
    """Whether a message is a command, and not one that begins with a path."""
    first = text.split(maxsplit=1)[0]
    return text.startswith("/") and "/" not in first[1:] and "\n" not in text.strip()


async def run_command(chat: "ChatSession", text: str) -> bool:
    """Do a command; False: the conversation ends."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        chat.screen.print_line(f"there is no {name}; /help says what there is", "yellow")
        return True
    try:
        await command.run(chat, rest.strip())
    except QuitChat:
        return False
    return True


def complete_command(chat: "ChatSession", text: str) -> Iterable[tuple[str, str]]:
    """Say what a command that is being typed could become."""
    name, space, rest = text.partition(" ")
    if not space:
        return [
            (command_name, command.help) for command_name, command in COMMANDS.items() if command_name.startswith(name)
        ]
    if name == "/model":
        return [(model, "") for model in known_models(chat.settings) if model.startswith(rest)]
    if name == "/resume":
        return [(id_, title) for id_, title in chat.listed_sessions if id_.startswith(rest)]
    return []


async def _help(chat: "ChatSession", rest: str) -> None:
    del rest
    rows = [
        {"command": f"{name} {command.arguments}".strip(), "does": command.help} for name, command in COMMANDS.items()
    ]
    chat.screen.print_renderables(make_table(rows))
    chat.screen.print_line()
    chat.screen.print_line("Enter sends; Alt-Enter, or a backslash at the end of a line, begins a new line.")
    chat.screen.print_line("Ctrl-C stops an answer; Ctrl-O opens the newest folded line; Ctrl-D ends.")


async def _sessions(chat: "ChatSession", rest: str) -> None:
    del rest
    found = await chat.runtime.sessions.list(user_id=LOCAL_USER, limit=_MAX_LISTED + 1)
    if not found:
        chat.screen.print_line("no sessions yet")
        return
    now = time.time()
    rows = [
        {
            "id": record.name.id + (" *" if record.name.id == chat.target.session_id else ""),
            "title": record.display_title,
            "messages": record.last_seq,
            "updated": format_age(record.updated_at, now),
        }
        for record in found[:_MAX_LISTED]
    ]
    chat.listed_sessions = [(record.name.id, record.display_title) for record in found]
    chat.screen.print_renderables(make_table(rows, cut=["title"]))
    more = " These are the newest; `lango sessions list` shows all." if len(found) > _MAX_LISTED else ""
    chat.screen.print_line(f"/resume ID goes on with one; its first characters do.{more}", "dim")


async def _resume(chat: "ChatSession", rest: str) -> None:
    if not rest:
        await _sessions(chat, "")
        return
    place = await session_by_prefix(chat.runtime, rest)
    if place.new:
        raise UsageError(f"there is no session {rest!r}; /sessions shows what there is")
    chat.screen.print_line(f"session {place.session_id}", "bold")
    await chat.resume(place)


async def _fork(chat: "ChatSession", rest: str) -> None:
    back = _parse_count(rest, 0, "/fork")
    question = await _user_message(chat, back) if back else None
    made = await chat.runtime.sessions.fork(
        chat.target.session_id,
        user_id=LOCAL_USER,
        at=question.seq - 1 if question else None,
        new_id=new_session().session_id,
    )
    chat.screen.print_line(f"session {made.name.id} goes on from here; {chat.target.session_id} stays as it is", "bold")
    await chat.resume(SessionTarget(made.name.id))
    chat.draft = question.text if question else ""


async def _rewind(chat: "ChatSession", rest: str) -> None:
    question = await _user_message(chat, _parse_count(rest, 1, "/rewind"))
    await chat.runtime.sessions.rewind(chat.target.session_id, before=question.seq, user_id=LOCAL_USER)
    chat.screen.print_line("taken back; the message is here to be changed and sent again", "bold")
    await chat.resume(chat.target)
    chat.draft = question.text


class _UserMessage(Struct, frozen=True):
    """A message of the user."""

    seq: int
    text: str


def _parse_count(rest: str, default: int, name: str) -> int:
    if rest and not (rest.isdecimal() and int(rest)):
        raise UsageError(f"{name} takes how many turns to go back, such as {name} 2")
    return int(rest) if rest else default


async def _user_message(chat: "ChatSession", back: int) -> _UserMessage:
    """Find the message that began a turn: 1 is the last one."""
    found, before = 0, None
    while page := await chat.runtime.sessions.messages(
        chat.target.session_id, user_id=LOCAL_USER, before=before, limit=_PAGE
    ):
        for stored in reversed(page):
            if stored.message and resumed_session.is_user_message(stored):
                found += 1
                if found == back:
                    return _UserMessage(stored.seq, stored.message.content)
        before = page[0].seq
    raise UsageError("there is nothing to go back to" if not found else f"there are only {found} turns to go back")


async def _usage(chat: "ChatSession", rest: str) -> None:
    del rest
    if chat.target.new:
        chat.screen.print_line("nothing was said yet")
        return
    usage = await chat.runtime.sessions.usage(chat.target.session_id, user_id=LOCAL_USER, limit=_MAX_LISTED)
    kept = ("turn", "status", "in", "out", "cost", "model s", "tools s", "tools")
    rows = [{name: value for name, value in turn_row(turn).items() if name in kept} for turn in usage.turns]
    if rows:
        chat.screen.print_renderables(make_table(rows, cut=["tools"]))
    for line in summary_lines(usage):
        chat.screen.print_line(line)


async def _clear(chat: "ChatSession", rest: str) -> None:
    del rest
    old = chat.target
    chat.screen.clear()
    chat.switch_to(new_session())
    kept = "" if old.new else f"; the one before is kept: /resume {old.session_id}"
    chat.screen.print_line(f"new session {chat.target.session_id}{kept}", "dim")


async def _open(chat: "ChatSession", rest: str) -> None:
    if rest and not rest.isdecimal():
        raise UsageError("/open takes the number of a folded line, such as /open 1")
    chat.open_section(int(rest) if rest else None)


async def _approve(chat: "ChatSession", rest: str) -> None:
    del rest
    session = await chat.runtime.store.read(find_session, chat.session_id)
    questions = await resumed_session.open_approval_requests(chat.runtime, session) if session else []
    if not questions:
        chat.screen.print_line("nothing waits for an approval")
    await chat.answer_approval_requests(questions)


async def _quit(chat: "ChatSession", rest: str) -> None:
    del chat, rest
    raise QuitChat


async def _model(chat: "ChatSession", rest: str) -> None:
    """Say the model, or change it: it is asked first, so that a wrong name does not cost a message."""
    if not rest:
        chat.screen.print_line(model_label(chat.settings))
        chat.screen.print_line("/model provider/name changes it, such as /model openai/gpt-5-mini", "dim")
        return
    if chat.settings.store.url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise UsageError("the conversation is kept in memory only, and would be lost: choose the model with -m")
    agent = chat.settings.agent.model_copy(update={"model": rest})
    settings = chat.settings.model_copy(update={"agent": agent})
    doubt = await chat.run_interruptible(check_model(settings, rest))
    if doubt is None:
        chat.screen.print_line(f"stopped; the model is still {model_name(chat.settings)}", "yellow")
        return
    await chat.reopen(settings)
    chat.screen.print_line(f"from now on: {model_label(settings)}")
    if doubt:
        chat.screen.print_line(f"it did not answer a first question: {doubt}", "yellow")


async def _memory(chat: "ChatSession", rest: str) -> None:
    """Show the notes with the messages that they came from, and the facts."""
    del rest
    memory = chat.runtime.memory
    notes = [] if chat.target.new else (await memory.show(chat.target.session_id, user_id=LOCAL_USER)).as_json()
    for note in notes:
        chat.screen.print_line(f"[{note['priority']}] {note['day']} {note['text']}")
        chat.screen.print_line(f"    from messages {note['first_seq']} to {note['last_seq']}", "dim")
    facts = await memory.facts(user_id=LOCAL_USER)
    if facts:
        chat.screen.print_line("known of you in every conversation (`lango memory forget ID` deletes one):", "bold")
        chat.screen.print_renderables(
            make_table([{"id": str(fact.id), "what": fact.name, "is": fact.text} for fact in facts])
        )
    if not notes and not facts:
        chat.screen.print_line("nothing is remembered yet" if chat.settings.memory.enabled else _MEMORY_OFF)


COMMANDS = {
    "/help": Command("", "what there is", _help),
    "/model": Command("[NAME]", "say, or change, the model of the next turns", _model),
    "/sessions": Command("", "list the conversations", _sessions),
    "/resume": Command("ID", "go on with another conversation", _resume),
    "/fork": Command("[N]", "go on in a copy of this conversation, without its last N turns", _fork),
    "/rewind": Command("[N]", "take back the last turn, or the last N", _rewind),
    "/usage": Command("", "what each turn took, and what the next request would keep", _usage),
    "/memory": Command("", "what is remembered of this conversation, and of you", _memory),
    "/clear": Command("", "an empty screen and a new conversation; this one is kept", _clear),
    "/open": Command("[N]", "show what a folded line holds: the newest, or that number", _open),
    "/approve": Command("", "answer a question that was left open", _approve),
    "/quit": Command("", "end; the conversation is kept", _quit),
}


def known_models(settings: "Settings") -> Iterable[str]:
    """Return names to complete: the models that the settings name, and those of this process."""
    from lango.providers.local.known_models import MODELS

    agent = settings.agent
    named = [settings.model, agent.fallback_model, settings.memory.model]
    named += [sub.model for sub in agent.sub_agents.values()]
    named += [f"local/{model.name}" for model in MODELS]
    return list(dict.fromkeys(name for name in named if name))
