"""Answer the steps of a turn that an earlier run stored, and store the new ones."""

import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Mapping
from typing import Any

from google.adk.events import Event
from msgspec import Struct, field

from lango.adk.events.recorded_run import RecordedRun
from lango.adk.turn.step import current_step
from lango.store import Store, Turn
from lango.store.artifacts.artifacts import Saver
from lango.store.sessions.sessions import check_epoch
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import ApprovalDecision, JournalEntry, JournalStatus, TurnEntry
from lango.tools import Effect

RECHECK_LEASE_AFTER_S = 2.0
"""Well before another process takes a turn without heartbeats over."""


class Record(Struct, eq=False, kw_only=True):
    """The record of a turn: the tool journal, what an earlier run stored, and which steps this run is in."""

    store: Store
    lease: Turn
    """Its epoch fences every write: a turn that lost its lease cannot write any more."""
    loop: AbstractEventLoop
    """The event loop of the turn, for code of ADK that runs in threads."""
    recorded: RecordedRun | None = None
    """What an earlier run of this turn stored; None: this is its first run."""
    first_seq: int | None = None
    """The message of the input, if an earlier run stored more after it."""
    used_call_ids: set[str] = field(default_factory=set[str])
    """Call ids that this turn must not use again."""
    started_at: dict[str, float] = field(default_factory=dict[str, float])
    """When each running call started, on the monotonic clock."""
    agent_calls: set[str] = field(default_factory=set[str])
    """The calls of tools that run agents or nodes, whose own steps are recorded."""
    runs_again: set[str] = field(default_factory=set[str])
    """Calls that an earlier run started and did not finish, and that are harmless to run again."""
    node_paths: set[str] = field(default_factory=set[str])
    """The paths of the workflow's nodes that run or ran in this turn."""
    earlier_nodes: dict[str, str] = field(default_factory=dict[str, str])
    """The nodes that ran before the pause that this turn continues: their status, by path."""
    recalled_texts: dict[str, str] = field(default_factory=dict[str, str])
    """What was recalled for the user's message, by its text: every model call of the turn is shown the same."""
    _steps: Counter[str] = field(default_factory=Counter[str])
    _artifact_saves: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    # -- what an earlier run stored -------------------------------------------------------------------------------

    def entry(self, step_id: str) -> TurnEntry | None:
        """Return what the tool journal has about a step from an earlier run; None: it is new."""
        return self.recorded.entry(step_id) if self.recorded is not None else None

    def take(self, event: Event) -> bool | None:
        """Recognise an event that an earlier run stored, as `RecordedRun.take` does; None: it is new."""
        return self.recorded.take(event) if self.recorded is not None else None

    async def newest_entry(self, call_id: str) -> JournalEntry | None:
        """Return the newest entry of a call, of this turn or an earlier one; None: the journal has none."""
        return await self.store.read(tool_journal.read_journal_entry, self.lease.session_key, call_id)

    def end(self, step_id: str) -> None:
        """Note that a tool or node has its result: what is recorded of the steps inside it is no longer needed."""
        if self.recorded is not None:
            self.recorded.end(step_id)

    def next_step(self, place: str, separator: str = "#") -> str:
        """Return the id of the next step at a place, such as an agent's next model call: the same in every run."""
        self._steps[place] += 1
        return f"{place}{separator}{self._steps[place]}"

    def saver(self, artifact: str) -> Saver:
        """Name the step that saves an artifact, the same in every run of the turn."""
        step = current_step().id
        if step:
            self._artifact_saves[step, artifact] += 1
            step = f"{step}#{self._artifact_saves[step, artifact]}"
        epoch, first_epoch = self.lease.epoch, self.lease.first_epoch
        return Saver(
            self.lease.session_key,
            epoch,
            epoch if first_epoch is None else first_epoch,
            step,
            runs_again=self.recorded is not None,
        )

    # -- new steps ------------------------------------------------------------------------------------------------

    async def intend(
        self, step_id: str, name: str, effect: Effect, arguments: str, approval: ApprovalDecision | None = None
    ) -> None:
        """Journal that a step is about to run, and who approved it."""
        call = step_id, name, effect, arguments, time.time(), approval
        await self.store.write(tool_journal.record_intent, self.lease, *call)

    async def start(self, step_id: str) -> bool:
        """Journal that a step starts; False: it was started before.

        A process that was suspended meanwhile may have lost the turn: it checks its lease again before the step runs.
        """
        checked_at = time.monotonic()
        is_first = await self.store.write(tool_journal.record_start, self.lease, step_id, time.time())
        while time.monotonic() - checked_at > RECHECK_LEASE_AFTER_S:
            checked_at = time.monotonic()
            await self.store.write(check_epoch, self.lease.session_key, self.lease.epoch)
        return is_first

    async def finish(
        self,
        step_id: str,
        result: Any,
        status: JournalStatus = "finished",
        actions: Mapping[str, Any] | None = None,
        *,
        awaits_result: bool = False,
    ) -> None:
        """Journal how a step ended; `unknown` is one that asked for something first, and will run again."""
        ended = step_id, result, time.time(), status, actions
        await self.store.write(tool_journal.record_result, self.lease, *ended, awaits_result=awaits_result)

    async def add_finished(self, step_id: str, name: str, result: Any) -> None:
        """Journal a step that has no effects and is known only when it has ended."""
        await self.store.write(tool_journal.record_finished_step, self.lease, step_id, name, result, time.time())
