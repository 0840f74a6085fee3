"""Build the inputs of turns from what clients submit."""

from typing import Any, assert_never

from lango.adk.run.engine import AdkEngine
from lango.adk.run.input.input_builder import is_answer_address
from lango.client_state import check_client_state
from lango.config import Settings
from lango.errors import InvalidAnswer, WaitNotOpen
from lango.events import to_plain_values
from lango.history import load_tokenizer
from lango.runtime.requests.expiry import ApprovalExpiry
from lango.runtime.requests.grants import limit_grant
from lango.runtime.requests.tool_questions import ToolQuestions
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import MAX_REASON_CHARACTERS
from lango.store.waits.waits import read_waits
from lango.submissions import (
    Submission,
    SubmittedAnswer,
    SubmittedApproval,
    SubmittedCredential,
    SubmittedInput,
    SubmittedMessage,
    SubmittedResults,
    check_attachments,
)
from lango.threads import run_in_thread
from lango.turns.running_turn import RunningTurn
from lango.turns.turn_input import TurnInput, request_digest
from lango.waits import (
    Answer,
    ApprovalWait,
    Approve,
    ClientResultWait,
    Credential,
    CredentialWait,
    Decline,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Refuse,
    Result,
    Value,
    Wait,
    check_answer,
)


class Submissions:
    """Builds the inputs that are submitted to the sessions of one app."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: AdkEngine,
        expiry: ApprovalExpiry,
        questions: ToolQuestions,
    ) -> None:
        self._settings = settings
        self._store = store
        self._app = engine.app
        self._inputs = engine.inputs
        self._expiry = expiry
        self._questions = questions

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
            case SubmittedApproval():
                return await self._approval(name, submission)
            case SubmittedInput(call_id, value, decline):
                asking = await self._questions.answer(name, call_id, value, decline=decline)
                return asking or await self._input(name, submission)
            case SubmittedCredential():
                return await self._credential(name, submission)
            case _ as unexpected:
                assert_never(unexpected)

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

    async def _answer(self, name: SessionId, submitted: SubmittedAnswer) -> TurnInput | RunningTurn:
        """Build the input of an answer to a wait; or answer a question of a running tool, and return its turn."""
        wait_id, answer, request = submitted.wait_id, submitted.answer, submitted.request
        if request.idempotency_key is not None and await self._inputs.is_stored(name, request.idempotency_key):
            turn_input = self._inputs.repeated_input()
            turn_input.digest = _answer_digest(wait_id, answer)
            return turn_input
        waits = {wait.id: wait for wait in await self.waits(name)}
        if (wait := waits.get(wait_id)) is None:
            raise WaitNotOpen(f"session {name.id!r} has no open wait {wait_id!r}")
        check_answer(wait, answer)
        match wait, answer:
            case ApprovalWait(), Approve():
                approval = SubmittedApproval(wait.call_id, True, answer.grant, "", request, answer.payload)
                turn_input = await self._approval(name, approval)
            case ApprovalWait(), Refuse():
                refusal = SubmittedApproval(wait.call_id, False, None, answer.reason, request, answer.payload)
                turn_input = await self._approval(name, refusal)
            case QuestionWait(), Value():
                return await self._answer_question(name, wait_id, answer.value)
            case QuestionWait(), Decline():
                return await self._answer_question(name, wait_id, None, decline=True)
            case InputWait(), Value():
                turn_input = await self._input(name, SubmittedInput(wait_id, answer.value, request=request))
            case CredentialWait(), Credential():
                turn_input = await self._credential(name, SubmittedCredential(wait_id, answer.value, request))
            case ((ClientResultWait() | LongRunningWait()), Result()):
                results = SubmittedResults({wait.call_id: answer.result}, answer.will_continue, request=request)
                turn_input = await self._results(name, results)
            case _:
                raise AssertionError("check_answer refused it")
        turn_input.digest = _answer_digest(wait_id, answer)
        return turn_input

    async def waits(self, name: SessionId) -> list[Wait]:
        """Return what a session waits for."""
        await self._expiry.expire_session(name)
        session = await self._store.read(find_session, name)
        return await self._store.read(read_waits, session) if session else []

    async def _answer_question(
        self, name: SessionId, question_id: str, value: Any, *, decline: bool = False
    ) -> RunningTurn:
        asking = await self._questions.answer(name, question_id, value, decline=decline)
        if asking is None:
            raise WaitNotOpen(f"session {name.id!r} has no open wait {question_id!r}")
        return asking

    async def _approval(self, name: SessionId, submitted: SubmittedApproval) -> TurnInput:
        approved, grant = submitted.approved, submitted.grant
        if submitted.reason and approved:
            raise InvalidAnswer("reason: only a refusal has one; leave it out of an approval")
        if len(submitted.reason) > MAX_REASON_CHARACTERS:
            raise InvalidAnswer(f"reason: at most {MAX_REASON_CHARACTERS:,} characters")
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


def _answer_digest(wait_id: str, answer: Answer) -> str:
    """Return the hash of an answer, without a credential: it is secret."""
    return request_digest("answer", wait_id, "" if isinstance(answer, Credential) else to_plain_values(answer))
