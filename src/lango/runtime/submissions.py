"""Accept what clients submit: build the input of each turn, store it, and start or queue the turn."""

from typing import assert_never

from lango.adk.run.engine import AdkEngine
from lango.adk.run.input.input_builder import is_answer_address
from lango.config import Settings
from lango.errors import ApprovalExpired, InvalidInput
from lango.history import load_tokenizer
from lango.runtime.acceptance import TurnAcceptance
from lango.runtime.requests.expiry import ApprovalExpiry
from lango.runtime.requests.grants import limit_grant
from lango.runtime.requests.tool_questions import ToolQuestions
from lango.store import SessionId
from lango.store.sessions.client_state import check_client_state
from lango.store.tool_calls.approvals import MAX_REASON_CHARACTERS
from lango.threads import run_in_thread
from lango.turns.running_turn import RunningTurn
from lango.turns.submissions import (
    Submission,
    SubmittedApproval,
    SubmittedCredential,
    SubmittedInput,
    SubmittedMessage,
    SubmittedResults,
    TurnRequest,
)
from lango.turns.turn_input import TurnInput, check_attachments, request_digest


class Submissions:
    """Accepts the submissions to the sessions of one app."""

    def __init__(
        self,
        settings: Settings,
        engine: AdkEngine,
        acceptance: TurnAcceptance,
        expiry: ApprovalExpiry,
        questions: ToolQuestions,
    ) -> None:
        self._settings = settings
        self._app = engine.app
        self._inputs = engine.inputs
        self._acceptance = acceptance
        self._expiry = expiry
        self._questions = questions

    async def accept(
        self,
        name: SessionId,
        submission: Submission,
        quota_id: str | None = None,
        tokens_per_day: int | None = None,
        *,
        detached: bool = True,
    ) -> RunningTurn:
        """Store what was submitted and return its turn, which runs in this process.

        The tokens of the turn are counted against `quota_id`, whose limit is `tokens_per_day`. A `detached` turn runs
        on when its readers leave it.
        """
        await load_tokenizer()
        match submission:
            case SubmittedMessage():
                turn_input = await self._message(name, submission)
            case SubmittedResults():
                turn_input = await self._results(name, submission)
            case SubmittedApproval():
                turn_input = await self._approval(name, submission)
            case SubmittedInput(call_id, value, decline):
                if (asking := await self._questions.answer(name, call_id, value, decline=decline)) is not None:
                    return asking
                turn_input = await self._input(name, submission)
            case SubmittedCredential():
                turn_input = await self._credential(name, submission)
            case _ as unexpected:
                assert_never(unexpected)
        turn_input.quota_id, turn_input.tokens_per_day = quota_id, tokens_per_day
        turn = await self._start(name, turn_input, submission.request)
        turn.detached = turn.detached or detached
        return turn

    async def _message(self, name: SessionId, submitted: SubmittedMessage) -> TurnInput:
        """Build the input of a message, which may answer a workflow's input request, or a credential request."""
        text, attachments, request = submitted.text, submitted.attachments, submitted.request
        check_attachments(attachments, self._settings.server)
        check_client_state(submitted.state_delta, self._app.credential_names)
        may_answer = self._app.may_request_input or is_answer_address(text)
        if submitted.results or submitted.history or not may_answer:
            turn_input = self._inputs.message(text, attachments)
        else:
            await self._expiry.expire_session(name)
            turn_input = await self._inputs.message_or_input_answer(name, text, attachments, request.idempotency_key)
        self._inputs.add_state(turn_input, submitted.state_delta)
        await self._inputs.apply_request(name, turn_input, request)
        turn_input.digest = request.digest
        if submitted.results:
            await self._inputs.add_results(name, turn_input, submitted.results)
        if submitted.history:
            await run_in_thread(self._inputs.add_history, turn_input, submitted.history)
        return turn_input

    async def _results(self, name: SessionId, submitted: SubmittedResults) -> TurnInput:
        results, request = submitted.results, submitted.request
        if submitted.history:
            turn_input = await run_in_thread(self._inputs.results_after_history, submitted.history, results)
        else:
            turn_input = await self._inputs.client_results(
                name, results, request.idempotency_key, will_continue=submitted.will_continue
            )
        turn_input.digest = request.digest or request_digest("results", results)
        await self._inputs.apply_request(name, turn_input, request)
        return turn_input

    async def _approval(self, name: SessionId, submitted: SubmittedApproval) -> TurnInput:
        approved, grant = submitted.approved, submitted.grant
        if submitted.reason and approved:
            raise InvalidInput("reason: only a refusal has one; leave it out of an approval")
        if len(submitted.reason) > MAX_REASON_CHARACTERS:
            raise InvalidInput(f"reason: at most {MAX_REASON_CHARACTERS:,} characters")
        await self._expiry.expire_session(name)
        limited = None if grant is None else limit_grant(grant, self._settings.tools, approved=approved)
        turn_input = await self._inputs.approval_answer(
            name,
            submitted.call_id,
            approved=approved,
            grant=limited,
            reason=submitted.reason.strip(),
            payload=submitted.payload,
        )
        await self._inputs.apply_request(name, turn_input, submitted.request)
        return turn_input

    async def _input(self, name: SessionId, submitted: SubmittedInput) -> TurnInput:
        call_id, value, request = submitted.call_id, submitted.value, submitted.request
        await self._expiry.expire_session(name)
        turn_input = await self._inputs.input_answer(name, call_id, value, request.idempotency_key)
        turn_input.digest = request_digest("input", call_id, value)
        await self._inputs.apply_request(name, turn_input, request)
        return turn_input

    async def _credential(self, name: SessionId, submitted: SubmittedCredential) -> TurnInput:
        call_id, request = submitted.call_id, submitted.request
        await self._expiry.expire_session(name)
        turn_input = await self._inputs.credential_answer(name, call_id, submitted.value, request.idempotency_key)
        turn_input.digest = request_digest("credential", call_id)  # the value is secret
        await self._inputs.apply_request(name, turn_input, request)
        return turn_input

    async def _start(self, name: SessionId, turn_input: TurnInput, request: TurnRequest) -> RunningTurn:
        answer = turn_input.approval_answer
        if answer is None:
            return await self._acceptance.accept(name, turn_input, request.idempotency_key, request.at_revision)
        turn = await self._acceptance.accept(name, turn_input, f"answer to {answer.request_id}")
        if turn.turn.repeated or turn.readers or turn.detached:
            raise ApprovalExpired(f"the approval request for call {answer.call_id!r} was answered just now")
        return turn
