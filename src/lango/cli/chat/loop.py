"""Read messages and commands until the user quits."""

import asyncio
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager

from lango.cli.chat.chat_session import ChatSession
from lango.cli.chat.terminal.screen import Screen
from lango.cli.session_target import choose_session
from lango.config import Settings


async def run_chat(settings: Settings, resume: str | None, go_on: bool) -> None:
    """Talk until the end of the input, /quit, or Ctrl-C twice at an empty prompt."""
    screen = Screen()
    _log_to_screen(screen)
    if screen.live:
        screen.draw([], ["starting ..."])
    try:
        async with ChatSession(settings, screen) as chat:
            chat.target = await choose_session(chat.runtime, resume, go_on)
            screen.draw([], [])
            with _handle_interrupts(chat):
                await chat.read_messages()
    finally:
        screen.draw([], [])


@contextmanager
def _handle_interrupts(chat: ChatSession) -> Generator[None]:
    """Take Ctrl-C for the conversation, for as long as it lasts."""
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
    """Writes warnings as lines of the screen: anywhere else they would break what is drawn there."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning, from whatever thread."""
        self._loop.call_soon_threadsafe(self._screen.print_line, f"lango: {record.getMessage()}", "dim yellow")


def _log_to_screen(screen: Screen) -> None:
    if screen.live:
        logging.getLogger().handlers = [_ScreenLogHandler(screen)]
