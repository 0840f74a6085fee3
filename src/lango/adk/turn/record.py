"""Answer the steps of a turn that an earlier run stored, and store the new ones."""

import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lango.adk.events.recorded_run import RecordedRun
from lango.adk.turn.step import current_step
from lango.config import TraceSettings
from lango.store import Store, Turn
from lango.store.artifacts.artifacts import Saver
from lango.store.sessions.developer_log import ModelRequest, add_requests, delete_oldest
from lango.store.sessions.sessions import check_epoch
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import ApprovalDecision, JournalEntry, JournalStatus
from lango.store.turns.continuing import EarlierCall
from lango.store.turns.event_log import read_earlier_nodes
from lango.tools import Effect
from lango.waits.pauses import Pause

RECHECK_LEASE_AFTER_S = 2.0
"""Well before another process takes a turn without heartbeats over."""
_UNCHECKED_SHARE = 0.05


class Record(Struct, eq=False, kw_only=True):
    """The record of a turn: the tool journal, what an earlier run stored, and which steps this run is in."""

    store: Store
    lease: Turn
    """Its epoch fences every write: a turn that lost its lease can no longer write."""
    loop: AbstractEventLoop
    """The event loop of the turn, for code of ADK that runs in threads."""
    earlier_run: RecordedRun
    """Answers the steps that an earlier run of this turn stored; none in its first run."""
    first_seq: int | None = None
    """The message of the input, if an earlier run may have stored more after it."""
    earlier_nodes: Mapping[str, str] = {}
    """The nodes that ran before the pause that this turn continues: their status, by path."""
    earlier_calls: Mapping[str, list[EarlierCall]] = {}
    """The calls with effects that the turn made before it continued after an update, by their fingerprints."""
    used_call_ids: frozenset[str] = frozenset()
    """Call ids that this turn must not use again."""
    _started_at: dict[str, float] = field(default_factory=dict[str, float])
    """When each running call started, on the monotonic clock."""
    _repeatable_calls: set[str] = field(default_factory=set[str])
    """Calls that an earlier run started and did not finish, and that are harmless to run again."""
    _node_paths: set[str] = field(default_factory=set[str])
    """The paths of the workflow's nodes that run or ran in this turn."""
    _recalled_texts: dict[str, str] = field(default_factory=dict[str, str])
    _steps: Counter[str] = field(default_factory=Counter[str])
    _artifact_saves: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def __post_init__(self) -> None:
        """Keep the call ids of the earlier run from being used again."""
        self.note_call_ids(self.earlier_run.call_ids)

    def note_call_ids(self, used: Iterable[str]) -> None:
        """Note call ids that this turn must not use again."""
        self.used_call_ids |= frozenset(used)

    # -- what an earlier run stored -------------------------------------------------------------------------------

    @property
    def is_rerun(self) -> bool:
        """Whether an earlier run of the turn may have stored steps."""
        return self.first_seq is not None

    async def newest_entry(self, call_id: str) -> JournalEntry | None:
        """Return the newest entry of a call, of this turn or an earlier one, or None."""
        return await self.store.read(tool_journal.read_journal_entry, self.lease.session_key, call_id)

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
            runs_again=self.is_rerun,
        )

    # -- the steps of this run ------------------------------------------------------------------------------------

    def begin_call(self, call_id: str) -> None:
        """Note that a tool call starts now."""
        self._started_at[call_id] = time.monotonic()

    def is_running(self, call_id: str) -> bool:
        """Whether a tool call runs."""
        return call_id in self._started_at

    def end_call(self, call_id: str) -> float:
        """Note that a tool call has ended; return its duration in seconds."""
        return time.monotonic() - self._started_at.pop(call_id)

    def allow_repeat(self, call_id: str) -> None:
        """Let a call run that an earlier run started: it is harmless to run it again."""
        self._repeatable_calls.add(call_id)

    def may_repeat(self, call_id: str) -> bool:
        """Whether a call that an earlier run started may run again."""
        return call_id in self._repeatable_calls

    def note_node(self, path: str) -> None:
        """Note that the node of a workflow at this path runs in this turn."""
        self._node_paths.add(path)

    def has_run_node(self, path: str) -> bool:
        """Whether the node of a workflow at this path runs or ran in this turn."""
        return path in self._node_paths

    async def read_earlier_nodes(self, invocation_id: str) -> None:
        """Read the nodes that ran before the pause that this turn continues."""
        self.earlier_nodes = await self.store.read(read_earlier_nodes, self.lease, invocation_id)

    def recalled_text(self, question: str) -> str | None:
        """Return what was recalled for a message of the user: every model call of the turn is shown the same."""
        return self._recalled_texts.get(question)

    def note_recalled(self, question: str, text: str) -> None:
        """Note what was recalled for a message of the user."""
        self._recalled_texts[question] = text

    # -- new steps ------------------------------------------------------------------------------------------------

    async def intend(
        self, step_id: str, name: str, effect: Effect, arguments: str, approval: ApprovalDecision | None = None
    ) -> None:
        """Journal that a step is about to run, and who approved it."""
        call = step_id, name, effect, arguments, time.time(), approval
        await self.store.write(tool_journal.record_intent, self.lease, *call)

    async def start(self, step_id: str) -> bool:
        """Journal that a step starts; return False if it was started before.

        A process that was suspended in between may have lost the turn: it checks its lease again before the step runs.
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
        pause: Pause | None = None,
    ) -> None:
        """Journal how a step ended; `unknown` is one that asked for something first, and will run again."""
        ended = step_id, result, time.time(), status, actions
        await self.store.write(tool_journal.record_result, self.lease, *ended, awaits_result=awaits_result, pause=pause)

    async def store_full_result(self, call_id: str, text: str) -> None:
        """Store the full text of a result that the model reads clipped."""
        await self.store.write(tool_journal.store_full_result, self.lease, call_id, text)

    async def add_finished(self, step_id: str, name: str, result: Any) -> None:
        """Journal a step that has no effects and is known only when it has ended."""
        await self.store.write(tool_journal.record_finished_step, self.lease, step_id, name, result, time.time())


class KeptRequests:
    """Stores the requests of all turns of a runtime, within the bounds of the settings."""

    def __init__(self, store: Store, settings: TraceSettings) -> None:
        self._store = store
        self.settings = settings
        self._unchecked: float = settings.max_total_bytes  # the first request finds what is there

    async def add(self, lease: Turn, requests: Sequence[ModelRequest]) -> None:
        """Store requests of a turn.

        The bound of all sessions is checked after each twentieth of it, because all that is kept must be summed up.
        """
        bound = self.settings.max_total_bytes
        self._unchecked += await self._store.write(add_requests, lease, requests, self.settings.max_session_bytes)
        if self._unchecked >= bound * _UNCHECKED_SHARE:
            self._unchecked = 0
            while await self._store.write_long(delete_oldest, int(bound * (1 - _UNCHECKED_SHARE))):
                pass
