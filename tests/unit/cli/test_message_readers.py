"""Ctrl-C at a question that is withdrawn at the same moment is not lost: the user wants to stop."""

import asyncio
import os
import pty
import sys

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import DummyHistory
from prompt_toolkit.input import create_pipe_input

from lango.cli.chat.terminal.keyboard import KeyboardReader
from lango.cli.chat.terminal.message_reader import InputInterrupted, LineReader
from lango.cli.chat.terminal.screen import Screen


async def interrupt_and_withdraw(reader: KeyboardReader | LineReader, asking: "asyncio.Task[str | None]") -> None:
    reader.interrupt()
    reader.interrupt()
    asking.cancel()
    with pytest.raises(InputInterrupted):
        await asking


async def test_at_the_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    shown = asyncio.Event()
    with os.fdopen(master, "rb"), os.fdopen(slave, "w") as terminal, create_pipe_input() as keys:
        monkeypatch.setattr(sys, "stdout", terminal)
        asyncio.get_running_loop().add_reader(master, lambda: os.read(master, 65_536) and shown.set())
        with create_app_session(input=keys):
            reader = KeyboardReader(Screen(), DummyHistory(), lambda _: [], lambda _: "", lambda: None)
            asking = asyncio.create_task(reader.ask_line("why?"))
            await shown.wait()
            await interrupt_and_withdraw(reader, asking)
            shown.clear()
            asking = asyncio.create_task(reader.ask_line("why?"))
            await shown.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        asyncio.get_running_loop().remove_reader(master)


async def test_line_by_line() -> None:
    before = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    try:
        reader = LineReader()
        asking = asyncio.create_task(reader.ask_line("why?"))
        await asyncio.sleep(0)
        await interrupt_and_withdraw(reader, asking)
    finally:
        os.close(writing)
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
