"""Accept the inputs of turns: store each, start its turn or queue it, and recognise repeated requests."""

import asyncio
from typing import Literal
from weakref import WeakValueDictionary

from lango.errors import OutcomeUnknown, Stopping, TurnCancelled
from lango.events import Accepted
from lango.runtime.execution.turn_runner import trace_of_request
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.sessions.session_options import AllowedOptions
from lango.runtime.sessions.sessions import get_or_create_session, require_session
from lango.sessions import SessionId
from lango.store import Store
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import read_turn, request_cancel
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
        options: AllowedOptions,
        when_busy: Literal["wait", "refuse", "interrupt"],
    ) -> None:
        self._store = store
        self._options = options
        self._turns = turns
        self._when_busy = when_busy
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
        self, name: SessionId, turn_input: TurnInput, idempotency_key: str | None, at_revision: int | None = None
    ) -> RunningTurn:
        """Store the input of a turn and start the turn, or queue it behind the open ones of its session.

        A repeated idempotency key returns the turn of the first request. `at_revision` is as in `Runtime.submit`.
        Raise `Stopping`, with nothing stored, once this is closed.
        """
        self._check_open()
        self._under_way += 1
        try:
            return await self._accept(name, turn_input, idempotency_key, at_revision)
        finally:
            self._under_way -= 1
            self._accepted.notify()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Stopping("the runtime is closed, and nothing was stored: send it again to a running one")

    async def _accept(
        self, name: SessionId, turn_input: TurnInput, idempotency_key: str | None, at_revision: int | None
    ) -> RunningTurn:
        mode = self._when_busy
        async with self._locks.setdefault(name, asyncio.Lock()):  # stored in the order in which they were sent
            session = await (get_or_create_session if at_revision is None else require_session)(self._store, name)
            await self._options.add_to(session.key, turn_input)
            options = SubmitOptions(
                idempotency_key,
                turn_input.digest,
                turn_input.sent,
                turn_input.approval_answer or turn_input.input_answer or turn_input.credential_answer,
                at_revision,
                wait=mode != "refuse",
                request=turn_input.request | trace_of_request(),
            )
            self._check_open()
            try:
                turn, caller_left = await finish_despite_cancel(
                    self._store.submit_turn(session, turn_input.entry, self._turns.owner.name, options)
                )
            except OutcomeUnknown:
                # a client without a key cannot find the turn again, and may send the message a second time
                settle = self._turns.end_turn_of_unknown_outcome
                if idempotency_key is not None:
                    settle = self._turns.release_turn_of_unknown_outcome
                settle(session, turn_input)
                raise
            record = (
                await self._store.read(read_turn, turn.session_key, turn.turn)
                if turn.repeated and not caller_left
                else None
            )
        if caller_left:
            if not turn.repeated:
                # while the process stops, its server leaves requests that take too long: their clients did not
                settle_turn = self._turns.release_turn if self._is_closed else self._turns.end_unstarted_turn
                await settle_turn(session, turn)
            raise asyncio.CancelledError
        for known in self._turns.running_turns(session.key):
            if turn.repeated and known.turn.turn == turn.turn:
                return known
        running = RunningTurn(session, turn)
        queued, invocation_id = turn.status == "queued", turn_input.entry.invocation_id
        if record is not None:  # as in the first response to this request
            queued, invocation_id = record.was_queued, record.invocation_id
        running.emit(Accepted(running.next_id(), turn.turn, waiting=queued, invocation_id=invocation_id))
        self._turns.start(running, turn_input)
        if mode == "interrupt" and turn.status == "queued" and not turn.repeated:
            await self._stop_earlier_turns(running)
        return running

    async def _stop_earlier_turns(self, newest: RunningTurn) -> None:
        """Stop the turns before a new message, in any process. Queued turns end when they would start."""
        for running in self._turns.running_turns(newest.session.key):
            if running.turn.turn < newest.turn.turn:
                running.superseded = True
                if running.turn.epoch is not None:
                    running.stop(TurnCancelled("a newer message came"))
        try:
            await self._store.write(request_cancel, newest.session.key, newest.turn.turn)
        except BaseException:  # the caller gets this error, and not the turn
            newest.stop(TurnCancelled("the turn was stopped"))
            raise
