"""Accept messages, approvals and results, and run their turns: the public API."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from lango.adk.agents.tools.tool_names import ToolNames, diff_of_call, tool_names
from lango.adk.run.engine import AdkEngine
from lango.adk.run.summary import summarize
from lango.adk.services.adk_server import AdkRest
from lango.config import Settings
from lango.development.agent_cards import CallByHand, CallResult, NodeCard
from lango.errors import TurnCancelled, UsageError
from lango.events import TurnEvent, Usage, to_plain_values
from lango.messages import Attachment, Message
from lango.providers.catalog import using_key
from lango.runtime.access import ApiKeys, Credentials, Grants
from lango.runtime.artifacts import Artifacts
from lango.runtime.execution.due_loop import DueKind, DueWork, run_due_work
from lango.runtime.execution.replicas import ListedReplica
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.execution.webhook_sender import WebhookSender
from lango.runtime.playground import Playground
from lango.runtime.sessions.eval_sets import suggestions_for
from lango.runtime.sessions.session_options import AllowedOptions
from lango.runtime.sessions.sessions import Sessions
from lango.runtime.submissions.schedules import DueSchedules, Schedules
from lango.runtime.submissions.submissions import Submissions, TurnAcceptance
from lango.runtime.submissions.triggers import Triggers
from lango.runtime.turns import Turns
from lango.runtime.waits import DueWaits, Inbox
from lango.runtime.webhooks import Webhooks
from lango.sessions import SessionId, WhenBusy
from lango.store import Store, Turn
from lango.store.sessions.sent_events import EVENTS_KEPT_S as EVENTS_KEPT_S
from lango.store.sessions.sent_events import SentEvent as SentEvent
from lango.store.sessions.sent_events import send_event
from lango.store.sessions.sessions import find_session
from lango.store.turns.turns import request_cancel
from lango.store.waits.due import DueWait
from lango.store.waits.recovery import stop_waiting
from lango.store.waits.waits import decline
from lango.submissions import (
    ModelOptions,
    Submission,
    SubmittedAnswer,
    SubmittedEnd,
    SubmittedMessage,
    TurnRequest,
)
from lango.threads import run_in_thread
from lango.tools import Tool
from lango.turns.running_turn import RunningTurn
from lango.waits import Answer, Wait
from lango.waits.pauses import check_event_name

_MAX_KEY_CHARACTERS = 512


class Runtime:
    """Runs the turns of one agent on one store. Made by `open_runtime`."""

    def __init__(
        self, settings: Settings, store: Store, engine: AdkEngine, webhook_sender: WebhookSender, *, every_session: bool
    ) -> None:
        """`every_session`: see `open_runtime`."""
        self.settings = settings
        self._store = store
        self._engine = engine
        self._supervisor = TurnSupervisor(settings, store, engine, every_session=every_session)
        self.inbox = Inbox(store, engine.app.name)
        """What waits for users in their sessions: approvals, inputs, results of long-running tools."""
        self.options = AllowedOptions(store, engine.app.name, settings)
        """The model and the instruction of sessions, where the settings let users choose them."""
        submissions = Submissions(settings, store, engine, self.inbox, self._supervisor)
        self._acceptance = TurnAcceptance(store, self._supervisor, submissions, self.options, settings.agent.when_busy)
        self.schedules = Schedules(store, engine.app.name)
        """The schedules of users: add, list, change, pause, run now, delete."""
        self._due_waits = DueWaits(store, engine.app.name, self._end_wait, every_session=every_session)
        due: dict[DueKind, DueWork] = {"waits": self._due_waits, "deliveries": webhook_sender}
        if every_session:
            due["schedules"] = DueSchedules(
                store, engine.app.name, self._acceptance.accept, self.schedules.notify_started
            )
        self._supervisor.spawn(run_due_work(store, engine.app.name, due, self._supervisor.spawn))
        self.sessions = Sessions(
            store,
            engine.app.name,
            lambda: engine.window_rules,
            lambda: engine.app.credential_names,
            self._supervisor.model_calls_of,
            settings.agent.prices,
        )
        """The sessions of this agent: list, read, trace, rename, fork, rewind, delete."""
        self.playground = Playground(
            store, engine, self._supervisor, self._acceptance.accept, lambda: engine.app.credential_names
        )
        """Runs turns on from their steps with something changed, as forks."""
        self.artifacts = Artifacts(store, engine.app.name, settings.store.max_artifact_bytes)
        """The artifacts of sessions and users: list, load, save, delete."""
        self.grants = Grants(store, engine.app.name)
        """The grants of sessions: list, revoke."""
        accepted = self._acceptance
        self.turns = Turns(store, engine.app.name, self._supervisor, accepted.leave, accepted.add_history)
        """The turns of sessions: as they are stored, and their events."""
        self.memory = self._supervisor.memory
        """The memory: notes about sessions, and facts about users."""
        self.keys = ApiKeys(store)
        """The API keys of all users, and the tokens that they have used."""
        self.adk_rest = AdkRest(store, engine.app.name, engine.app.root, engine.artifacts)
        """The sessions and artifacts in the JSON of ADK's own server."""
        self.credentials = Credentials(store, engine.app.name)
        """The credentials that users gave to tools, and the open requests for them."""
        self.webhooks = Webhooks(store, engine.app.name)
        """The addresses that are notified when turns end, and what could not be sent to them."""
        self.triggers = Triggers(settings.triggers, store, engine.app.name, self.accept, self.send_event)
        """What other systems may start turns by."""

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._engine.app.name

    @property
    def model_name(self) -> str:
        """The name of the root agent's model; empty if it has none, as a workflow."""
        return self._engine.app.model_name

    @property
    def may_call_tools(self) -> bool:
        """Whether an agent has tools, or may transfer to another one."""
        return self._engine.app.may_call_tools

    @property
    def abandoned_turns(self) -> int:
        """How many turns this process ended because their processes died at each attempt."""
        return self._supervisor.abandoned_turns

    @property
    def turns_without_slot(self) -> int:
        """How many turns wait for a slot in this process."""
        return self._supervisor.admission.waiting

    async def probe(self) -> None:
        """Raise `StoreError` if the database does not answer, or its file is gone or replaced."""
        await self._store.probe()

    # -- the agent ------------------------------------------------------------------------------------------------

    @property
    def root_name(self) -> str:
        """The name of the root agent, or of the root node."""
        return self._engine.app.root.name

    @property
    def description(self) -> str:
        """What the author of the root agent wrote of it."""
        return getattr(self._engine.app.root, "description", "") or ""

    async def describe_agents(self, *, ask_toolsets: bool = False) -> NodeCard:
        """Describe the agents, nodes and tools of the app, from the root on.

        `ask_toolsets`: toolsets list their tools, which starts or connects to MCP servers.
        """
        return await self._engine.app.describe(ask_toolsets=ask_toolsets)

    async def suggestions(self) -> list[str]:
        """Return what a user may say first: the suggestions of the settings, or how the agent's test cases begin."""
        return await run_in_thread(suggestions_for, self.settings)

    async def call_tool_by_hand(self, call: CallByHand, *, user_id: str = "user") -> CallResult:
        """Run one tool as its developer asks, apart from all sessions: nothing that it saves is kept.

        Raise `ToolNotFound`, `ToolRefused`, `InvalidArguments` or `ApprovalRequired` for a call that may not run.
        """
        return await self._engine.app.call_by_hand(call, user_id)

    async def tool_names(self, *, ask_toolsets: bool = False, require_all: bool = True) -> ToolNames:
        """List the names of the agents' tools; with `ask_toolsets` also those of toolsets.

        That starts or connects to MCP servers. Raise `ConfigError` if one of them does not answer; without
        `require_all`, it is one of the `failures`.
        """
        return await tool_names(self._engine.app.adk_app, ask_toolsets=ask_toolsets, require_all=require_all)

    async def diff_of_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call that waits for approval would change in a file now, as a unified diff.

        It is empty if the tool changes no file, or the file cannot be compared.
        """
        return await diff_of_call(self._engine.app.root, name, arguments)

    async def summarize(self, messages: Sequence[Message], instructions: str = "") -> tuple[str, Usage]:
        """Return a summary of a conversation by the agent's model, and the tokens that it took; nothing is stored.

        Raise `UsageError` if the agent has no model, and `EmptyAnswer` if the model writes nothing.
        """
        return await summarize(self._engine.app.root, messages, instructions)

    async def use_model(self, model: str, key: str = "") -> None:
        """Answer with another model `provider/name` from now on, for all sessions, until this runtime is closed.

        Agents below the root agent that have its model get it, too. `key` is the key of the provider; it is kept in
        the memory of this process only. Raise an error, and change nothing, if the model does not answer a request.
        """
        with using_key(model.partition("/")[0], key):
            await self._engine.use_model(model)

    async def stream(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
        when_busy: WhenBusy | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Send a message and follow its turn: `Accepted` first, `TurnDone` or a fatal `TurnError` last.

        Leaving the stream before its end cancels the turn; `submit` does not. `when_busy` says what happens if a turn
        of the session runs. A message that is taken into it (`steer`) ends with `TurnDone` of the status `steered`:
        the answer is in the events of that turn, which `Steered` names.
        """
        message = SubmittedMessage(text, attachments, request=TurnRequest(idempotency_key, when_busy=when_busy))
        turn = await self.accept(session_id, message, user_id=user_id, detached=False)
        async with aclosing(turn.follow_until_left()) as events:
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
        when_busy: WhenBusy | None = None,
    ) -> str:
        """Send a message and return the complete answer, or raise the error of the turn.

        If a running turn takes the message in (`when_busy="steer"`), the answer is that of this turn.
        """
        message = SubmittedMessage(text, attachments, request=TurnRequest(idempotency_key, when_busy=when_busy))
        turn = await self.accept(session_id, message, user_id=user_id, detached=False)
        answer = await turn.collect_answer()
        if (into := turn.steered_into) is None:
            return answer
        same = Turn(turn.session.key, into, repeated=True)
        other = self._supervisor.find_turn(same.session_key, into) or self._supervisor.start(turn.session, same)
        return await other.collect_answer()

    async def cancel(self, session_id: str, *, user_id: str = "user", turn: int | None = None) -> bool:
        """Stop the session's running turn, in any process; stored messages stay. Return False if none runs.

        If a paused turn waits for an approval, for input or for a credential, these requests are closed: the next
        message starts over. Long-running tools continue, and their results may still come. With `turn`, only that
        turn is stopped, and no request is closed.
        """
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None:
            return False
        found = await self._store.write(request_cancel, session.key, only=turn)
        for running in self._supervisor.running_turns(session.key):
            is_meant = turn in (None, running.turn.turn)
            if is_meant and running.turn.epoch is not None and not running.turn.repeated:
                running.stop(TurnCancelled("the turn was stopped"))
        return found or turn is not None or await self._store.write(stop_waiting, session.key, time.time())

    async def withdraw(self, session_id: str, turn: int, *, user_id: str = "user") -> bool:
        """Withdraw a queued message; return False if it is no longer queued."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None or not await self._store.withdraw_turn(Turn(session.key, turn)):
            return False
        for running in self._supervisor.running_turns(session.key):
            if running.turn.turn == turn:
                running.stop(TurnCancelled("the message was withdrawn before its turn started"))
        return True

    async def accept(
        self,
        session_id: str,
        submission: Submission,
        *,
        user_id: str = "user",
        quota_id: str | None = None,
        tokens_per_day: int | None = None,
        detached: bool = True,
    ) -> RunningTurn:
        """Store what a client submits, and run its turn in the background; `follow` it from anywhere in this process.

        The methods below make the usual submissions; `SubmittedResults` brings the results of several calls at once.
        The tokens of the turn are counted against `quota_id`, the id of an API key, by the process that ends the turn.
        With `tokens_per_day`, a turn that starts after that many were used ends with `TokensUsedUp`. A turn that is not
        `detached` stops when its last reader leaves.
        """
        name = SessionId(self.app_name, user_id, session_id)
        self._due_waits.note_session(name)
        return await self._acceptance.accept(name, submission, quota_id, tokens_per_day, detached=detached)

    async def submit(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
        client_tools: Sequence[Tool] | None = None,
        options: ModelOptions | None = None,
        when_busy: WhenBusy | None = None,
    ) -> RunningTurn:
        """Store a message and run its turn in the background; `follow` it from anywhere in this process.

        The same `idempotency_key` again returns the same turn; with another message it raises `IdempotencyKeyReused`.
        `client_tools` are offered to the model in this turn: a call of such a tool ends the turn, and waits for
        its result. A message closes open client calls. If a workflow waits for input, the text of the message is
        the answer. `options` hold for the model calls of this turn; raise `ModelOptionsRefused` if
        the agent cannot follow them. `when_busy` says what happens if a turn of the session runs; by default the
        setting `agent.when_busy` does.
        """
        request = TurnRequest(idempotency_key, client_tools, options, when_busy=when_busy)
        return await self.accept(session_id, SubmittedMessage(text, attachments, request=request), user_id=user_id)

    async def waits(self, session_id: str, *, user_id: str = "user") -> list[Wait]:
        """Return what the turns of a session wait for, and can still be answered."""
        return [*await self.inbox.of_session(session_id, user_id=user_id)]

    async def answer(
        self,
        session_id: str,
        wait_id: str,
        answer: Answer,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        client_tools: Sequence[Tool] | None = None,
        options: ModelOptions | None = None,
    ) -> RunningTurn:
        """Answer a wait, and run its turn in the background, as `submit` does; an answer is accepted once, in time.

        Raise `WaitNotOpen` if it is too late or the second one, `InvalidAnswer` if it does not fit the wait.
        """
        request = TurnRequest(idempotency_key, client_tools, options)
        return await self.accept(session_id, SubmittedAnswer(wait_id, answer, request), user_id=user_id)

    async def _end_wait(self, due: DueWait) -> None:
        """Continue the turn of a wait whose time has come, or that an event has answered."""
        end = SubmittedEnd(due.wait_id, due.seq, due.call_id, due.result)
        await self._acceptance.accept(due.name, end)

    async def cancel_wait(self, session_id: str, wait_id: str, *, user_id: str = "user") -> bool:
        """Close a request for input or a credential, or end a timer or a wait for an event, without an answer.

        Nothing runs, and its call has an error. The next message continues the conversation; a workflow does not
        continue. Return False if it is not open, or a turn runs in the session.
        """
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        return session is not None and await self._store.write(decline, session.key, time.time(), wait_id)

    async def send_event(
        self,
        name: str,
        data: Any = None,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        keep_s: float = EVENTS_KEPT_S,
    ) -> SentEvent:
        """Store an event of another system, and continue the turns whose `wait_for_event` it fits.

        Only waits of the user and of the session count, if they are given. The event is kept for `keep_s` seconds, for
        waits that open with a window that reaches back. Until then, the same `idempotency_key` again changes nothing;
        with other data it raises `IdempotencyKeyReused`.
        """
        check_event_name(name)
        if idempotency_key is not None and not 0 < len(idempotency_key) <= _MAX_KEY_CHARACTERS:
            raise UsageError(f"an idempotency key has 1 to {_MAX_KEY_CHARACTERS} characters")
        whose = user_id or "", session_id or ""
        values = self.app_name, name, to_plain_values(data), idempotency_key, *whose, keep_s
        sent = await self._store.write(send_event, *values)
        if sent.answered:
            self._store.notify_due()
        return sent

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return results of client tools as they are stored and the model reads them."""
        return {call_id: result.output for call_id, result in self._engine.inputs.results_to_store(results).items()}

    @property
    def version(self) -> str:
        """The version of the app that this process runs."""
        return self._supervisor.replicas.version

    async def replicas(self) -> Sequence[ListedReplica]:
        """List the live processes that run turns of this app, this one among them."""
        return await self._supervisor.replicas.list()

    async def has_other_replicas(self) -> bool:
        """Whether another process runs turns of this app, of any version."""
        return bool(await self._supervisor.replicas.versions_elsewhere())

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more turns, let the steps under way end within a limit, and release the turns.

        Nothing is cancelled: another process continues them, or the next one that opens this store.
        """
        await self._acceptance.close(limit_s)
        await self._supervisor.hand_over(limit_s)

    async def close(self) -> None:
        """Hand over the running turns, within `server.drain_s`, and wait until that is stored."""
        limit_s = self.settings.server.drain_s
        await self._acceptance.close(limit_s)
        await self._supervisor.close(limit_s)
        await self._engine.close()
