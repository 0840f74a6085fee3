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
from lango.adk.agents.app_builder import build_app
from lango.adk.agents.app_features import summary_model
from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.session_choices import allow_choices
from lango.adk.agents.tools.adk_tool import decision_for
from lango.adk.agents.tools.effects import effect_of_tool
from lango.adk.agents.transfers import missing_transfer_target, transfer_correction, transfer_targets
from lango.adk.agents.tree import final_answer_agent, is_final_answer, walk_agents, walk_with_agent_tools
from lango.adk.events.recorded_run import RecordedRun
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.model.direct_text import TextSink, agents_with_direct_text
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.described_app import DescribedApp
from lango.adk.run.input.input_builder import InputBuilder
from lango.adk.run.pauses.tool_questions import ask_user, report_progress
from lango.adk.run.pauses.unanswered_calls import await_own_calls, note_calls, request_event
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.recall import recall_tools
from lango.adk.run.record import workflow_nodes
from lango.adk.run.record.code_execution import journal_code
from lango.adk.run.runner import require_answer, run_adk, text_sink, to_agent_error, to_turn_events, transfer_failure
from lango.adk.run.runtime_tools import runtime_tool
from lango.adk.run.turn_state import TurnState, count_summary, note_toolset_failure
from lango.adk.services.artifact_references import load_reference
from lango.adk.services.artifact_service import SqlArtifactService
from lango.adk.services.credential_secrets import keep_answers_out_of_logs
from lango.adk.services.credential_service import SqlCredentialService
from lango.adk.services.memory_service import SqlMemoryService
from lango.adk.services.request_context import current_turn
from lango.adk.services.session_service import SqlSessionService
from lango.adk.services.stored_files import FileLoader
from lango.config import Settings
from lango.errors import ApprovalExpired, LangoError
from lango.events import TurnEvent
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules, messages_to_load
from lango.memory import Memory, MemoryThresholds, Observer, thresholds_for
from lango.providers import Provider
from lango.store import SessionId, Store, Turn
from lango.store.credentials.secret_box import SecretBox
from lango.store.engine.database import LARGEST
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import read_approval_requests
from lango.store.tool_calls.credential_requests import read_credential_requests
from lango.store.tool_calls.input_requests import read_input_requests
from lango.store.tool_calls.tool_journal import read_turn_entries
from lango.store.turns.turns import read_turn_record
from lango.tools import Tool
from lango.tools.result_files import FileLimits
from lango.turns.lease_holder import LeaseHolder
from lango.turns.liveness import OwnerIsGone
from lango.turns.synchronization import StepGate
from lango.turns.text_blocks import TextBlocks
from lango.turns.turn_input import TurnInput
from lango.turns.turn_progress import NextId, TurnProgress


class AdkEngine(DescribedApp):
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
        models = ModelRegistry(settings, provider)
        app = build_app(
            settings,
            models,
            [*tools, *recall_tools(settings.memory)],
            RuntimePlugin(),
            root_agent,
            wrap=functools.partial(
                runtime_tool,
                timeout_s=settings.agent.tool_timeout_s,
                file_limits=FileLimits(settings.server.max_attachments, settings.server.max_attachment_bytes),
            ),
            on_toolset_failure=note_toolset_failure,
            mcp_callbacks={"ask": ask_user, "report": report_progress},
        )
        super().__init__(app, models)
        allow_choices(self._root, settings.agent, self._models.get)
        journal_code(walk_with_agent_tools(self._root))
        history = settings.history
        max_messages = messages_to_load(None if settings.memory.enabled else history.max_messages)
        self._window_limits = (history.max_message_token_budget or DEFAULT_BUDGET_TOKENS, max_messages)
        self._memory_model = self._models.memory_model(self._root) if settings.memory.enabled else None
        self._memory_limits = self._thresholds()
        self._observer: Observer | None = None
        final_agent = final_answer_agent(self._app)
        keep_answers_out_of_logs()
        box = SecretBox.from_environment()
        self._service = SqlSessionService(
            "",
            store=store,
            budget_tokens=self._window_limits[0],
            max_messages=max_messages,
            root_agent_name=self._root.name,
            warn=False,
            memory=settings.memory.enabled,
            user_facts=settings.memory.user_facts,
            notes_tokens=self._memory_limits.notes_tokens if self._memory_limits else None,
            approval_expires_s=settings.tools.approval_expires_s or None,
            input_expires_s=settings.agent.input_expires_s or None,
            credential_expires_s=settings.credentials.request_expires_s or None,
            box=box,
            ends_turn=lambda event: is_final_answer(event, final_agent),
            load_files=False,
        )
        self._files = FileLoader(store)
        self._summary_model = summary_model(self._app)
        self.inputs = InputBuilder(store, self._service, self._root, box)
        self._box = box
        self.artifacts = SqlArtifactService("", store=store, max_bytes=settings.store.max_artifact_bytes)
        self.credentials = SqlCredentialService("", store=store, box=box)
        self._runner = Runner(
            app=self._app,
            session_service=self._service,
            artifact_service=self.artifacts,
            memory_service=SqlMemoryService("", store=store, stored_sessions=True),
            credential_service=self.credentials,
        )
        self._imported: asyncio.Future[None] | None = None
        self._direct_text_agents = (
            agents_with_direct_text(walk_agents(self._root)) if len(self._app.plugins) == 1 else frozenset[str]()
        )

    @property
    def keeps_requests(self) -> bool:
        """Whether requests to models are stored for the trace."""
        return self._settings.trace.requests

    @property
    def window_rules(self) -> WindowRules:
        """The limits of the root agent's next request."""
        model, memory = getattr(self._root, "model", None), self._settings.memory
        # a model of the user's own is only bounded by what the session service loads
        rules = model.window_rules if isinstance(model, ProviderLlm) else WindowRules(*self._window_limits)
        return replace(
            rules,
            with_memory=memory.enabled,
            with_facts=memory.enabled and memory.user_facts,
            notes_tokens=self._memory_limits.notes_tokens if self._memory_limits else None,
        )

    def memory(self, leases: LeaseHolder, is_gone: OwnerIsGone) -> Memory:
        """Make the memory of sessions and users; it observes nothing while `memory.enabled` is off."""
        settings = self._settings.memory
        if self._memory_model is None or self._memory_limits is None:
            return Memory(self._store, self.app_name, None)
        model = self._memory_model[1]
        self._observer = Observer(self._store, settings, self._memory_limits, model, leases, is_gone)
        return Memory(self._store, self.app_name, self._observer, settings.close_wait_s)

    async def use_model(self, model: str) -> None:
        """Answer with another model from the next model call on, and observe with it where that was the model."""
        await super().use_model(model)
        if self._observer is not None and not self._settings.memory.model:
            self._observer.use_model(self._models.memory_model(self._root)[1])

    def _thresholds(self) -> MemoryThresholds | None:
        """Compute the thresholds of the memory; None: it is off."""
        if self._memory_model is None:
            return None
        agent_context, model = self._memory_model
        return thresholds_for(self._settings.memory, self._window_limits[0], agent_context, model.context_tokens)

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
        await self._store.load_files(stored)
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
        self._files.keep(turn_input.entry.contents)
        state = TurnState(
            store=self._store,
            files=self._files,
            load_reference=functools.partial(load_reference, self.artifacts, name),
            turn=turn,
            session_id=name.id,
            name=name,
            box=self._box,
            input_event=turn_input.event,
            brings_credential=turn_input.credential_answer is not None,
            recorded=recorded,
            step_gate=step_gate or StepGate(),
            first_seq=first_seq if recorded is not None else None,
            used_call_ids=set(recorded.call_ids) if recorded is not None else set(),
            max_model_calls=self._settings.agent.max_turns,
            decide=lambda tool: decision_for(tool, self._settings.tools),
            effect=lambda tool: effect_of_tool(tool, self._settings.tools),
            agent_names=lambda agent: transfer_targets(root, agent),
            emit=emit,
            next_id=next_id,
            blocks=TextBlocks(next_id),
            tool_timeout_s=self._settings.agent.tool_timeout_s,
            loop=asyncio.get_running_loop(),
            answered_by=turn_input.approval_answer.answered_by if turn_input.approval_answer else "",
            client_tools=turn_input.client_tools,
            trace=self._settings.trace,
            options=turn_input.options,
            recall_tokens=self._memory_limits.recall_tokens if self._memory_limits else 0,
            replaced_model=getattr(root, "model", None),
            chosen_model=(turn_input.options.model and self._models.get(turn_input.options.model)) or None,
            session_instruction=turn_input.options.session_instruction,
            continues_invocation=turn_input.continues_invocation,
        )
        state.on_summary = lambda event: count_summary(state, self._summary_model, event)
        state.text_sink_for = lambda agent, branch: self._text_sink(agent, branch, state)
        current_turn.set(state)
        return state

    def _text_sink(self, agent: str, branch: str, state: TurnState) -> TextSink | None:
        """Return a function that emits an agent's text without ADK; None if a callback of ADK may still change it."""
        if agent not in self._direct_text_agents:
            return None
        return text_sink(state, agent, branch)

    async def run(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn. A transfer to an agent that does not exist is corrected once."""
        await self._check_pending(name, turn_input, state)
        if turn_input.brings_client_results and (state.awaits_approval or state.awaits_client or state.awaits_result):
            return  # the model continues when nothing is pending any more
        message = turn_input.event.content or types.Content()
        continues = turn_input.continues_invocation
        invocation_id = None if continues else turn_input.event.invocation_id
        answered = await workflow_nodes.answered_node(self._root, turn_input, state)
        if answered is not None and not answered.may_run_again:
            yield answered.end(state)
        while True:
            async with aclosing(self._run_once(name, message, invocation_id, state)) as events:
                async for event in events:
                    yield event
            failure = transfer_failure(state)
            if failure is None:
                async for event in self._request_credentials(name, state):
                    yield event
                if answered is not None and answered.may_run_again and answered.path not in state.node_paths:
                    yield answered.end(state)
                await self._check_end(name, state, continues=continues)
                return
            if state.corrected_transfer is not None or not state.valid_agents:
                raise failure
            state.corrected_transfer = failure
            # a new invocation: ADK skips messages that an invocation has already processed
            invocation_id = f"{turn_input.event.invocation_id}-2"
            correction_text = transfer_correction(state.bad_transfer or "", state.valid_agents)
            state.bad_transfer = None
            message = types.Content(role="user", parts=[types.Part(text=correction_text)])

    async def _check_end(self, name: SessionId, state: TurnState, *, continues: bool) -> None:
        """Check at the end of a run that the record was used up, and that there is an answer, or what it waits for."""
        if state.recorded is not None:
            state.recorded.check_complete()
        state.awaits_client = state.awaits_client or bool(state.client_calls)
        await await_own_calls(state)
        if continues and not state.awaits_input:  # other nodes may still wait
            state.awaits_input = bool(await self.inputs.open_input_requests(name))
        if continues and not state.awaits_credential:
            state.awaits_credential = bool(await self.inputs.open_credential_requests(name))
        require_answer(state)

    async def _check_pending(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> None:
        """Check what else is pending besides this turn's answer: the model continues when all is answered."""
        if turn_input.is_retry:
            call_ids = {result.id or "" for result in turn_input.event.get_function_responses()}
            await self.inputs.retry_results(name, call_ids)
        answers = turn_input.answered_call_id or turn_input.credential_answer is not None
        if not (answers or turn_input.brings_client_results):
            return
        pending = await self.inputs.pending_approvals(name, turn_input.event.id)
        if turn_input.answered_call_id and pending.pop(turn_input.answered_call_id, None) is None:
            raise ApprovalExpired(f"the conversation went on before call {turn_input.answered_call_id!r} was approved")
        state.awaits_approval = turn_input.event.invocation_id in {
            request.invocation_id for request in pending.values()
        }
        before = LARGEST if state.first_seq is None else state.first_seq
        open_calls = await self.inputs.open_client_calls(name)
        state.awaits_client = any(open_call.made_by.seq < before for open_call in open_calls)
        # a long-running tool that other turns called does not hold this one up
        state.awaits_result = any(
            open_call.made_by.seq < before and open_call.made_by.invocation_id == turn_input.event.invocation_id
            for open_call in await self.inputs.unreported_calls(name)
        )
        answered = turn_input.credential_answer.call_id if turn_input.credential_answer else ""
        state.awaits_credential = any(
            request.call_id != answered and request.invocation_id == turn_input.event.invocation_id
            for request in await self.inputs.open_credential_requests(name)
        )
        state.has_other_pending = state.is_pending

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
                    functools.partial(self._read_requests, name),
                    on_event=functools.partial(note_calls, state),
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
                raise to_agent_error(error) from error
            state.bad_transfer, state.valid_agents = wanted, valid
        if state.failure is not None:
            raise state.failure

    async def _request_credentials(self, name: SessionId, state: TurnState) -> AsyncGenerator[TurnEvent, None]:
        """Request the credentials that tools asked for and ADK did not request."""
        for unmade in state.unmade_requests:
            session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
            if session is None:
                return
            event = await self._service.append_event(session, request_event(unmade))
            await self._read_requests(name, state)
            for turn_event in to_turn_events(event, state):
                yield turn_event
        state.unmade_requests.clear()

    async def _read_requests(self, name: SessionId, progress: TurnProgress) -> None:
        """Read the open requests to a person into the progress of a turn."""
        session = await self._store.read(find_session, name)
        approvals = await self._store.read(read_approval_requests, session) if session else []
        progress.approval_requests = {request.call_id: request for request in approvals}
        inputs = await self._store.read(read_input_requests, session) if session else []
        progress.input_requests = {request.call_id: request for request in inputs}
        credentials = await self._store.read(read_credential_requests, session) if session else []
        progress.credential_requests = {request.call_id: request for request in credentials}


def _preload() -> None:
    preload_adk()
    workflow_nodes.install()
