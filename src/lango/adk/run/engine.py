"""Run the turns of one app with ADK's Runner on Lango's services."""

import asyncio
import functools

from google.adk.runners import Runner
from msgspec.structs import replace

from lango.adk.agents.adk_internals import preload_adk
from lango.adk.agents.app_checks import summary_model
from lango.adk.agents.tool_credentials import move_exchanges_off_the_loop
from lango.adk.agents.tree import (
    agents_with_direct_text,
    final_answer_agents,
    is_final_answer,
    transfer_targets,
    walk_agents,
)
from lango.adk.events.recorded_run import RecordedRun
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.agent_app import AgentApp
from lango.adk.run.input.input_builder import InputBuilder
from lango.adk.run.leg import LegRunner
from lango.adk.run.record import workflow_nodes
from lango.adk.run.updates import Updates, continued_history
from lango.adk.services.artifact_service import SqlArtifactService, load_references
from lango.adk.services.credential_secrets import keep_answers_out_of_logs
from lango.adk.services.credential_service import SqlCredentialService
from lango.adk.services.memory_service import SqlMemoryService
from lango.adk.services.session_service import SessionRules, SqlSessionService
from lango.adk.services.stored_service import FileLoader
from lango.adk.turn.limits import Limits
from lango.adk.turn.model_calls import ModelCalls
from lango.adk.turn.output import Output
from lango.adk.turn.record import KeptRequests, Record
from lango.adk.turn.step import LeftOutLog
from lango.adk.turn.turn_run import AppServices, TurnRun
from lango.adk.turn.waits import Waits
from lango.config import Settings
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules, load_tokenizer, messages_to_load
from lango.memory import Memory, MemoryModel, MemoryThresholds, Observer, thresholds_for
from lango.store import Store, Turn
from lango.store.credentials.secret_box import SecretBox
from lango.store.tool_calls.tool_journal import read_turn_entries
from lango.store.turns.continuing import read_earlier_calls
from lango.store.turns.turns import read_turn_record
from lango.tools.results import FileLimits
from lango.turns.lease_holder import LeaseHolder
from lango.turns.liveness import OwnerIsGone
from lango.turns.running_turn import RunningTurn
from lango.turns.turn_input import TurnInput
from lango.turns.turn_sink import TurnSink


class ContextLimits:
    """The limits of the requests of one app, and the model that observes its sessions."""

    def __init__(self, settings: Settings, app: AgentApp) -> None:
        history, memory = settings.history, settings.memory
        self._memory_settings = memory
        self._app = app
        self.budget_tokens = history.max_message_token_budget or DEFAULT_BUDGET_TOKENS
        self.max_messages = messages_to_load(None if memory.enabled else history.max_messages)
        self.memory_model: MemoryModel | None = None
        """The model that observes, or None if the memory is off."""
        self.thresholds: MemoryThresholds | None = None
        """The thresholds of the memory, or None if it is off."""
        self.update()

    def update(self) -> None:
        """Compute the limits of the memory from the models that answer and observe now."""
        if self._memory_settings.enabled:
            agent_context, model = self._app.models.memory_model(self._app.root)
            self.memory_model = model
            self.thresholds = thresholds_for(
                self._memory_settings, self.budget_tokens, agent_context, model.context_tokens
            )

    @property
    def notes_tokens(self) -> int | None:
        """The most tokens of notes in a request, or None if the memory is off."""
        return self.thresholds.notes_tokens if self.thresholds else None

    @property
    def load_rules(self) -> WindowRules:
        """The limits of the messages that are loaded for a request."""
        with_memory = self._memory_settings.enabled
        return WindowRules(self.budget_tokens, None, with_memory=with_memory, max_loaded=self.max_messages)

    @property
    def window_rules(self) -> WindowRules:
        """The limits of the root agent's next request."""
        model, memory = getattr(self._app.root, "model", None), self._memory_settings
        # a model of the user's own is only bounded by what the session service loads
        rules = model.window_rules.within(self.load_rules) if isinstance(model, ProviderLlm) else self.load_rules
        return replace(
            rules,
            with_facts=memory.enabled and memory.user_facts,
            notes_tokens=self.notes_tokens,
        )


class AdkEngine:
    """Runs turns of one app with ADK's Runner."""

    def __init__(self, settings: Settings, store: Store, app: AgentApp) -> None:
        self._settings = settings
        self._store = store
        self.app = app
        self._limits = ContextLimits(settings, app)
        self._observer: Observer | None = None
        self._box = SecretBox.from_environment()
        keep_answers_out_of_logs()
        sessions = self._session_service()
        self.artifacts = SqlArtifactService("", store=store, max_bytes=settings.store.max_artifact_bytes)
        self._runner = Runner(
            app=app.adk_app,
            session_service=sessions,
            artifact_service=self.artifacts,
            memory_service=SqlMemoryService("", store=store, stored_sessions=True),
            credential_service=SqlCredentialService("", store=store, box=self._box),
        )
        self.updates = Updates(store, app.root, lambda: app.version)
        """How this version of the app continues the turns of others."""
        self.inputs = InputBuilder(store, sessions, app.root, self._box)
        self.legs = LegRunner(
            self._runner, store, self.inputs, app.root, capture_content=settings.telemetry.capture_content
        )
        self._files = FileLoader(store)
        self._summary_model = summary_model(app.adk_app)
        self._imported: asyncio.Future[None] | None = None
        has_plugins = len(app.adk_app.plugins) > 1
        self._services = AppServices(
            box=self._box,
            load_files=self._files.load_into,
            load_references=functools.partial(load_references, self.artifacts),
            decide=app.decide,
            effect=app.effect_of_tool,
            agent_names=functools.partial(transfer_targets, app.root),
            continued_history=continued_history(app.root),
            tool_schema=lambda agent, tool: app.version.shape.tool_schema(agent, tool),
            kept_requests=KeptRequests(store, settings.trace),
            left_out_log=LeftOutLog(self._limits.load_rules),
            direct_text_agents=frozenset() if has_plugins else agents_with_direct_text(walk_agents(app.root)),
        )

    def _session_service(self) -> SqlSessionService:
        settings, limits, speakers = self._settings, self._limits, final_answer_agents(self.app.adk_app)
        return SqlSessionService(
            "",
            store=self._store,
            budget_tokens=limits.budget_tokens,
            max_messages=limits.max_messages,
            root_agent_name=self.app.root.name,
            load_files=False,
            rules=SessionRules(
                box=self._box,
                ends_turn=lambda event: is_final_answer(event, speakers),
                expires_s={
                    "approval": settings.tools.approval_expires_s or None,
                    "input": settings.agent.input_expires_s or None,
                    "credential": settings.credentials.request_expires_s or None,
                },
                memory=settings.memory.enabled,
                user_facts=settings.memory.user_facts,
                notes_tokens=limits.notes_tokens,
            ),
        )

    @property
    def window_rules(self) -> WindowRules:
        """The limits of the root agent's next request."""
        return self._limits.window_rules

    def memory(self, leases: LeaseHolder, is_gone: OwnerIsGone) -> Memory:
        """Make the memory of sessions and users; it observes nothing while `memory.enabled` is off."""
        settings, limits = self._settings.memory, self._limits
        if limits.memory_model is None or limits.thresholds is None:
            return Memory(self._store, self.app.name, None)
        self._observer = Observer(self._store, settings, limits.thresholds, limits.memory_model, leases, is_gone)
        return Memory(self._store, self.app.name, self._observer, settings.close_wait_s)

    async def use_model(self, model: str) -> None:
        """Answer with another model from the next model call on, and observe with it where that was the model."""
        await self.app.models.replace(self.app.root, model)
        self._limits.update()
        if self._observer is not None and self._limits.memory_model and self._limits.thresholds:
            self._observer.use_model(self._limits.memory_model, self._limits.thresholds)

    async def load(self) -> None:
        """Load local models now, so that the first turn does not wait for it."""
        await self.app.models.load()

    async def preload(self) -> None:
        """Import what ADK imports in its first run, and load the tokenizer: once, and in threads."""
        await load_tokenizer()
        if self._imported is None:
            self._imported = asyncio.ensure_future(asyncio.to_thread(_preload))
        await asyncio.shield(self._imported)

    async def close(self) -> None:
        """Close toolsets, plugins and connections."""
        await self._runner.close()
        await self.app.models.close()

    async def _read_record(self, turn: Turn, first_seq: int | None) -> RecordedRun:
        """Read what an earlier run of a turn stored; nothing without the message of its input."""
        if first_seq is None:
            return RecordedRun((), (), {})
        stored = await self._store.read(read_turn_record, turn, first_seq)
        await self._store.load_files(stored)
        entries = await self._store.read(read_turn_entries, turn)
        events = stored_to_events(stored, self.app.root.name)
        return RecordedRun(stored, events, entries)

    async def begin(
        self, running: RunningTurn, turn_input: TurnInput, sink: TurnSink, first_seq: int | None = None
    ) -> TurnRun:
        """Prepare a run of a turn. `sink` takes its events.

        `first_seq` is the message of the input, if an earlier run may have stored more.
        """
        agent, bounds, model = self._settings.agent, self._settings.server.limits, turn_input.options.model
        self._files.keep(turn_input.entry.contents)
        earlier = await self._store.read(read_earlier_calls, running.turn) if turn_input.is_continued else {}
        return TurnRun(
            session=running.session.name,
            input=turn_input,
            app=self._services,
            limits=Limits(
                max_model_calls=agent.max_turns,
                tool_timeout_s=agent.tool_timeout_s,
                files=FileLimits(bounds.max_attachments, bounds.max_attachment_bytes),
                memory=self._limits.thresholds,
                time=sink.limits,
                step_gate=running.step_gate,
            ),
            record=Record(
                store=self._store,
                lease=running.turn,
                loop=asyncio.get_running_loop(),
                earlier_run=await self._read_record(running.turn, first_seq),
                first_seq=first_seq,
                earlier_calls=earlier,
            ),
            waits=Waits(),
            output=Output(
                sink=sink,
                model_calls=ModelCalls(bool(self._settings.trace.requests)),
                summary_model=self._summary_model,
            ),
            replaced_model=getattr(self.app.root, "model", None),
            chosen_model=(model and self.app.models.get(model)) or None,
            tried_models={
                name: self.app.models.get(one.model) for name, one in turn_input.options.agents.items() if one.model
            },
        )


def _preload() -> None:
    preload_adk()
    move_exchanges_off_the_loop()  # of what was imported since
    workflow_nodes.install()
