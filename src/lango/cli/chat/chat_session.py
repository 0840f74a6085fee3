"""Hold the runtime and the current session of a chat, and run its turns."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lango.cli.chat import resumed_session
from lango.cli.chat.collapsed_sections import CollapsedSection, show_section_content
from lango.cli.chat.sent_messages import SentMessages
from lango.cli.chat.terminal.message_reader import InputInterrupted
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.terminal.typed_line import TypedLine
from lango.cli.chat.turn_view import TurnView
from lango.cli.chat.wait_cards import ask_answer, has_form, show_wait
from lango.cli.options import complete_hints
from lango.cli.session_target import LOCAL_USER, SessionTarget
from lango.cli.terminal_text import format_cost, one_line
from lango.config import Settings
from lango.errors import InvalidAnswer, LangoError, StoreError, TurnCancelled, WaitNotOpen
from lango.events import Accepted, WaitOpened
from lango.runtime import RunningTurn
from lango.runtime.opening import open_runtime
from lango.runtime.runtime import Runtime
from lango.runtime.sessions.session_usage import Window, window_rules_for
from lango.sessions import SessionInfo, WhenBusy
from lango.waits import Answer, ApprovalWait, ClientResultWait, Decline, InputWait, QuestionWait, ToolResultWait, Wait

if TYPE_CHECKING:
    from lango.cli.chat.wait_cards import MessageReader

T = TypeVar("T")

_CLOSED = "the question is closed: it was answered elsewhere, or its time is over"
_POLL_S = 1.0
_MIN_MODEL_CHARACTERS = 4


class ChatSession:
    """The runtime, the screen and the current session of a chat."""

    reader: "MessageReader"
    """Set by the loop once the runtime is open: completing a command needs the session."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self.settings = settings
        self.screen = screen
        self.sections: list[CollapsedSection] = []
        self.status_line = StatusLine()
        self.target = SessionTarget("")
        self.draft = ""
        """Text that the next prompt starts with."""
        self.commands: deque[str] = deque()
        """Commands that were typed during an answer, and run after it."""
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
    def model(self) -> str:
        """The name of the root agent's model."""
        return self.runtime.model_name or "no model of its own"

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
        await self.ask_for_answers(await self._show_turn(turn))

    async def ask_for_answers(self, waits: Sequence[Wait]) -> None:
        """Ask for each approval, with the exact arguments, and for inputs of several fields; continue the turn."""
        while found := [wait for wait in waits if isinstance(wait, ApprovalWait) or has_form(wait)]:
            wait, refused = found[0], None
            if isinstance(wait, ApprovalWait):
                show_wait(self.screen, wait, await self.runtime.diff_of_call(wait.tool, wait.arguments))
            while (answer := await self.ask_answer(wait, refused)) is not None:
                try:
                    waits = await self.show_answered_turn(wait, answer)
                    break
                except InvalidAnswer as error:
                    self.screen.print_line(str(error), "red")
                    refused = answer
            if answer is None:
                return

    async def ask_answer(self, wait: Wait, refused: Answer | None = None) -> Answer | None:
        """Ask the user for an answer, after one that was `refused`; return None if the user gives none now."""
        try:
            answer = await ask_answer(self.reader, self.screen, wait, refused)
        except InputInterrupted:
            answer = None
        if isinstance(answer, Decline) and isinstance(wait, InputWait):
            await self.close_waits()
            return None
        if answer is None:
            denied = "; /skip or any other message denies it" if isinstance(wait, ApprovalWait) else ""
            self.screen.print_line(f"not answered: /answer asks again{denied}", "yellow")
        return answer

    async def close_waits(self) -> None:
        """Close the requests to the user without an answer."""
        waits = [wait for wait in await self.open_waits() if not isinstance(wait, ClientResultWait | ToolResultWait)]
        if waits and await self.runtime.cancel(self.target.session_id, user_id=LOCAL_USER):
            self.screen.print_line("closed what was waiting for you; your next message starts a new turn")
        else:
            self.screen.print_line("nothing is waiting for you")

    async def answer(self, wait: Wait, answer: Answer) -> None:
        """Answer a wait, show the turn that continues with it, and ask for the answers that it needs."""
        await self.ask_for_answers(await self.show_answered_turn(wait, answer))

    async def show_answered_turn(self, wait: Wait, answer: Answer) -> Sequence[Wait]:
        """Answer a wait, and show the turn that continues with it; return what it waits for."""
        turn = await self.runtime.answer(self.target.session_id, wait.id, answer, user_id=LOCAL_USER)
        return await self._show_turn(turn)

    async def open_waits(self) -> Sequence[Wait]:
        """Return what the current session waits for."""
        return await self.runtime.waits(self.target.session_id, user_id=LOCAL_USER)

    async def resume(self, target: SessionTarget) -> None:
        """Switch to a session; show its last turns and its open requests.

        Turns whose process died continue here, and are shown to their end.
        """
        self.switch_to(target)
        session = await self.runtime.sessions.find(target.session_id, user_id=LOCAL_USER)
        if session is None:
            return
        resumed = await self.runtime.turns.wait_for_resumed(session)
        await self.status_line.load(self.runtime, self.target.session_id)
        await self._show_history(session, resumed[0].first_seq if resumed else None)
        notice = resumed_session.last_turn_notice(await self.runtime.turns.last(session))
        if notice:
            self.screen.print_line(notice, "yellow")
        for turn in resumed:
            if turn.queued_text:
                self.screen.print_line(f"> {turn.queued_text}", "bold")
            await self._show_turn(turn.running)
        for wait in await self.open_waits():
            if not isinstance(wait, ApprovalWait | QuestionWait):
                show_wait(self.screen, wait)
        await self.ask_for_answers(await self.open_waits())
        for wait in await self.open_waits():
            if isinstance(wait, QuestionWait):
                await self._answer_question(wait)

    async def _show_history(self, session: SessionInfo, last_seq: int | None) -> None:
        """Show a session's last turns; what follows `last_seq` is shown as its turn continues."""
        sessions = self.runtime.sessions
        messages = await sessions.messages(session.name.id, user_id=LOCAL_USER, limit=resumed_session.SHOWN_MESSAGES)
        if last_seq:
            messages = [stored for stored in messages if stored.seq <= last_seq]
        nodes = await sessions.nodes(session, messages[0].seq if messages else session.last_seq)
        if last_seq:
            nodes = {seq: events for seq, events in nodes.items() if seq < last_seq}
        root_agent = self.runtime.root_name
        window = self.status_line.window
        self.status_line.is_cut_shown = resumed_session.show_last_turns(
            self.screen, self.sections, session, messages, nodes, root_agent, window
        )
        self._show_cut()

    def switch_to(self, target: SessionTarget) -> None:
        """Make a session the current one."""
        self.target, self.status_line = target, StatusLine()

    async def _show_turn(self, turn: RunningTurn) -> Sequence[Wait]:
        """Show a turn, and those of the messages sent while it ran; return what the session waits for."""
        sent = SentMessages(self._submit, self.screen.print_line, self.commands.append)
        await self._show_one_turn(turn, sent)
        while message := await sent.take_next():
            self.screen.print_line(f"> {message.text}", "bold")
            await self._show_one_turn(message.turn, sent, was_queued=True)
        await self.status_line.load(self.runtime, self.target.session_id)
        self._show_cut()
        return await self.open_waits()

    async def _show_one_turn(self, turn: RunningTurn, sent: SentMessages, *, was_queued: bool = False) -> None:
        view = TurnView(self.screen, self.sections, self.runtime.root_name)
        line = TypedLine(self.draft, sent.send, view.show_typed)
        self._running = (turn, view)
        try:
            with ExitStack() as keys:
                keys.enter_context(self.reader.while_answering(line))
                view.show_typed(line.text)
                async for event in turn.follow():
                    if not (was_queued and isinstance(event, Accepted)):
                        view.show(event)
                    if isinstance(event, WaitOpened) and isinstance(event.wait, QuestionWait):
                        view.pause()
                        keys.close()
                        await self._answer_question(event.wait)
                        keys.enter_context(self.reader.while_answering(line))
                        view.go_on()
        finally:
            self._running = None
            self.draft = line.text
            view.close()
        if isinstance(turn.error, TurnCancelled):
            removed = "stopped and removed: your message takes its place"
            self.screen.print_line(removed if sent.is_replaced else "stopped; the answer so far is kept", "yellow")

    async def _submit(self, text: str, when_busy: WhenBusy) -> RunningTurn:
        return await self.runtime.submit(self.target.session_id, text, user_id=LOCAL_USER, when_busy=when_busy)

    def _show_cut(self) -> None:
        """Say once per session that the model no longer sees its oldest messages."""
        window = self.status_line.window
        if window is None or not window.reason or self.status_line.is_cut_shown:
            return
        self.status_line.is_cut_shown = True
        messages = f"the oldest messages ({window.left_out_messages:,})"
        self.screen.print_line(f"the model no longer sees {messages}: {window.reason}", "yellow")

    async def _answer_question(self, wait: QuestionWait) -> None:
        """Ask what a running tool asks, until an answer fits or the question is closed elsewhere."""
        if self._running is None:
            show_wait(self.screen, wait)
        refused: Answer | None = None
        while True:
            asking = asyncio.ensure_future(ask_answer(self.reader, self.screen, wait, refused))
            closing = asyncio.ensure_future(self._wait_until_closed(wait))
            try:
                await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asking.cancel()
                closing.cancel()
                await asyncio.wait({asking, closing})  # the prompt leaves the terminal to others
            try:
                answer = None if asking.cancelled() else asking.result()
            except InputInterrupted:
                if self._running:
                    self.interrupt()
                return
            if answer is None:
                self.screen.print_line(_CLOSED if asking.cancelled() else await self._later(wait), "yellow")
                return
            try:
                turn = await self.runtime.answer(self.target.session_id, wait.id, answer, user_id=LOCAL_USER)
            except InvalidAnswer as error:
                self.screen.print_line(str(error), "red")
                refused = answer
            except WaitNotOpen:
                self.screen.print_line(_CLOSED, "yellow")
                return
            else:
                if self._running is None:  # the turn runs in another process
                    await self._show_turn(turn)
                return

    async def _later(self, wait: Wait) -> str:
        """Say how to answer a question while its tool waits."""
        items = [item.id for item in await self.runtime.inbox.every(user_id=LOCAL_USER) if item.wait == wait]
        hint = f"`lango inbox answer {items[0] if items else 'ID'} VALUE` in another terminal answers it"
        return complete_hints(f"not answered: {hint} while the tool waits")

    async def _wait_until_closed(self, wait: Wait) -> None:
        while any(one.id == wait.id for one in await self.open_waits()):  # noqa: ASYNC110 - another process may close it
            await asyncio.sleep(_POLL_S)

    def open_section(self, number: int | None = None) -> None:
        """Show the content of a collapsed section, by default the newest."""
        wanted = len(self.sections) if number is None else number
        if 1 <= wanted <= len(self.sections):
            show_section_content(self.screen, wanted, self.sections[wanted - 1])
        else:
            missing = "there is nothing to open" if number is None else f"there is no line {number}"
            self.screen.print_line(missing, "yellow")

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


class StatusLine:
    """Tokens and cost of a session, as last loaded."""

    def __init__(self) -> None:
        self._cost_usd: float | None = None
        self._tokens = 0
        self._budget_tokens: int | None = None
        self.window: Window | None = None
        """The messages that the next request would keep, as last loaded."""
        self.is_cut_shown = False
        """Whether the terminal shows that the window leaves messages out."""

    async def load(self, runtime: Runtime, session_id: str) -> None:
        """Read the cost of the session, and the tokens of its next request; keep the old numbers if the store fails."""
        try:
            usage = await runtime.sessions.usage(session_id, user_id=LOCAL_USER, limit=1)
        except StoreError:
            return
        self.window = usage.window
        self._tokens, self._budget_tokens = usage.window.tokens, usage.rules.budget_tokens
        self._cost_usd = usage.total.cost_usd

    def render(self, settings: Settings, model: str, session_id: str, width: int) -> str:
        """Return the line; if it is too wide, without the session, then with a shorter name of the model."""
        budget_tokens = self._budget_tokens or window_rules_for(settings).budget_tokens
        usage = [f"{self._tokens:,} of {budget_tokens:,} tokens", _format_cost(self._cost_usd, model)]
        whole = " · ".join([model, *usage, session_id])
        if len(whole) <= width:
            return whole
        left = width - len(" · ".join(["", *usage]))
        return " · ".join([one_line(model, left), *usage] if left >= _MIN_MODEL_CHARACTERS else usage)[:width]


def _format_cost(cost_usd: float | None, model: str) -> str:
    """Format a cost in dollars; without a price it is unknown, except for local models."""
    if cost_usd is None:
        return "free" if model.startswith("local/") else "$ -"
    return format_cost(cost_usd)
