"""Show the last turns and the outcome of a resumed session."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lango.cli.chat.collapsed_sections import show_node, show_section, tool_call_section
from lango.cli.chat.terminal.markdown_blocks import split_blocks
from lango.cli.chat.turn_view import markdown_lines
from lango.cli.options import complete_hints
from lango.cli.terminal_text import printable
from lango.events import output_to_text
from lango.sessions import INPUT_CALL, REQUEST_PREFIX

if TYPE_CHECKING:
    from lango.cli.chat.collapsed_sections import CollapsedSection
    from lango.cli.chat.terminal.screen import Screen
    from lango.events import NodeProgress
    from lango.messages import Message
    from lango.runtime.sessions.session_usage import Window
    from lango.runtime.turns import LastTurn
    from lango.sessions import SessionInfo, StoredEvent

SHOWN_MESSAGES = 60
_SHOWN_TURNS = 2


def show_last_turns(
    screen: "Screen",
    sections: "list[CollapsedSection]",
    session: "SessionInfo",
    messages: "Sequence[StoredEvent]",
    nodes: "Mapping[int, Sequence[NodeProgress]]",
    root_agent: str,
    window: "Window | None",
) -> bool:
    """Show the last turns of a session as they looked when they ran, with the nodes of workflows after their input.

    Each turn is expected to begin with `root_agent`; the name of another agent is shown when it begins to speak.
    Return whether the place was marked where the window of the next request begins.
    """
    user_positions = [at for at, stored in enumerate(messages) if is_user_message(stored)]
    first = user_positions[-_SHOWN_TURNS] if len(user_positions) >= _SHOWN_TURNS else 0
    shown = messages[first:]
    if first or len(messages) == SHOWN_MESSAGES:
        whole = f"`lango sessions show {shlex.quote(session.name.id)} --app {session.name.app_name}`"
        screen.print_line(f"... the beginning: {complete_hints(whole)}", "dim")
    arguments: dict[str, Mapping[str, Any]] = {}
    speaker = root_agent
    marked = False
    for at, stored in enumerate(shown):
        if at and window and shown[at - 1].seq < (window.first_seq or 0) <= stored.seq and window.reason:
            marked = True
            screen.print_line(f"--- the model no longer sees the messages above: {window.reason} ---", "yellow")
        if stored.message and stored.is_note:
            screen.print_line(f"System: {printable(stored.message.content)}", "dim")
            continue
        if stored.message and stored.message.role == "user":
            speaker = root_agent
        elif stored.message:
            speaker = _show_speaker(screen, stored.message, speaker)
        if stored.message:
            _show_message(screen, sections, stored.message, arguments, _answered_later(shown, at))
        for event in nodes.get(stored.seq, ()):
            show_node(screen, event)
    return marked


def _show_speaker(screen: "Screen", message: "Message", speaker: str) -> str:
    """Show who speaks in a message, if it is another agent than before; return who speaks now."""
    if message.role != "assistant" or not message.content.strip() or message.author in ("", speaker):
        return speaker
    if speaker:
        screen.print_line(f"{message.author}:", "bold dim")
    return message.author


def _answered_later(messages: "Sequence[StoredEvent]", at: int) -> set[str]:
    """Return the calls whose result in this message is only a wait for approval: the real result follows later."""
    here = messages[at].message
    calls = {call.id for call in here.tool_calls} if here and here.role == "tool" else set[str]()
    later: set[str] = set()
    for stored in messages[at + 1 :]:
        found = {call.id for call in stored.message.tool_calls} if stored.message else set[str]()
        if stored.message and stored.message.role == "assistant":
            calls -= found  # some models number their calls from 1 in each answer
        elif stored.message and stored.message.role == "tool":
            later |= calls & found
    return later


def is_user_message(stored: "StoredEvent") -> bool:
    """Whether it is a message of the user, and not the answer to an approval request."""
    is_users = stored.message is not None and stored.message.role == "user" and not stored.is_note
    return bool(is_users and stored.message and not stored.message.tool_calls)


def _show_message(
    screen: "Screen",
    sections: "list[CollapsedSection]",
    message: "Message",
    arguments: dict[str, Mapping[str, Any]],
    answered_later: set[str],
) -> None:
    match message.role:
        case "user" if message.content and not message.tool_calls:
            screen.print_line(f"> {message.content}", "bold")
        case "assistant":
            if message.content.strip():
                _show_text(screen, message.content)
            arguments.update({call.id: call.input or {} for call in message.tool_calls})
            for call in message.tool_calls:
                if call.name == INPUT_CALL:
                    screen.print_line(printable(str((call.input or {}).get("message") or "")), "bold")
        case "tool":
            for call in message.tool_calls:
                if call.name == INPUT_CALL and message.author == "user":
                    answer: Any = (call.output or {}).get("result", call.output)
                    screen.print_line(f"> {output_to_text(answer)}", "bold")
                elif not call.name.startswith(REQUEST_PREFIX) and call.id not in answered_later:
                    ok = "error" not in (call.output or {})
                    show_section(
                        screen,
                        sections,
                        tool_call_section(call.name, arguments.get(call.id, {}), call.output, ok, None),
                    )
        case _:
            pass


def _show_text(screen: "Screen", text: str) -> None:
    if not screen.live:
        screen.print_line(text.rstrip("\n"))
        return
    screen.draw(["", *markdown_lines(screen, split_blocks(printable(text))), ""], [])


def last_turn_notice(last: "LastTurn | None") -> str:
    """Return a sentence about the last turn if it did not complete, or ""."""
    match last.status if last else "":
        case "running" | "queued" if last and last.is_resumed:
            return "the process of the last turn died: the turn continues now"
        case "running" | "queued":
            return "a turn of this session runs in another process: your messages are queued behind it"
        case "interrupted":
            return "the last turn was interrupted: its process died. The stored part is shown"
        case "cancelled":
            return "the last turn was stopped before its end"
        case "failed":
            return f"the last turn failed: {(last and last.error) or 'the reason is unknown'}"
        case _:
            return ""
