"""Run one leg of a turn with ADK's Runner, from its input to a pause or to its end, and emit its events."""

import asyncio
from contextlib import aclosing
from typing import Any

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.telemetry import ContentCapturingMode, TelemetryConfig
from google.genai import types

from lango.adk.agents.tree import (
    TRANSFER_TOOL,
    missing_approved_tool,
    missing_transfer_target,
    transfer_correction,
    walk_agents,
)
from lango.adk.events.events_to_rows import AGENT_ERROR, output_text
from lango.adk.run.input.input_builder import InputBuilder
from lango.adk.run.pauses.unanswered_calls import await_node_calls, note_calls, request_event
from lango.adk.run.record import workflow_nodes
from lango.adk.turn.output import MissingAgent, Output, texts_of
from lango.adk.turn.turn_run import TurnRun, entered
from lango.development.failures import log_failure
from lango.errors import AgentFailed, EmptyAnswer, LangoError, TurnDiverged, WaitNotOpen
from lango.events import ArtifactSaved, WaitClosed, WaitOpened, to_plain_values
from lango.sessions import CONFIRMATION_CALL, CORRECTION_RUN, CREDENTIAL_CALL, INPUT_CALL, REQUEST_CALLS, REQUEST_PREFIX
from lango.store import Store
from lango.store.codec.records import wait_id
from lango.store.engine.database import LARGEST
from lango.store.waits.waits import is_closed_by_answer, list_pending, read_waits
from lango.telemetry.traces import is_tracing
from lango.waits import ApprovalWait, ClientResultWait, CredentialWait, EventWait, LongRunningWait, TimerWait

_MAX_LLM_CALLS = 1_000_000
_TOOL_THREADS = 32


class LegRunner:
    """Runs the legs of the turns of one app."""

    def __init__(self, runner: Runner, store: Store, inputs: InputBuilder, root: Any, *, capture_content: bool) -> None:
        """`root` is the root agent or node. With `capture_content`, the spans of ADK hold the messages."""
        self._runner = runner
        self._store = store
        self._inputs = inputs
        self._capture_content = capture_content
        self._root = root

    async def run(self, turn: TurnRun) -> None:
        """Run the leg that the input of a turn starts. A transfer to an agent that does not exist is corrected once."""
        with entered(turn):
            sink = turn.output.sink
            for closed in turn.record.lease.closed:
                sink.emit(WaitClosed(sink.next_id(), closed.wait, closed.outcome, closed.answered_by))
            await self._check_pending(turn)
            if turn.input.brings_client_results and turn.waits.kinds - {"credential"}:
                return  # the model continues when nothing is pending
            continues = turn.input.continues_invocation
            await workflow_nodes.read_nodes_before_pause(turn)
            answered = await workflow_nodes.answered_node(self._root, turn)
            if answered is not None and not answered.may_run_again:
                answered.end(turn)
            message, invocation_id = turn.input_event.content or types.Content(), turn.input_event.invocation_id
            missing = await self._run_adk(turn, message, None if continues else invocation_id)
            if missing is not None and missing.valid:
                turn.output.note_correction(missing)
                correction = types.Part(text=transfer_correction(missing.name, missing.valid))
                message = types.Content(role="user", parts=[correction])
                # a new invocation: ADK skips messages that an invocation has already processed
                missing = await self._run_adk(turn, message, f"{invocation_id}{CORRECTION_RUN}")
            if missing is not None:
                raise missing.error
            await self._request_credentials(turn)
            if answered is not None and answered.may_run_again and not turn.record.has_run_node(answered.path):
                answered.end(turn)
            await self._check_end(turn, continues=continues)

    async def _check_end(self, turn: TurnRun, *, continues: bool) -> None:
        """Check at the end of a run that the record was used up, and that there is an answer, or what it waits for."""
        turn.record.earlier_run.check_complete()
        if turn.waits.client_calls:
            turn.waits.note_kind("client_result")
        await await_node_calls(turn)
        if continues:  # other nodes may still wait
            await self._read_waits(turn)
            turn.waits.note_open_requests()
        require_answer(turn)

    async def _check_pending(self, turn: TurnRun) -> None:
        """Check what is pending in addition to this turn's answer: the model continues when all is answered."""
        name, turn_input, event = turn.session, turn.input, turn.input_event
        if turn_input.is_retry:
            call_ids = {result.id or "" for result in event.get_function_responses()}
            await self._inputs.retry_results(name, call_ids)
        answer = turn_input.answer
        if not turn_input.brings_client_results and (answer is None or answer.kind == "input"):
            return
        if answer is not None and answer.approved is not None:
            place = turn.record.lease.session_key, answer.wait_id
            if not await self._store.read(is_closed_by_answer, *place):
                raise WaitNotOpen(f"the conversation continued before call {answer.about!r} was approved", "superseded")
        before = LARGEST if turn.record.first_seq is None else turn.record.first_seq
        others: list[str] = []
        for stored in await self._store.read(list_pending, turn.record.lease.session_key, name):
            match stored.wait:
                case ApprovalWait() | CredentialWait() if stored.invocation_id == event.invocation_id:
                    others.append(stored.wait.kind)
                case ClientResultWait() if stored.seq < before:
                    others.append(stored.wait.kind)
                # a long-running tool that other turns called does not hold this one up
                case TimerWait() | EventWait() if stored.from_code:
                    pass  # it holds up its own node only
                case LongRunningWait() | TimerWait() | EventWait() if (
                    stored.seq < before and stored.invocation_id == event.invocation_id
                ):
                    others.append(stored.wait.kind)
                case _:
                    pass
        turn.waits.note_others(others)

    async def _run_adk(self, turn: TurnRun, message: types.Content, invocation_id: str | None) -> MissingAgent | None:
        """Run the agent on a message that is stored, and emit its events; return an agent that it could not find."""
        name = turn.session
        events = self._runner.run_async(
            user_id=name.user_id,
            session_id=name.id,
            invocation_id=invocation_id,
            new_message=message,
            run_config=_run_config(self._capture_content),
        )
        try:
            async with aclosing(events):
                async for event in events:
                    if not event.partial and any(call.name in REQUEST_CALLS for call in event.get_function_calls()):
                        await self._read_waits(turn)
                    note_calls(turn, event)
                    emit_event(turn, event)
        except (LangoError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a native library is not an Exception
            if turn.output.failure is not None:
                raise turn.output.failure from error
            if (tool := missing_approved_tool(error)) is not None:  # of a toolset, which cannot be asked before
                raise TurnDiverged(f"tool {tool!r}, whose call was approved, no longer exists") from error
            wanted = missing_transfer_target(error)
            valid = [agent.name for agent in walk_agents(self._root) if agent is not self._root]
            if wanted is None or not valid:
                log_failure(f"the agent failed in {turn.place}", error)
                raise to_agent_error(error) from error
            return MissingAgent(wanted, valid)
        if turn.output.failure is not None:
            raise turn.output.failure
        return turn.output.take_missing_agent()

    async def _request_credentials(self, turn: TurnRun) -> None:
        """Request the credentials that tools asked for and ADK did not request."""
        service, name = self._runner.session_service, turn.session
        for missing in turn.waits.take_missing_requests():
            session = await service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
            if session is None:
                return
            event = await service.append_event(session, request_event(missing))
            await self._read_waits(turn)
            emit_event(turn, event)

    async def _read_waits(self, turn: TurnRun) -> None:
        """Read what the session waits for."""
        turn.waits.note_open(await self._store.read(read_waits, turn.record.lease.session_key, turn.session))


def _run_config(capture_content: bool) -> RunConfig:
    mode = ContentCapturingMode.SPAN_ONLY if capture_content else ContentCapturingMode.NO_CONTENT
    # ADK copies every value of a request for its newer attributes, even where no span is recorded: 50 ms for 40,000
    stability = None if is_tracing() else "stable"
    return RunConfig.model_validate(
        {
            "streaming_mode": "sse",
            # the plugin limits model calls: ADK's own limit would end the turn without an answer
            "max_llm_calls": _MAX_LLM_CALLS,
            # a user's blocking function must not stop the other turns of this process
            "tool_thread_pool_config": {"max_workers": _TOOL_THREADS},
            # by default, ADK puts messages on its spans
            "telemetry": TelemetryConfig(capture_message_content=mode, genai_semconv_stability_opt_in=stability),
        }
    )


# -- events for the readers --------------------------------------------------------------------------------------------

_KINDS = {CONFIRMATION_CALL: "approval", INPUT_CALL: "input", CREDENTIAL_CALL: "credential"}
"""Of the calls by which ADK asks a person: what the turn waits for."""


def emit_event(turn: TurnRun, event: Event) -> None:
    """Emit what readers see of an event of ADK, and note it in the turn's output."""
    output = turn.output
    output.note(event)
    if event.author != "user":
        _emit_text(output, event)
    if event.partial:
        return
    if event.error_code and not _is_failed_attempt(event):
        output.note_error(str(event.error_code), event.error_message or "")
    for call in event.get_function_calls():
        _emit_request(turn, call)
    for result in event.get_function_responses():
        _emit_result(output, event, result)
    for name, version in event.actions.artifact_delta.items():
        output.sink.emit(ArtifactSaved(output.sink.next_id(), name, version, event.author))


def _is_failed_attempt(event: Event) -> bool:
    """Whether an event is the exception of a workflow's node: ADK tries the node again, or raises it."""
    if event.error_code == AGENT_ERROR:  # ADK's event of an exception has a code
        return False
    return "/" in event.node_info.path and not (event.content or event.finish_reason or event.usage_metadata)


def _emit_text(output: Output, event: Event) -> None:
    """Emit text from the partial events or from the final event, never from both."""
    blocks, author, branch = output.sink.blocks, event.author, event.branch or ""
    if event.partial:
        for text, thought in texts_of(event):
            block = blocks.streaming_in(author, branch)
            output.emit_text(blocks.begin(author, branch) if block is None else block, text, thought=thought)
        return
    if output_text(event):
        output.note_value(to_plain_values(event.output))
    block = output.emit_rest(event)
    if block is not None:
        output.sink.emit(blocks.end(block))


def _emit_request(turn: TurnRun, call: types.FunctionCall) -> None:
    """Emit a request to a person; note the id of any other call, whose start the plugin emits."""
    id_, name, waits, output = call.id or "", call.name or "", turn.waits, turn.output
    if name in _KINDS:
        waits.note_kind(_KINDS[name])
        # shown as it is stored, because that is what is answered
        if (wait := waits.open.get(wait_id(id_))) is not None:
            output.sink.emit(WaitOpened(output.sink.next_id(), wait))
    elif name != TRANSFER_TOOL and not name.startswith(REQUEST_PREFIX):
        output.note_call(id_)


def _emit_result(output: Output, event: Event, result: types.FunctionResponse) -> None:
    id_, name = result.id or "", result.name or ""
    if name == TRANSFER_TOOL or name.startswith(REQUEST_PREFIX) or id_ in event.actions.requested_tool_confirmations:
        return
    output.end_tool(id_, name, result.response or {}, ends_turn=bool(event.actions.skip_summarization))


def require_answer(turn: TurnRun) -> None:
    """Raise `EmptyAnswer` if a model was called, and neither answered nor left anything pending.

    Raise `AgentFailed` if an agent reported an error, and no text followed.
    """
    output = turn.output
    if output.error is not None and output.error[0] == AGENT_ERROR:
        raise AgentFailed(f"the agent reported an error: {output.error[1]}")
    if output.error is not None:
        raise EmptyAnswer(f"the model returned no answer: {': '.join(part for part in output.error if part)}")
    if turn.limits.model_calls and not (turn.waits.kinds or output.ended_by_tool or output.has_text_since_tool):
        why = f" (finish reason: {output.finish_reason})" if output.finish_reason else ""
        raise EmptyAnswer(f"the model returned an empty answer{why}")


def to_agent_error(error: BaseException) -> LangoError:
    """Return the `LangoError` among an error's causes, or else `AgentFailed`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
