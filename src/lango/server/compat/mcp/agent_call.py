"""Run one call of an agent's tool: submit its message, follow the turn, and ask the user what it waits for.

Clients of protocol version 2026-07-28 are asked by the result of the call, which they repeat with the answers; older
ones by a request while the call runs. Either way the turn is stored, and a later call continues it. Imports `mcp`.
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import DecodeError, Struct, ValidationError, json

from lango.errors import InvalidAnswer, SessionNotFound, Stopping, WaitNotOpen
from lango.events import TurnEvent, WaitClosed, WaitOpened
from lango.json_values import convert
from lango.server.compat.mcp.call_view import CallView
from lango.server.compat.mcp.elicitation import to_answer, to_request
from lango.server.compat.wait_answers import value_to_answer
from lango.server.context import AgentUser
from lango.server.streaming.turn_streams import TurnRef
from lango.submissions import SubmittedAnswer, SubmittedMessage
from lango.waits import CredentialWait, QuestionWait, Wait

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "session": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "The session to continue; without one, a new conversation begins. Alone, it returns the "
            "answer of the session's newest turn.",
        },
        "wait": {"type": "string", "description": "The id of what the agent waits for, if this call answers it."},
        "answer": {"description": "The user's answer to `wait`: true or false for an approval, else a value."},
    },
    "additionalProperties": False,
}
_MAX_SESSION_ID = 200
_NOT_ANSWERED = "The user gave no answer."

Context = ServerRequestContext[Any, Any]


class _Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    message: str | None = None
    session: str | None = None
    wait: str | None = None
    answer: Any = None


class _State(Struct, frozen=True):
    """What a client sends back when it repeats a call. It names a turn of the caller, and grants nothing."""

    session: str
    turn: int


class _InputRequired(Exception):
    """The client is to repeat the call with the answers to these requests."""

    def __init__(self, requests: Mapping[str, ElicitRequest]) -> None:
        super().__init__()
        self.requests = requests


class AgentCall:
    """A call of an agent by a client."""

    def __init__(self, user: AgentUser, context: Context, params: CallToolRequestParams) -> None:
        self._user = user
        self._context = context
        self._params = params
        self._responses: InputResponses = dict(params.input_responses or {})
        self._reports = 0
        self.turn: TurnRef | None = None
        """The turn that the call follows, once it is submitted."""

    async def run(self) -> CallToolResult | InputRequiredResult:
        """Return the result of the call, or what the client must ask its user first."""
        with anyio.CancelScope(shield=True):  # a turn that is stored must be known, so that it can be stopped
            self.turn = await self._begin()
        turn = self.turn
        assert turn is not None
        try:
            while True:
                view = await self._follow(turn)
                continued, note = await self._continue(turn, view)
                if continued is None:
                    return view.result(note)
                turn = self.turn = continued
        except _InputRequired as required:
            state = json.encode(_State(turn.session.name.id, turn.turn)).decode()
            return InputRequiredResult(input_requests=dict(required.requests), request_state=state)

    # -- what is submitted --------------------------------------------------------------------------------------------

    async def _begin(self) -> TurnRef:
        """Submit what the call brings; return the turn to follow."""
        if self._params.request_state is not None:
            return await self._repeated(self._params.request_state)
        try:
            given = convert(self._params.arguments or {}, _Arguments)
        except ValidationError as error:
            raise InvalidAnswer(f"the arguments do not fit: {error}") from error
        if given.session is not None and not (
            0 < len(given.session) <= _MAX_SESSION_ID and given.session.isprintable()
        ):
            raise InvalidAnswer(f"session: send 1 to {_MAX_SESSION_ID} printable characters")
        if given.session is not None and "/" in given.session:
            raise InvalidAnswer("session: an id has no slash")
        if given.wait is not None:
            if given.session is None or given.message is not None:
                raise InvalidAnswer("wait: send it with its session and an answer, without a message")
            return await self._answer_stored(given.session, given.wait, given.answer)
        if given.message:
            await self._user.check_token_quota()
            return await self._user.submit(given.session or f"mcp-{uuid.uuid4().hex}", SubmittedMessage(given.message))
        if given.session is None or given.message is not None:
            raise InvalidAnswer("message: say what to send to the agent, or name a session to read its answer")
        session = await self._user.get_session(given.session)
        if (newest := await self._user.runtime.turns.current(session)) is None:
            raise SessionNotFound(f"session {given.session!r} has no turn yet: send a message")
        return TurnRef(session, newest)

    async def _repeated(self, state: str) -> TurnRef:
        """Return the turn that the first attempt of a repeated call submitted."""
        try:
            known = json.decode(state, type=_State)
        except DecodeError as error:
            raise InvalidAnswer("requestState: send that of the result that this call repeats") from error
        session = await self._user.get_session(known.session)
        if await self._user.runtime.turns.read(session, known.turn) is None:
            raise InvalidAnswer("requestState: there is no such turn")
        return TurnRef(session, known.turn)

    async def _answer_stored(self, session_id: str, wait_id: str, value: Any) -> TurnRef:
        """Answer a wait of an earlier call."""
        await self._user.get_session(session_id)
        for wait in await self._user.waits(session_id):
            if wait.id != wait_id:
                continue
            if isinstance(wait, CredentialWait):
                raise InvalidAnswer("wait: a credential is a secret of the user, and not sent through a tool call")
            return await self._user.submit(session_id, SubmittedAnswer(wait_id, value_to_answer(wait, value)))
        raise WaitNotOpen(f"session {session_id!r} does not wait for {wait_id!r}")

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def _follow(self, turn: TurnRef) -> CallView:
        """Follow a turn to its end; report its progress, and ask what its tools ask."""
        view = CallView(turn)
        asked: dict[str, asyncio.Task[object]] = {}
        report = f"session {turn.session.name.id}"
        try:
            async with aclosing(self._user.turns.follow_answer(turn)) as events:
                async for logged in events:
                    if logged is None:
                        await self._report(report)
                        continue
                    if news := view.add(logged.event):
                        report = news
                        await self._report(report)
                    await self._ask_while_running(turn, logged.event, asked)
        finally:
            for task in asked.values():
                task.cancel()
            await asyncio.gather(*asked.values(), return_exceptions=True)
        return view

    async def _report(self, message: str) -> None:
        """Report progress, which also keeps the client waiting; it counts up, since the end is not known."""
        self._reports += 1
        await self._context.session.report_progress(self._reports, message=message)

    async def _ask_while_running(self, turn: TurnRef, event: TurnEvent, asked: dict[str, asyncio.Task[object]]) -> None:
        """Ask the user what a running tool asks, until the question is closed."""
        match event:
            case WaitOpened(wait=QuestionWait() as wait) if await self._is_open(wait):
                if self._is_modern and wait.id not in self._responses:
                    self._require([wait])
                asked[wait.id] = asyncio.create_task(self._answer_question(turn, wait))
            case WaitClosed(wait=wait) if wait.id in asked:
                asked.pop(wait.id).cancel()
            case _:
                pass

    async def _answer_question(self, turn: TurnRef, wait: QuestionWait) -> None:
        try:
            result = await self._ask(wait)
            if result is not None and (answer := to_answer(wait, result)) is not None:
                await self._user.submit(turn.session.name.id, SubmittedAnswer(wait.id, answer))
        except (InvalidAnswer, WaitNotOpen) as error:
            await self._report(str(error))

    async def _continue(self, turn: TurnRef, view: CallView) -> tuple[TurnRef | None, str]:
        """Ask the user for what a turn waits for; return the turn that continues with the answer, or why none does."""
        open_ids = {wait.id for wait in await self._user.waits(turn.session.name.id)} if view.waits else set[str]()
        waits = [wait for wait in view.waits if wait.id in open_ids]
        if view.waits and not waits:  # answered elsewhere since
            number = await self._user.runtime.turns.next(turn.session, turn.turn)
            return (None if number is None else TurnRef(turn.session, number)), ""
        if self._is_modern and not any(wait.id in self._responses for wait in waits):
            self._require(waits)
        for wait in waits:
            if (result := await self._ask(wait)) is None:
                continue
            if isinstance(wait, CredentialWait) and result.action == "accept":
                await self._report("waits for access")
                return await self._next_turn(turn), ""
            answer = to_answer(wait, result)
            if answer is None:
                return None, _NOT_ANSWERED
            return await self._user.submit(turn.session.name.id, SubmittedAnswer(wait.id, answer)), ""
        return None, ""

    async def _next_turn(self, turn: TurnRef) -> TurnRef:
        """Wait until the session continues: the user allows the access on another site."""
        async with self._user.turns.session_watch.watch(self._user.id) as watch:
            while True:
                seen = watch.activity[turn.session.key]
                number = await self._user.runtime.turns.next(turn.session, turn.turn)
                if number is not None:
                    return TurnRef(turn.session, number)
                if self._user.turns.is_closing:
                    raise Stopping("the server is shutting down")
                if watch.activity[turn.session.key] == seen:
                    await watch.changed.wait(self._user.turns.heartbeat_s)
                    await self._report("waits for access")

    # -- the user of the client ---------------------------------------------------------------------------------------

    @property
    def _is_modern(self) -> bool:
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _is_open(self, wait: Wait) -> bool:
        return any(one.id == wait.id for one in await self._user.waits(wait.session_id))

    def _require(self, waits: list[Any]) -> None:
        """Raise `_InputRequired` if the client can ask its user for any of these."""
        able = self._context.session.client_capabilities
        requests = {wait.id: request for wait in waits if (request := to_request(wait, able)) is not None}
        if requests:
            raise _InputRequired(requests)

    async def _ask(self, wait: Wait) -> ElicitResult | None:
        """Return the user's reaction to a wait, or None if the client cannot ask."""
        if self._is_modern:
            response = self._responses.pop(wait.id, None)
            return response if isinstance(response, ElicitResult) else None
        session = self._context.session
        request = to_request(wait, session.client_capabilities)
        if request is None or not session.can_send_request:
            return None
        metadata = ServerMessageMetadata(related_request_id=self._context.request_id)
        return await session.send_request(request, ElicitResult, metadata=metadata)
