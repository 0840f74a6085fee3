"""Answer what turns wait for: approvals, input, credentials, and results of tools."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from lango.adk.run.engine import AdkEngine
from lango.config import Settings
from lango.errors import ApprovalExpired, InvalidInput
from lango.events import TurnEvent
from lango.grants import NewGrant
from lango.messages import Message
from lango.runtime.acceptance import TurnAcceptance
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.requests.expiry import ApprovalExpiry
from lango.runtime.requests.grants import limit_grant
from lango.runtime.requests.tool_questions import ToolQuestions
from lango.runtime.sessions.session_options import AllowedOptions
from lango.store import SessionId, Store
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import MAX_REASON_CHARACTERS
from lango.store.tool_calls.input_requests import InputRequest
from lango.store.tool_calls.long_running import AwaitedResult, read_awaited_results
from lango.tools import Tool
from lango.turns.running_turn import RunningTurn, follow_until_left
from lango.turns.turn_input import ModelOptions, TurnInput, request_digest


class RequestAnswers:
    """The part of a runtime that answers the requests of paused turns; each answer continues its turn."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine, *, every_session: bool) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._expiry = ApprovalExpiry(store)
        self._turns = TurnSupervisor(settings, store, engine, self._expiry.check_soon, every_session=every_session)
        self._turns.spawn(self._expiry.run())
        self._questions = ToolQuestions(store, self._turns)
        self.options = AllowedOptions(store, engine.app_name, settings)
        """The model and the instruction of sessions, where the settings let users choose them."""
        self._acceptance = TurnAcceptance(store, self._turns, self.options, settings.agent.when_busy)

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._engine.app_name

    async def approve(
        self,
        session_id: str,
        call_id: str,
        *,
        approved: bool,
        user_id: str = "user",
        grant: NewGrant | None = None,
        reason: str = "",
    ) -> AsyncGenerator[TurnEvent, None]:
        """Answer an approval request and follow the turn. The answer is only valid for the arguments shown.

        With a `grant`, later calls of the tool in this session that fit it run without asking. The model reads the
        `reason` of a refusal as the result of the call.
        """
        turn = await self.submit_approval(
            session_id, call_id, approved=approved, user_id=user_id, grant=grant, reason=reason
        )
        turn.detached = False  # leaving the stream stops the turn
        async with aclosing(follow_until_left(turn)) as events:
            async for event in events:
                yield event

    async def submit_approval(
        self,
        session_id: str,
        call_id: str,
        *,
        approved: bool,
        user_id: str = "user",
        grant: NewGrant | None = None,
        client_tools: Sequence[Tool] | None = None,
        quota_id: str | None = None,
        options: ModelOptions | None = None,
        reason: str = "",
    ) -> RunningTurn:
        """Answer an approval request in the background, as `submit` does; `grant` and `reason` are as in `approve`."""
        if reason and approved:
            raise InvalidInput("reason: only a refusal has one; leave it out of an approval")
        if len(reason) > MAX_REASON_CHARACTERS:
            raise InvalidInput(f"reason: at most {MAX_REASON_CHARACTERS:,} characters")
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        limited = None if grant is None else limit_grant(grant, self._settings.tools, approved=approved)
        turn_input = await self._engine.inputs.approval_answer(
            name, call_id, approved=approved, grant=limited, reason=reason.strip()
        )
        assert turn_input.approval_answer
        await self._engine.inputs.add_settings(name, turn_input, options, client_tools)
        turn_input.quota_id = quota_id
        turn = await self._acceptance.accept(name, turn_input, f"answer to {turn_input.approval_answer.request_id}")
        if turn.turn.repeated or turn.readers or turn.detached:
            raise ApprovalExpired(f"the approval request for call {call_id!r} was answered just now")
        turn.detached = True
        return turn

    async def submit_input(
        self,
        session_id: str,
        call_id: str,
        value: Any,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        quota_id: str | None = None,
        decline: bool = False,
    ) -> RunningTurn:
        """Answer an input request of a workflow in the background, as `submit` does, or of a running tool.

        A text is read as JSON where the schema of the request does not accept a text. Raise `InvalidInput`, and store
        nothing, if the value does not fit the schema; `InputExpired` if no such request is open (any more). The turn of
        a running tool goes on with the answer; with `decline`, the tool learns that the user gives none.
        """
        name = SessionId(self.app_name, user_id, session_id)
        if (turn := await self._questions.answer(name, call_id, value, decline=decline)) is not None:
            return turn
        await self._expiry.expire_session(name)
        turn_input = await self._engine.inputs.input_answer(name, call_id, value, idempotency_key)
        turn_input.digest = request_digest("input", call_id, value)
        await self._engine.inputs.add_settings(name, turn_input)
        return await self._start_in_background(name, turn_input, idempotency_key, quota_id)

    async def open_input_requests(self, session_id: str, *, user_id: str = "user") -> list[InputRequest]:
        """Return the input requests of a session that can still be answered, in order."""
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        asked = await self._questions.open_questions(name)
        return [*await self._engine.inputs.open_input_requests(name), *(request for request, _ in asked)]

    async def submit_credential(
        self,
        session_id: str,
        call_id: str,
        value: Any,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        quota_id: str | None = None,
    ) -> RunningTurn:
        """Answer a credential request in the background, as `submit` does.

        `value` is the address that the user was sent to after allowing the access, a key, or ADK's own JSON. Raise
        `InvalidCredential`, and store nothing, if it cannot be used; `CredentialExpired` if no such request is open
        (any more).
        """
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        turn_input = await self._engine.inputs.credential_answer(name, call_id, value, idempotency_key)
        turn_input.digest = request_digest("credential", call_id)  # the value is secret
        await self._engine.inputs.add_settings(name, turn_input)
        return await self._start_in_background(name, turn_input, idempotency_key, quota_id)

    async def awaited_results(self, session_id: str, *, user_id: str = "user") -> list[AwaitedResult]:
        """Return the calls of long-running tools in a session that wait for a result, or for a further one."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        return await self._store.read(read_awaited_results, session) if session else []

    async def submit_results(
        self,
        session_id: str,
        results: Mapping[str, Mapping[str, Any]],
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        client_tools: Sequence[Tool] | None = None,
        history: Sequence[Message] = (),
        at_revision: int | None = None,
        quota_id: str | None = None,
        will_continue: bool | None = False,
        options: ModelOptions | None = None,
        digest: str | None = None,
    ) -> RunningTurn:
        """Bring results of client calls and long-running tools, by the calls' ids, in any process.

        The model continues when all calls of its answer have a result. With `will_continue`, these are updates of
        long-running tools, and more results follow; None: they may. Results of calls that wait for none are left out.
        Raise `CallNotWaiting` if none is left. With a `history`, the results are those of the calls at its end, and the
        session starts with it. `at_revision`, `quota_id`, `options` and `digest` are as
        in `submit`; without `options` or `client_tools`, those of the turn that paused hold.
        """
        name = SessionId(self.app_name, user_id, session_id)
        if history:
            turn_input = await asyncio.to_thread(self._engine.inputs.results_after_history, history, results)
        else:
            turn_input = await self._engine.inputs.client_results(
                name, results, idempotency_key, will_continue=will_continue
            )
        turn_input.digest = digest or request_digest("results", results)
        await self._engine.inputs.add_settings(name, turn_input, options, client_tools)
        return await self._start_in_background(name, turn_input, idempotency_key, quota_id, at_revision)

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return results of client tools as they are stored and the model reads them."""
        return {call_id: result.output for call_id, result in self._engine.inputs.results_to_store(results).items()}

    async def _start_in_background(
        self,
        name: SessionId,
        turn_input: TurnInput,
        idempotency_key: str | None,
        quota_id: str | None,
        at_revision: int | None = None,
    ) -> RunningTurn:
        turn_input.quota_id = quota_id
        turn = await self._acceptance.accept(name, turn_input, idempotency_key, at_revision)
        turn.detached = True
        return turn
