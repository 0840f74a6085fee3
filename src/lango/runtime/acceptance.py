"""Accept the inputs of turns: store each, start its turn or queue it, and recognise repeated requests."""

import asyncio
import time
from collections.abc import Sequence
from weakref import WeakValueDictionary

from msgspec.structs import replace

from lango.errors import OutcomeUnknown, Stopping, TurnCancelled
from lango.messages import Message
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.sessions.session_options import AllowedOptions
from lango.runtime.sessions.sessions import get_or_create_session, require_session
from lango.runtime.submissions import Submissions
from lango.sessions import SessionId, SessionInfo, WhenBusy
from lango.store import Store, Turn
from lango.store.lifecycle.added_history import add_history
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import request_cancel
from lango.submissions import Submission, SubmittedEnd, SubmittedMessage, TurnRequest
from lango.telemetry.traces import current_trace_ids
from lango.turns.lease_holder import finish_despite_cancel
from lango.turns.running_turn import RunningTurn
from lango.turns.synchronization import Notifier
from lango.turns.turn_input import TurnInput


class TurnAcceptance:
    """Accepts the inputs of turns in one process, those of a session in the order in which they were sent."""

    def __init__(
        self,
        store: Store,
        turns: TurnSupervisor,
        inputs: Submissions,
        options: AllowedOptions,
        when_busy: WhenBusy,
    ) -> None:
        self._store = store
        self._inputs = inputs
        self._options = options
        self._turns = turns
        self._when_busy: WhenBusy = when_busy
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._is_closed = False
        self._under_way = 0
        self._accepted = Notifier()

    async def close(self, limit_s: float) -> None:
        """Accept nothing more, and wait within a limit for what is being stored: its turns are handed over."""
        self._is_closed = True
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_s
        while self._under_way and await self._accepted.wait(deadline - clock()):
            pass

    async def accept(
        self,
        name: SessionId,
        submission: Submission,
        quota_id: str | None = None,
        tokens_per_day: int | None = None,
        *,
        detached: bool = True,
    ) -> RunningTurn:
        """Store what was submitted and start its turn, or queue it behind the open ones of its session.

        A repeated idempotency key returns the turn of the first request. The tokens of the turn are counted against
        `quota_id`, whose limit is `tokens_per_day`. A `detached` turn runs on when its readers leave it. Raise
        `Stopping`, with nothing stored, once this is closed.
        """
        self._check_open()
        self._under_way += 1
        try:
            turn_input = await self._inputs.build_input(name, submission)
            if isinstance(turn_input, RunningTurn):
                return turn_input
            if not isinstance(submission, SubmittedEnd):
                turn_input = replace(turn_input, quota_id=quota_id, tokens_per_day=tokens_per_day)
            when_busy = self._when_busy_of(turn_input, submission.request)
            session, turn, turn_input = await self._store_turn(name, turn_input, submission.request, when_busy)
            running = self._turns.find_turn(session.key, turn.turn) if turn.repeated else None
            running = running or self._turns.start(session, turn, turn_input)
            if detached:
                running.detach()
            if when_busy in ("interrupt", "rollback") and turn.status == "queued" and not turn.repeated:
                await self._stop_earlier_turns(running)
            return running
        finally:
            self._under_way -= 1
            self._accepted.notify()

    def _when_busy_of(self, turn_input: TurnInput, request: TurnRequest) -> WhenBusy:
        """Return how an input is handled while a turn runs: the end of a wait always waits for its turn."""
        if turn_input.ended is not None:
            return "wait"
        return self._when_busy if request.when_busy is None else request.when_busy

    async def leave(self, name: SessionId, submission: SubmittedMessage) -> int:
        """Store a message as a queued turn that another process takes; return the turn."""
        turn_input = await self._inputs.build_input(name, submission)
        assert isinstance(turn_input, TurnInput)
        _, turn, _ = await self._store_turn(name, turn_input, submission.request, "wait", is_left=True)
        return turn.turn

    async def add_history(self, name: SessionId, history: Sequence[Message]) -> int:
        """Store messages of the client without starting a turn; return the number of the message before them."""
        entries = await self._inputs.build_history(history)
        return await self._store.write_long(add_history, name, entries, time.time())

    def _check_open(self) -> None:
        if self._is_closed:
            raise Stopping("the runtime is closed, and nothing was stored: send it again to a running one")

    async def _store_turn(
        self,
        name: SessionId,
        turn_input: TurnInput,
        request: TurnRequest,
        when_busy: WhenBusy,
        *,
        is_left: bool = False,
    ) -> tuple[SessionInfo, Turn, TurnInput]:
        """Store a turn. Return it with its session, and its input with what was chosen for the session."""
        key, at_revision = request.idempotency_key, request.at_revision
        async with self._locks.setdefault(name, asyncio.Lock()):  # stored in the order in which they were sent
            session = await (get_or_create_session if at_revision is None else require_session)(self._store, name)
            turn_input = await self._options.add_to(session.key, turn_input)
            options = SubmitOptions(
                key,
                turn_input.digest,
                turn_input.sent,
                turn_input.answer,
                turn_input.ended,
                at_revision,
                when_busy=when_busy,
                request=turn_input.request(current_trace_ids()),
                version=self._turns.version,
                is_left=is_left,
            )
            self._check_open()
            try:
                turn, caller_left = await finish_despite_cancel(
                    self._store.submit_turn(session, turn_input.entry, self._turns.owner.name, options)
                )
            except OutcomeUnknown:
                # a client without a key cannot find the turn again, and may send the message a second time
                may_run = key is not None or bool(turn_input.answer or turn_input.ended)  # an answer is accepted once
                self._turns.settle_unknown_turn(session, turn_input, may_run=may_run)
                raise
        if caller_left:
            if not turn.repeated:
                # while the process stops, its server leaves requests that take too long: their clients did not
                settle_turn = self._turns.release_turn if self._is_closed else self._turns.end_unstarted_turn
                await settle_turn(session, turn)
            raise asyncio.CancelledError
        return session, turn, turn_input

    async def _stop_earlier_turns(self, newest: RunningTurn) -> None:
        """Stop the turns before a new message, in any process. Queued turns end when they would start."""
        for running in self._turns.running_turns(newest.session.key):
            if running.turn.turn < newest.turn.turn:
                running.supersede()
        try:
            await self._store.write(request_cancel, newest.session.key, newest.turn.turn)
        except BaseException:  # the caller gets this error, and not the turn
            newest.stop(TurnCancelled("the turn was stopped"))
            raise
