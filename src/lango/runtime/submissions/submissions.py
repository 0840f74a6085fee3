"""Accept what clients submit: build the input of its turn, store that, and start the turn or queue it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from weakref import WeakValueDictionary

from msgspec.structs import replace

from lango.adk.run.engine import AdkEngine
from lango.adk.run.input.input_builder import is_answer_address
from lango.adk.run.pauses.answers import checked_value
from lango.config import Settings
from lango.errors import InvalidAnswer, OutcomeUnknown, Stopping, TurnCancelled, WaitNotOpen
from lango.events import to_plain_values
from lango.history import load_tokenizer
from lango.messages import Message
from lango.runtime.access import limit_grant
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.sessions.session_options import AllowedOptions
from lango.runtime.sessions.session_state import state_event
from lango.runtime.sessions.sessions import get_or_create_session, require_session
from lango.runtime.waits import Inbox
from lango.sessions import SessionId, SessionInfo, WhenBusy, check_client_state
from lango.store import NewEvent, Store, Turn
from lango.store.codec.json_text import dumps
from lango.store.sessions.sessions import find_session
from lango.store.turns.submit import SubmitOptions, add_history
from lango.store.turns.turns import read_paused_request, request_cancel
from lango.store.waits.due import EndedWait
from lango.store.waits.waits import get_wait
from lango.submissions import (
    Submission,
    SubmittedAnswer,
    SubmittedEnd,
    SubmittedMessage,
    SubmittedResults,
    TurnRequest,
    check_attachments,
)
from lango.telemetry.traces import current_trace_ids
from lango.threads import run_in_thread
from lango.turns.lease_holder import finish_despite_cancel
from lango.turns.running_turn import RunningTurn
from lango.turns.synchronization import Notifier
from lango.turns.turn_input import TurnInput, request_digest
from lango.waits import (
    MAX_REASON_CHARACTERS,
    Answer,
    Approve,
    Credential,
    EventWait,
    QuestionWait,
    Refuse,
    Result,
    TimerWait,
    Value,
    Wait,
    Wake,
    check_answer,
)
from lango.waits.pauses import event_result, timer_result


class Submissions:
    """Builds the inputs that are submitted to the sessions of one app."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: AdkEngine,
        inbox: Inbox,
        turns: TurnSupervisor,
    ) -> None:
        self._settings = settings
        self._store = store
        self._app = engine.app
        self._inputs = engine.inputs
        self._inbox = inbox
        self._turns = turns

    async def build_input(self, name: SessionId, submission: Submission) -> TurnInput | RunningTurn:
        """Build the input of the turn that a submission starts; or answer a running tool, and return its turn."""
        await load_tokenizer()
        match submission:
            case SubmittedMessage():
                return await self._message(name, submission)
            case SubmittedResults():
                return await self._results(name, submission)
            case SubmittedAnswer():
                return await self._answer(name, submission)
            case SubmittedEnd():
                return await self._end(name, submission)
            case _ as unexpected:
                assert_never(unexpected)

    async def build_history(
        self, history: Sequence[Message], state_delta: Mapping[str, Any], first_state: Mapping[str, Any]
    ) -> list[NewEvent]:
        """Build the entries of messages that a client adds to a session without starting a turn, and of its state."""
        check_client_state({**first_state, **state_delta}, self._app.credential_names)
        await load_tokenizer()
        entries = await run_in_thread(self._inputs.history, history)
        return [*entries, state_event(state_delta)] if state_delta else entries

    async def _message(self, name: SessionId, submitted: SubmittedMessage) -> TurnInput:
        """Build the input of a message, which may answer a workflow's input request, or a credential request."""
        text, attachments, request = submitted.text, submitted.attachments, submitted.request
        check_attachments(attachments, self._settings.server.limits)
        check_client_state(submitted.state_delta, self._app.credential_names)
        may_answer = submitted.may_answer and (self._app.may_request_input or is_answer_address(text))
        if submitted.results or submitted.history or not may_answer:
            turn_input = self._inputs.message(text, attachments)
        else:
            await self._inbox.expire(name.id, user_id=name.user_id)
            turn_input = await self._inputs.message_or_answer(name, text, attachments, request.idempotency_key)
        turn_input = self._inputs.with_state(turn_input, submitted.state_delta)
        turn_input = await self._inputs.with_request(name, turn_input, request, request.digest)
        if submitted.results:
            turn_input = await self._inputs.with_results(name, turn_input, submitted.results)
        if submitted.history:
            turn_input = await run_in_thread(self._inputs.with_history, turn_input, submitted.history)
        return turn_input

    async def _results(self, name: SessionId, submitted: SubmittedResults) -> TurnInput:
        results, request = submitted.results, submitted.request
        if submitted.history:
            turn_input = await run_in_thread(self._inputs.results_after_history, submitted.history, results)
        else:
            turn_input = await self._inputs.results(
                name, results, request.idempotency_key, will_continue=submitted.will_continue
            )
        digest = request.digest or request_digest("results", results)
        return await self._inputs.with_request(name, turn_input, request, digest)

    async def _answer(self, name: SessionId, submitted: SubmittedAnswer) -> TurnInput | RunningTurn:
        """Build the input of an answer to a wait; or answer a question of a running tool, and return its turn."""
        wait_id, answer, request = submitted.wait_id, submitted.answer, submitted.request
        if request.idempotency_key is not None and await self._inputs.is_stored(name, request.idempotency_key):
            return replace(self._inputs.repeated_input(), digest=_answer_digest(wait_id, answer))
        session = await self._inbox.expire(name.id, user_id=name.user_id)
        if session is None:
            raise WaitNotOpen(f"session {name.id!r} has no wait {wait_id!r}")
        stored = await self._store.read(get_wait, session.key, name, wait_id)
        check_answer(stored.wait, answer)
        if isinstance(stored.wait, QuestionWait):
            return await self._answer_question(session, stored.wait, answer)
        if isinstance(answer, Result | Wake):
            results = {stored.call_id: _result_of(stored.wait, answer)}
            will_continue = isinstance(answer, Result) and answer.will_continue
            if isinstance(stored.wait, TimerWait | EventWait):
                if will_continue:
                    raise InvalidAnswer("a wait for an event ends with its data: no updates follow")
                will_continue = False
            turn_input = await self._inputs.results(name, results, will_continue=will_continue)
            if isinstance(stored.wait, TimerWait | EventWait):
                turn_input = replace(turn_input, ended=EndedWait(wait_id, stored.seq, name.user_id))
        else:
            turn_input = self._inputs.answer(name, stored, self._checked(answer))
        return await self._inputs.with_request(name, turn_input, request, _answer_digest(wait_id, answer))

    async def _end(self, name: SessionId, submitted: SubmittedEnd) -> TurnInput:
        """Build the input of a turn whose wait has ended by itself, with what the turn before it was counted for."""
        turn_input = await self._inputs.results(name, {submitted.call_id: submitted.result})
        turn_input = replace(turn_input, ended=EndedWait(submitted.wait_id, submitted.seq))
        session = await self._store.read(find_session, name)
        if session is not None:
            paused = await self._store.read(read_paused_request, session.key, turn_input.event.invocation_id)
            turn_input = replace(turn_input, quota_id=paused.quota, tokens_per_day=paused.tokens_per_day)
        digest = request_digest("end", submitted.wait_id, submitted.seq)
        return await self._inputs.with_request(name, turn_input, submitted.request, digest)

    def _checked(self, answer: Answer) -> Answer:
        """Check an answer by its type alone, before it is known what it answers, and apply the settings to it."""
        if isinstance(answer, Refuse) and len(answer.reason) > MAX_REASON_CHARACTERS:
            raise InvalidAnswer(f"reason: at most {MAX_REASON_CHARACTERS:,} characters")
        if isinstance(answer, Approve) and answer.grant is not None:
            return replace(answer, grant=limit_grant(answer.grant, self._settings.tools))
        return answer

    async def _answer_question(self, session: SessionInfo, wait: QuestionWait, answer: Answer) -> RunningTurn:
        """Answer a question of a tool that runs in any process; return its turn, which continues with the answer."""
        if isinstance(answer, Value):
            answer = Value(checked_value(wait, answer.value))
        content = dumps(to_plain_values(answer))
        if not await self._store.answer_question(session.key, wait.id, content, session.name.user_id):
            raise WaitNotOpen(f"the wait {wait.id!r} of session {session.name.id!r} was answered before", "answered")
        assert wait.turn is not None
        running = self._turns.find_turn(session.key, wait.turn)
        if running is None:
            running = self._turns.start(session, Turn(session.key, wait.turn, repeated=True))
            running.is_detached = True
        return running


def _result_of(wait: Wait, answer: Result | Wake) -> Mapping[str, Any]:
    """Return the result of a call that a person ends: that of a wait for an event is the event's data."""
    if isinstance(answer, Wake):
        return timer_result("person")
    return event_result(wait.event, answer.result, time.time()) if isinstance(wait, EventWait) else answer.result


def _answer_digest(wait_id: str, answer: Answer) -> str:
    """Return the hash of an answer, without a credential: it is secret."""
    return request_digest("answer", wait_id, "" if isinstance(answer, Credential) else to_plain_values(answer))


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
                running.is_detached = True
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

    async def add_history(
        self,
        name: SessionId,
        history: Sequence[Message],
        state_delta: Mapping[str, Any],
        at_revision: int | None,
        first_state: Mapping[str, Any] | None,
    ) -> int:
        """Store messages of the client without starting a turn; return the number of the message before them."""
        entries = await self._inputs.build_history(history, state_delta, first_state or {})
        return await self._store.write_long(add_history, name, entries, time.time(), at_revision, first_state)

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
