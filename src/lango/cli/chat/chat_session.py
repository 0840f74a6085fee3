"""Hold the runtime and the current session of a chat, and run its turns."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from lango.cli.chat import resumed_session
from lango.cli.chat.collapsed_sections import CollapsedSections, call_title, exact_arguments
from lango.cli.chat.status_line import StatusLine
from lango.cli.chat.terminal.message_reader import MessageReader
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.turn_view import TurnView, show_section_content
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
    """The runtime, the screen and the current session of a chat."""

    reader: MessageReader
    """Set by the loop once the runtime is open: completing a command needs the session."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self.settings = settings
        self.screen = screen
        self.sections = CollapsedSections()
        self.status_line = StatusLine()
        self.target = SessionTarget("")
        self.draft = ""
        """Text that the next prompt starts with."""
        self.listed_sessions: list[tuple[str, str]] = []
        """Ids and titles of the sessions that /sessions showed, for completion."""
        self._runtime: Runtime | None = None
        self._stack = AsyncExitStack()
        self._running: tuple[RunningTurn, TurnView] | None = None
        self._interruptible_task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        """Open the runtime."""
        self._runtime = await self._stack.enter_async_context(open_runtime(self.settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the runtime."""
        await self._stack.aclose()

    @property
    def runtime(self) -> Runtime:
        """The open runtime."""
        assert self._runtime
        return self._runtime

    @property
    def session_id(self) -> SessionId:
        """The key of the current session in the store."""
        return SessionId(self.runtime.app_name, LOCAL_USER, self.target.session_id)

    async def reopen(self, settings: Settings) -> None:
        """Reopen the runtime with other settings, or with the current ones if those fail."""
        before = self.settings
        await self._stack.aclose()
        try:
            self._runtime = await self._stack.enter_async_context(open_runtime(settings))
        except LangoError:
            self._runtime = await self._stack.enter_async_context(open_runtime(before))
            raise
        self.settings = settings

    async def send(self, text: str) -> None:
        """Send a message and show its turn."""
        turn = await self.runtime.submit(self.target.session_id, text, user_id=LOCAL_USER)
        self.target = SessionTarget(self.target.session_id)
        await self.answer_approval_requests(await self._show_turn(turn))

    async def answer_approval_requests(self, requests: list[ApprovalNeeded]) -> None:
        """Ask the user about each request, with the exact arguments, and continue the turn with the decision."""
        while requests:
            request = requests.pop(0)
            self.screen.print_line(f"{request.name} asks to run with", "bold")
            self.screen.print_line(exact_arguments(request.arguments))
            if request.expires_at:
                self.screen.print_line(f"denied if not answered by {format_cell(request.expires_at)}", "dim")
            approved = await self.reader.ask_yes_or_no(_APPROVAL_PROMPT)
            if approved is None:
                self.screen.print_line("not answered: /approve asks again; any other message denies it", "yellow")
                return
            decision, style = ("yes", "green") if approved else ("no", "yellow")
            self.screen.print_line(f"{decision}: {call_title(request.name, request.arguments)}", style)
            turn = await self.runtime.submit_approval(
                self.target.session_id, request.call_id, approved=approved, user_id=LOCAL_USER
            )
            requests += await self._show_turn(turn)

    async def resume(self, target: SessionTarget) -> None:
        """Switch to a session; show its last turns and its open approval requests.

        Turns whose process died go on here, and are shown to their end.
        """
        self.switch_to(target)
        session = await self.runtime.store.read(find_session, self.session_id)
        if session is None:
            return
        resumed = await resumed_session.resumed_turns(self.runtime, session)
        messages = await self.runtime.store.read(read_message_page, session, limit=resumed_session.SHOWN_MESSAGES)
        if resumed and (last_seq := resumed[0].first_seq):  # what follows is shown as the turn goes on
            messages = [stored for stored in messages if stored.seq <= last_seq]
        resumed_session.show_last_turns(self.screen, self.sections, session, messages)
        await self._load_status()
        notice = await resumed_session.last_turn_notice(self.runtime, session)
        if notice:
            self.screen.print_line(notice, "yellow")
        for turn in resumed:
            if turn.queued_text:
                self.screen.print_line(f"> {turn.queued_text}", "bold")
            await self._show_turn(turn.running)
        await self.answer_approval_requests(await resumed_session.open_approval_requests(self.runtime, session))

    def switch_to(self, target: SessionTarget) -> None:
        """Make a session the current one."""
        self.target, self.status_line = target, StatusLine()

    async def _load_status(self) -> None:
        await self.status_line.load(self.runtime, self.target.session_id)

    async def _show_turn(self, turn: RunningTurn) -> list[ApprovalNeeded]:
        """Show a turn to its end; return its approval requests."""
        requests: list[ApprovalNeeded] = []
        view = TurnView(self.screen, self.sections)
        self._running = (turn, view)
        try:
            with self.reader.without_echo():
                async for event in turn.follow():
                    view.show(event)
                    if isinstance(event, ApprovalNeeded):
                        requests.append(event)
        finally:
            self._running = None
            view.close()
        if isinstance(turn.error, TurnCancelled):
            self.screen.print_line("stopped; the answer so far is kept", "yellow")
        await self._load_status()
        return requests

    def open_section(self, number: int | None = None) -> None:
        """Show the content of a collapsed section, by default the newest."""
        found = self.sections.find(number)
        if found:
            show_section_content(self.screen, *found)
        else:
            self.screen.print_line(
                "there is nothing to open" if number is None else f"there is no line {number}", "yellow"
            )

    async def run_interruptible(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await work that Ctrl-C cancels; return None if it was cancelled."""
        self._interruptible_task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([self._interruptible_task])
            return None if self._interruptible_task.cancelled() else self._interruptible_task.result()
        finally:
            self._interruptible_task = None

    def interrupt(self) -> None:
        """Handle Ctrl-C: stop the turn or the command, or discard the message being typed."""
        if self._running:
            turn, view = self._running
            turn.stop(TurnCancelled("stopped"))
            view.show_stopping()
        elif self._interruptible_task:
            self._interruptible_task.cancel()
        else:
            self.reader.interrupt()
