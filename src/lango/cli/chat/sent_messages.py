"""Keep the messages that a user sends while an answer runs, until their own turns are shown."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from msgspec import Struct

from lango.cli.chat.terminal.typed_line import HINT, split_when_busy
from lango.errors import LangoError
from lango.runtime import RunningTurn
from lango.sessions import WhenBusy


class SentMessage(Struct, frozen=True):
    """A message, and the turn that it was accepted as."""

    text: str
    when_busy: WhenBusy
    turn: RunningTurn


class SentMessages:
    """Sends messages one after the other, in the order in which they were typed."""

    def __init__(
        self,
        submit: Callable[[str, WhenBusy], Awaitable[RunningTurn]],
        say: Callable[[str, str], None],
        run_later: Callable[[str], None],
    ) -> None:
        """`submit` sends a message, which may fail; `say` shows a line in a style; `run_later` keeps a command."""
        self._submit = submit
        self._say = say
        self._run_later = run_later
        self._sending: asyncio.Task[None] | None = None
        self._to_send: deque[tuple[str, WhenBusy]] = deque()
        self._sent: deque[SentMessage] = deque()

    def send(self, text: str) -> None:
        """Send a message into the running turn, after it or instead of it, as its first word says.

        Any other command runs after the answer.
        """
        when_busy, text = split_when_busy(text)
        if when_busy is None:
            self._say(f"runs after the answer: {text}", "dim")
            self._run_later(text)
            return
        if not text:
            self._say(f"{HINT}.", "yellow")
            return
        self._to_send.append((text, when_busy))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        while self._to_send:
            text, when_busy = self._to_send.popleft()
            try:
                turn = await self._submit(text, when_busy)
            except LangoError as error:
                self._say(f"not sent: {text}\n{error}", "red")
            else:
                self._sent.append(SentMessage(text, when_busy, turn))
                self._say(f"{'queued' if when_busy == 'wait' else 'sent'}: {text}", "dim")

    async def take_next(self) -> SentMessage | None:
        """Return the oldest message whose turn is to be shown, or None; those that a turn took in are shown there."""
        if self._sending:
            await self._sending
        while self._sent:
            message = self._sent.popleft()
            if self.is_replaced:
                self._say(f"not answered, as your later message took its place: {message.text}", "yellow")
            elif message.turn.steered_into is None:
                return message
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether what ran before is removed by one of these messages."""
        return any(message.when_busy == "rollback" for message in self._sent)
