"""Read messages and commands until the user quits."""

import asyncio
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager

from lango.cli.chat.chat_session import Chat
from lango.cli.chat.terminal.screen import Screen
from lango.cli.session_target import find_place
from lango.config import Settings


async def talk(settings: Settings, resume: str | None, go_on: bool) -> None:
    """Talk until the end of the input, /quit, or Ctrl-C twice at an empty prompt."""
    screen = Screen()
    _log_to(screen)
    if screen.live:
        screen.draw([], ["starting ..."])
    try:
        async with Chat(settings, screen) as chat:
            chat.place = await find_place(chat.runtime, resume, go_on)
            screen.draw([], [])
            with _interrupts(chat):
                await chat.talk()
    finally:
        screen.draw([], [])


@contextmanager
def _interrupts(chat: Chat) -> Generator[None]:
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


class _ScreenLog(logging.Handler):
    """Writes warnings as lines of the screen: anywhere else they would break what is drawn there."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning, from whatever thread."""
        self._loop.call_soon_threadsafe(self._screen.say, f"lango: {record.getMessage()}", "dim yellow")


def _log_to(screen: Screen) -> None:
    if screen.live:
        logging.getLogger().handlers = [_ScreenLog(screen)]
