"""Convert the events of ADK's Runner to turn events, and check how its run ended."""

from collections.abc import Iterator

from google.adk.events import Event
from google.genai import types

from lango.adk.agents.transfers import TRANSFER_TOOL
from lango.adk.events.events_to_rows import AGENT_ERROR, output_text
from lango.adk.model.direct_text import TextSink
from lango.adk.run.model_call_stats import usage_of_response
from lango.adk.run.turn_state import TurnState
from lango.errors import AgentFailed, AgentNotFound, EmptyAnswer, LangoError
from lango.events import ApprovalNeeded, ToolEnd, TurnError, TurnEvent, to_plain_values
from lango.messages import ToolCall
from lango.providers import protocol as providers
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, as_datetime
from lango.store.codec.rows import approval_subject
from lango.store.tool_calls.credential_requests import credential_event
from lango.store.tool_calls.input_requests import input_event
from lango.turns.turn_progress import TurnProgress

_REQUEST_PREFIX = "adk_request_"  # ADK asks the user by calls with such names


def to_turn_events(event: Event, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Convert an event of ADK to turn events, and note it in the progress."""
    _add_usage(event, progress)
    if event.invocation_id and event.invocation_id not in progress.invocation_ids:
        progress.invocation_ids.append(event.invocation_id)
    yield from _text_events(event, progress)
    if event.partial:
        return
    if event.error_code and not _is_failed_attempt(event):
        progress.error = (str(event.error_code), event.error_message or "")
    for call in event.get_function_calls():
        yield from _call_events(call, progress)
    for result in event.get_function_responses():
        yield from _result_events(event, result, progress)


def _is_failed_attempt(event: Event) -> bool:
    """Whether an event is the exception of a workflow's node: ADK tries the node again, or raises it."""
    if event.error_code == AGENT_ERROR:  # ADK's event of an exception has a code
        return False
    return "/" in event.node_info.path and not (event.content or event.finish_reason or event.usage_metadata)


def _text_events(event: Event, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Emit text from the partial events or from the final event, never from both."""
    if event.author == "user":
        return
    blocks, author, branch = progress.blocks, event.author, event.branch or ""
    parts = (event.content and event.content.parts) or []
    texts = [(part.text, bool(part.thought)) for part in parts if part.text]
    if event.partial:
        for text, thought in texts:
            block = blocks.streaming_in(author, branch)
            yield progress.text_event(blocks.begin(author, branch) if block is None else block, text, thought=thought)
        return
    if output := output_text(event):
        progress.output = to_plain_values(event.output)
        texts = texts or [(output, False)]
    if not texts and not event.get_function_calls():
        return  # no response of a model
    block = blocks.find_streaming(author, branch, "".join(text for text, thought in texts if not thought))
    if block is None:
        if not texts:
            return
        block = blocks.begin(author, branch)
    elif blocks.has_text(block):
        texts = []
    else:
        texts = [(text, thought) for text, thought in texts if not thought]  # the thoughts were streamed
    for text, thought in texts:
        yield progress.text_event(block, text, thought=thought)
    yield from blocks.end(block)


def text_sink(state: TurnState, agent: str, branch: str) -> TextSink:
    """Return a function that emits the text of one model response without ADK; see `lango.adk.model.direct_text`."""
    block: int | None = None

    def emit(delta: providers.TextDelta | providers.ThoughtDelta) -> None:
        nonlocal block
        if block is None:
            block = state.blocks.begin(agent, branch)
        state.emit(state.text_event(block, delta.text, thought=isinstance(delta, providers.ThoughtDelta)))

    return emit


def _call_events(call: types.FunctionCall, progress: TurnProgress) -> Iterator[TurnEvent]:
    """Emit a request to a person; record the id of any other call, whose start the plugin emits."""
    id_, name = call.id or "", call.name or ""
    if name == CONFIRMATION_CALL:
        progress.awaits_approval = True
        # the user is shown the call as it is stored, because that is what will run
        request = progress.approval_requests.get(approval_subject(ToolCall(id_, name, call.args)).get("id", ""))
        if request is not None:
            expires_at = None if request.expires_at is None else as_datetime(request.expires_at)
            shown = request.call_id, request.name, request.arguments, expires_at, request.hint, request.payload
            yield ApprovalNeeded(progress.next_id(), *shown)
    elif name == INPUT_CALL:
        progress.awaits_input = True
        if (wanted := progress.input_requests.get(id_)) is not None:
            yield input_event(wanted, progress.next_id())
    elif name == CREDENTIAL_CALL:
        progress.awaits_credential = True
        if (requested := progress.credential_requests.get(id_)) is not None:
            yield credential_event(requested, progress.next_id())
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
    if event.usage_metadata is not None:
        progress.add_usage(event.model_version or "", usage_of_response(event.usage_metadata))


def transfer_failure(state: TurnState) -> AgentNotFound | None:
    """Return the error of a transfer to an agent that does not exist; None: there was none."""
    if state.bad_transfer is None:
        return None
    valid = ", ".join(state.valid_agents)
    return AgentNotFound(f"there is no agent {state.bad_transfer!r}; there are {valid}")


def require_answer(state: TurnState) -> None:
    """Raise `EmptyAnswer` if a model was called, and neither answered nor left anything pending.

    Raise `AgentFailed` if an agent reported an error, and no text followed.
    """
    if state.error is not None and state.error[0] == AGENT_ERROR:
        raise AgentFailed(f"the agent reported an error: {state.error[1]}")
    if state.error is not None:
        raise EmptyAnswer(f"the model gave no answer: {': '.join(part for part in state.error if part)}")
    if state.model_calls and not (state.is_pending or state.ended_by_tool or state.has_text_since_tool):
        why = f" (finish reason: {state.finish_reason})" if state.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def to_agent_error(error: BaseException) -> LangoError:
    """Return the `LangoError` among an error's causes, or else `AgentFailed`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
