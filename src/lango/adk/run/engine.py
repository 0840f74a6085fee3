"""Run turns with ADK's Runner."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.runners import Runner
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.adk_internals import preload_adk
from lango.adk.agents.adk_tool import decision_for
from lango.adk.agents.app_builder import build_app
from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.tool_names import ToolNames, tool_names
from lango.adk.agents.transfers import missing_transfer_target, transfer_correction, transfer_targets
from lango.adk.agents.tree import final_answer_agent, is_final_answer, tools_of, walk_agents
from lango.adk.model.direct_text import TextSink, agents_with_direct_text
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run import workflow_nodes
from lango.adk.run.input_builder import InputBuilder
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.runner import run_adk
from lango.adk.run.runtime_tools import runtime_tool
from lango.adk.run.turn_state import TurnState, note_toolset_failure
from lango.adk.services.recorded_run import RecordedRun
from lango.adk.services.request_context import current_turn
from lango.adk.services.rows_to_events import stored_to_events
from lango.adk.services.session_service import SqlSessionService
from lango.config import Settings
from lango.errors import AgentFailed, AgentNotFound, ApprovalExpired, EmptyAnswer, LangoError
from lango.events import TurnEvent
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules, messages_to_load
from lango.memory import Memory, Observer, thresholds_for
from lango.providers import Provider
from lango.providers.protocol import ThoughtDelta
from lango.store import SessionId, Store, Turn
from lango.store.engine.database import LARGEST
from lango.store.sessions.sessions import find_session
from lango.store.turns.approvals import ApprovalRequest, read_approval_requests
from lango.store.turns.tool_journal import read_turn_entries
from lango.store.turns.turns import read_turn_record
from lango.tools import Tool
from lango.turns.lease_holder import LeaseHolder
from lango.turns.liveness import OwnerIsGone
from lango.turns.step_gate import StepGate
from lango.turns.turn_input import TurnInput
from lango.turns.turn_progress import NextId


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
        self._app = build_app(
            settings,
            self._models,
            tools,
            RuntimePlugin(),
            root_agent,
            wrap=functools.partial(runtime_tool, timeout_s=settings.agent.tool_timeout_s),
            on_toolset_failure=note_toolset_failure,
        )
        self._root: Any = self._app.root_agent  # an agent, or any node of a workflow
        history = settings.history
        max_messages = messages_to_load(None if settings.memory.enabled else history.max_messages)
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
        self.inputs = InputBuilder(store, self._service, self._root)
        self._memory_model = self._models.memory_model(self._root) if settings.memory.enabled else None
        self._runner = Runner(app=self._app, session_service=self._service)
        self._imported: asyncio.Future[None] | None = None
        self._direct_text_agents = (
            agents_with_direct_text(walk_agents(self._root)) if len(self._app.plugins) == 1 else frozenset[str]()
        )

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._runner.app_name

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return _describe_agent(self._root)

    async def tool_names(self, *, ask_toolsets: bool) -> ToolNames:
        """List the names of the agents' tools; see `lango.adk.agents.tool_names`."""
        return await tool_names(self._app, ask_toolsets=ask_toolsets)

    @property
    def window_rules(self) -> WindowRules:
        """The limits of the root agent's next request."""
        model, memory = getattr(self._root, "model", None), self._settings.memory
        # a model of the user's own is only bounded by what the session service loads
        rules = model.window_rules if isinstance(model, ProviderLlm) else WindowRules(*self._window_limits)
        return replace(rules, with_memory=memory.enabled, with_facts=memory.enabled and memory.user_facts)

    def memory(self, leases: LeaseHolder, is_gone: OwnerIsGone) -> Memory:
        """Make the memory of sessions and users; it observes nothing while `memory.enabled` is off."""
        settings = self._settings.memory
        if self._memory_model is None:
            return Memory(self._store, self.app_name, None)
        agent_context, model = self._memory_model
        limits = thresholds_for(settings, self._window_limits[0], agent_context, model.context_tokens)
        observer = Observer(self._store, settings, limits, model, leases, is_gone)
        return Memory(self._store, self.app_name, observer, settings.close_wait_s)

    async def load(self) -> None:
        """Load local models now, so that the first turn does not wait for it."""
        await self._models.load()

    async def preload_adk(self) -> None:
        """Import what ADK imports in its first run: once, and in a thread."""
        if self._imported is None:
            self._imported = asyncio.ensure_future(asyncio.to_thread(_preload))
        await asyncio.shield(self._imported)

    async def close(self) -> None:
        """Close toolsets, plugins and connections."""
        await self._runner.close()
        await self._models.close()

    async def read_record(self, turn: Turn, first_seq: int) -> RecordedRun:
        """Read what an earlier run of a turn stored."""
        stored = await self._store.read(read_turn_record, turn, first_seq)
        entries = await self._store.read(read_turn_entries, turn)
        return RecordedRun(stored, stored_to_events(stored, self._root.name), entries)

    def begin(
        self,
        name: SessionId,
        turn: Turn,
        turn_input: TurnInput,
        next_id: NextId,
        emit: Callable[[TurnEvent], None],
        recorded: RecordedRun | None = None,
        first_seq: int | None = None,
        step_gate: StepGate | None = None,
    ) -> TurnState:
        """Prepare a turn. Call it in the task that runs the turn: ADK's tasks inherit its context variables.

        `recorded` is what an earlier run stored after the input, which is the message `first_seq`.
        """
        root = self._root
        state = TurnState(
            store=self._store,
            turn=turn,
            session_id=name.id,
            input_event=turn_input.event,
            recorded=recorded,
            step_gate=step_gate or StepGate(),
            first_seq=first_seq if recorded is not None else None,
            used_call_ids=set(recorded.call_ids) if recorded is not None else set(),
            max_model_calls=self._settings.agent.max_turns,
            decide=lambda tool: decision_for(tool, self._settings.tools),
            agent_names=lambda agent: transfer_targets(root, agent),
            emit=emit,
            next_id=next_id,
            tool_timeout_s=self._settings.agent.tool_timeout_s,
            answered_by=turn_input.approval_answer.answered_by if turn_input.approval_answer else "",
            client_tools=turn_input.client_tools,
        )
        state.text_sink_for = lambda agent, branch: self._text_sink(agent, branch, state)
        current_turn.set(state)
        return state

    def _text_sink(self, agent: str, branch: str, state: TurnState) -> TextSink | None:
        """Return a function that emits an agent's text without ADK; None if a callback of ADK may still change it."""
        speaker = agent, branch
        if agent not in self._direct_text_agents:
            return None
        return lambda delta: state.emit(state.text_event(speaker, delta.text, thought=isinstance(delta, ThoughtDelta)))

    async def run(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn. A transfer to an agent that does not exist is corrected once."""
        await self._check_pending(name, turn_input, state)
        if turn_input.brings_client_results and (state.awaits_approval or state.awaits_client):
            return  # the model continues when nothing is pending any more
        message = turn_input.event.content or types.Content()
        continues = turn_input.answered_call_id or turn_input.brings_client_results or turn_input.is_retry
        invocation_id = None if continues else turn_input.event.invocation_id
        while True:
            async with aclosing(self._run_once(name, message, invocation_id, state)) as events:
                async for event in events:
                    yield event
            failure = _transfer_failure(state)
            if failure is None:
                if state.recorded is not None:
                    state.recorded.check_complete()
                state.awaits_client = state.awaits_client or bool(state.client_calls)
                _require_answer(state)
                return
            if state.corrected_transfer is not None or not state.valid_agents:
                raise failure
            state.corrected_transfer = failure
            # a new invocation: ADK skips messages that an invocation has already processed
            invocation_id = f"{turn_input.event.invocation_id}-2"
            correction_text = transfer_correction(state.bad_transfer or "", state.valid_agents)
            state.bad_transfer = None
            message = types.Content(role="user", parts=[types.Part(text=correction_text)])

    async def _check_pending(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> None:
        """Check what else is pending besides this turn's answer: the model continues when all is answered."""
        if turn_input.is_retry:
            call_ids = {result.id or "" for result in turn_input.event.get_function_responses()}
            await self.inputs.retry_results(name, call_ids)
        if not (turn_input.answered_call_id or turn_input.brings_client_results):
            return
        pending = await self.inputs.pending_approvals(name, turn_input.event.id)
        if turn_input.answered_call_id and pending.pop(turn_input.answered_call_id, None) is None:
            raise ApprovalExpired(f"the conversation went on before call {turn_input.answered_call_id!r} was approved")
        state.awaits_approval = turn_input.event.invocation_id in {other for _, other in pending.values()}
        before = LARGEST if state.first_seq is None else state.first_seq
        open_calls = await self.inputs.open_client_calls(name)
        state.awaits_client = any(open_call.made_by.seq < before for open_call in open_calls)
        state.has_other_pending = state.awaits_approval or state.awaits_client

    async def _run_once(
        self, name: SessionId, message: types.Content, invocation_id: str | None, state: TurnState
    ) -> AsyncGenerator[TurnEvent, None]:
        try:
            async with aclosing(
                run_adk(
                    self._runner,
                    name,
                    message,
                    invocation_id,
                    state,
                    lambda: self._open_approvals(name),
                    capture_content=self._settings.telemetry.capture_content,
                )
            ) as events:
                async for event in events:
                    yield event
        except (LangoError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a native library is not an Exception
            wanted = missing_transfer_target(error)
            valid = [agent.name for agent in walk_agents(self._root) if agent is not self._root]
            if wanted is None or not valid:
                raise _to_lango_error(error) from error
            state.bad_transfer, state.valid_agents = wanted, valid
        if state.failure is not None:
            raise state.failure

    async def _open_approvals(self, name: SessionId) -> dict[str, ApprovalRequest]:
        session = await self._store.read(find_session, name)
        open_now = await self._store.read(read_approval_requests, session) if session else []
        return {request.call_id: request for request in open_now}


def _preload() -> None:
    preload_adk()
    workflow_nodes.install()


def _describe_agent(agent: Any) -> dict[str, Any]:
    return {
        "name": agent.name,
        "type": type(agent).__name__,
        "description": getattr(agent, "description", ""),
        "tools": [tool.name for tool in tools_of(agent) if hasattr(tool, "name")],
        "sub_agents": [_describe_agent(sub) for sub in getattr(agent, "sub_agents", ())],
    }


def _transfer_failure(state: TurnState) -> AgentNotFound | None:
    if state.bad_transfer is None:
        return None
    valid = ", ".join(state.valid_agents)
    return AgentNotFound(f"there is no agent {state.bad_transfer!r}; there are {valid}")


def _require_answer(state: TurnState) -> None:
    """Raise `EmptyAnswer` if the model neither answered nor left anything pending."""
    if state.error is not None:
        raise EmptyAnswer(f"the model gave no answer: {': '.join(part for part in state.error if part)}")
    if not (state.awaits_approval or state.awaits_client or state.ended_by_tool or state.has_text_since_tool):
        why = f" (finish reason: {state.finish_reason})" if state.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def _to_lango_error(error: BaseException) -> LangoError:
    """Return the `LangoError` among an error's causes, or else `AgentFailed`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
