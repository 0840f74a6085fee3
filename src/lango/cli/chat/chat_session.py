"""The loop of a conversation: a message, its turn, the questions of its tools."""

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from lango import __version__
from lango.cli.chat import resumed_session, slash_commands
from lango.cli.chat.collapsed_sections import CollapsedSections, call_title, exact_arguments
from lango.cli.chat.status_line import StatusLine
from lango.cli.chat.terminal.message_reader import InputInterrupted, LineReader, MessageReader
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.turn_view import TurnView, show_section_content
from lango.cli.model_check import model_label
from lango.cli.session_target import LOCAL_USER, SessionTarget
from lango.cli.terminal_text import format_cell
from lango.config import Settings
from lango.errors import LangoError, TurnCancelled
from lango.events import ApprovalNeeded
from lango.runtime.opening import open_runtime
from lango.runtime.runtime import Runtime
from lango.store import SessionId
from lango.store.sessions.sessions import find_session
from lango.store.sessions.window import read_message_page
from lango.turns.running_turn import RunningTurn

T = TypeVar("T")

_APPROVAL_PROMPT = "run exactly this? y: yes, n: no, Ctrl-C: decide later"


class ChatSession:
    """A person, an agent, and the session that they are in."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self.settings = settings
        self.screen = screen
        self.sections = CollapsedSections()
        self.status_line = StatusLine()
        self.target = SessionTarget("")
        self.draft = ""
        """What the next message begins with."""
        self.listed_sessions: list[tuple[str, str]] = []
        """Sessions that were listed, each with a word on it."""
        self._entry: MessageReader | None = None
        self._runtime: Runtime | None = None
        self._stack = AsyncExitStack()
        self._running: tuple[RunningTurn, TurnView] | None = None
        self._interruptible_task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        """Open the runtime."""
        self._runtime = await self._stack.enter_async_context(open_runtime(self.settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self._stack.aclose()

    @property
    def runtime(self) -> Runtime:
        """The runtime, open as long as the conversation lasts."""
        assert self._runtime
        return self._runtime

    @property
    def session_id(self) -> SessionId:
        """What the session is called in the store."""
        return SessionId(self.runtime.app_name, LOCAL_USER, self.target.session_id)

    async def reopen(self, settings: Settings) -> None:
        """Go on with other settings; where they do not work, with those from before."""
        before = self.settings
        await self._stack.aclose()
        try:
            self._runtime = await self._stack.enter_async_context(open_runtime(settings))
        except LangoError:
            self._runtime = await self._stack.enter_async_context(open_runtime(before))
            raise
        self.settings = settings

    # -- the loop -------------------------------------------------------------------------------------------------

    async def read_messages(self) -> None:
        """Read messages and answer them."""
        self._print_greeting()
        if not self.target.new:
            try:
                await self.resume(self.target)
            except LangoError as error:  # a question that was answered elsewhere just now, such as
                self.screen.print_line(str(error), "red")
        hinted = False
        while True:
            try:
                draft, self.draft = self.draft, ""
                text = await self.reader().read_message(draft)
            except InputInterrupted as left:
                if hinted and not str(left):
                    return
                hinted = not str(left)
                if hinted:
                    self.screen.print_line("Ctrl-C once more leaves, as Ctrl-D does", "dim")
                continue
            hinted = False
            if text is None or not await self._handle_message(text):
                return

    def _print_greeting(self) -> None:
        self.screen.print_line(f"lango {__version__}, {model_label(self.settings)}", "bold")
        new = "new session" if self.target.new else "session"
        self.screen.print_line(f"{new} {self.target.session_id}; /help, Ctrl-C stops an answer, Ctrl-D ends", "dim")

    async def _handle_message(self, text: str) -> bool:
        """Do what a message asks for; False: it is the end."""
        if not text.strip():
            return True
        try:
            if slash_commands.is_command(text):
                return await slash_commands.run_command(self, text)
            await self.send(text)
        except LangoError as error:
            self.screen.print_line(str(error), "red")
        return True

    async def send(self, text: str) -> None:
        """Send a message and show its turn."""
        turn = await self.runtime.submit(self.target.session_id, text, user_id=LOCAL_USER)
        self.target = SessionTarget(self.target.session_id)
        await self.answer_approval_requests(await self._show_turn(turn))

    async def answer_approval_requests(self, requests: list[ApprovalNeeded]) -> None:
        """Ask for each approval, with the exact arguments, and go on with what was decided."""
        while requests:
            request = requests.pop(0)
            self.screen.print_line(f"{request.name} asks to run with", "bold")
            self.screen.print_line(exact_arguments(request.arguments))
            if request.expires_at:
                self.screen.print_line(f"without an answer by {format_cell(request.expires_at)} it is a no", "dim")
            approved = await self.reader().ask_yes_or_no(_APPROVAL_PROMPT)
            if approved is None:
                self.screen.print_line("not answered: /approve asks again; any other message means no", "yellow")
                return
            decision = "yes" if approved else "no"
            self.screen.print_line(
                f"{decision}: {call_title(request.name, request.arguments)}", "green" if approved else "yellow"
            )
            turn = await self.runtime.submit_approval(
                self.target.session_id, request.call_id, approved=approved, user_id=LOCAL_USER
            )
            requests += await self._show_turn(turn)

    async def resume(self, place: SessionTarget) -> None:
        """Go on with a session: show where it was, what became of its last turn, and what it still asks."""
        self.switch_to(place)
        session = await self.runtime.store.read(find_session, self.session_id)
        if session is None:
            return
        messages = await self.runtime.store.read(read_message_page, session, limit=resumed_session.SHOWN_MESSAGES)
        resumed_session.show_last_turns(self.screen, self.sections, session, messages)
        await self.status_line.load(self)
        notice = await resumed_session.last_turn_notice(self.runtime, session)
        if notice:
            self.screen.print_line(notice, "yellow")
        await self.answer_approval_requests(await resumed_session.open_approval_requests(self.runtime, session))

    def switch_to(self, place: SessionTarget) -> None:
        """Go to a session."""
        self.target, self.status_line = place, StatusLine()

    async def _show_turn(self, turn: RunningTurn) -> list[ApprovalNeeded]:
        """Show a turn to its end; return what its tools ask."""
        questions: list[ApprovalNeeded] = []
        view = TurnView(self.screen, self.sections)
        self._running = (turn, view)
        try:
            with self.reader().without_echo():
                async for event in turn.follow():
                    view.show(event)
                    if isinstance(event, ApprovalNeeded):
                        questions.append(event)
        finally:
            self._running = None
            view.close()
        if isinstance(turn.error, TurnCancelled):
            self.screen.print_line("stopped; what was said and done so far is kept", "yellow")
        await self.status_line.load(self)
        return questions

    # -- for commands and keys --------------------------------------------------------------------------------------

    def open_section(self, number: int | None = None) -> None:
        """Show what a folded line holds."""
        found = self.sections.find(number)
        if found:
            show_section_content(self.screen, *found)
        else:
            self.screen.print_line(
                "there is nothing to open" if number is None else f"there is no line {number}", "yellow"
            )

    async def run_interruptible(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something that Ctrl-C stops; None: it did."""
        self._interruptible_task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([self._interruptible_task])
            return None if self._interruptible_task.cancelled() else self._interruptible_task.result()
        finally:
            self._interruptible_task = None

    def interrupt(self) -> None:
        """Ctrl-C: stop the turn, or the command, or give up the message."""
        if self._running:
            turn, view = self._running
            turn.stop(TurnCancelled("stopped"))
            view.show_stopping()
        elif self._interruptible_task:
            self._interruptible_task.cancel()
        else:
            self.reader().interrupt()

    def reader(self) -> MessageReader:
        """The reader of the user's messages, made when it is first needed."""
        if self._entry is None:
            self._entry = self._make_reader()
        return self._entry

    def _make_reader(self) -> MessageReader:
        if not (self.screen.live and sys.stdin.isatty()):
            return LineReader()
        from lango.cli.chat.terminal.input_history import InputHistory, history_file
        from lango.cli.chat.terminal.keyboard import KeyboardReader

        return KeyboardReader(
            self.screen,
            InputHistory(history_file()),
            complete=lambda text: slash_commands.complete_command(self, text),
            status=lambda width: self.status_line.render(self, width),
            open_fold=self.open_section,
        )
