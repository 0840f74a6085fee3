"""ADK behind a small face: what the runtime asks of it, in Lango's words."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from google.adk.events import Event
from google.adk.runners import Runner
from google.genai import types

from lango.adk.agent import Models, build_app, decision_for, effect_of, transfer_targets, tree
from lango.adk.convert import complete_event, event_to_entry
from lango.adk.plugin import RuntimePlugin, TurnState, current_turn
from lango.adk.sessions import SqlSessionService, stored_message, writing_epoch
from lango.adk.transfers import correction, missing_agent
from lango.adk.turn import CONFIRMATION, NextId, Told, run_adk
from lango.config import Settings
from lango.errors import AgentFailed, AgentNotFound, ApprovalExpired, EmptyAnswer, LangoError
from lango.events import TurnEvent
from lango.history import DEFAULT_BUDGET_TOKENS
from lango.providers import Provider
from lango.store import Entry, SessionId, Store, Turn
from lango.tools import Tool


@dataclass(slots=True)
class Asked:
    """What a turn is about: the user's message as an event, and as the store keeps it."""

    event: Event
    entry: Entry
    resumes: bool = False
    """It answers a question of the agent's, and goes on with that invocation."""


@dataclass(slots=True)
class TurnRun:
    """A turn on its way through ADK."""

    told: Told
    state: TurnState
    tools_running: set[str] = field(default_factory=set[str])


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
        budget = settings.history.max_message_token_budget or DEFAULT_BUDGET_TOKENS
        self._service = SqlSessionService("", store=store, budget_tokens=budget, root_agent_name=self._root.name)
        self._runner = Runner(app=self._app, session_service=self._service)

    @property
    def app_name(self) -> str:
        """The app that sessions belong to."""
        return self._runner.app_name

    @property
    def service(self) -> SqlSessionService:
        """The session service below."""
        return self._service

    async def load(self) -> None:
        """Load what takes long to load before anybody waits for it."""
        await self._models.load()

    async def close(self) -> None:
        """Close toolsets, plugins and connections."""
        await self._runner.close()
        await self._models.close()

    def ask(self, text: str) -> Asked:
        """Make the message of a user."""
        content = types.Content(role="user", parts=[types.Part(text=text)])
        return self._asked(content, f"e-{uuid.uuid4()}")

    async def answer_approval(self, name: SessionId, call_id: str, *, approved: bool) -> Asked:
        """Make the message that answers a question for approval. Raise `ApprovalExpired` where none waits."""
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        shown = session.events if session else []
        answered = {result.id for event in shown for result in event.get_function_responses()}
        for event in reversed(shown):
            if event.author == "user" and not event.get_function_responses():
                break  # the conversation went on without an answer: that was a no
            for call in event.get_function_calls():
                original: Any = (call.args or {}).get("originalFunctionCall") or {}
                if call.name == CONFIRMATION and original.get("id") == call_id and call.id not in answered:
                    response = types.FunctionResponse(id=call.id, name=CONFIRMATION, response={"confirmed": approved})
                    content = types.Content(role="user", parts=[types.Part(function_response=response)])
                    asked = self._asked(content, event.invocation_id)
                    asked.resumes = True
                    return asked
        raise ApprovalExpired(f"no call {call_id!r} waits for approval in session {name.id!r} (any more)")

    def _asked(self, content: types.Content, invocation_id: str) -> Asked:
        event = Event(author="user", invocation_id=invocation_id, content=content)
        complete_event(event, self._root.name)
        return Asked(event, event_to_entry(event))

    def begin(self, turn: Turn, next_id: NextId) -> TurnRun:
        """Prepare a turn in the task that runs it: everything that ADK starts from here belongs to this turn."""
        root = self._root
        state = TurnState(
            store=self._store,
            turn=turn,
            max_model_calls=self._settings.agent.max_turns,
            decide=lambda tool: decision_for(tool, self._settings.tools),
            effect_of=effect_of,
            agent_names=lambda agent: transfer_targets(root, agent),
        )
        current_turn.set(state)
        writing_epoch.set(turn.epoch)
        return TurnRun(Told(next_id), state)

    async def run(self, name: SessionId, asked: Asked, run: TurnRun) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn. A transfer to an agent that does not exist is corrected once."""
        message, invocation_id = asked.event.content or types.Content(), asked.event.invocation_id
        stored_message.set(asked.event)
        first: AgentNotFound | None = None
        for _ in range(2):
            once = self._once(name, message, None if asked.resumes or first else invocation_id, run)
            async with aclosing(once) as events:
                async for event in events:
                    yield event
            failure = _bad_transfer(run.state)
            if failure is None:
                _check_answer(run)
                return
            if first is not None:
                raise failure from first
            first = failure
            told = correction(run.state.bad_transfer or "", run.state.valid_agents)
            run.state.bad_transfer = None
            message = types.Content(role="user", parts=[types.Part(text=told)])
        raise AssertionError("unreachable")

    async def _once(
        self, name: SessionId, message: types.Content, invocation_id: str | None, run: TurnRun
    ) -> AsyncGenerator[TurnEvent, None]:
        try:
            async with aclosing(
                run_adk(self._runner, name.user_id, name.id, message, invocation_id, run.told)
            ) as events:
                async for event in events:
                    yield event
        except LangoError:
            raise
        except Exception as error:
            wanted = missing_agent(error)
            valid = [agent.name for agent in tree(self._root) if agent is not self._root]
            if wanted is None or not valid:
                raise _translated(error) from error
            run.state.bad_transfer, run.state.valid_agents = wanted, valid
        if run.state.failure is not None:
            raise run.state.failure


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
    if not told.waiting and not told.text_since_tool.strip():
        why = f" (finish reason: {told.finish_reason})" if told.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def _translated(error: Exception) -> LangoError:
    """Find our own error under what ADK made of it; else say that the agent failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
