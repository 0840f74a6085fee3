"""Coming back to a conversation: its end, what became of its last turn, and what it still asks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lango.cli.chat.collapsed_sections import call_fold
from lango.cli.chat.markdown_blocks import split
from lango.cli.chat.turn_view import markdown_lines, show_fold
from lango.cli.terminal_text import visible
from lango.events import ApprovalNeeded
from lango.store import Turn
from lango.store.codec.records import as_datetime
from lango.turns.liveness import Watch

if TYPE_CHECKING:
    from lango.cli.chat.collapsed_sections import Folds
    from lango.cli.chat.terminal.screen import Screen
    from lango.messages import Message
    from lango.runtime.runtime import Runtime
    from lango.store import SessionRecord, Stored

SHOWN_MESSAGES = 60
_SHOWN_TURNS = 2
_QUESTIONS = "adk_request_"


def show_end(screen: "Screen", folds: "Folds", session: "SessionRecord", messages: "Sequence[Stored]") -> None:
    """Show the last turns of a conversation as they were shown when they happened."""
    asked = [at for at, one in enumerate(messages) if is_asked(one)]
    first = asked[-_SHOWN_TURNS] if len(asked) >= _SHOWN_TURNS else 0
    shown = messages[first:]
    if first or len(messages) == SHOWN_MESSAGES:
        screen.say(f"... the beginning: lango sessions show {session.name.id}", "dim")
    arguments: dict[str, Mapping[str, Any]] = {}
    for at, one in enumerate(shown):
        if one.message:
            _show_message(screen, folds, one.message, arguments, _asked_first(shown, at))


def _asked_first(messages: "Sequence[Stored]", at: int) -> set[str]:
    """Return the calls of which a message says only that they wait for approval: their results come after it."""
    here = messages[at].message
    calls = {call.id for call in here.tool_calls} if here and here.role == "tool" else set[str]()
    later: set[str] = set()
    for one in messages[at + 1 :]:
        found = {call.id for call in one.message.tool_calls} if one.message else set[str]()
        if one.message and one.message.role == "assistant":
            calls -= found  # some models count their calls from 1 again
        elif one.message and one.message.role == "tool":
            later |= calls & found
    return later


def is_asked(one: "Stored") -> bool:
    """Whether it is a message of the user, and not the answer to a question for approval."""
    return bool(one.message and one.message.role == "user" and not one.message.tool_calls)


def _show_message(
    screen: "Screen",
    folds: "Folds",
    message: "Message",
    arguments: dict[str, Mapping[str, Any]],
    asked_first: set[str],
) -> None:
    match message.role:
        case "user" if message.content and not message.tool_calls:
            screen.say(f"> {message.content}", "bold")
        case "assistant":
            if message.content.strip():
                _show_text(screen, message.content)
            arguments.update({call.id: call.input or {} for call in message.tool_calls})
        case "tool":
            for call in message.tool_calls:
                if not call.name.startswith(_QUESTIONS) and call.id not in asked_first:
                    ok = "error" not in (call.output or {})
                    show_fold(screen, folds, call_fold(call.name, arguments.get(call.id, {}), call.output, ok, None))
        case _:
            pass


def _show_text(screen: "Screen", text: str) -> None:
    if not screen.live:
        screen.say(text.rstrip("\n"))
        return
    screen.draw(["", *markdown_lines(screen, split(visible(text))), ""], [])


async def left_behind(runtime: "Runtime", session: "SessionRecord") -> str:
    """Say what became of the last turn, where it did not end well; empty: it did."""
    newest = await runtime.store.newest_turn(session)
    record = await runtime.store.turn(Turn(session.key, newest)) if newest else None
    if not newest or record is None:
        return ""
    if record.status in ("running", "waiting"):
        if Watch().is_gone(session.key, newest, record.owner, record.beat):
            return (
                "the last turn was cut off: the process that ran it is gone. What it had stored is here; "
                "send the message again for a new answer"
            )
        return "a turn of this session runs in another process: a message from here waits for it"
    failed: Mapping[str, str] = record.extra.get("error") or {}
    match record.status:
        case "interrupted":
            return "the last turn was cut off: the process that ran it is gone. What it had stored is here"
        case "cancelled":
            return "the last turn was stopped before its end"
        case "failed":
            return f"the last turn failed: {failed.get('message', 'nobody knows why')}"
        case _:
            return ""


async def open_questions(runtime: "Runtime", session: "SessionRecord") -> list[ApprovalNeeded]:
    """Return the questions for approval that an answer is still taken for."""
    return [
        ApprovalNeeded(
            0,
            one.call_id,
            one.name,
            one.arguments,
            None if one.expires_at is None else as_datetime(one.expires_at),
        )
        for one in await runtime.store.open_questions(session)
    ]
