"""ADK behind a small face: what the runtime asks of it, in Lango's words."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.genai import types
from msgspec import Struct
from msgspec.structs import replace

from lango.adk.agents.adk_tool import decision_for, effect_of
from lango.adk.agents.app_builder import build_app
from lango.adk.agents.client_tools import check_tool_names, find_unanswered_results, results_content, results_to_store
from lango.adk.agents.loader import preload_adk
from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.tool_names import ToolNames, tool_names
from lango.adk.agents.transfers import missing_transfer_target, transfer_correction, transfer_targets
from lango.adk.agents.tree import final_answer_agent, is_final_answer, walk_agents
from lango.adk.model.direct_text import TextSink, agents_with_direct_text
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.client_history import history_to_entries
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.runner import run_adk
from lango.adk.run.turn_state import TurnState, current_turn
from lango.adk.services.events_to_rows import complete_event, event_to_entry
from lango.adk.services.message_parts import attachments_to_parts
from lango.adk.services.request_context import input_event, writing_epoch
from lango.adk.services.session_service import SqlSessionService
from lango.config import Settings
from lango.errors import AgentFailed, AgentNotFound, ApprovalExpired, CallNotWaiting, EmptyAnswer, LangoError
from lango.events import TurnEvent
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules
from lango.memory import Memory, Observer, OwnerIsGone, thresholds_for
from lango.messages import Attachment, Message, ToolCall
from lango.providers import Provider
from lango.providers.protocol import ThoughtDelta
from lango.store import SessionId, Store, Turn
from lango.store.codec.records import CONFIRMATION_CALL, ClientResult
from lango.store.codec.rows import approval_subject
from lango.store.sessions.sessions import find_session
from lango.store.turns.approvals import ApprovalAnswer, ApprovalRequest, read_approval_requests
from lango.store.turns.client_calls import ClientCall, read_client_calls
from lango.store.turns.tool_journal import DECIDED_BY_POLICY, read_journal_entry
from lango.tools import Tool
from lango.tools.client_tool_definitions import tools_by_name
from lango.turns.turn_input import TurnInput
from lango.turns.turn_progress import NextId, TurnProgress


class TurnRun(Struct):
    """A turn on its way through ADK."""

    progress: TurnProgress
    state: TurnState
    corrected_transfer: AgentNotFound | None = None
    """The bad transfer that the model was told of: the cause of whatever fails after it."""


class AdkEngine:
    """Runs turns of one app with ADK's Runner."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        tools: Sequence[Tool],
        provider: Provider | None,
        root_agent: Any,
    ) -> None:
        self._settings = settings
        self._store = store
        self._models = ModelRegistry(settings, provider)
        self._app = build_app(settings, self._models, tools, RuntimePlugin(), root_agent)
        self._root: Any = self._app.root_agent  # an agent, or any node of a workflow
        history = settings.history
        # some events become no message of a request
        max_messages = None if settings.memory.enabled else history.max_messages * 5 // 4
        self._window_limits = (history.max_message_token_budget or DEFAULT_BUDGET_TOKENS, max_messages)
        final_agent = final_answer_agent(self._app)
        self._service = SqlSessionService(
            "",
            store=store,
            budget_tokens=self._window_limits[0],
            max_messages=max_messages,
            root_agent_name=self._root.name,
            warn=False,
            memory=settings.memory.enabled,
            user_facts=settings.memory.user_facts,
            approval_expires_s=settings.tools.approval_expires_s or None,
            ends_turn=lambda event: is_final_answer(event, final_agent),
        )
        self._observer = self._models.memory_model(self._root) if settings.memory.enabled else None
        self._runner = Runner(app=self._app, session_service=self._service)
        self._imported: asyncio.Future[None] | None = None
        self._direct_text_agents = (
            agents_with_direct_text(walk_agents(self._root)) if len(self._app.plugins) == 1 else frozenset[str]()
        )

    @property
    def app_name(self) -> str:
        """The app that sessions belong to."""
        return self._runner.app_name

    def agents(self) -> dict[str, Any]:
        """Describe the agents: the root, with those below it."""
        return _describe_agent(self._root)

    async def tool_names(self, *, ask_toolsets: bool) -> ToolNames:
        """Return what the tools of the agents are called; see `lango.adk.agents.tool_names`."""
        return await tool_names(self._app, ask_toolsets=ask_toolsets)

    @property
    def window_rules(self) -> WindowRules:
        """What bounds the messages of the root agent's next request."""
        model, memory = getattr(self._root, "model", None), self._settings.memory
        # of a model that is not ours, what is loaded is all that bounds it
        rules = model.window_rules if isinstance(model, ProviderLlm) else WindowRules(*self._window_limits)
        return replace(rules, with_memory=memory.enabled, with_facts=memory.enabled and memory.user_facts)

    @property
    def service(self) -> SqlSessionService:
        """The session service below."""
        return self._service

    def memory(self, owner: str, is_gone: OwnerIsGone) -> Memory:
        """Make what remembers sessions; it observes none while memory is off."""
        settings = self._settings.memory
        if self._observer is None:
            return Memory(self._store, self.app_name, None)
        agent_context, model = self._observer
        limits = thresholds_for(settings, self._window_limits[0], agent_context, model.context_tokens)
        observer = Observer(self._store, settings, limits, model, owner, is_gone)
        return Memory(self._store, self.app_name, observer, settings.close_wait_s)

    async def load(self) -> None:
        """Load what takes long to load before anybody waits for it."""
        await self._models.load()

    async def prepare(self) -> None:
        """Import what ADK needs for its first run, once: done by the first turn, unless somebody has time before."""
        if self._imported is None:
            self._imported = asyncio.ensure_future(asyncio.to_thread(preload_adk))
        await asyncio.shield(self._imported)

    async def close(self) -> None:
        """Close toolsets, plugins and connections."""
        await self._runner.close()
        await self._models.close()

    def message(
        self, text: str, attachments: Sequence[Attachment] = (), state_delta: Mapping[str, Any] | None = None
    ) -> TurnInput:
        """Make the message of a user, and the change of state that comes with it."""
        files = attachments_to_parts(attachments)
        words = [types.Part(text=text)] if text or not files else []
        return self._build(types.Content(role="user", parts=words + files), f"e-{uuid.uuid4()}", state_delta)

    def add_client_tools(self, asked: TurnInput, tools: Sequence[Tool]) -> None:
        """Offer tools of the client in a turn. Raise `ClientToolRefused` for those that cannot be."""
        asked.client_tools = tools_by_name(tools)
        check_tool_names(asked.client_tools, walk_agents(self._root))

    async def add_results(self, name: SessionId, asked: TurnInput, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Let a message bring results of calls that wait for the client; those of any other call are left out."""
        calls = await self.open_client_calls(name)
        waiting = {one.call.id: results[one.call.id] for one in calls if one.call.id in results}
        asked.entry = replace(asked.entry, client_results=results_to_store(waiting, walk_agents(self._root)))

    async def client_results(self, name: SessionId, results: Mapping[str, Mapping[str, Any]]) -> TurnInput:
        """Make the message that brings results of calls. Raise `CallNotWaiting` where none of them waits.

        Where they were brought before, and the turn failed, it is tried again from there.
        """
        calls = [one for one in await self.open_client_calls(name) if one.call.id in results]
        if not calls:
            return await self.retry_results(name, results)
        brought = results_to_store({one.call.id: results[one.call.id] for one in calls}, walk_agents(self._root))
        asked = self._build(results_content([one.call for one in calls], brought), calls[-1].made_by.invocation_id)
        asked.entry = replace(asked.entry, client_results=brought)
        return asked

    def add_history(self, asked: TurnInput, history: Sequence[Message]) -> None:
        """Let a message bring the history before it; see `lango.adk.run.client_history`."""
        before = history_to_entries(history, self._root.name, [*walk_agents(self._root)])
        asked.entry = replace(asked.entry, preceding=before)

    def results_after_history(self, history: Sequence[Message], results: Mapping[str, Mapping[str, Any]]) -> TurnInput:
        """Make the message that brings results of the calls that a carried history ends with."""
        before = history_to_entries(history, self._root.name, [*walk_agents(self._root)], leave_last_open=True)
        brought = self.shown_results(results)
        asked = self._build(results_content(history[-1].tool_calls, brought), before[-1].invocation_id)
        asked.entry = replace(asked.entry, client_results=brought, preceding=before)
        return asked

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, ClientResult]:
        """Return results of the client's tools as the model reads them: plain, and clipped where they are long."""
        return results_to_store(results, walk_agents(self._root))

    async def retry_results(self, name: SessionId, results: Collection[str]) -> TurnInput:
        """Return the input of a turn that goes on from results that are stored but unanswered."""
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        brought = find_unanswered_results(session.events if session else (), results)
        if brought is None:
            ids = ", ".join(sorted(results))
            raise CallNotWaiting(f"no call {ids} waits for a result in session {name.id!r} (any more)")
        mark = Event(author=self._root.name, invocation_id=brought.invocation_id)
        complete_event(mark, self._root.name)
        return TurnInput(brought, event_to_entry(mark), is_retry=True)

    async def open_client_calls(self, name: SessionId) -> list[ClientCall]:
        """Return the calls that wait for a result from the client."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_client_calls, session) if session else []

    async def approval_answer(self, name: SessionId, call_id: str, *, approved: bool, by: str = "") -> TurnInput:
        """Make the message that answers a question for approval. Raise `ApprovalExpired` where none waits."""
        question = (await self.pending_approvals(name)).get(call_id)
        if question is None:
            raise ApprovalExpired(await self._why_expired(name, call_id))
        confirmation_id, invocation_id = question
        response = types.FunctionResponse(id=confirmation_id, name=CONFIRMATION_CALL, response={"confirmed": approved})
        content = types.Content(role="user", parts=[types.Part(function_response=response)])
        asked = self._build(content, invocation_id)
        asked.answered_call_id, asked.approval_answer = (
            call_id,
            ApprovalAnswer(confirmation_id, call_id, approved, by or name.user_id),
        )
        return asked

    async def _why_expired(self, name: SessionId, call_id: str) -> str:
        session = await self._store.read(find_session, name)
        journal = await self._store.read(read_journal_entry, session.key, call_id) if session else None
        if journal and journal.approved is False and journal.approved_by == DECIDED_BY_POLICY:
            return f"the question about call {call_id!r} was not answered in time: that was a no"
        return f"no call {call_id!r} waits for approval in session {name.id!r} (any more)"

    async def pending_approvals(self, name: SessionId, answer_id: str = "") -> dict[str, tuple[str, str]]:
        """Return the calls that wait for approval, each with the id of its question and of its invocation.

        `answer_id` is the answer whose turn it is: to it, its question still waits.
        """
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        shown = [event for event in session.events if event.id != answer_id] if session else []
        answered = {result.id for event in shown for result in event.get_function_responses()}
        waiting: dict[str, tuple[str, str]] = {}
        for event in reversed(shown):
            if event.author == "user" and not event.get_function_responses():
                break  # the conversation went on without an answer: that was a no
            for call in event.get_function_calls():
                if call.name == CONFIRMATION_CALL and call.id not in answered:
                    about = approval_subject(ToolCall(call.id or "", CONFIRMATION_CALL, call.args))
                    waiting[about.get("id", "")] = (call.id or "", event.invocation_id)
        return waiting

    def _build(
        self, content: types.Content, invocation_id: str, state_delta: Mapping[str, Any] | None = None
    ) -> TurnInput:
        actions = EventActions(state_delta=dict(state_delta or {}))
        event = Event(author="user", invocation_id=invocation_id, content=content, actions=actions)
        complete_event(event, self._root.name)
        return TurnInput(event, event_to_entry(event))

    def begin(self, turn: Turn, turn_input: TurnInput, next_id: NextId, emit: Callable[[TurnEvent], None]) -> TurnRun:
        """Prepare a turn in the task that runs it: everything that ADK starts from here belongs to this turn."""
        root = self._root
        progress = TurnProgress(next_id)
        state = TurnState(
            store=self._store,
            turn=turn,
            max_model_calls=self._settings.agent.max_turns,
            decide=lambda tool: decision_for(tool, self._settings.tools),
            effect_of=effect_of,
            agent_names=lambda agent: transfer_targets(root, agent),
            emit=emit,
            next_id=next_id,
            tool_timeout_s=self._settings.agent.tool_timeout_s,
            own_call_ids=progress.call_ids,
            durations_s=progress.durations_s,
            answered_by=turn_input.approval_answer.answered_by if turn_input.approval_answer else "",
            client_tools=turn_input.client_tools,
        )
        state.text_sink_for = lambda agent, branch: self._text_sink(agent, branch, progress, state)
        current_turn.set(state)
        writing_epoch.set(turn.epoch)
        input_event.set(turn_input.event)
        return TurnRun(progress, state)

    def _text_sink(self, agent: str, branch: str, progress: TurnProgress, state: TurnState) -> TextSink | None:
        """Return what tells the text of an agent past ADK; None where somebody of ADK's may still change it."""
        speaker = agent, branch
        if agent not in self._direct_text_agents:
            return None
        return lambda delta: state.emit(
            progress.text_event(speaker, delta.text, thought=isinstance(delta, ThoughtDelta))
        )

    async def run(self, name: SessionId, turn_input: TurnInput, run: TurnRun) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn. A transfer to an agent that does not exist is corrected once."""
        await self._check_pending(name, turn_input, run)
        if turn_input.brings_client_results and (run.progress.awaits_approval or run.progress.awaits_client):
            return  # the model goes on when nothing waits any more
        await self.prepare()
        run.state.session_id = name.id
        message = turn_input.event.content or types.Content()
        goes_on = turn_input.answered_call_id or turn_input.brings_client_results or turn_input.is_retry
        invocation_id = None if goes_on else turn_input.event.invocation_id
        while True:
            async with aclosing(self._run_once(name, message, invocation_id, run)) as events:
                async for event in events:
                    yield event
            failure = _transfer_failure(run.state)
            if failure is None:
                run.progress.awaits_client = run.progress.awaits_client or bool(run.state.client_calls)
                _require_answer(run)
                return
            if run.corrected_transfer is not None or not run.state.valid_agents:
                raise failure
            run.corrected_transfer, invocation_id = (
                failure,
                None,
            )  # another invocation: ADK skips what an invocation has seen
            correction_text = transfer_correction(run.state.bad_transfer or "", run.state.valid_agents)
            run.state.bad_transfer = None
            message = types.Content(role="user", parts=[types.Part(text=correction_text)])

    async def _check_pending(self, name: SessionId, turn_input: TurnInput, run: TurnRun) -> None:
        """Find out what waits beside the answer that a turn brings: the model goes on when all is answered."""
        if turn_input.is_retry:
            await self.retry_results(name, {one.id or "" for one in turn_input.event.get_function_responses()})
        if not (turn_input.answered_call_id or turn_input.brings_client_results):
            return
        pending = await self.pending_approvals(name, turn_input.event.id)
        if turn_input.answered_call_id and pending.pop(turn_input.answered_call_id, None) is None:
            raise ApprovalExpired(f"the conversation went on before call {turn_input.answered_call_id!r} was approved")
        run.progress.awaits_approval = turn_input.event.invocation_id in {other for _, other in pending.values()}
        run.progress.awaits_client = bool(await self.open_client_calls(name))
        run.state.has_other_pending = run.progress.awaits_approval or run.progress.awaits_client

    async def _run_once(
        self, name: SessionId, message: types.Content, invocation_id: str | None, run: TurnRun
    ) -> AsyncGenerator[TurnEvent, None]:
        try:
            async with aclosing(
                run_adk(
                    self._runner,
                    name,
                    message,
                    invocation_id,
                    run.progress,
                    lambda: self._open_approvals(name),
                    capture_content=self._settings.telemetry.capture_content,
                )
            ) as events:
                async for event in events:
                    yield event
        except (LangoError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a native library is no Exception
            wanted = missing_transfer_target(error)
            valid = [agent.name for agent in walk_agents(self._root) if agent is not self._root]
            if wanted is None or not valid:
                raise _to_lango_error(error) from error
            run.state.bad_transfer, run.state.valid_agents = wanted, valid
        if run.state.failure is not None:
            raise run.state.failure

    async def _open_approvals(self, name: SessionId) -> dict[str, ApprovalRequest]:
        session = await self._store.read(find_session, name)
        open_now = await self._store.read(read_approval_requests, session) if session else []
        return {request.call_id: request for request in open_now}


def _describe_agent(agent: Any) -> dict[str, Any]:
    return {
        "name": agent.name,
        "type": type(agent).__name__,
        "description": getattr(agent, "description", ""),
        "tools": [tool.name for tool in getattr(agent, "tools", ()) if hasattr(tool, "name")],
        "sub_agents": [_describe_agent(sub) for sub in getattr(agent, "sub_agents", ())],
    }


def _transfer_failure(state: TurnState) -> AgentNotFound | None:
    if state.bad_transfer is None:
        return None
    valid = ", ".join(state.valid_agents)
    return AgentNotFound(f"there is no agent {state.bad_transfer!r}; there are {valid}")


def _require_answer(run: TurnRun) -> None:
    """An answer that is none is told as what it is."""
    progress = run.progress
    if progress.error is not None:
        raise EmptyAnswer(f"the model gave no answer: {': '.join(part for part in progress.error if part)}")
    if not (
        progress.awaits_approval or progress.awaits_client or progress.ended_by_tool or progress.has_text_since_tool
    ):
        why = f" (finish reason: {progress.finish_reason})" if progress.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def _to_lango_error(error: BaseException) -> LangoError:
    """Find our own error under what ADK made of it; else say that the agent failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
