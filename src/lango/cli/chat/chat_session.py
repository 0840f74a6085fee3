"""Hold the runtime and the current session of a chat, and run its turns."""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from lango.cli.chat import resumed_session
from lango.cli.chat.collapsed_sections import CollapsedSections, call_title, exact_arguments, show_diff
from lango.cli.chat.status_line import StatusLine
from lango.cli.chat.terminal.message_reader import InputInterrupted, MessageReader
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.tool_question import answer_tool_question
from lango.cli.chat.turn_view import TurnView, show_section_content
from lango.cli.chat.workflow_view import (
    RESULT_HINT,
    show_awaited_result,
    show_credential_request,
    show_input_request,
)
from lango.cli.session_target import LOCAL_USER, SessionTarget
from lango.cli.terminal_text import format_cell, printable
from lango.config import Settings
from lango.errors import LangoError, TurnCancelled
from lango.events import WaitOpened
from lango.grants import NewGrant
from lango.runtime import RunningTurn
from lango.runtime.opening import open_runtime
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId, SessionRecord
from lango.store.sessions.sessions import find_session
from lango.waits import (
    ApprovalWait,
    Approve,
    Credential,
    CredentialWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Refuse,
    WaitBase,
)

T = TypeVar("T")
W = TypeVar("W", bound=WaitBase)

_APPROVAL_PROMPT = (
    "run exactly this? y: yes, a: always in this session, n: no, r: no with a reason, Ctrl-C: decide later"
)
_REASON_PROMPT = "why not? The model reads it:"


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
    def model(self) -> str:
        """The name of the root agent's model."""
        return self.runtime.app.model_name or "no model of its own"

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

    async def answer_approval_requests(self, requests: list[ApprovalWait]) -> None:
        """Ask the user about each request, with the exact arguments, and continue the turn with the decision."""
        while requests:
            request = requests.pop(0)
            await self._show_approval_request(request)
            decision, reason = await self.reader.ask_decision(_APPROVAL_PROMPT), ""
            if decision == "reason":
                try:
                    reason = await self.reader.ask_line(_REASON_PROMPT) or ""
                    decision = "no"
                except InputInterrupted:
                    decision = None
            if decision is None:
                self.screen.print_line(
                    "not answered: /approve asks again; /skip or any other message denies it", "yellow"
                )
                return
            style = "yellow" if decision == "no" else "green"
            self.screen.print_line(f"{decision}: {call_title(request.tool, request.arguments)}", style)
            if reason:
                self.screen.print_line(f"reason: {printable(reason)}", style)
            if decision == "always":
                self.screen.print_line(f"{request.tool} runs without asking in this session: /grants revokes it", "dim")
            answer = Refuse(reason) if decision == "no" else Approve(NewGrant() if decision == "always" else None)
            turn = await self.runtime.answer(self.target.session_id, request.id, answer, user_id=LOCAL_USER)
            requests += await self._show_turn(turn)

    async def _show_approval_request(self, request: ApprovalWait) -> None:
        self.screen.print_line(f"{request.tool} asks to run with", "bold")
        self.screen.print_line(exact_arguments(request.arguments))
        if request.hint:
            self.screen.print_line(f"{request.tool} says: {printable(request.hint)}")
        if request.payload is not None:
            self.screen.print_line(f"with: {printable(json.dumps(request.payload, ensure_ascii=False))}")
        if diff := await self.runtime.app.diff_of_call(request.tool, request.arguments):
            show_diff(self.screen, diff)
        if request.expires_at:
            self.screen.print_line(f"denied if not answered by {format_cell(request.expires_at)}", "dim")

    async def give_result(self, call_id: str, result: Mapping[str, Any], *, will_continue: bool) -> None:
        """Bring a result of a long-running tool, and show the turn that continues with it."""
        turn = await self.runtime.submit_results(
            self.target.session_id, {call_id: result}, user_id=LOCAL_USER, will_continue=will_continue
        )
        await self.answer_approval_requests(await self._show_turn(turn))

    async def resume(self, target: SessionTarget) -> None:
        """Switch to a session; show its last turns and its open requests.

        Turns whose process died go on here, and are shown to their end.
        """
        self.switch_to(target)
        session = await self.runtime.store.read(find_session, self.session_id)
        if session is None:
            return
        resumed = await self.runtime.resumed.wait(session)
        await self._show_history(session, resumed[0].first_seq if resumed else None)
        await self._load_status()
        notice = resumed_session.last_turn_notice(await self.runtime.resumed.last_turn(session))
        if notice:
            self.screen.print_line(notice, "yellow")
        for turn in resumed:
            if turn.queued_text:
                self.screen.print_line(f"> {turn.queued_text}", "bold")
            await self._show_turn(turn.running)
        await self.answer_approval_requests(await self.open_waits(ApprovalWait))
        await self._show_open_requests()

    async def open_waits(self, kind: type[W]) -> list[W]:
        """Return the waits of a kind in the session that can still be answered."""
        waits = await self.runtime.waits(self.target.session_id, user_id=LOCAL_USER)
        return [wait for wait in waits if isinstance(wait, kind)]

    async def _show_history(self, session: SessionRecord, last_seq: int | None) -> None:
        """Show a session's last turns; what follows `last_seq` is shown as its turn goes on."""
        sessions = self.runtime.sessions
        messages = await sessions.messages(session.name.id, user_id=LOCAL_USER, limit=resumed_session.SHOWN_MESSAGES)
        if last_seq:
            messages = [stored for stored in messages if stored.seq <= last_seq]
        steps = await sessions.node_steps(session, messages[0].seq) if messages else ()
        if last_seq:
            steps = [step for step in steps if step.seq < last_seq]
        root_agent = self.runtime.app.agents()["name"]
        resumed_session.show_last_turns(self.screen, self.sections, session, messages, steps, root_agent)

    async def _show_open_requests(self) -> None:
        """Show what waits for input, a credential or a result."""
        for asked in await self.open_waits(InputWait):
            show_input_request(self.screen, asked)
        for question in await self.open_waits(QuestionWait):
            show_input_request(self.screen, question)
            turn = await self._answer_tool_question(question)
            if turn is not None:  # it runs in another process
                await self._show_turn(turn)
        for wanted in await self.open_waits(CredentialWait):
            show_credential_request(self.screen, wanted)
        awaited = await self.open_waits(LongRunningWait)
        for call in awaited:
            show_awaited_result(self.screen, call)
        if awaited:
            self.screen.print_line(RESULT_HINT, "dim")

    async def answer_credential_request(self, request: CredentialWait) -> None:
        """Ask for a credential without showing it, and show the turn that goes on with it."""
        what = "the address that you were sent to" if request.auth_url else f"the credential ({request.scheme_type})"
        if request.scheme == "basic":
            what = "name and password, as name:password"
        try:
            value = await self.reader.ask_line(f"{what}:", hidden=True)
        except InputInterrupted:
            value = None
        if not value:
            self.screen.print_line("not answered: /credential asks again", "yellow")
            return
        answer = Credential(value)
        turn = await self.runtime.answer(self.target.session_id, request.id, answer, user_id=LOCAL_USER)
        await self.answer_approval_requests(await self._show_turn(turn))

    def switch_to(self, target: SessionTarget) -> None:
        """Make a session the current one."""
        self.target, self.status_line = target, StatusLine()

    async def _load_status(self) -> None:
        await self.status_line.load(self.runtime, self.target.session_id)

    async def _show_turn(self, turn: RunningTurn) -> list[ApprovalWait]:
        """Show a turn to its end; return its approval requests."""
        requests: list[ApprovalWait] = []
        view = TurnView(self.screen, self.sections, self.runtime.app.agents()["name"])
        self._running = (turn, view)
        try:
            with self.reader.without_echo():
                async for event in turn.follow():
                    view.show(event)
                    wait = event.wait if isinstance(event, WaitOpened) else None
                    if isinstance(wait, ApprovalWait):
                        requests.append(wait)
                    elif isinstance(wait, QuestionWait):
                        view.pause()
                        await self._answer_tool_question(wait)
                        view.go_on()
        finally:
            self._running = None
            view.close()
        if isinstance(turn.error, TurnCancelled):
            self.screen.print_line("stopped; the answer so far is kept", "yellow")
        await self._load_status()
        return requests

    async def _answer_tool_question(self, event: QuestionWait) -> RunningTurn | None:
        """Ask the user what a running tool asks; return the turn that goes on with the answer."""
        try:
            return await answer_tool_question(self.runtime, self.session_id, self.reader, self.screen, event)
        except InputInterrupted:
            if self._running:
                self.interrupt()
            return None

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
