"""Read messages and commands until the user quits."""

import asyncio
import logging
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lango import __version__
from lango.cli.chat.chat_session import ChatSession
from lango.cli.chat.model_choice import next_step
from lango.cli.chat.slash_commands import complete_command, run_command
from lango.cli.chat.terminal.message_reader import InputInterrupted, LineReader
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.terminal.typed_line import is_command
from lango.cli.options import complete_hints
from lango.cli.session_target import choose_session
from lango.config import Settings
from lango.errors import LangoError
from lango.providers import label

if TYPE_CHECKING:
    from lango.cli.chat.wait_cards import MessageReader

_MCP_START_S = 5.0
"""How long the prompt waits for MCP servers to list their tools."""


async def run_chat(settings: Settings, resume: str | None, continue_newest: bool) -> None:
    """Run a chat until the end of the input, /quit, or Ctrl-C twice at an empty prompt."""
    screen = Screen()
    _log_to_screen(screen)
    if screen.live:
        screen.draw([], ["starting ..."])
    try:
        async with ChatSession(settings, screen) as chat:
            chat.target = await choose_session(chat.runtime, resume, continue_newest)
            chat.reader = _make_reader(chat)
            screen.draw([], [])
            with _handle_interrupts(chat):
                if not resume or not chat.target.new or await _may_start(chat):
                    await _read_messages(chat)
    finally:
        screen.draw([], [])


def _make_reader(chat: ChatSession) -> "MessageReader":
    if not (chat.screen.live and sys.stdin.isatty()):
        return LineReader()
    from lango.cli.chat.terminal.input_history import InputHistory, history_file
    from lango.cli.chat.terminal.keyboard import KeyboardReader

    return KeyboardReader(
        chat.screen,
        InputHistory(history_file()),
        complete=lambda text: complete_command(chat, text),
        status=lambda width: chat.status_line.render(chat.settings, chat.model, chat.target.session_id, width),
        open_section=chat.open_section,
    )


async def _may_start(chat: ChatSession) -> bool:
    """Ask whether to start a session under an id that none has; a script is only told."""
    unknown = f"there is no session {chat.target.session_id!r}"
    if not sys.stdin.isatty():
        chat.screen.print_line(f"{unknown}: starting a new one", "yellow")
        return True
    chat.screen.print_line(complete_hints(f"{unknown}; `lango sessions list` lists them"), "yellow")
    try:
        answer = await chat.reader.ask_line("start a new session with this id? [y/N]")
    except InputInterrupted:
        return False
    return (answer or "").lower() in ("y", "yes")


async def _show_unusable_tools(chat: ChatSession) -> None:
    """Ask the MCP servers for their tools: the log says which of them cannot be offered.

    A server that takes long is not waited for.
    """
    if not chat.settings.mcp:
        return
    asking = asyncio.ensure_future(chat.runtime.tool_names(ask_toolsets=True, require_all=False))
    await asyncio.wait({asking}, timeout=_MCP_START_S)
    if asking.done():
        for failure in asking.result().failures:
            chat.screen.print_line(failure, "yellow")


async def _read_messages(chat: ChatSession) -> None:
    chat.screen.print_line(f"lango {__version__}, {chat.runtime.app_name}, {label(chat.model)}", "bold")
    if hint := next_step(chat.model):
        chat.screen.print_line(hint, "yellow")
    session = f"{'new session' if chat.target.new else 'session'} {chat.target.session_id}"
    chat.screen.print_line(f"{session}; /help, Ctrl-C stops an answer, Ctrl-D ends", "dim")
    if not chat.target.new:
        try:
            await chat.resume(chat.target)
        except LangoError as error:  # for example an approval that was answered elsewhere
            chat.screen.print_line(str(error), "red")
    await _show_unusable_tools(chat)
    hinted = False
    while True:
        try:
            text = await _next_message(chat)
        except InputInterrupted as interrupted:
            discarded = str(interrupted)
            if hinted and not discarded:
                return
            hinted = not discarded
            if hinted:
                chat.screen.print_line("press Ctrl-C again to quit, or Ctrl-D", "dim")
            continue
        hinted = False
        if text is None or not await _handle_message(chat, text):
            return


async def _next_message(chat: ChatSession) -> str | None:
    """Return a command that was typed during the last answer, or read a message."""
    if chat.commands:
        command = chat.commands.popleft()
        chat.screen.print_line(f"> {command}", "bold")
        return command
    draft, chat.draft = chat.draft, ""
    return await chat.reader.read_message(draft)


async def _handle_message(chat: ChatSession, text: str) -> bool:
    """Run a command or send a message; return False to quit."""
    if not text.strip():
        return True
    try:
        if is_command(text):
            return await run_command(chat, text)
        await chat.send(text)
    except LangoError as error:
        chat.screen.print_line(str(error), "red")
    return True


@contextmanager
def _handle_interrupts(chat: ChatSession) -> Generator[None]:
    """Pass Ctrl-C to the chat during the body."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, chat.interrupt)
    except NotImplementedError:  # Windows
        signal.signal(signal.SIGINT, lambda _number, _frame: loop.call_soon_threadsafe(chat.interrupt))
    try:
        yield
    finally:
        try:
            loop.remove_signal_handler(signal.SIGINT)
        except NotImplementedError:
            signal.signal(signal.SIGINT, before)


class _ScreenLogHandler(logging.Handler):
    """Writes warnings as lines of the screen: written elsewhere they would break its drawing."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning; any thread may call it. The chat itself shows where the history is cut."""
        if record.name == "lango.history":
            return
        self._loop.call_soon_threadsafe(self._screen.print_line, f"lango: {record.getMessage()}", "dim yellow")


def _log_to_screen(screen: Screen) -> None:
    if screen.live:
        logging.getLogger().handlers = [_ScreenLogHandler(screen)]
