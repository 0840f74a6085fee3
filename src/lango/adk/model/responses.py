"""Convert a provider's reply to ADK responses, and answer malformed calls."""

import functools
from collections.abc import Container, Mapping

from google.adk.models.llm_response import LlmResponse
from google.genai import types
from msgspec.structs import astuple, replace

from lango.adk.model.call_checks import allowed_name, unique_call_id
from lango.adk.model.content import signature_to_bytes
from lango.adk.turn.model_calls import STOP_SEQUENCE, CountedUsage
from lango.adk.turn.step import current_step
from lango.history import repair
from lango.history.history_repair import CONTEXT_AUTHOR
from lango.messages import Message, Signature, Thought, ToolCall
from lango.providers.protocol import Delta, FinishReason, Request, TextDelta, ThoughtDelta, UsageDelta
from lango.providers.reply_assembly import MalformedCall, Reply

_MAX_QUOTED_CHARACTERS = 2_000  # of malformed arguments, in the error that the model reads
_FINISH_REASONS: Mapping[FinishReason, types.FinishReason] = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "safety": types.FinishReason.SAFETY,
    "error": types.FinishReason.OTHER,
}


def reply_to_content(reply: Reply, offered: Container[str] = ()) -> types.Content:
    """Convert a complete reply to ADK content: thoughts, text, calls. `offered` are the names of the tools."""
    parts = [
        types.Part(text=thought.text, thought=True, thought_signature=_signature_bytes(thought.signature))
        for thought in reply.thoughts
    ]
    signature = reply.finish.signature
    if reply.text or signature:
        parts.append(types.Part(text=reply.text, thought_signature=_signature_bytes(signature)))
    for call in reply.calls:
        name = allowed_name(call.name, offered)
        function_call = types.FunctionCall(id=call.id, name=name, args=dict(call.input or {}))
        parts.append(types.Part(function_call=function_call, thought_signature=_signature_bytes(call.signature)))
    return types.Content(role="model", parts=parts)


def _signature_bytes(signature: Signature | None) -> bytes | None:
    return None if signature is None else signature_to_bytes(signature)


def usage_to_metadata(usage: UsageDelta) -> types.GenerateContentResponseUsageMetadata | None:
    """Convert usage to ADK's metadata, which counts thoughts separately; None if the provider reported nothing."""
    if usage == UsageDelta():
        return None
    answer_tokens = None if usage.output_tokens is None else usage.output_tokens - (usage.thought_tokens or 0)
    return CountedUsage(
        prompt_token_count=usage.input_tokens,
        candidates_token_count=answer_tokens,
        thoughts_token_count=usage.thought_tokens,
        cached_content_token_count=usage.cached_tokens,
        total_token_count=(usage.input_tokens or 0) + (usage.output_tokens or 0),
        cache_write_tokens=usage.cache_write_tokens or 0,
    )


def partial_response(delta: Delta) -> LlmResponse | None:
    """Convert a delta of text to a partial response; None for others: calls are shown when they are complete."""
    match delta:
        case TextDelta(text) if text:
            part = types.Part(text=text)
        case ThoughtDelta(text) if text:
            part = types.Part(text=text, thought=True)
        case _:
            return None
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)


def with_unique_call_ids(reply: Reply, used_ids: set[str]) -> Reply:
    """Give a new id to each call that has none, whose id may have been used before, or whose id ADK would hide."""
    new_id = functools.partial(unique_call_id, used_ids=used_ids, has_all_calls=current_step().load.has_all_calls)
    calls = tuple(replace(call, id=new_id(call.id)) for call in reply.calls)
    return replace(reply, calls=calls, malformed=tuple(replace(call, id=new_id(call.id)) for call in reply.malformed))


def malformed_call_problem(reply: Reply) -> str:
    """Return the problem of malformed calls in a reply; empty if there are none."""
    if reply.malformed:
        return reply.malformed[0].problem
    if not reply.calls and reply.finish.detail.startswith("MALFORMED_FUNCTION_CALL"):
        return reply.finish.detail  # Gemini does not show the call itself
    return ""


def request_after_malformed_calls(request: Request, reply: Reply, problem: str) -> Request:
    """Build the request that asks the model to correct malformed calls; no call of the reply was run."""
    calls = (*reply.calls, *(ToolCall(call.id, call.name or "unknown", {}) for call in reply.malformed))
    answer = Message("assistant", reply.text, calls, thoughts=reply.thoughts, signature=reply.finish.signature)
    if calls:
        not_run = {"error": "not run, because another call of the same turn was malformed: call it again if needed"}
        results = (
            *(ToolCall(call.id, call.name, output=not_run) for call in reply.calls),
            *(_malformed_call_result(call) for call in reply.malformed),
        )
        correction = Message("tool", tool_calls=results)
    else:
        correction = Message("user", f"[Your call was malformed and was not run: {problem}]", author=CONTEXT_AUTHOR)
    return replace(request, messages=tuple(repair([*request.messages, answer, correction])))


def _malformed_call_result(call: MalformedCall) -> ToolCall:
    error = f"not run: {call.problem}. Call it again with one JSON object of arguments that matches the tool's schema."
    output = {"error": error, "arguments": call.arguments[:_MAX_QUOTED_CHARACTERS]}
    return ToolCall(call.id, call.name or "unknown", output=output)


def join_replies(before: Reply, after: Reply) -> Reply:
    """Join the replies of two attempts: a client that streams has seen the text of both."""
    counts = zip(astuple(before.usage), astuple(after.usage), strict=True)
    unsigned = tuple(Thought(thought.text) for thought in before.thoughts if thought.text)
    return replace(
        after,
        text=before.text + after.text,
        thoughts=(*unsigned, *after.thoughts),
        usage=UsageDelta(*(None if pair == (None, None) else sum(filter(None, pair)) for pair in counts)),
    )


def final_response(reply: Reply, model: str, offered: Container[str] = ()) -> LlmResponse:
    """Convert a complete reply to the last response of a model call. `offered` are the names of the tools."""
    content = reply_to_content(reply, offered)
    failed = reply.finish.reason == "error" or (reply.finish.reason == "safety" and not content.parts)
    reason = _FINISH_REASONS[reply.finish.reason]
    return LlmResponse(
        content=content,
        partial=False,
        turn_complete=True,
        finish_reason=reason,
        error_code=reason.name if failed else None,
        error_message=(reply.finish.detail or "the provider gave no reason") if failed else None,
        usage_metadata=usage_to_metadata(reply.usage),
        model_version=reply.finish.model or model,
        custom_metadata={STOP_SEQUENCE: reply.finish.stop_sequence} if reply.finish.stop_sequence else None,
    )
