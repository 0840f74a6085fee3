"""One run of ADK's Runner, told as Lango's events."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.telemetry import ContentCapturingMode, TelemetryConfig
from google.genai import types

from lango.adk.agents.transfers import TRANSFER_TOOL
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
_REQUEST_PREFIX = "adk_request_"  # ADK's own questions to the user are calls, too


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
    """Run the agent on a message that is stored already, and tell what happens.

    `open_requests` reads the approval requests that are open now, by the ids of their calls.
    """
    config = RunConfig.model_validate(
        {
            "streaming_mode": "sse",
            # the plugin counts calls of the model, and lets the last one wrap up: ADK's own limit is out of the way
            "max_llm_calls": _MAX_LLM_CALLS,
            # somebody's own blocking function must not stop every other turn of this process
            "tool_thread_pool_config": {"max_workers": _TOOL_THREADS},
            # ADK puts what was said on its spans unless it is told not to
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
    """Tell text from the pieces or from the final event, never from both."""
    if event.author == "user":
        return
    speaker = (event.author, event.branch or "")  # parallel agents speak at the same time
    streamed = speaker in progress.streaming_texts and not event.partial
    only_thoughts = streamed and not progress.streaming_texts[speaker]
    for part in (event.content and event.content.parts) or []:
        if part.text and (not streamed or (only_thoughts and not part.thought)):
            yield progress.text_event(speaker, part.text, thought=bool(part.thought))
    if not event.partial:
        progress.finished_texts.append("".join(progress.streaming_texts.pop(speaker, [])))


def _call_events(call: types.FunctionCall, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Note a call; its start is told by the plugin, when it starts."""
    id_, name = call.id or "", call.name or ""
    if name == CONFIRMATION_CALL:
        progress.awaits_approval = True
        # what a person is shown is the call as it is stored, which is what will run; not what this event says of it
        about = progress.approval_requests.get(approval_subject(ToolCall(id_, name, call.args)).get("id", ""))
        if about is not None:
            until = None if about.expires_at is None else as_datetime(about.expires_at)
            yield ApprovalNeeded(progress.next_id(), about.call_id, about.name, about.arguments, until)
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
    spent = (usage.prompt_token_count or 0, usage.candidates_token_count or 0)
    progress.input_tokens += spent[0]
    progress.output_tokens += spent[1] + (usage.thoughts_token_count or 0)
    progress.cached_tokens += usage.cached_content_token_count or 0
    by_model = progress.tokens_by_model.setdefault(event.model_version or "", [0, 0, 0])
    by_model[0] += spent[0]
    by_model[1] += spent[1] + (usage.thoughts_token_count or 0)
    by_model[2] += usage.cached_content_token_count or 0
