"""Run ADK's Runner once and convert its events to turn events."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.telemetry import ContentCapturingMode, TelemetryConfig
from google.genai import types

from lango.adk.agents.transfers import TRANSFER_TOOL
from lango.adk.run.model_call_stats import usage_counts
from lango.events import ApprovalNeeded, ToolEnd, TurnError, TurnEvent
from lango.messages import ToolCall
from lango.store import SessionId
from lango.store.codec.records import CONFIRMATION_CALL, as_datetime
from lango.store.codec.rows import approval_subject
from lango.store.turns.approvals import ApprovalRequest
from lango.telemetry.traces import is_tracing
from lango.turns.turn_progress import TurnProgress

_MAX_LLM_CALLS = 1_000_000
_TOOL_THREADS = 32
_REQUEST_PREFIX = "adk_request_"  # ADK asks the user by calls with such names


async def run_adk(
    runner: Runner,
    name: SessionId,
    message: types.Content,
    invocation_id: str | None,
    progress: TurnProgress,
    open_requests: Callable[[], Awaitable[Mapping[str, ApprovalRequest]]],
    *,
    capture_content: bool = False,
) -> AsyncGenerator[TurnEvent, None]:
    """Run the agent on a message that is already stored, and yield the events of the run.

    `open_requests` reads the approval requests that are open now, by the ids of their calls.
    """
    config = RunConfig.model_validate(
        {
            "streaming_mode": "sse",
            # the plugin limits model calls: ADK's own limit would end the turn without an answer
            "max_llm_calls": _MAX_LLM_CALLS,
            # a user's blocking function must not stop the other turns of this process
            "tool_thread_pool_config": {"max_workers": _TOOL_THREADS},
            # by default, ADK puts messages on its spans
            "telemetry": _telemetry(capture_content, is_tracing()),
        }
    )
    run: AsyncGenerator[Event, None] = runner.run_async(
        user_id=name.user_id, session_id=name.id, invocation_id=invocation_id, new_message=message, run_config=config
    )
    async with aclosing(run) as events:
        async for event in events:
            if not event.partial and any(call.name == CONFIRMATION_CALL for call in event.get_function_calls()):
                progress.approval_requests = await open_requests()
            for turn_event in _to_turn_events(event, progress):
                yield turn_event


@functools.cache
def _telemetry(capture_content: bool, is_traced: bool) -> TelemetryConfig:
    mode = ContentCapturingMode.SPAN_ONLY if capture_content else ContentCapturingMode.NO_CONTENT
    # ADK copies every value of a request for its newer attributes, even where no span is recorded: 50 ms for 40,000
    return TelemetryConfig(capture_message_content=mode, genai_semconv_stability_opt_in=None if is_traced else "stable")


def _to_turn_events(event: Event, progress: TurnProgress) -> Iterator[TurnEvent]:
    _add_usage(event, progress)
    if event.invocation_id and event.invocation_id not in progress.invocation_ids:
        progress.invocation_ids.append(event.invocation_id)
    yield from _text_events(event, progress)
    if event.partial:
        return
    if event.error_code:
        progress.error = (str(event.error_code), event.error_message or "")
    for call in event.get_function_calls():
        yield from _call_events(call, progress)
    for result in event.get_function_responses():
        yield from _result_events(event, result, progress)


def _text_events(event: Event, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Emit text from the partial events or from the final event, never from both."""
    if event.author == "user":
        return
    speaker = (event.author, event.branch or "")  # parallel agents stream at the same time
    streamed = speaker in progress.streaming_texts and not event.partial
    only_thoughts = streamed and not progress.streaming_texts[speaker]
    for part in (event.content and event.content.parts) or []:
        if part.text and (not streamed or (only_thoughts and not part.thought)):
            yield progress.text_event(speaker, part.text, thought=bool(part.thought))
    if not event.partial:
        progress.finished_texts.append("".join(progress.streaming_texts.pop(speaker, [])))


def _call_events(call: types.FunctionCall, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Emit an approval request; record the id of any other call, whose start the plugin emits."""
    id_, name = call.id or "", call.name or ""
    if name == CONFIRMATION_CALL:
        progress.awaits_approval = True
        # the user is shown the call as it is stored, because that is what will run
        request = progress.approval_requests.get(approval_subject(ToolCall(id_, name, call.args)).get("id", ""))
        if request is not None:
            expires_at = None if request.expires_at is None else as_datetime(request.expires_at)
            yield ApprovalNeeded(progress.next_id(), request.call_id, request.name, request.arguments, expires_at)
    elif name != TRANSFER_TOOL and not name.startswith(_REQUEST_PREFIX):
        progress.call_ids.add(id_)


def _result_events(event: Event, result: types.FunctionResponse, progress: TurnProgress) -> Iterator[TurnEvent]:
    id_, name, response = result.id or "", result.name or "", result.response or {}
    if name == TRANSFER_TOOL or name.startswith(_REQUEST_PREFIX) or id_ in event.actions.requested_tool_confirmations:
        return
    ok = not response.get("error")
    progress.has_text_since_tool = False
    progress.ended_by_tool = ok and bool(event.actions.skip_summarization)
    yield ToolEnd(progress.next_id(), id_, name, ok, response, progress.durations_s.pop(id_, None))
    if not ok:
        yield TurnError(progress.next_id(), "ToolFailed", str(response["error"]), fatal=False, call_id=id_)


def _add_usage(event: Event, progress: TurnProgress) -> None:
    if event.partial:
        return
    if event.finish_reason:
        progress.finish_reason = str(event.finish_reason.value).lower()
    usage = event.usage_metadata
    if usage is None:
        return
    input_tokens, output_tokens, cached_tokens = usage_counts(usage)
    progress.input_tokens += input_tokens
    progress.output_tokens += output_tokens
    progress.cached_tokens += cached_tokens
    by_model = progress.tokens_by_model.setdefault(event.model_version or "", [0, 0, 0])
    by_model[0] += input_tokens
    by_model[1] += output_tokens
    by_model[2] += cached_tokens
