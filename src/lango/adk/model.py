"""`ProviderLlm`: any Lango provider as an ADK model.

One loop for streaming and not: deltas are assembled, shown as partial responses where ADK streams, and end in one final
response. Whatever the history, the request that goes out is valid and fits the budget.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from itertools import takewhile
from typing import Any

from google.adk.models import BaseLlm, LlmCapabilities
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from msgspec.structs import replace
from pydantic import PrivateAttr

from lango.adk.call_ids import unique_call_id
from lango.adk.content import contents_to_messages, reply_to_content, usage_to_metadata
from lango.adk.memory import MemoryContent
from lango.adk.requests import reserved_tokens, response_schema, system_text, thinking, tool_choice, tool_specs
from lango.adk.sessions import loaded
from lango.adk.voice import Say, model_progress, speaker_of
from lango.errors import BudgetTooSmall, ProviderProtocolError
from lango.history import (
    DEFAULT_BUDGET_TOKENS,
    DEFAULT_MAX_MESSAGES,
    TokenCounter,
    WindowRules,
    count_tokens,
    fit_to_budget,
    keep_signatures,
    repair,
)
from lango.history.repair import CONTEXT_AUTHOR, CONTINUE
from lango.memory import quote
from lango.messages import Message, Thought, ToolCall
from lango.providers.assembly import Assembler, MalformedCall, Reply
from lango.providers.protocol import (
    Delta,
    FinishReason,
    Provider,
    Request,
    TextDelta,
    ThoughtDelta,
    UsageDelta,
    closing,
)
from lango.store.observations import Recalled

_log = logging.getLogger("lango.history")

MAX_REASKS = 2
"""How often a model is told that its call was malformed, before it is given up."""
_MAX_QUOTED_CHARACTERS = 2_000  # of malformed arguments, when the model is told of them


class ProviderLlm(BaseLlm):
    """An ADK model that is answered by a Lango provider.

    - `budget_tokens`: what the messages of a request may cost; None or 0 is 32,000.
    - `context_tokens`: the model's context window, where it is known to be small. System prompt, tool declarations and
      the answer's `max_output_tokens` take their room of it.
    - `max_messages`, `max_turns`: bounds besides; None is no bound.
    - `counter`: shared by models of one process, so that they learn from each other's usage.
    """

    _provider: Provider = PrivateAttr()
    _budget_tokens: int = PrivateAttr()
    _context_tokens: int | None = PrivateAttr()
    _max_messages: int | None = PrivateAttr()
    _max_turns: int | None = PrivateAttr()
    _counter: TokenCounter = PrivateAttr()
    _reserved_tokens: int = PrivateAttr(default=0)  # of the newest request

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        budget_tokens: int | None = None,
        context_tokens: int | None = None,
        max_messages: int | None = DEFAULT_MAX_MESSAGES,
        max_turns: int | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(model=model)
        self._provider = provider
        self._budget_tokens = budget_tokens or DEFAULT_BUDGET_TOKENS
        self._context_tokens = context_tokens
        self._max_messages = max_messages
        self._max_turns = max_turns
        self._counter = counter or TokenCounter()

    @property
    def provider(self) -> Provider:
        """The provider that answers."""
        return self._provider

    @property
    def window_rules(self) -> WindowRules:
        """What bounds the messages of the next request."""
        factor = self._counter.factor(f"{self._provider.name}/{self.model}")
        budget = self._budget_tokens
        if self._context_tokens:
            budget = max(1, min(budget, self._context_tokens - int(self._reserved_tokens * factor)))
        return WindowRules(budget, self._max_messages, self._max_turns, factor)

    @property
    def context_tokens(self) -> int | None:
        """The model's context window, where it is known to be small."""
        return self._context_tokens

    @property
    def capabilities(self) -> LlmCapabilities:
        """What ADK may ask for. Not every model takes a schema beside tools; ADK's own way around works for all."""
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer a request: with `stream` a partial response per delta, and always one final response, last."""
        messages = contents_to_messages(one for one in llm_request.contents if not isinstance(one, MemoryContent))
        request = self._request(llm_request, messages)
        taken = {call.id for message in (*messages, *request.messages) for call in message.tool_calls}
        say = speaker_of(llm_request) if stream else None
        note_progress = model_progress.get()
        said: Reply | None = None
        problem = ""
        for _ in range(MAX_REASKS + 1):
            assembler = Assembler(self._provider.name)
            if say is not None:
                await _in_task(self._listen(request, assembler, say))
            else:
                async with closing(self._provider.stream(request)) as deltas:
                    async for delta in deltas:
                        note_progress()
                        assembler.add(delta)
                        if stream and (partial := _partial(delta)):
                            yield partial
            reply = _with_live_ids(assembler.reply(), taken)
            self._learn(request, reply)
            said = reply if said is None else _joined(said, reply)
            problem = _problem(reply)
            if not problem:
                yield _final(said, request.model)
                return
            request = _told(request, reply, problem)
        raise ProviderProtocolError(
            f"{request.model} made malformed calls {MAX_REASKS + 1} times in a row, at last: {problem}",
            provider=self._provider.name,
        )

    async def _listen(self, request: Request, assembler: Assembler, say: Say) -> None:
        note_progress = model_progress.get()
        async with closing(self._provider.stream(request)) as deltas:
            async for delta in deltas:
                assembler.add(delta)
                if isinstance(delta, TextDelta | ThoughtDelta) and delta.text:
                    say(delta)
                else:
                    note_progress()

    # The request.

    def _request(self, llm_request: LlmRequest, messages: Sequence[Message]) -> Request:
        config = llm_request.config
        loose: Any = config  # genai writes these two in more ways than its types say
        model = llm_request.model or self.model
        request = Request(
            model=model,
            messages=(),
            system=system_text(loose.system_instruction),
            tools=tool_specs(loose.tools),
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_output_tokens,
            stop=tuple(config.stop_sequences or ()),
            response_schema=response_schema(config),
            tool_choice=tool_choice(config),
            thinking=thinking(config),
        )
        # Signatures first: a thought that was only a foreign signature leaves an empty message for repair to drop.
        valid = repair(keep_signatures(messages, self._provider.name, model))
        valid = valid or [Message("user", CONTINUE, author=CONTEXT_AUTHOR)]
        recalled = [one.recalled for one in llm_request.contents if isinstance(one, MemoryContent)]
        quoted, window = self._window(request, valid, recalled[0] if recalled else Recalled())
        heads = sum(1 for _ in takewhile(lambda message: message.role == "system", window))
        # what a vendor signed was made after all that stood before it: a cut in the store counts, and so does a summary
        cut = window != valid or bool(quoted) or bool((load := loaded.get()).left_out or load.clipped_tokens)
        return replace(request, messages=(*window[:heads], *quoted, *window[heads:]), cut=cut)

    def _window(
        self, request: Request, messages: list[Message], recalled: Recalled
    ) -> tuple[list[Message], list[Message]]:
        """Return what is quoted of the memory, and the newest messages that fit beside it."""
        reserved = self._reserved_tokens = reserved_tokens(request)
        budget = self._counter.budget(self._budget_tokens, self._key(request)) + reserved
        if self._context_tokens:
            room = self._context_tokens - (request.max_tokens or 0)
            budget = min(budget, self._counter.budget(room, self._key(request)))
        # what is remembered takes half of the room at most, and none where the current message needs it all
        memory = quote(recalled, max(0, (budget - reserved) // 2))
        if memory:
            quoted = Message("user", memory, author=CONTEXT_AUTHOR)
            try:
                return [quoted], self._fitted(messages, budget, reserved + count_tokens(quoted))
            except BudgetTooSmall:
                _log.warning("the current message leaves no room for what is remembered")
        return [], self._fitted(messages, budget, reserved)

    def _fitted(self, messages: list[Message], budget: int, reserved: int) -> list[Message]:
        return fit_to_budget(
            messages,
            max(1, budget),
            max_messages=self._max_messages,
            max_turns=self._max_turns,
            reserved_tokens=reserved,
            not_loaded=0 if (load := loaded.get()).logged else load.left_out,
            clipped_tokens=load.clipped_tokens,
        )

    def _key(self, request: Request) -> str:
        return f"{self._provider.name}/{request.model}"

    def _learn(self, request: Request, reply: Reply) -> None:
        """Compare our count with the provider's, but not of pictures and files: those are estimates."""
        reported = reply.usage.input_tokens
        if reported and not any(message.media for message in request.messages):
            counted = count_tokens(request.messages) + reserved_tokens(request)
            self._counter.learn(self._key(request), counted, reported)


async def _in_task(work: Coroutine[Any, Any, None]) -> None:
    """Await work in a task of its own: a piece of text then wakes that task, and not the forty frames of ADK above."""
    task = asyncio.create_task(work)
    try:
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


# The answer.


def _partial(delta: Delta) -> LlmResponse | None:
    """Return what ADK shows of a delta while the answer is under way. Calls are shown when they are whole."""
    match delta:
        case TextDelta(text) if text:
            part = types.Part(text=text)
        case ThoughtDelta(text) if text:
            part = types.Part(text=text, thought=True)
        case _:
            return None
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)


def _with_live_ids(reply: Reply, taken: set[str]) -> Reply:
    """Give a fresh id to every call that has none, one that may have been used before, or one that ADK would hide."""
    seen = loaded.get().all_seen
    calls = tuple(replace(call, id=unique_call_id(call.id, taken, all_seen=seen)) for call in reply.calls)
    malformed = tuple(replace(call, id=unique_call_id(call.id, taken, all_seen=seen)) for call in reply.malformed)
    return replace(reply, calls=calls, malformed=malformed)


def _problem(reply: Reply) -> str:
    """Return what is wrong with the calls of a reply; empty where they may run."""
    if reply.malformed:
        return reply.malformed[0].problem
    if not reply.calls and reply.finish.detail.startswith("MALFORMED_FUNCTION_CALL"):
        return reply.finish.detail  # Gemini keeps the call to itself
    return ""


def _told(request: Request, reply: Reply, problem: str) -> Request:
    """Return the request that tells the model that nothing was run, and why."""
    calls = (*reply.calls, *(ToolCall(call.id, call.name or "unknown", {}) for call in reply.malformed))
    answer = Message("assistant", reply.text, calls, thoughts=reply.thoughts, signature=reply.finish.signature)
    if calls:
        not_run = {"error": "not run, because another call of the same turn was malformed: call it again if needed"}
        results = (
            *(ToolCall(call.id, call.name, output=not_run) for call in reply.calls),
            *(_refusal(call) for call in reply.malformed),
        )
        told = Message("tool", tool_calls=results)
    else:
        told = Message("user", f"[Your call was malformed and was not run: {problem}]", author=CONTEXT_AUTHOR)
    return replace(request, messages=tuple(repair([*request.messages, answer, told])))


def _refusal(call: MalformedCall) -> ToolCall:
    error = (
        f"not run: {call.problem}. Call again, with arguments that are one JSON object and follow the tool's schema."
    )
    output = {"error": error, "arguments": call.arguments[:_MAX_QUOTED_CHARACTERS]}
    return ToolCall(call.id, call.name or "unknown", output=output)


def _joined(before: Reply, after: Reply) -> Reply:
    """Return what was said in both tries: a client that streams has seen both."""
    unsigned = tuple(Thought(thought.text) for thought in before.thoughts if thought.text)
    return replace(
        after,
        text=before.text + after.text,
        thoughts=(*unsigned, *after.thoughts),
        usage=UsageDelta(
            *(_sum(getattr(before.usage, name), getattr(after.usage, name)) for name in UsageDelta.__struct_fields__)
        ),
    )


def _sum(before: int | None, after: int | None) -> int | None:
    return None if before is None and after is None else (before or 0) + (after or 0)


def _final(reply: Reply, model: str) -> LlmResponse:
    content = reply_to_content(reply)
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
    )


_FINISH_REASONS: Mapping[FinishReason, types.FinishReason] = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "safety": types.FinishReason.SAFETY,
    "error": types.FinishReason.OTHER,
}
