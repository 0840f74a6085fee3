"""Try what would have happened: run a turn on from one of its steps with something changed, as a fork."""

import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.adk.run.engine import AdkEngine
from lango.errors import ConfigError, Conflict, ModelOptionsRefused, StateRefused
from lango.model_options import AgentOptions, ModelOptions
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.sessions.session_state import state_event
from lango.sessions import SessionId, SessionInfo, check_client_state
from lango.store import Store
from lango.store.lifecycle.fork import fork_session
from lango.store.lifecycle.run_on import read_message_of_turn, run_on
from lango.store.sessions.sessions import get_session, get_titled_session
from lango.submissions import SubmittedMessage, TurnRequest
from lango.turns.running_turn import RunningTurn

Accept = Callable[[SessionId, SubmittedMessage, str | None, int | None], Awaitable[RunningTurn]]


class Changes(Struct, frozen=True):
    """What is tried instead of what was."""

    message: str | None = None
    """Another message for the whole turn, or None for its own."""
    agents: Mapping[str, AgentOptions] = {}
    """Another system text or model of agents, by their names, in this turn."""
    results: Mapping[str, Mapping[str, Any]] = {}
    """Other results of tool calls, by their ids."""
    state: Mapping[str, Any] = {}
    """Other values in the state of the session."""


class Playground:
    """Runs turns on from their steps, as forks: the original stays."""

    def __init__(
        self,
        store: Store,
        engine: AdkEngine,
        supervisor: TurnSupervisor,
        accept: Accept,
        credential_names: Callable[[], Collection[str]],
    ) -> None:
        self._store = store
        self._engine = engine
        self._supervisor = supervisor
        self._accept = accept
        self._credential_names = credential_names

    async def run_on(
        self,
        session_id: str,
        turn: int | None,
        changes: Changes,
        *,
        before: int | None = None,
        user_id: str = "user",
        quota_id: str | None = None,
        tokens_per_day: int | None = None,
        new_id: str | None = None,
        title: str | None = None,
    ) -> tuple[SessionInfo, RunningTurn]:
        """Create a fork that runs a turn again from its start, or on from message `before`; return both.

        The steps before that message are not done again. Their results, the state, and the system texts and models of
        agents are as before, unless `changes` has others. Without a `turn`, the message of `changes` is sent to a fork
        of the whole session. Raise `TraceNotFound`, `Conflict` or `StateRefused`, and create nothing, if the turn
        cannot be run so, and `ModelOptionsRefused` for a model that cannot be used.
        """
        self._check(changes, turn, before)
        source = SessionId(self._engine.app.name, user_id, session_id)
        new = replace(source, id=(new_id or "").strip() or uuid.uuid4().hex)
        if changes.message is None:
            assert turn is not None
            request: dict[str, Any] = {"agents": to_builtins(changes.agents)} if changes.agents else {}
            request = {"options": request, "quota": quota_id, "tokens_per_day": tokens_per_day}
            state = state_event(changes.state) if changes.state else None
            place = turn, before, changes.results, state, request, self._supervisor.owner.name, title, time.time()
            started = await self._store.write_long(run_on, source, new, *place)
            fork = await self._store.read(get_session, new)
            running = await self._supervisor.continue_turn(fork, started)
        else:
            at = None
            if turn is not None:
                at = await self._store.read(read_message_of_turn, source, turn) - 1
            await self._store.write_long(fork_session, source, new, at, title, time.time())
            options = TurnRequest(options=ModelOptions(agents=changes.agents))
            message = SubmittedMessage(changes.message, state_delta=changes.state, request=options)
            running = await self._accept(new, message, quota_id, tokens_per_day)
        return await self._store.read(get_titled_session, new), running

    def _check(self, changes: Changes, turn: int | None, before: int | None) -> None:
        if changes.message is not None and (before is not None or changes.results):
            raise Conflict("another message runs the whole turn again: leave out `before` and `results`")
        if changes.message is None and turn is None:
            raise Conflict("name the turn that is run again, or a message")
        if changes.results and before is None:
            raise Conflict("name the message with the results in `before`")
        check_client_state(changes.state, self._credential_names())
        if shared := [name for name in changes.state if name.startswith(("user:", "app:"))]:
            raise StateRefused(f"change other values: these are shared with the original: {', '.join(shared)}")
        for options in changes.agents.values():
            if options.model:
                self._require_model(options.model)

    def _require_model(self, name: str) -> None:
        try:
            self._engine.app.models.get(name)
        except ConfigError as error:
            raise ModelOptionsRefused(f"the model {name!r} cannot be used: {error}") from error
