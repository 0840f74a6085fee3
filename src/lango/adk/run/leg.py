"""Run one leg of a turn with ADK's Runner: from its input to a pause or to its end."""

import asyncio
import functools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.telemetry import ContentCapturingMode, TelemetryConfig
from google.genai import types

from lango.adk.agents.transfers import missing_transfer_target, transfer_correction
from lango.adk.agents.tree import walk_agents
from lango.adk.run.event_conversion import require_answer, to_agent_error, to_turn_events, transfer_failure
from lango.adk.run.input.input_builder import InputBuilder
from lango.adk.run.pauses.unanswered_calls import await_node_calls, note_calls, request_event
from lango.adk.run.record import workflow_nodes
from lango.adk.run.turn_state import TurnState
from lango.errors import LangoError, WaitNotOpen
from lango.events import TurnEvent
from lango.failure_log import log_failure
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, SessionId
from lango.store import Store
from lango.store.engine.database import LARGEST
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import read_approval_requests
from lango.store.tool_calls.credential_requests import read_credential_requests
from lango.store.tool_calls.input_requests import read_input_requests
from lango.telemetry.traces import is_tracing
from lango.turns.turn_input import TurnInput

_MAX_LLM_CALLS = 1_000_000
_TOOL_THREADS = 32
_REQUESTS = (CONFIRMATION_CALL, INPUT_CALL, CREDENTIAL_CALL)


class LegRunner:
    """Runs the legs of the turns of one app."""

    def __init__(self, runner: Runner, store: Store, inputs: InputBuilder, root: Any, *, capture_content: bool) -> None:
        """`root` is the root agent or node. With `capture_content`, the spans of ADK hold the messages."""
        self._runner = runner
        self._store = store
        self._inputs = inputs
        self._capture_content = capture_content
        self._root = root

    async def run(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> AsyncGenerator[TurnEvent, None]:
        """Run the leg that an input starts. A transfer to an agent that does not exist is corrected once."""
        await self._check_pending(name, turn_input, state)
        if turn_input.brings_client_results and (state.awaits_approval or state.awaits_client or state.awaits_result):
            return  # the model continues when nothing is pending any more
        message = turn_input.event.content or types.Content()
        continues = turn_input.continues_invocation
        invocation_id = None if continues else turn_input.event.invocation_id
        await workflow_nodes.check_earlier_nodes(self._root, state)
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
        await await_node_calls(state)
        if continues and not state.awaits_input:  # other nodes may still wait
            state.awaits_input = bool(await self._inputs.open_input_requests(name))
        if continues and not state.awaits_credential:
            state.awaits_credential = bool(await self._inputs.open_credential_requests(name))
        require_answer(state)

    async def _check_pending(self, name: SessionId, turn_input: TurnInput, state: TurnState) -> None:
        """Check what else is pending besides this turn's answer: the model continues when all is answered."""
        if turn_input.is_retry:
            call_ids = {result.id or "" for result in turn_input.event.get_function_responses()}
            await self._inputs.retry_results(name, call_ids)
        answers = turn_input.answered_call_id or turn_input.credential_answer is not None
        if not (answers or turn_input.brings_client_results):
            return
        pending = await self._inputs.pending_approvals(name, turn_input.event.id)
        if turn_input.answered_call_id and pending.pop(turn_input.answered_call_id, None) is None:
            raise WaitNotOpen(f"the conversation went on before call {turn_input.answered_call_id!r} was approved")
        state.awaits_approval = turn_input.event.invocation_id in {
            request.invocation_id for request in pending.values()
        }
        before = LARGEST if state.first_seq is None else state.first_seq
        open_calls = await self._inputs.open_client_calls(name)
        state.awaits_client = any(open_call.made_by.seq < before for open_call in open_calls)
        # a long-running tool that other turns called does not hold this one up
        state.awaits_result = any(
            open_call.made_by.seq < before and open_call.made_by.invocation_id == turn_input.event.invocation_id
            for open_call in await self._inputs.unreported_calls(name)
        )
        answered = turn_input.credential_answer.call_id if turn_input.credential_answer else ""
        state.awaits_credential = any(
            request.stored_id != answered and request.invocation_id == turn_input.event.invocation_id
            for request in await self._inputs.open_credential_requests(name)
        )
        state.has_other_pending = state.is_pending

    async def _run_once(
        self, name: SessionId, message: types.Content, invocation_id: str | None, state: TurnState
    ) -> AsyncGenerator[TurnEvent, None]:
        try:
            async with aclosing(self._run_adk(name, message, invocation_id)) as events:
                async for event in events:
                    if not event.partial and any(call.name in _REQUESTS for call in event.get_function_calls()):
                        await self._read_requests(name, state)
                    note_calls(state, event)
                    for turn_event in to_turn_events(event, state):
                        yield turn_event
        except (LangoError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a native library is not an Exception
            if state.failure is not None:
                raise state.failure from error
            wanted = missing_transfer_target(error)
            valid = [agent.name for agent in walk_agents(self._root) if agent is not self._root]
            if wanted is None or not valid:
                log_failure(f"the agent failed in {state.place}", error)
                raise to_agent_error(error) from error
            state.bad_transfer, state.valid_agents = wanted, valid
        if state.failure is not None:
            raise state.failure

    def _run_adk(
        self, name: SessionId, message: types.Content, invocation_id: str | None
    ) -> AsyncGenerator[Event, None]:
        """Run the agent on a message that is already stored, and yield ADK's events."""
        config = RunConfig.model_validate(
            {
                "streaming_mode": "sse",
                # the plugin limits model calls: ADK's own limit would end the turn without an answer
                "max_llm_calls": _MAX_LLM_CALLS,
                # a user's blocking function must not stop the other turns of this process
                "tool_thread_pool_config": {"max_workers": _TOOL_THREADS},
                # by default, ADK puts messages on its spans
                "telemetry": _telemetry(self._capture_content, is_tracing()),
            }
        )
        return self._runner.run_async(
            user_id=name.user_id,
            session_id=name.id,
            invocation_id=invocation_id,
            new_message=message,
            run_config=config,
        )

    async def _request_credentials(self, name: SessionId, state: TurnState) -> AsyncGenerator[TurnEvent, None]:
        """Request the credentials that tools asked for and ADK did not request."""
        service = self._runner.session_service
        for missing in state.missing_requests:
            session = await service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
            if session is None:
                return
            event = await service.append_event(session, request_event(missing))
            await self._read_requests(name, state)
            for turn_event in to_turn_events(event, state):
                yield turn_event
        state.missing_requests.clear()

    async def _read_requests(self, name: SessionId, state: TurnState) -> None:
        """Read the open requests to a person into the state of a turn."""
        session = await self._store.read(find_session, name)
        approvals = await self._store.read(read_approval_requests, session) if session else []
        state.approval_requests = {request.call_id: request for request in approvals}
        inputs = await self._store.read(read_input_requests, session) if session else []
        state.input_requests = {request.stored_id: request for request in inputs}
        credentials = await self._store.read(read_credential_requests, session) if session else []
        state.credential_requests = {request.stored_id: request for request in credentials}


@functools.cache
def _telemetry(capture_content: bool, is_traced: bool) -> TelemetryConfig:
    mode = ContentCapturingMode.SPAN_ONLY if capture_content else ContentCapturingMode.NO_CONTENT
    # ADK copies every value of a request for its newer attributes, even where no span is recorded: 50 ms for 40,000
    return TelemetryConfig(capture_message_content=mode, genai_semconv_stability_opt_in=None if is_traced else "stable")
