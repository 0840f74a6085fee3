"""Read messages from an interactive terminal with editing, history and completion."""

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.containers import ConditionalContainer
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from lango.cli.chat.terminal.message_reader import DECISIONS, Decision, InputInterrupted
from lango.cli.terminal_text import printable

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from lango.cli.chat.terminal.screen import Screen
    from lango.cli.chat.terminal.typed_line import TypedLine

Complete = Callable[[str], Iterable[tuple[str, str]]]
"""From the text before the cursor to its completions, each with a description."""

_STYLE = Style.from_dict({"prompt": "bold", "status": "reverse", "question": "bold"})
_MENU_ROWS = 6
_READ_BYTES = 4096


class KeyboardReader:
    """Reads messages from a terminal with cursor control."""

    hides_input: ClassVar[bool] = True

    def __init__(
        self,
        screen: "Screen",
        history: "History",
        complete: Complete,
        status: Callable[[int], str],
        open_section: Callable[[], None],
    ) -> None:
        self._screen = screen
        self._output = _output()
        self._open_section = open_section
        self._question: Application[Any] | None = None
        self._is_interrupted = False
        self._depth = ColorDepth.DEPTH_1_BIT if screen.console.no_color else None
        self._session: PromptSession[str] = PromptSession(
            history=history,
            completer=_CommandCompleter(complete),
            complete_while_typing=Condition(self._is_typing_command),
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            key_bindings=self._keys(),
            prompt_continuation=lambda width, number, wraps: " " * width if wraps else "." + " " * (width - 1),
            style=_STYLE,
            color_depth=self._depth,
            output=self._output,
            enable_history_search=False,
            mouse_support=False,
        )
        _add_status(self._session, status)

    async def read_message(self, default: str = "") -> str | None:
        """Read a message; return None for Ctrl-D. Raises `InputInterrupted` for Ctrl-C."""
        self._is_interrupted = False
        try:
            return await self._session.prompt_async([("class:prompt", "> ")], default=default, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise InputInterrupted(self._session.default_buffer.text) from None

    async def ask_line(self, question: str, *, hidden: bool = False) -> str | None:
        """Read a line that the history does not keep; return None for Ctrl-D. Raises `InputInterrupted` for Ctrl-C.

        Keys typed before the question do not answer it.
        """
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            del event
            self.interrupt()

        line = PromptSession[str](style=_STYLE, color_depth=self._depth, output=self._output, key_bindings=keys)
        with self._asking(line.app):
            try:
                answer = await line.prompt_async(
                    [("class:question", f"{question} ")], is_password=hidden, handle_sigint=False
                )
                return answer.strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                raise InputInterrupted("") from None
            except asyncio.CancelledError:
                if self._is_interrupted:  # at the same moment: the user wants to stop, whatever became of the question
                    raise InputInterrupted("") from None
                raise

    async def ask_decision(self, question: str) -> Decision | None:
        """Read y, n, a, r or e; return None for Ctrl-C, Ctrl-D or Escape.

        Keys typed before the question do not answer it.
        """
        keys = KeyBindings()
        text = FormattedTextControl([("class:question", question)])
        app: Application[Decision | None] = Application(
            layout=Layout(Window(text, wrap_lines=True, dont_extend_height=True, always_hide_cursor=False)),
            key_bindings=keys,
            style=_STYLE,
            color_depth=self._depth,
            output=self._output,
            erase_when_done=True,
        )

        def answer(event: KeyPressEvent) -> None:
            app.exit(result=DECISIONS.get(event.key_sequence[0].key.lower()))

        for key in (*DECISIONS, *map(str.upper, DECISIONS), "c-c", "c-d", "escape"):
            keys.add(key, eager=True)(answer)
        with self._asking(app):
            try:
                return await app.run_async(handle_sigint=False)
            except KeyboardInterrupt:
                return None

    @contextmanager
    def _asking(self, app: Application[Any]) -> Generator[None]:
        """Let `interrupt` stop a question during the body, and forget keys that were typed before."""
        clear_typeahead(self._session.input)
        with suppress(ImportError, OSError):  # Windows; no terminal
            import termios

            with suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._question, self._is_interrupted = app, False
        try:
            yield
        finally:
            self._question = None

    def interrupt(self) -> None:
        """Handle a SIGINT that came from another process like Ctrl-C."""
        app = self._question or self._session.app
        if app.is_running and not self._is_interrupted:
            self._is_interrupted = True
            app.exit(exception=KeyboardInterrupt())

    @contextmanager
    def while_answering(self, line: "TypedLine") -> Generator[None]:
        """Pass keys to the line that is typed during an answer, and echo none of them into it."""
        try:
            import termios

            descriptor = sys.stdin.fileno()
            before, quiet = termios.tcgetattr(descriptor), termios.tcgetattr(descriptor)
        except (ImportError, OSError):
            yield
            return
        quiet[3] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C stays a signal
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        loop = asyncio.get_running_loop()

        def read() -> None:
            data = os.read(descriptor, _READ_BYTES)
            if not data:  # the terminal is gone
                loop.remove_reader(descriptor)
            line.feed(data)

        loop.add_reader(descriptor, read)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    def _is_typing_command(self) -> bool:
        text = self._session.default_buffer.text
        return text.startswith("/") and "\n" not in text

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-o")
        async def _(event: KeyPressEvent) -> None:
            del event
            await run_in_terminal(self._open_section)

        return keys


class _CommandCompleter(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word = text.split(" ")[-1]
        for found, meaning in self._complete(text):
            yield Completion(found, start_position=-len(word), display_meta=printable(meaning))


def _output() -> Output:
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # not every terminal answers, and a late answer is read as typed text
    return output


def _add_status(session: "PromptSession[str]", status: Callable[[int], str]) -> None:
    """Add a line below the input. The library's toolbar would wait for the terminal to report its cursor position."""

    def status_text() -> FormattedText:
        columns = session.output.get_size().columns
        return FormattedText([("class:status", f" {status(max(1, columns - 3))} ")])

    line = Window(FormattedTextControl(status_text), height=1, dont_extend_height=True)
    cast("HSplit", session.layout.container).children.append(ConditionalContainer(line, ~is_done))
