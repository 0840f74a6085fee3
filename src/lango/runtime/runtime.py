"""Accept messages, approvals and results, and run their turns: the public API."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lango.adk.run.engine import AdkEngine
from lango.adk.run.input.input_builder import is_answer_address
from lango.adk.services.artifact_service import SqlArtifactService
from lango.config import Settings
from lango.errors import TurnCancelled
from lango.events import TurnEvent, Usage
from lango.memory import Memory
from lango.messages import Attachment, Message
from lango.providers.catalog import using_key
from lango.runtime.artifacts import Artifacts
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.requests.credentials import Credentials
from lango.runtime.requests.grants import Grants
from lango.runtime.requests.inbox import Inbox
from lango.runtime.requests.request_answers import RequestAnswers
from lango.runtime.sessions.sessions import Sessions
from lango.runtime.trace.session_trace import DEFAULT_TURNS, SessionTrace, session_trace, traced_request
from lango.store import SessionId, Store, Turn
from lango.store.sessions.sessions import find_session
from lango.store.turns.model_requests import RequestBodies
from lango.store.turns.recovery import stop_waiting
from lango.store.turns.turns import request_cancel
from lango.tools import Tool
from lango.turns.running_turn import RunningTurn, collect_answer, follow_until_left
from lango.turns.turn_input import ModelOptions, TurnInput, check_attachments

if TYPE_CHECKING:
    from lango.adk.agents.tools.tool_names import ToolNames


class Runtime(RequestAnswers):
    """Runs the turns of one agent on one store. Made by `open_runtime`."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine, *, every_session: bool = True) -> None:
        """`every_session`: see `open_runtime`."""
        super().__init__(settings, store, engine, every_session=every_session)
        self._sessions = Sessions(store, engine.app_name, lambda: engine.window_rules)
        self._artifacts = Artifacts(store, engine.app_name, settings.store.max_artifact_bytes)
        self._credentials = Credentials(store, engine.app_name, self._expiry)

    @property
    def store(self) -> Store:
        """The store that this runtime runs on."""
        return self._store

    @property
    def sessions(self) -> Sessions:
        """The sessions of this agent: list, read, rename, fork, rewind, delete."""
        return self._sessions

    @property
    def artifacts(self) -> Artifacts:
        """The artifacts of sessions and users: list, load, save, delete."""
        return self._artifacts

    @property
    def inbox(self) -> Inbox:
        """What waits for users in their sessions: approvals, inputs, results of long-running tools."""
        return Inbox(self._store, self.app_name)

    @property
    def grants(self) -> Grants:
        """The grants of sessions: list, revoke."""
        return Grants(self._store, self.app_name)

    @property
    def artifact_service(self) -> SqlArtifactService:
        """The same artifacts as ADK's artifact service, which the agents use."""
        return self._engine.artifacts

    @property
    def credentials(self) -> Credentials:
        """The credentials that users gave to tools, and the open requests for them."""
        return self._credentials

    @property
    def memory(self) -> Memory:
        """The memory: notes about sessions, and facts about users."""
        return self._turns.memory

    @property
    def turns(self) -> TurnSupervisor:
        """The turns that run in this process or are queued in it."""
        return self._turns

    @property
    def queued_turns(self) -> int:
        """How many turns wait for a slot in this process."""
        return self._turns.admission.queued

    async def summarize(self, messages: Sequence[Message], instructions: str = "") -> tuple[str, Usage]:
        """Return a summary of a conversation by the agent's model, and the tokens that it took; nothing is stored.

        Raise `UsageError` if the agent has no model, and `EmptyAnswer` if the model writes nothing.
        """
        return await self._engine.summarize(messages, instructions)

    @property
    def model_name(self) -> str:
        """The name of the root agent's model; empty: it has none, as a workflow."""
        return self._engine.model_name

    async def use_model(self, model: str, key: str = "") -> None:
        """Answer with another model `provider/name` from now on, for all sessions, until this runtime is closed.

        Agents below the root agent that have its model get it, too. `key` is the key of the provider; it is kept in
        the memory of this process only. Raise an error, and change nothing, if the model does not answer a request.
        """
        with using_key(model.partition("/")[0], key):
            await self._engine.use_model(model)

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return self._engine.agents()

    async def app_info(self) -> dict[str, Any]:
        """Describe the app, its agents and their tools as ADK's server does.

        Raise `UsageError` if the root is not an `LlmAgent`. Toolsets are asked for their tools.
        """
        return await self._engine.app_info()

    @property
    def may_call_tools(self) -> bool:
        """Whether an agent has tools, or may transfer to another one."""
        return self._engine.may_call_tools

    async def tool_names(self, *, ask_toolsets: bool = False, require_all: bool = True) -> "ToolNames":
        """List the names of the agents' tools; with `ask_toolsets` also those of toolsets.

        That starts or connects to MCP servers. Raise `ConfigError` if one of them does not answer; without
        `require_all`, that is one of the reasons in `unusable`.
        """
        return await self._engine.tool_names(ask_toolsets=ask_toolsets, require_all=require_all)

    async def diff_of_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call that waits for approval would change in a file now, as a unified diff.

        Empty: the tool changes no file, or the file cannot be compared.
        """
        return await self._engine.diff_of_call(name, arguments)

    @property
    def unusable_tools(self) -> tuple[str, ...]:
        """Which tools of MCP servers cannot be offered, each with its reason; known once their server was asked."""
        return self._engine.unusable_tools

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

    async def trace(
        self,
        session_id: str,
        *,
        user_id: str = "user",
        turn: int | None = None,
        before: int | None = None,
        limit: int = DEFAULT_TURNS,
    ) -> SessionTrace:
        """Read what happened in the newest turns, in those before a turn, or in one: agents, model calls, tools.

        It may be called while a turn runs. Raise `SessionNotFound`, or `TraceNotFound` if there is no such turn.
        """

        def running_calls(session_key: int, number: int) -> list[dict[str, Any]]:
            running = [one for one in self._turns.running_turns(session_key) if one.turn.turn == number]
            return running[0].model_calls() if running else []

        name = SessionId(self.app_name, user_id, session_id)
        return await session_trace(
            self._store, name, turn=turn, before=before, limit=limit, running_calls=running_calls
        )

    async def traced_request(self, session_id: str, request_id: str, *, user_id: str = "user") -> RequestBodies:
        """Read a request to a model and its response, as they went over the wire. Raise `TraceNotFound`.

        They are kept with the setting `trace.requests`.
        """
        return await traced_request(self._store, SessionId(self.app_name, user_id, session_id), request_id)

    async def cancel(self, session_id: str, *, user_id: str = "user", turn: int | None = None) -> bool:
        """Stop the session's running turn, in any process; stored messages stay. False: none runs.

        If a paused turn waits for an approval, for input or for a credential, these requests are closed: the next
        message starts anew. Long-running tools go on, and their results may still come. With `turn`, only that
        turn is stopped, and no request is closed.
        """
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None:
            return False
        found = await self._store.write(request_cancel, session.key, only=turn)
        for running in self._turns.running_turns(session.key):
            is_meant = turn in (None, running.turn.turn)
            if is_meant and running.turn.epoch is not None and not running.turn.repeated:
                running.stop(TurnCancelled("the turn was stopped"))
        return found or turn is not None or await self._store.write(stop_waiting, session.key, time.time())

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
        client_tools: Sequence[Tool] | None = None,
        results: Mapping[str, Mapping[str, Any]] | None = None,
        history: Sequence[Message] = (),
        at_revision: int | None = None,
        quota_id: str | None = None,
        options: ModelOptions | None = None,
        digest: str | None = None,
    ) -> RunningTurn:
        """Store a message and run its turn in the background; `follow` it from anywhere in this process.

        The same `idempotency_key` again returns the same turn; with another message it raises `IdempotencyKeyReused`.
        `state_delta` changes the session's state when the turn starts. `client_tools` are offered to the model in this
        turn: a call of such a tool ends the turn, and waits for `submit_results`. A message closes open client calls;
        `results`, by the calls' ids, gives results for some of them. If a workflow waits for input, the text of the
        message is the answer, unless results or a history come with it; see `submit_input`.

        `history` holds earlier messages of the client: they are stored right before this message, in the same
        transaction, and marked as the client's. With `at_revision`, raise `StaleSession` and store nothing unless the
        session has exactly that revision and no turn of it runs or is queued. The tokens of the turn are counted
        against `quota_id`, the id of an API key, by the process that ends the turn. `options` hold for the model calls
        of this turn; raise `ModelOptionsRefused` if the agent cannot follow them. A repeated idempotency key must come
        with the same `digest`, if there is one, and else with the same message.
        """
        name = SessionId(self.app_name, user_id, session_id)
        check_attachments(attachments, self._settings.server)
        if results or history:
            turn_input = self._engine.inputs.message(text, attachments)
        else:
            turn_input = await self._message_or_answer(name, text, attachments, idempotency_key)
        self._engine.inputs.add_state(turn_input, state_delta or {})
        await self._engine.inputs.add_settings(name, turn_input, options, client_tools)
        turn_input.digest = digest
        if results:
            await self._engine.inputs.add_results(name, turn_input, results)
        if history:
            await asyncio.to_thread(self._engine.inputs.add_history, turn_input, history)
        return await self._start_in_background(name, turn_input, idempotency_key, quota_id, at_revision)

    # -- accepting ------------------------------------------------------------------------------------------------

    async def _accept_message(
        self, session_id: str, text: str, user_id: str, idempotency_key: str | None, attachments: Sequence[Attachment]
    ) -> RunningTurn:
        check_attachments(attachments, self._settings.server)
        name = SessionId(self.app_name, user_id, session_id)
        turn_input = await self._message_or_answer(name, text, attachments, idempotency_key)
        return await self._acceptance.accept(name, turn_input, idempotency_key)

    async def _message_or_answer(
        self, name: SessionId, text: str, attachments: Sequence[Attachment], idempotency_key: str | None
    ) -> TurnInput:
        """Build the input of a message, which answers a workflow's input request, or a credential request."""
        if not (self._engine.may_request_input or is_answer_address(text)):
            return self._engine.inputs.message(text, attachments)
        await self._expiry.expire_session(name)
        return await self._engine.inputs.message_or_input_answer(name, text, attachments, idempotency_key)

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more turns, let the steps under way end within a limit, and release the turns.

        Nothing is cancelled: another process goes on with them, or the next one that opens this store.
        """
        self._acceptance.closed = True
        await self._turns.hand_over(limit_s)

    async def close(self) -> None:
        """Hand over the running turns, within `server.shutdown_s`, and wait until that is stored."""
        self._acceptance.closed = True
        await self._turns.close(self._settings.server.shutdown_s)
        await self._engine.close()
