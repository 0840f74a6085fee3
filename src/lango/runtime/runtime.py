"""Accept messages, approvals and results, and run their turns: the public API."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from lango.adk.run.engine import AdkEngine
from lango.config import Settings
from lango.errors import (
    ApprovalExpired,
    OutcomeUnknown,
    TurnCancelled,
)
from lango.events import Accepted, TurnEvent
from lango.memory import Memory
from lango.messages import Attachment, Message
from lango.runtime.expiry import ApprovalExpiry
from lango.runtime.sessions import Sessions, get_or_create_session, require_session
from lango.runtime.turn_runner import trace_of_request
from lango.runtime.turn_supervisor import TurnSupervisor
from lango.store import SessionId, Store, Turn
from lango.store.sessions.sessions import find_session
from lango.store.turns.turns import read_turn, request_cancel
from lango.tools import Tool
from lango.turns.lease_holder import finish_despite_cancel
from lango.turns.running_turn import RunningTurn, collect_answer, follow_until_left
from lango.turns.turn_input import TurnInput, check_attachments

if TYPE_CHECKING:
    from lango.adk.agents.tool_names import ToolNames

_log = logging.getLogger("lango.runtime")


class Runtime:
    """Runs the turns of one agent on one store. Made by `open_runtime`."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine, *, every_session: bool = True) -> None:
        """`every_session`: see `open_runtime`."""
        self._settings = settings
        self._store = store
        self._engine = engine
        self._expiry = ApprovalExpiry(store)
        self._turns = TurnSupervisor(settings, store, engine, self._expiry.check_soon, every_session=every_session)
        self._turns.spawn(self._expiry.run())
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sessions = Sessions(store, engine.app_name, lambda: engine.window_rules)
        self._closed = False

    @property
    def store(self) -> Store:
        """The store that this runtime runs on."""
        return self._store

    @property
    def sessions(self) -> Sessions:
        """The sessions of this agent: list, read, rename, fork, rewind, delete."""
        return self._sessions

    @property
    def memory(self) -> Memory:
        """The memory: notes about sessions, and facts about users."""
        return self._turns.memory

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._engine.app_name

    @property
    def turns(self) -> TurnSupervisor:
        """The turns that run in this process or are queued in it."""
        return self._turns

    @property
    def queued_turns(self) -> int:
        """How many turns wait for a slot in this process."""
        return self._turns.admission.queued

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return self._engine.agents()

    async def tool_names(self, *, ask_toolsets: bool = False) -> "ToolNames":
        """List the names of the agents' tools; with `ask_toolsets` also those of toolsets.

        That starts or connects to MCP servers. Raise `ConfigError` if one of them does not answer.
        """
        return await self._engine.tool_names(ask_toolsets=ask_toolsets)

    async def stream(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> AsyncGenerator[TurnEvent, None]:
        """Send a message and follow its turn: `Accepted` first, `TurnDone` or a fatal `TurnError` last.

        Leaving the stream before its end cancels the turn; `submit` does not.
        """
        turn = await self._accept_message(session_id, text, user_id, idempotency_key, attachments)
        async with aclosing(follow_until_left(turn)) as events:
            async for event in events:
                yield event

    async def run(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> str:
        """Send a message and return the complete answer, or raise the error of the turn."""
        return await collect_answer(await self._accept_message(session_id, text, user_id, idempotency_key, attachments))

    async def approve(
        self, session_id: str, call_id: str, *, approved: bool, user_id: str = "user"
    ) -> AsyncGenerator[TurnEvent, None]:
        """Answer an approval request and follow the turn. The answer is only valid for the arguments shown."""
        turn = await self._accept_approval(session_id, call_id, approved, user_id)
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
        client_tools: Sequence[Tool] = (),
        quota_id: str | None = None,
    ) -> RunningTurn:
        """Answer an approval request in the background, as `submit` does."""
        turn = await self._accept_approval(session_id, call_id, approved, user_id, client_tools, quota_id)
        turn.detached = True
        return turn

    async def submit_results(
        self,
        session_id: str,
        results: Mapping[str, Mapping[str, Any]],
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        client_tools: Sequence[Tool] = (),
        history: Sequence[Message] = (),
        at_revision: int | None = None,
        quota_id: str | None = None,
    ) -> RunningTurn:
        """Bring results of client calls, by the calls' ids; the model continues when all open calls have one.

        Results of other calls are left out. Raise `CallNotWaiting` if none is left. With a `history`, the results are
        those of the calls at its end, and the session starts with it. `at_revision` and `quota_id` are as in `submit`.
        """
        name = SessionId(self.app_name, user_id, session_id)
        if history:
            turn_input = await asyncio.to_thread(self._engine.inputs.results_after_history, history, results)
        else:
            turn_input = await self._engine.inputs.client_results(name, results, idempotency_key)
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        turn_input.quota_id = quota_id
        turn = await self._accept_input(name, turn_input, idempotency_key, at_revision)
        turn.detached = True
        return turn

    async def cancel(self, session_id: str, *, user_id: str = "user") -> bool:
        """Stop the session's running turn, in any process; stored messages stay. False: none runs."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None:
            return False
        found = await self._store.write(request_cancel, session.key)
        for running in self._turns.running_turns(session.key):
            if running.turn.epoch is not None and not running.turn.repeated:
                running.stop(TurnCancelled("the turn was stopped"))
        return found

    async def take_back(self, session_id: str, turn: int, *, user_id: str = "user") -> bool:
        """Withdraw a queued message; False: it is not queued (any more)."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None or not await self._store.withdraw_turn(Turn(session.key, turn)):
            return False
        for running in self._turns.running_turns(session.key):
            if running.turn.turn == turn:
                running.stop(TurnCancelled("the message was taken back before its turn came"))
        return True

    async def submit(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
        state_delta: Mapping[str, Any] | None = None,
        client_tools: Sequence[Tool] = (),
        results: Mapping[str, Mapping[str, Any]] | None = None,
        history: Sequence[Message] = (),
        at_revision: int | None = None,
        quota_id: str | None = None,
    ) -> RunningTurn:
        """Store a message and run its turn in the background; `follow` it from anywhere in this process.

        The same `idempotency_key` again returns the same turn; with another message it raises `IdempotencyKeyReused`.
        `state_delta` changes the session's state when the turn starts. `client_tools` are offered to the model in this
        turn: a call of such a tool ends the turn, and waits for `submit_results`. A message closes open client calls;
        `results`, by the calls' ids, gives results for some of them.

        `history` holds earlier messages of the client: they are stored right before this message, in the same
        transaction, and marked as the client's. With `at_revision`, raise `StaleSession` and store nothing unless the
        session has exactly that revision and no turn of it runs or is queued. The tokens of the turn are counted
        against `quota_id`, the id of an API key, by the process that ends the turn.
        """
        name = SessionId(self.app_name, user_id, session_id)
        check_attachments(attachments, self._settings.server)
        turn_input = self._engine.inputs.message(text, attachments, state_delta)
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        turn_input.quota_id = quota_id
        if results:
            await self._engine.inputs.add_results(name, turn_input, results)
        if history:
            await asyncio.to_thread(self._engine.inputs.add_history, turn_input, history)
        turn = await self._accept_input(name, turn_input, idempotency_key, at_revision)
        turn.detached = True
        return turn

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return results of client tools as they are stored and the model reads them."""
        return {call_id: result.output for call_id, result in self._engine.inputs.results_to_store(results).items()}

    # -- accepting ------------------------------------------------------------------------------------------------

    async def _accept_message(
        self, session_id: str, text: str, user_id: str, idempotency_key: str | None, attachments: Sequence[Attachment]
    ) -> RunningTurn:
        check_attachments(attachments, self._settings.server)
        name = SessionId(self.app_name, user_id, session_id)
        return await self._accept_input(name, self._engine.inputs.message(text, attachments), idempotency_key)

    async def _accept_approval(
        self,
        session_id: str,
        call_id: str,
        approved: bool,
        user_id: str,
        client_tools: Sequence[Tool] = (),
        quota_id: str | None = None,
    ) -> RunningTurn:
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        turn_input = await self._engine.inputs.approval_answer(name, call_id, approved=approved)
        assert turn_input.approval_answer
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        turn_input.quota_id = quota_id
        turn = await self._accept_input(name, turn_input, f"answer to {turn_input.approval_answer.request_id}")
        if turn.turn.repeated or turn.readers or turn.detached:
            raise ApprovalExpired(f"the approval request for call {call_id!r} was answered just now")
        return turn

    async def _accept_input(
        self, name: SessionId, turn_input: TurnInput, idempotency_key: str | None, at_revision: int | None = None
    ) -> RunningTurn:
        if self._closed:
            raise TurnCancelled("the runtime is closed: open another one")
        mode = self._settings.agent.when_busy
        async with self._locks.setdefault(name, asyncio.Lock()):  # stored in the order in which they were sent
            session = await (get_or_create_session if at_revision is None else require_session)(self._store, name)
            try:
                turn, caller_left = await finish_despite_cancel(
                    self._store.submit_turn(
                        session,
                        turn_input.entry,
                        self._turns.owner.name,
                        idempotency_key=idempotency_key,
                        wait=mode != "refuse",
                        answer=turn_input.approval_answer,
                        at_revision=at_revision,
                        request=turn_input.request | trace_of_request(),
                    )
                )
            except OutcomeUnknown:
                self._turns.end_unknown_turn(session, turn_input)
                raise
            record = (
                await self._store.read(read_turn, turn.session_key, turn.turn)
                if turn.repeated and not caller_left
                else None
            )
        if caller_left or self._closed:
            if not turn.repeated:
                await self._turns.end_unrun_turn(session, turn)
            raise asyncio.CancelledError if caller_left else TurnCancelled("the runtime was closed")
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

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more turns, let the steps under way end within a limit, and release the turns.

        Nothing is cancelled: another process goes on with them, or the next one that opens this store.
        """
        self._closed = True
        await self._turns.hand_over(limit_s)

    async def close(self) -> None:
        """Hand over the running turns, within `server.shutdown_s`, and wait until that is stored."""
        self._closed = True
        await self._turns.close(self._settings.server.shutdown_s)
        await self._engine.close()
