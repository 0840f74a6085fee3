"""Limit a run of a turn: its model calls, the time and number of its tools, and wrong calls that repeat."""

from asyncio import Semaphore
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from lango.errors import TurnLimit
from lango.memory import MemoryThresholds
from lango.tools.execution import fingerprint
from lango.tools.results import FileLimits
from lango.turns.synchronization import StepGate
from lango.turns.time_limits import TimeLimits

_TOOLS_AT_ONCE = 32
"""How many tools of one turn run at the same time; as many as ADK has threads for them."""


class Limits(Struct, eq=False, kw_only=True):
    """The limits of a run, and how much of them is used."""

    max_model_calls: int
    tool_timeout_s: float
    """The time limit of tools without one of their own."""
    files: FileLimits = FileLimits()
    """The limits of the files in one result."""
    memory: MemoryThresholds | None = None
    """The thresholds of the memory, or None if it is off."""
    time: TimeLimits
    step_gate: StepGate
    """Passed before each step: it is closed while the process stops."""
    tool_slots: Semaphore = field(default_factory=lambda: Semaphore(_TOOLS_AT_ONCE))
    """Taken by each running tool: a model may make thousands of calls in one response."""
    model_calls: int = 0
    _wrong_calls: Counter[str] = field(default_factory=Counter[str])

    def count_model_call(self) -> None:
        """Count a model call. Raise `TurnLimit` if it is one too many."""
        self.model_calls += 1
        if self.model_calls > self.max_model_calls:
            raise TurnLimit(f"the turn took more than {self.max_model_calls} model calls (setting agent.max_turns)")

    def count_wrong_call(self, call: str) -> int:
        """Count a tool call that cannot run, given by its fingerprint; return how often this run has made it."""
        self._wrong_calls[call] += 1
        return self._wrong_calls[call]

    async def enter_tool(self) -> None:
        """Begin to run a tool: wait for a slot; once the process stops, no tool begins."""
        await self.tool_slots.acquire()
        await self.step_gate.enter()

    def leave_tool(self) -> None:
        """End a tool, whose outcome is stored."""
        self.tool_slots.release()
        self.step_gate.leave()


def call_fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a key that calls with the same name and arguments have in common."""
    try:
        return fingerprint(name, arguments)
    except (TypeError, ValueError):
        return f"{name}: not JSON"
