"""The loop of a conversation: a message, its turn, the questions of its tools."""

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from lango import __version__
from lango.cli.chat import resumed_session, slash_commands
from lango.cli.chat.collapsed_sections import Folds, call_title, exact
from lango.cli.chat.status_line import Spending
from lango.cli.chat.terminal.message_reader import Entry, Interrupted, Lines
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.turn_view import TurnView, show_opened
from lango.cli.model_check import model_label
from lango.cli.session_target import USER, Place
from lango.cli.terminal_text import cell
from lango.config import Settings
from lango.errors import LangoError, TurnCancelled
from lango.events import ApprovalNeeded
from lango.runtime.opening import open_runtime
from lango.runtime.runtime import Runtime
from lango.store import SessionId
from lango.turns.running_turn import RunningTurn

T = TypeVar("T")

_QUESTION = "run exactly this? y: yes, n: no, Ctrl-C: decide later"


class Chat:
    """A person, an agent, and the session that they are in."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self.settings = settings
        self.screen = screen
        self.folds = Folds()
        self.spending = Spending()
        self.place = Place("")
        self.draft = ""
        """What the next message begins with."""
        self.listed: list[tuple[str, str]] = []
        """Sessions that were listed, each with a word on it."""
        self._entry: Entry | None = None
        self._runtime: Runtime | None = None
        self._stack = AsyncExitStack()
        self._following: tuple[RunningTurn, TurnView] | None = None
        self._work: asyncio.Task[Any] | None = None

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
    def name(self) -> SessionId:
        """What the session is called in the store."""
        return SessionId(self.runtime.app_name, USER, self.place.session_id)

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

    async def talk(self) -> None:
        """Read messages and answer them."""
        self._greet()
        if not self.place.new:
            try:
                await self.arrive(self.place)
            except LangoError as error:  # a question that was answered elsewhere just now, such as
                self.screen.say(str(error), "red")
        hinted = False
        while True:
            try:
                draft, self.draft = self.draft, ""
                text = await self._reader().message(draft)
            except Interrupted as left:
                if hinted and not str(left):
                    return
                hinted = not str(left)
                if hinted:
                    self.screen.say("Ctrl-C once more leaves, as Ctrl-D does", "dim")
                continue
            hinted = False
            if text is None or not await self._handle(text):
                return

    def _greet(self) -> None:
        self.screen.say(f"lango {__version__}, {model_label(self.settings)}", "bold")
        new = "new session" if self.place.new else "session"
        self.screen.say(f"{new} {self.place.session_id}; /help, Ctrl-C stops an answer, Ctrl-D ends", "dim")

    async def _handle(self, text: str) -> bool:
        """Do what a message asks for; False: it is the end."""
        if not text.strip():
            return True
        try:
            if slash_commands.is_command(text):
                return await slash_commands.obey(self, text)
            await self.ask(text)
        except LangoError as error:
            self.screen.say(str(error), "red")
        return True

    async def ask(self, text: str) -> None:
        """Send a message and show its turn."""
        turn = await self.runtime.submit(self.place.session_id, text, user_id=USER)
        self.place = Place(self.place.session_id)
        await self.settle(await self._follow(turn))

    async def settle(self, questions: list[ApprovalNeeded]) -> None:
        """Ask for each approval, with the exact arguments, and go on with what was decided."""
        while questions:
            asked = questions.pop(0)
            self.screen.say(f"{asked.name} asks to run with", "bold")
            self.screen.say(exact(asked.arguments))
            if asked.expires_at:
                self.screen.say(f"without an answer by {cell(asked.expires_at)} it is a no", "dim")
            approved = await self._reader().yes_or_no(_QUESTION)
            if approved is None:
                self.screen.say("not answered: /approve asks again; any other message means no", "yellow")
                return
            said = "yes" if approved else "no"
            self.screen.say(f"{said}: {call_title(asked.name, asked.arguments)}", "green" if approved else "yellow")
            turn = await self.runtime.submit_approval(
                self.place.session_id, asked.call_id, approved=approved, user_id=USER
            )
            questions += await self._follow(turn)

    async def arrive(self, place: Place) -> None:
        """Go on with a session: show where it was, what became of its last turn, and what it still asks."""
        self.begin(place)
        session = await self.runtime.store.session(self.name)
        if session is None:
            return
        messages = await self.runtime.store.messages_page(session, limit=resumed_session.SHOWN_MESSAGES)
        resumed_session.show_end(self.screen, self.folds, session, messages)
        await self.spending.read(self)
        left = await resumed_session.left_behind(self.runtime, session)
        if left:
            self.screen.say(left, "yellow")
        await self.settle(await resumed_session.open_questions(self.runtime, session))

    def begin(self, place: Place) -> None:
        """Go to a session."""
        self.place, self.spending = place, Spending()

    async def _follow(self, turn: RunningTurn) -> list[ApprovalNeeded]:
        """Show a turn to its end; return what its tools ask."""
        questions: list[ApprovalNeeded] = []
        view = TurnView(self.screen, self.folds)
        self._following = (turn, view)
        try:
            with self._reader().silent():
                async for event in turn.follow():
                    view.show(event)
                    if isinstance(event, ApprovalNeeded):
                        questions.append(event)
        finally:
            self._following = None
            view.close()
        if isinstance(turn.error, TurnCancelled):
            self.screen.say("stopped; what was said and done so far is kept", "yellow")
        await self.spending.read(self)
        return questions

    # -- for commands and keys --------------------------------------------------------------------------------------

    def open_fold(self, number: int | None = None) -> None:
        """Show what a folded line holds."""
        found = self.folds.find(number)
        if found:
            show_opened(self.screen, *found)
        else:
            self.screen.say("there is nothing to open" if number is None else f"there is no line {number}", "yellow")

    async def interruptible(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something that Ctrl-C stops; None: it did."""
        self._work = asyncio.ensure_future(work)
        try:
            await asyncio.wait([self._work])
            return None if self._work.cancelled() else self._work.result()
        finally:
            self._work = None

    def interrupt(self) -> None:
        """Ctrl-C: stop the turn, or the command, or give up the message."""
        if self._following:
            turn, view = self._following
            turn.stop(TurnCancelled("stopped"))
            view.stopping()
        elif self._work:
            self._work.cancel()
        else:
            self._reader().interrupt()

    def _reader(self) -> Entry:
        if self._entry is None:
            self._entry = self._make_entry()
        return self._entry

    def _make_entry(self) -> Entry:
        if not (self.screen.live and sys.stdin.isatty()):
            return Lines()
        from lango.cli.chat.terminal.input_history import Past, history_file
        from lango.cli.chat.terminal.keyboard import Keyboard

        return Keyboard(
            self.screen,
            Past(history_file()),
            complete=lambda text: slash_commands.complete(self, text),
            status=lambda width: self.spending.status(self, width),
            open_fold=self.open_fold,
        )
