"""Limit the time of a turn: in all, and without events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from lango.config import AgentSettings
from lango.errors import TurnTimeout
from lango.events import TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnEvent

_TOOL_GRACE_S = 10.0
_TEXT_INTERVAL_S = 1.0  # pieces of text come often: they restart the timer at most this often


class TimeLimits:
    """The time limits of a turn under way: a model must make progress, a tool has its own limit."""

    def __init__(self, agent: AgentSettings) -> None:
        self._agent = agent
        self._whole = asyncio.timeout(None)
        self._idle = asyncio.timeout(None)
        self._running_calls: set[str] = set()
        self._renewed_at = 0.0
        self._text_interval_s = min(_TEXT_INTERVAL_S, agent.idle_timeout_s / 10)
        self._of_calls_s: dict[str, float | None] = {}

    @asynccontextmanager
    async def applied(self) -> AsyncGenerator[None]:
        """Cancel the body when it takes too long; raise `TurnTimeout` then."""
        now, agent = asyncio.get_running_loop().time(), self._agent
        try:
            async with self._whole, self._idle:
                self._whole.reschedule(now + agent.request_timeout_s)
                self._idle.reschedule(now + agent.idle_timeout_s)
                yield
        except TimeoutError as error:
            raise TurnTimeout(
                f"the turn took longer than allowed: {agent.idle_timeout_s:g} s without an event, or "
                f"{agent.request_timeout_s:g} s in all (settings agent.idle_timeout_s, agent.request_timeout_s)"
            ) from error

    def limit_call(self, call_id: str, limit_s: float | None) -> None:
        """Set the time limit of a tool call; with None, it may take as long as the turn."""
        self._of_calls_s[call_id] = limit_s

    def limit_of_call(self, call_id: str) -> float | None:
        """Return the time limit of a tool call, or None if it may take as long as the turn."""
        return self._of_calls_s.get(call_id)

    def extend(self, seconds: float) -> None:
        """Move the limit of the whole turn: waiting for a person does not count."""
        if (when := self._whole.when()) is not None and not self._whole.expired():
            self._whole.reschedule(when + seconds)

    def note_event(self, event: TurnEvent) -> None:
        """Restart the limit without events, because one was emitted."""
        match event:
            case TextDelta() | ThoughtDelta():
                self.note_progress()
                return
            case ToolStart():
                self._running_calls.add(event.call_id)
            case ToolEnd():
                self._running_calls.discard(event.call_id)
            case _:
                pass
        self._restart(asyncio.get_running_loop().time())

    def note_progress(self) -> None:
        """Restart the limit without events, because a model reads a long prompt, or writes a long call."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= self._text_interval_s:
            self._restart(now)

    def _restart(self, now: float) -> None:
        self._renewed_at = now
        limits = [self._of_calls_s.get(call_id, self._agent.tool_timeout_s) for call_id in self._running_calls]
        longest = max([limit_s + _TOOL_GRACE_S for limit_s in limits if limit_s is not None], default=0.0)
        if not self._idle.expired():
            self._idle.reschedule(None if None in limits else now + (longest or self._agent.idle_timeout_s))
