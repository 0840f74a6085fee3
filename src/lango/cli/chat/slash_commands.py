"""Run the commands that begin with a slash."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lango.cli.chat import resumed_session
from lango.cli.chat.chat_session import ChatSession
from lango.cli.chat.model_choice import change_model, known_models
from lango.cli.chat.terminal.typed_line import HINT
from lango.cli.chat.wait_cards import has_form, show_wait
from lango.cli.options import complete_hints
from lango.cli.session_target import LOCAL_USER, SessionTarget, new_session, session_by_prefix
from lango.cli.tables import grant_row, make_table, summary_lines, turn_row
from lango.cli.terminal_text import format_age
from lango.cli.wait_answers import read_answer
from lango.errors import UsageError
from lango.waits import ApprovalWait, EventWait, TimerWait

if TYPE_CHECKING:
    from lango.development.failures import Failure
    from lango.runtime.access import Grant

CommandFunction = Callable[[ChatSession, str], Awaitable[None]]

_MAX_LISTED = 20
_PAGE = 100

_MEMORY_OFF = "memory is off: `enabled = true` under [memory] in lango.toml turns it on"


class QuitChat(Exception):
    """/quit."""


class Command(Struct, frozen=True):
    """A command: its arguments, its help, its function."""

    arguments: str
    help: str
    run: CommandFunction


async def run_command(chat: ChatSession, text: str) -> bool:
    """Run a command; return False to quit."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        chat.screen.print_line(f"unknown command {name}; /help lists the commands", "yellow")
        return True
    try:
        await command.run(chat, rest.strip())
    except QuitChat:
        return False
    return True


def complete_command(chat: ChatSession, text: str) -> Iterable[tuple[str, str]]:
    """Return the completions of a command being typed, each with a description."""
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


async def _help(chat: ChatSession, _: str) -> None:
    rows = [
        {"command": f"{name} {command.arguments}".strip(), "does": command.help} for name, command in COMMANDS.items()
    ]
    chat.screen.print_renderables(make_table(rows))
    chat.screen.print_line()
    chat.screen.print_line("Enter sends; Alt-Enter, or a backslash at the end of a line, begins a new line.")
    chat.screen.print_line("Ctrl-C stops an answer; Ctrl-O opens the newest collapsed line; Ctrl-D ends.")
    chat.screen.print_line(f"While an answer runs: {HINT}.")


async def _sessions(chat: ChatSession, _: str) -> None:
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
    more = complete_hints(" These are the newest; `lango sessions list` shows all.") if len(found) > _MAX_LISTED else ""
    chat.screen.print_line(f"/resume ID continues a session; a prefix of its id is enough.{more}", "dim")


async def _resume(chat: ChatSession, rest: str) -> None:
    if not rest:
        await _sessions(chat, "")
        return
    target = await session_by_prefix(chat.runtime, rest)
    if target.new:
        raise UsageError(f"there is no session {rest!r}; /sessions lists them")
    chat.screen.print_line(f"session {target.session_id}", "bold")
    await chat.resume(target)


async def _fork(chat: ChatSession, rest: str) -> None:
    back = _parse_count(rest, 0, "/fork")
    message = await _user_message(chat, back) if back else None
    made = await chat.runtime.sessions.fork(
        chat.target.session_id,
        user_id=LOCAL_USER,
        at=message.seq - 1 if message else None,
        new_id=new_session().session_id,
    )
    chat.screen.print_line(f"continuing in session {made.name.id}; {chat.target.session_id} is unchanged", "bold")
    await chat.resume(SessionTarget(made.name.id))
    chat.draft = message.text if message else ""


async def _rewind(chat: ChatSession, rest: str) -> None:
    message = await _user_message(chat, _parse_count(rest, 1, "/rewind"))
    await chat.runtime.sessions.rewind(chat.target.session_id, before=message.seq, user_id=LOCAL_USER)
    chat.screen.print_line("rewound; edit the message and send it again", "bold")
    await chat.resume(chat.target)
    chat.draft = message.text


class _UserMessage(Struct, frozen=True):
    """A message of the user."""

    seq: int
    text: str


def _parse_count(rest: str, default: int, name: str) -> int:
    if rest and not (rest.isdecimal() and int(rest)):
        raise UsageError(f"{name} takes a number of turns, such as {name} 2")
    return int(rest) if rest else default


async def _user_message(chat: ChatSession, back: int) -> _UserMessage:
    """Return the message that began a turn, counted back from 1, the last turn."""
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
    raise UsageError("there are no turns to go back to" if not found else f"there are only {found} turns to go back")


async def _usage(chat: ChatSession, _: str) -> None:
    if chat.target.new:
        chat.screen.print_line("no messages yet")
        return
    usage = await chat.runtime.sessions.usage(chat.target.session_id, user_id=LOCAL_USER, limit=_MAX_LISTED)
    kept = ("turn", "status", "in", "out", "cost", "model s", "tools s", "tools")
    rows = [{name: value for name, value in turn_row(turn).items() if name in kept} for turn in usage.turns]
    if rows:
        chat.screen.print_renderables(make_table(rows, cut=["tools"]))
    for line in summary_lines(usage):
        chat.screen.print_line(line)


async def _error(chat: ChatSession, rest: str) -> None:
    """Show where the newest error of the user's own code was raised; with `all`, also the frames of libraries."""
    if rest not in ("", "all"):
        raise UsageError("/error shows the newest error, /error all with the frames of libraries")
    failures: Sequence[Failure] = []
    if not chat.target.new:
        failures = await chat.runtime.sessions.failures(chat.target.session_id, user_id=LOCAL_USER)
    if not failures:
        chat.screen.print_line("no tool, node or callback has raised an error in this session")
        return
    newest = failures[-1]
    place = f": {newest.file}, line {newest.line}, in {newest.function}" if newest.file else ""
    chat.screen.print_line(f"{newest.what}{place}", "bold")
    chat.screen.print_line(newest.traceback if rest else newest.folded)


async def _clear(chat: ChatSession, _: str) -> None:
    old = chat.target
    chat.screen.clear()
    chat.switch_to(new_session())
    kept = "" if old.new else f"; the previous session is kept: /resume {old.session_id}"
    chat.screen.print_line(f"new session {chat.target.session_id}{kept}", "dim")


async def _open(chat: ChatSession, rest: str) -> None:
    if rest and not rest.isdecimal():
        raise UsageError("/open takes the number of a collapsed line, such as /open 1")
    chat.open_section(int(rest) if rest else None)


async def _grants(chat: ChatSession, rest: str) -> None:
    """List the grants of the session, or revoke one."""
    if rest:
        word, _, number = rest.rpartition(" ")
        if word not in ("", "revoke") or not number.isdecimal():
            raise UsageError("/grants lists the grants, /grants revoke 1 revokes one")
        await chat.runtime.grants.revoke(chat.target.session_id, int(number), user_id=LOCAL_USER)
        chat.screen.print_line(f"grant {number} is revoked: the tool asks again")
        return
    found: Sequence[Grant] = []
    if not chat.target.new:
        found = await chat.runtime.grants.list(chat.target.session_id, user_id=LOCAL_USER)
    if not found:
        chat.screen.print_line("nothing is granted in this session")
        return
    chat.screen.print_renderables(make_table([grant_row(grant, time.time()) for grant in found], cut=["arguments"]))


async def _answer(chat: ChatSession, rest: str) -> None:
    """Answer a wait with a text, or ask for the answer to each."""
    if rest:
        await _answer_with(chat, rest)
        return
    waits = await chat.open_waits()
    if not waits:
        chat.screen.print_line("nothing is waiting for an answer")
    for wait in waits:
        if wait not in await chat.open_waits():
            continue  # an answer to another one closed it
        if not isinstance(wait, ApprovalWait):
            show_wait(chat.screen, wait)
        if isinstance(wait, ApprovalWait) or has_form(wait):
            await chat.ask_for_answers([wait])
            continue
        if (answer := await chat.ask_answer(wait)) is None:
            return
        await chat.answer(wait, answer)


async def _update(chat: ChatSession, rest: str) -> None:
    await _answer_with(chat, rest, update=True)


async def _answer_with(chat: ChatSession, rest: str, *, update: bool = False) -> None:
    wait_id, _, text = rest.partition(" ")
    if not text.strip():
        raise UsageError("give the id of what waits and the answer, such as /answer call_1 done")
    found = [wait for wait in await chat.open_waits() if wait.id.startswith(wait_id)]
    if len(found) != 1:
        raise UsageError(f"{'nothing waits' if not found else 'more than one wait begins'} with the id {wait_id!r}")
    if isinstance(found[0], TimerWait | EventWait) and text.strip().lower() == "cancel":
        ended = await chat.runtime.cancel_wait(chat.target.session_id, found[0].id, user_id=LOCAL_USER)
        chat.screen.print_line("ended without an answer" if ended else "it is no longer open")
        return
    await chat.answer(found[0], read_answer(found[0], text.strip(), update=update))


async def _skip(chat: ChatSession, _: str) -> None:
    await chat.close_waits()


async def _quit(_chat: ChatSession, _: str) -> None:
    raise QuitChat


async def _memory(chat: ChatSession, rest: str) -> None:
    """Show the observations of the session with their messages, and the facts about the user, or change one."""
    memory = chat.runtime.memory
    if rest:
        await _edit_memory(chat, *rest.split(maxsplit=2))
        return
    notes = [] if chat.target.new else (await memory.show(chat.target.session_id, user_id=LOCAL_USER)).notes
    for note in notes:
        chat.screen.print_line(f"{note.id} [{note.priority}] {note.day} {note.text}")
        chat.screen.print_line(f"    from messages {note.first_seq} to {note.last_seq}", "dim")
    facts = await memory.facts(user_id=LOCAL_USER)
    if facts:
        chat.screen.print_line("known about you in every session (`/memory forget ID` deletes a fact):", "bold")
        chat.screen.print_renderables(
            make_table([{"id": str(fact.id), "what": fact.name, "is": fact.text} for fact in facts])
        )
    if not notes and not facts:
        chat.screen.print_line("No notes yet." if chat.settings.memory.enabled else _MEMORY_OFF)


async def _edit_memory(chat: ChatSession, action: str, item_id: str = "", text: str = "") -> None:
    """Pin, unpin, correct or forget a note, whose id has a dot, or a fact."""
    if action not in ("pin", "unpin", "correct", "forget") or not item_id or (action == "correct") != bool(text):
        raise UsageError("use /memory pin ID, /memory unpin ID, /memory correct ID TEXT or /memory forget ID")
    is_note, pinned = "." in item_id, {"pin": True, "unpin": False}.get(action)
    if (is_note and chat.target.new) or not await chat.runtime.memory.change(
        item_id,
        chat.target.session_id if is_note else None,
        text=text or None,
        pinned=pinned,
        forget=action == "forget",
        user_id=LOCAL_USER,
    ):
        raise UsageError(f"there is no {item_id}; /memory shows what is remembered")
    chat.screen.print_line("done")


COMMANDS = {
    "/help": Command("", "list the commands", _help),
    "/model": Command("[NAME]", "show or change the model of the next turns", change_model),
    "/sessions": Command("", "list the sessions", _sessions),
    "/resume": Command("ID", "continue another session", _resume),
    "/fork": Command("[N]", "continue in a copy of this session, without its last N turns", _fork),
    "/rewind": Command("[N]", "remove the last turn, or the last N", _rewind),
    "/usage": Command("", "show tokens and cost of each turn, and the size of the next request", _usage),
    "/error": Command("[all]", "show the traceback of the newest error of a tool, node or callback", _error),
    "/memory": Command(
        "[pin|unpin|correct|forget ID]", "show what is remembered of this session and about you, or change it", _memory
    ),
    "/clear": Command("", "clear the screen and start a new session; this one is kept", _clear),
    "/open": Command("[N]", "show a collapsed line: the newest, or the one with that number", _open),
    "/answer": Command("[ID VALUE]", "answer what waits: an approval, an input, a credential, a result", _answer),
    "/grants": Command("[revoke N]", "list the tools that run without asking in this session, or revoke one", _grants),
    "/skip": Command("", "close open requests for input, a credential or an approval", _skip),
    "/update": Command("ID VALUE", "report the progress of a long-running tool; its result follows", _update),
    "/quit": Command("", "quit; the session is kept", _quit),
}
