"""Emit the events of ADK's Runner to the readers of a turn, and check how its run ended."""

from google.adk.events import Event
from google.genai import types

from lango.adk.agents.tree import TRANSFER_TOOL
from lango.adk.events.events_to_rows import AGENT_ERROR, output_text
from lango.adk.turn.output import Output
from lango.adk.turn.turn_run import TurnRun
from lango.errors import AgentFailed, EmptyAnswer, LangoError
from lango.events import ArtifactSaved, WaitOpened, to_plain_values
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, REQUEST_PREFIX
from lango.store.codec.records import wait_id

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
    parts = (event.content and event.content.parts) or []
    texts = [(part.text, bool(part.thought)) for part in parts if part.text]
    if event.partial:
        for text, thought in texts:
            block = blocks.streaming_in(author, branch)
            output.emit_text(blocks.begin(author, branch) if block is None else block, text, thought=thought)
        return
    if shown := output_text(event):
        output.note_value(to_plain_values(event.output))
        texts = texts or [(shown, False)]
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
        output.emit_text(block, text, thought=thought)
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
