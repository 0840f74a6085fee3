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
from lango.adk.agents.client_tools import answering, check_names, kept, unanswered_results
from lango.adk.agents.loader import import_adk
from lango.adk.agents.model_registry import Models
from lango.adk.agents.tool_names import ToolNames, tool_names
from lango.adk.agents.transfers import correction, missing_agent, transfer_targets
from lango.adk.agents.tree import is_answer, sure_speaker, tree
from lango.adk.model.direct_text import Say, plain_speakers
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.client_history import carried_entries
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.runner import run_adk
from lango.adk.run.turn_state import TurnState, current_turn
from lango.adk.services.events_to_rows import complete_event, event_to_entry
from lango.adk.services.message_parts import attachments_to_parts
from lango.adk.services.request_context import stored_message, writing_epoch
from lango.adk.services.session_service import SqlSessionService
from lango.config import Settings
from lango.errors import AgentFailed, AgentNotFound, ApprovalExpired, CallNotWaiting, EmptyAnswer, LangoError
from lango.events import TurnEvent
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules
from lango.memory import IsGone, Memory, Observer, limits_for
from lango.messages import Attachment, Message, ToolCall
from lango.providers import Provider
from lango.providers.protocol import ThoughtDelta
from lango.store import SessionId, Store, Turn
from lango.store.codec.records import CONFIRMATION, ClientResult
from lango.store.codec.rows import asked_about
from lango.store.turns.approvals import Answer, Question
from lango.store.turns.client_calls import ClientCall
from lango.store.turns.tool_journal import POLICY
from lango.tools import Tool
from lango.tools.client_tool_definitions import by_name
from lango.turns.turn_input import Asked
from lango.turns.turn_progress import NextId, Told


class TurnRun(Struct):
    """A turn on its way through ADK."""

    told: Told
    state: TurnState
    corrected: AgentNotFound | None = None
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
        self._models = Models(settings, provider)
        self._app = build_app(settings, self._models, tools, RuntimePlugin(), root_agent)
        self._root: Any = self._app.root_agent  # an agent, or any node of a workflow
        history = settings.history
        # some events become no message of a request
        max_messages = None if settings.memory.enabled else history.max_messages * 5 // 4
        self._loaded = (history.max_message_token_budget or DEFAULT_BUDGET_TOKENS, max_messages)
        speaker = sure_speaker(self._app)
        self._service = SqlSessionService(
            "",
            store=store,
            budget_tokens=self._loaded[0],
            max_messages=max_messages,
            root_agent_name=self._root.name,
            warn=False,
            memory=settings.memory.enabled,
            user_facts=settings.memory.user_facts,
            approval_expires_s=settings.tools.approval_expires_s or None,
            ends_turn=lambda event: is_answer(event, speaker),
        )
        self._observer = self._models.observer(self._root) if settings.memory.enabled else None
        self._runner = Runner(app=self._app, session_service=self._service)
        self._imported: asyncio.Future[None] | None = None
        self._plain = plain_speakers(tree(self._root)) if len(self._app.plugins) == 1 else frozenset[str]()

    @property
    def app_name(self) -> str:
        """The app that sessions belong to."""
        return self._runner.app_name

    def agents(self) -> dict[str, Any]:
        """Describe the agents: the root, with those below it."""
        return _described(self._root)

    async def tool_names(self, *, ask_toolsets: bool) -> ToolNames:
        """Return what the tools of the agents are called; see `lango.adk.agents.tool_names`."""
        return await tool_names(self._app, ask_toolsets=ask_toolsets)

    @property
    def window_rules(self) -> WindowRules:
        """What bounds the messages of the root agent's next request."""
        model, memory = getattr(self._root, "model", None), self._settings.memory
        # of a model that is not ours, what is loaded is all that bounds it
        rules = model.window_rules if isinstance(model, ProviderLlm) else WindowRules(*self._loaded)
        return replace(rules, with_memory=memory.enabled, with_facts=memory.enabled and memory.user_facts)

    @property
    def service(self) -> SqlSessionService:
        """The session service below."""
        return self._service

    def memory(self, owner: str, is_gone: IsGone) -> Memory:
        """Make what remembers sessions; it observes none while memory is off."""
        settings = self._settings.memory
        if self._observer is None:
            return Memory(self._store, self.app_name, None)
        agent_context, model = self._observer
        limits = limits_for(settings, self._loaded[0], agent_context, model.context_tokens)
        observer = Observer(self._store, settings, limits, model, owner, is_gone)
        return Memory(self._store, self.app_name, observer, settings.close_wait_s)

    async def load(self) -> None:
        """Load what takes long to load before anybody waits for it."""
        await self._models.load()

    async def prepare(self) -> None:
        """Import what ADK needs for its first run, once: done by the first turn, unless somebody has time before."""
        if self._imported is None:
            self._imported = asyncio.ensure_future(asyncio.to_thread(import_adk))
        await asyncio.shield(self._imported)

    async def close(self) -> None:
        """Close toolsets, plugins and connections."""
        await self._runner.close()
        await self._models.close()

    def ask(
        self, text: str, attachments: Sequence[Attachment] = (), state_delta: Mapping[str, Any] | None = None
    ) -> Asked:
        """Make the message of a user, and the change of state that comes with it."""
        files = attachments_to_parts(attachments)
        words = [types.Part(text=text)] if text or not files else []
        return self._asked(types.Content(role="user", parts=words + files), f"e-{uuid.uuid4()}", state_delta)

    def offer(self, asked: Asked, tools: Sequence[Tool]) -> None:
        """Offer tools of the client in a turn. Raise `ClientToolRefused` for those that cannot be."""
        asked.client_tools = by_name(tools)
        check_names(asked.client_tools, tree(self._root))

    async def bring(self, name: SessionId, asked: Asked, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Let a message bring results of calls that wait for the client; those of any other call are left out."""
        calls = await self._client_calls(name)
        waiting = {one.call.id: results[one.call.id] for one in calls if one.call.id in results}
        asked.entry = replace(asked.entry, results=kept(waiting, tree(self._root)))

    async def answer_client(self, name: SessionId, results: Mapping[str, Mapping[str, Any]]) -> Asked:
        """Make the message that brings results of calls. Raise `CallNotWaiting` where none of them waits.

        Where they were brought before, and the turn failed, it is tried again from there.
        """
        calls = [one for one in await self._client_calls(name) if one.call.id in results]
        if not calls:
            return await self._answer_again(name, results)
        brought = kept({one.call.id: results[one.call.id] for one in calls}, tree(self._root))
        asked = self._asked(answering([one.call for one in calls], brought), calls[-1].made_by.invocation_id)
        asked.entry = replace(asked.entry, results=brought)
        return asked

    def carry(self, asked: Asked, history: Sequence[Message]) -> None:
        """Let a message bring the history before it; see `lango.adk.run.client_history`."""
        before = carried_entries(history, self._root.name, [*tree(self._root)])
        asked.entry = replace(asked.entry, before=before)

    def answer_carried(self, history: Sequence[Message], results: Mapping[str, Mapping[str, Any]]) -> Asked:
        """Make the message that brings results of the calls that a carried history ends with."""
        before = carried_entries(history, self._root.name, [*tree(self._root)], answered=True)
        brought = self.shown_results(results)
        asked = self._asked(answering(history[-1].tool_calls, brought), before[-1].invocation_id)
        asked.entry = replace(asked.entry, results=brought, before=before)
        return asked

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, ClientResult]:
        """Return results of the client's tools as the model reads them: plain, and clipped where they are long."""
        return kept(results, tree(self._root))

    async def _answer_again(self, name: SessionId, results: Collection[str]) -> Asked:
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        brought = unanswered_results(session.events if session else (), results)
        if brought is None:
            ids = ", ".join(sorted(results))
            raise CallNotWaiting(f"no call {ids} waits for a result in session {name.id!r} (any more)")
        mark = Event(author=self._root.name, invocation_id=brought.invocation_id)
        complete_event(mark, self._root.name)
        return Asked(brought, event_to_entry(mark), again=True)

    async def _client_calls(self, name: SessionId) -> list[ClientCall]:
        session = await self._store.session(name)
        return await self._store.client_calls(session) if session else []

    async def answer_approval(self, name: SessionId, call_id: str, *, approved: bool, by: str = "") -> Asked:
        """Make the message that answers a question for approval. Raise `ApprovalExpired` where none waits."""
        question = (await self._waiting(name)).get(call_id)
        if question is None:
            raise ApprovalExpired(await self._why_not(name, call_id))
        confirmation_id, invocation_id = question
        response = types.FunctionResponse(id=confirmation_id, name=CONFIRMATION, response={"confirmed": approved})
        content = types.Content(role="user", parts=[types.Part(function_response=response)])
        asked = self._asked(content, invocation_id)
        asked.approves, asked.answer = call_id, Answer(confirmation_id, call_id, approved, by or name.user_id)
        return asked

    async def _why_not(self, name: SessionId, call_id: str) -> str:
        session = await self._store.session(name)
        journal = await self._store.effect(session.key, call_id) if session else None
        if journal and journal.approved is False and journal.approved_by == POLICY:
            return f"the question about call {call_id!r} was not answered in time: that was a no"
        return f"no call {call_id!r} waits for approval in session {name.id!r} (any more)"

    async def _waiting(self, name: SessionId, answer_id: str = "") -> dict[str, tuple[str, str]]:
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
                if call.name == CONFIRMATION and call.id not in answered:
                    about = asked_about(ToolCall(call.id or "", CONFIRMATION, call.args))
                    waiting[about.get("id", "")] = (call.id or "", event.invocation_id)
        return waiting

    def _asked(self, content: types.Content, invocation_id: str, state_delta: Mapping[str, Any] | None = None) -> Asked:
        actions = EventActions(state_delta=dict(state_delta or {}))
        event = Event(author="user", invocation_id=invocation_id, content=content, actions=actions)
        complete_event(event, self._root.name)
        return Asked(event, event_to_entry(event))

    def begin(self, turn: Turn, asked: Asked, next_id: NextId, tell: Callable[[TurnEvent], None]) -> TurnRun:
        """Prepare a turn in the task that runs it: everything that ADK starts from here belongs to this turn."""
        root = self._root
        told = Told(next_id)
        state = TurnState(
            store=self._store,
            turn=turn,
            max_model_calls=self._settings.agent.max_turns,
            decide=lambda tool: decision_for(tool, self._settings.tools),
            effect_of=effect_of,
            agent_names=lambda agent: transfer_targets(root, agent),
            tell=tell,
            next_id=next_id,
            tool_timeout_s=self._settings.agent.tool_timeout_s,
            asked=told.asked,
            durations_s=told.durations_s,
            answered_by=asked.answer.by if asked.answer else "",
            client_tools=asked.client_tools,
        )
        state.say = lambda agent, branch: self._voice(agent, branch, told, state)
        current_turn.set(state)
        writing_epoch.set(turn.epoch)
        stored_message.set(asked.event)
        return TurnRun(told, state)

    def _voice(self, agent: str, branch: str, told: Told, state: TurnState) -> Say | None:
        """Return what tells the text of an agent past ADK; None where somebody of ADK's may still change it."""
        who = agent, branch
        if agent not in self._plain:
            return None
        return lambda delta: state.tell(told.say(who, delta.text, thought=isinstance(delta, ThoughtDelta)))

    async def run(self, name: SessionId, asked: Asked, run: TurnRun) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn. A transfer to an agent that does not exist is corrected once."""
        await self._look_beside(name, asked, run)
        if asked.answers_client and (run.told.waiting or run.told.client):
            return  # the model goes on when nothing waits any more
        await self.prepare()
        run.state.session_id = name.id
        message = asked.event.content or types.Content()
        goes_on = asked.approves or asked.answers_client or asked.again
        invocation_id = None if goes_on else asked.event.invocation_id
        while True:
            async with aclosing(self._once(name, message, invocation_id, run)) as events:
                async for event in events:
                    yield event
            failure = _bad_transfer(run.state)
            if failure is None:
                run.told.client = run.told.client or bool(run.state.client_calls)
                _check_answer(run)
                return
            if run.corrected is not None or not run.state.valid_agents:
                raise failure
            run.corrected, invocation_id = failure, None  # another invocation: ADK skips what an invocation has seen
            told = correction(run.state.bad_transfer or "", run.state.valid_agents)
            run.state.bad_transfer = None
            message = types.Content(role="user", parts=[types.Part(text=told)])

    async def _look_beside(self, name: SessionId, asked: Asked, run: TurnRun) -> None:
        """Find out what waits beside the answer that a turn brings: the model goes on when all is answered."""
        if asked.again:
            await self._answer_again(name, {one.id or "" for one in asked.event.get_function_responses()})
        if not (asked.approves or asked.answers_client):
            return
        waiting = await self._waiting(name, asked.event.id)
        if asked.approves and waiting.pop(asked.approves, None) is None:
            raise ApprovalExpired(f"the conversation went on before call {asked.approves!r} was approved")
        run.told.waiting = asked.event.invocation_id in {other for _, other in waiting.values()}
        run.told.client = bool(await self._client_calls(name))
        run.state.more_approvals = run.told.waiting or run.told.client

    async def _once(
        self, name: SessionId, message: types.Content, invocation_id: str | None, run: TurnRun
    ) -> AsyncGenerator[TurnEvent, None]:
        try:
            async with aclosing(
                run_adk(
                    self._runner,
                    name,
                    message,
                    invocation_id,
                    run.told,
                    lambda: self._open_requests(name),
                    capture_content=self._settings.telemetry.capture_content,
                )
            ) as events:
                async for event in events:
                    yield event
        except (LangoError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a native library is no Exception
            wanted = missing_agent(error)
            valid = [agent.name for agent in tree(self._root) if agent is not self._root]
            if wanted is None or not valid:
                raise _translated(error) from error
            run.state.bad_transfer, run.state.valid_agents = wanted, valid
        if run.state.failure is not None:
            raise run.state.failure

    async def _open_requests(self, name: SessionId) -> dict[str, Question]:
        session = await self._store.session(name)
        open_now = await self._store.open_questions(session) if session else []
        return {request.call_id: request for request in open_now}


def _described(agent: Any) -> dict[str, Any]:
    return {
        "name": agent.name,
        "type": type(agent).__name__,
        "description": getattr(agent, "description", ""),
        "tools": [tool.name for tool in getattr(agent, "tools", ()) if hasattr(tool, "name")],
        "sub_agents": [_described(sub) for sub in getattr(agent, "sub_agents", ())],
    }


def _bad_transfer(state: TurnState) -> AgentNotFound | None:
    if state.bad_transfer is None:
        return None
    valid = ", ".join(state.valid_agents)
    return AgentNotFound(f"there is no agent {state.bad_transfer!r}; there are {valid}")


def _check_answer(run: TurnRun) -> None:
    """An answer that is none is told as what it is."""
    told = run.told
    if told.error is not None:
        raise EmptyAnswer(f"the model gave no answer: {': '.join(part for part in told.error if part)}")
    if not (told.waiting or told.client or told.ended_by_tool or told.said_since_tool):
        why = f" (finish reason: {told.finish_reason})" if told.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def _translated(error: BaseException) -> LangoError:
    """Find our own error under what ADK made of it; else say that the agent failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
