"""The engine's chunks as deltas, and its errors as ours."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from msgspec import Struct

from lango.errors import ProviderError, ProviderProtocolError, ProviderRejected, ProviderUnavailable
from lango.providers.local.known_models import PROVIDER
from lango.providers.protocol import CallDelta, Delta, Finish, FinishReason, TextDelta, ThoughtDelta, UsageDelta

_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


class Spent(Struct):
    """Tokens of all the completions that one request took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, usage: Mapping[str, Any]) -> None:
        """Count the usage of one more completion."""
        self.input_tokens += usage.get("prompt_tokens", 0)
        self.output_tokens += usage.get("completion_tokens", 0)
        details: Mapping[str, Any] = usage.get("prompt_tokens_details", {})
        self.cached_tokens += details.get("cached_tokens", 0)

    def delta(self) -> UsageDelta:
        """Return what was counted."""
        return UsageDelta(self.input_tokens, self.output_tokens, self.cached_tokens)


async def decode(chunks: AsyncIterator[Mapping[str, Any]], spent: Spent, model: str) -> AsyncGenerator[Delta]:
    """Turn one completion's chunks into deltas, `Finish` last; the usage is counted, not sent.

    While the model waits for its turn or reads the prompt, which may take minutes, a `UsageDelta` says that it lives.
    """
    finish: Finish | None = None
    async for chunk in chunks:
        if "error" in chunk:
            raise failure(chunk["error"])
        if not chunk or "prompt_progress" in chunk:
            progress: Mapping[str, Any] = chunk.get("prompt_progress", {})
            yield UsageDelta(input_tokens=progress.get("total"))
        for choice in chunk.get("choices") or ():
            for delta in _deltas(choice.get("delta") or {}):
                yield delta
            if reason := choice.get("finish_reason"):
                finish = Finish(_REASONS.get(reason, "error"), detail=reason, model=model)
        spent.add(chunk.get("usage") or {})
    if finish is None:
        raise ProviderProtocolError("The local model stopped in mid-answer", provider=PROVIDER)
    yield finish


def failure(error: Mapping[str, Any]) -> ProviderError:
    """Return our error for one of the engine's."""
    status, message = int(error.get("code", 500)), str(error.get("message", "unknown"))
    if error.get("type") == "exceed_context_size_error":
        message = (
            f"The request has {error.get('n_prompt_tokens')} tokens; the local model's context holds "
            f"{error.get('n_ctx')}: lower history.max_message_token_budget, or use a larger model"
        )
        return ProviderRejected(message, provider=PROVIDER, status=status)
    if status == 503:
        return ProviderUnavailable(f"The local model is not ready: {message}", provider=PROVIDER, status=status)
    if 400 <= status < 500:
        return ProviderRejected(f"The local model refused: {message}", provider=PROVIDER, status=status)
    return ProviderProtocolError(f"The local model failed: {message}", provider=PROVIDER, status=status)


def _deltas(delta: Mapping[str, Any]) -> list[Delta]:
    found: list[Delta] = []
    if thought := delta.get("reasoning_content"):
        found.append(ThoughtDelta(thought))
    if text := delta.get("content"):
        found.append(TextDelta(text))
    for call in delta.get("tool_calls") or ():
        function: Mapping[str, Any] = call.get("function", {})
        found.append(
            CallDelta(
                index=call.get("index", 0),
                id=call.get("id") or "",
                name=function.get("name") or "",
                arguments=function.get("arguments") or "",
            )
        )
    return found
