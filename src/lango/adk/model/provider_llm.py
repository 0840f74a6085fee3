"""Answer ADK model calls with a Lango provider.

One loop serves both modes: deltas are assembled, yielded as partial responses if ADK streams, and end in one final
response. Whatever the history, the request is valid and fits the budget.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from itertools import takewhile
from typing import Any

from google.adk.models import BaseLlm, LlmCapabilities
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from msgspec.structs import replace
from pydantic import PrivateAttr

from lango.adk.model.content import contents_to_messages
from lango.adk.model.quoted_memory import MemoryContent, RecalledContent
from lango.adk.model.request_config import (
    calling_config,
    reserved_tokens,
    response_schema,
    system_text,
    thinking_config,
    tool_choice,
    tool_specs,
)
from lango.adk.model.responses import (
    final_response,
    join_replies,
    malformed_call_problem,
    partial_response,
    request_after_malformed_calls,
    with_unique_call_ids,
)
from lango.adk.turn.output import TextSink
from lango.adk.turn.step import current_step, warn_left_out
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.errors import BudgetTooSmall, ProviderProtocolError
from lango.history import (
    DEFAULT_BUDGET_TOKENS,
    DEFAULT_MAX_MESSAGES,
    FittedWindow,
    TokenCounter,
    WindowRules,
    count_tokens,
    fit_window,
    keep_signatures,
    repair,
)
from lango.history.history_repair import CONTEXT_AUTHOR, CONTINUE, STEERING_AUTHOR
from lango.json_values import is_larger_than
from lango.memory import quote
from lango.messages import Message
from lango.providers.call_log import current_call_log
from lango.providers.protocol import (
    Provider,
    Request,
    TextDelta,
    ThoughtDelta,
    closing_stream,
)
from lango.providers.reply_assembly import Reply, ReplyAssembler
from lango.providers.wrappers.observed_provider import ObservedProvider, record_request, records_requests
from lango.store.memory.observations import SessionMemory

_LARGE_REQUEST = 200_000
"""In characters. Larger requests are built in a thread: a text of other scripts takes 1 ms for 2,000 characters."""
_log = logging.getLogger("lango.history")

MAX_CORRECTIONS = 2
"""How often a model may correct a malformed call before the model call fails."""


def _is_not_about_usage(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Skipping missing token usage")


# ADK warns at every model call without token counts: many servers send none, and our usage shows that
logging.getLogger("google_adk.google.adk.telemetry._metrics").addFilter(_is_not_about_usage)


class ProviderLlm(BaseLlm):
    """An ADK model that is answered by a Lango provider.

    - `budget_tokens`: how many tokens the messages of a request may have; None or 0 is 32,000.
    - `context_tokens`: the model's context window, if it is known to be small. The system prompt, the tool declarations
      and the answer's `max_output_tokens` must fit into it, too.
    - `max_messages`, `max_turns`: further limits; None is no limit.
    - `counter`: shared by the models of a process, so that they learn from each other's usage.
    """

    _provider: Provider = PrivateAttr()
    _budget_tokens: int = PrivateAttr()
    _context_tokens: int | Callable[[], int | None] | None = PrivateAttr()
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
        context_tokens: int | Callable[[], int | None] | None = None,
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
        """The limits of the messages of the next request."""
        factor = self._counter.factor(f"{self._provider.name}/{self.model}")
        budget = self._budget_tokens
        if context_tokens := self.context_tokens:
            budget = max(1, min(budget, context_tokens - int(self._reserved_tokens * factor)))
        of_context = budget < self._budget_tokens
        return WindowRules(budget, self._max_messages, self._max_turns, factor, of_context=of_context)

    @property
    def context_tokens(self) -> int | None:
        """The model's context window, if it is known to be small."""
        return self._context_tokens() if callable(self._context_tokens) else self._context_tokens

    @property
    def capabilities(self) -> LlmCapabilities:
        """What ADK may request. Not every model accepts a schema together with tools; ADK's workaround suits all."""
        return LlmCapabilities(output_schema_and_tools=False)

    def _replacement(self, turn: TurnRun | None) -> "ProviderLlm | None":
        """Return the model that answers this call instead, or None."""
        chosen = current_step().model
        if chosen is None and turn is not None and turn.replaced_model is self:
            chosen = turn.chosen_model
        return None if chosen is self else chosen

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer a request: with `stream`, yield a partial response per delta; always yield one final response last."""
        turn = current_turn.get()
        if (chosen := self._replacement(turn)) is not None:
            llm_request.model = chosen.model
            async for response in chosen.generate_content_async(llm_request, stream):
                yield response
            return
        messages = contents_to_messages(
            content for content in llm_request.contents if not isinstance(content, MemoryContent | RecalledContent)
        )
        is_large = _is_large(messages)
        if is_large:
            request = await asyncio.to_thread(self._request, llm_request, messages)
        else:
            request = self._request(llm_request, messages)
        used_ids = {call.id for message in (*messages, *request.messages) for call in message.tool_calls}
        sink = turn.output.take_text_sink(llm_request) if turn is not None and stream else None
        note_progress = turn.limits.time.note_progress if turn is not None else lambda: None
        provider = self._recorded_provider()
        answer: Reply | None = None
        problem = ""
        for _ in range(MAX_CORRECTIONS + 1):
            assembler = ReplyAssembler(self._provider.name)
            if sink is not None:
                await _await_in_task(_stream_to_sink(provider, request, assembler, sink, note_progress))
            else:
                async with closing_stream(provider.stream(request)) as deltas:
                    async for delta in deltas:
                        note_progress()
                        assembler.add(delta)
                        if stream and (partial := partial_response(delta)):
                            yield partial
            reply = with_unique_call_ids(assembler.reply(), used_ids)
            if is_large:
                await asyncio.to_thread(self._calibrate, request, reply)
            else:
                self._calibrate(request, reply)
            answer = reply if answer is None else join_replies(answer, reply)
            problem = malformed_call_problem(reply)
            if not problem:
                yield final_response(answer, request.model, llm_request.tools_dict)
                return
            request = request_after_malformed_calls(request, reply, problem)
        raise ProviderProtocolError(
            f"{request.model} made malformed calls {MAX_CORRECTIONS + 1} times in a row; the last one: {problem}",
            provider=self._provider.name,
        )

    def _recorded_provider(self) -> Provider:
        """Return the provider, which keeps its requests if this turn does: the one of a user's own model, too."""
        log = current_call_log.get()
        if log is None or log.exchanges is None or records_requests(self._provider):
            return self._provider
        return ObservedProvider(self._provider, record_request)

    def _request(self, llm_request: LlmRequest, messages: Sequence[Message]) -> Request:
        config = llm_request.config
        untyped: Any = config  # genai accepts more types for these two fields than it declares
        model = llm_request.model or self.model
        schema = response_schema(config)
        request = Request(
            model=model,
            messages=(),
            system=system_text(untyped.system_instruction),
            tools=tool_specs(untyped.tools, calling_config(config)),
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_output_tokens,
            stop=tuple(config.stop_sequences or ()),
            response_schema=schema,
            json_object=schema is None and config.response_mime_type == "application/json",
            tool_choice=tool_choice(config),
            thinking=thinking_config(config),
        )
        # signatures first: a thought that was only a foreign signature leaves an empty message, which repair drops
        valid = repair(keep_signatures(messages, self._provider.name, model))
        valid = valid or [Message("user", CONTINUE, author=CONTEXT_AUTHOR)]
        recalled = [content.recalled for content in llm_request.contents if isinstance(content, MemoryContent)]
        found = [content for content in llm_request.contents if isinstance(content, RecalledContent)]
        quoted, window = self._window(request, valid, recalled[0] if recalled else SessionMemory(), found)
        # a vendor's signature covers all messages before it: leaving some out in the store, or quoting notes, breaks it
        cut = window != valid or any(quoted) or bool((load := current_step().load).left_out or load.clipped_tokens)
        return replace(request, messages=_with_quotes(window, *quoted), cut=cut)

    def _window(
        self, request: Request, messages: list[Message], recalled: SessionMemory, found: Sequence[RecalledContent]
    ) -> tuple[tuple[list[Message], list[Message]], list[Message]]:
        """Return the messages that quote the memory and what was recalled, and the newest that fit with them."""
        reserved = self._reserved_tokens = reserved_tokens(request)
        budget = self._counter.budget(self._budget_tokens, self._counter_key(request)) + reserved
        if context_tokens := self.context_tokens:
            room = context_tokens - (request.max_tokens or 0)
            budget = min(budget, self._counter.budget(room, self._counter_key(request)))
        # the memory takes at most half of the room, and none if the current message needs all of it
        memory = quote(recalled, max(0, (budget - reserved) // 2))
        texts = [part.text for content in found for part in content.parts or () if part.text]
        quotes = [Message("user", memory, author=CONTEXT_AUTHOR)] if memory else []
        matches = [Message("user", text, author=CONTEXT_AUTHOR) for text in texts]
        for quoted in dict.fromkeys([(tuple(quotes), tuple(matches)), (tuple(quotes), ())]):
            if any(quoted):
                spent = sum(count_tokens(message) for part in quoted for message in part)
                try:
                    return (list(quoted[0]), list(quoted[1])), self._fit(messages, budget, reserved + spent)
                except BudgetTooSmall:
                    _log.warning("the current message leaves no room for the memory of the session")
        return ([], []), self._fit(messages, budget, reserved)

    def _fit(self, messages: list[Message], budget: int, reserved: int) -> list[Message]:
        fitted = fit_window(
            messages,
            max(1, budget),
            max_messages=self._max_messages,
            max_turns=self._max_turns,
            reserved_tokens=reserved,
        )
        self._log_left_out(fitted)
        return fitted.messages

    def _log_left_out(self, fitted: FittedWindow) -> None:
        """Log what this request leaves out, together with what was not loaded for it."""
        load, turn = current_step().load, current_turn.get()
        left_out = fitted.left_out + (0 if load.logged else load.left_out)
        clipped_tokens = fitted.clipped_tokens + load.clipped_tokens
        in_all = left_out + len(fitted.messages)
        if not left_out and not clipped_tokens:
            return
        if turn is None:
            warn_left_out(left_out, in_all, clipped_tokens)
            return
        log, limit = turn.app.left_out_log, fitted.limit or load.limit
        rules = self.window_rules.within(log.rules)
        log.note(turn.session.id, left_out, in_all, limit, rules, clipped_tokens)

    def _counter_key(self, request: Request) -> str:
        return f"{self._provider.name}/{request.model}"

    def _calibrate(self, request: Request, reply: Reply) -> None:
        """Compare our token count with the provider's, except for pictures and files, which are estimates."""
        reported = reply.usage.input_tokens
        if reported and not any(message.media for message in request.messages):
            counted = count_tokens(request.messages) + reserved_tokens(request)
            self._counter.learn(self._counter_key(request), counted, reported)


async def _stream_to_sink(
    provider: Provider,
    request: Request,
    assembler: ReplyAssembler,
    sink: TextSink,
    note_progress: Callable[[], None],
) -> None:
    async with closing_stream(provider.stream(request)) as deltas:
        async for delta in deltas:
            assembler.add(delta)
            if isinstance(delta, TextDelta | ThoughtDelta) and delta.text:
                sink(delta)
            else:
                note_progress()


def _is_large(messages: Sequence[Message]) -> bool:
    """Whether repairing, counting and clipping messages takes so long that the event loop should not do it."""
    values: list[Any] = [message.content for message in messages]
    values += [media.data for message in messages for media in message.media]
    values += [value for message in messages for call in message.tool_calls for value in (call.input, call.output)]
    return is_larger_than(values, _LARGE_REQUEST)


def _with_quotes(window: Sequence[Message], memory: Sequence[Message], found: Sequence[Message]) -> tuple[Message, ...]:
    """Put the memory before all messages, and what was recalled after the last message of the user."""
    heads = sum(1 for _ in takewhile(lambda message: message.role == "system", window))
    others = (CONTEXT_AUTHOR, STEERING_AUTHOR)
    said = [at for at, message in enumerate(window) if message.role == "user" and message.author not in others]
    place = said[-1] + 1 if said else heads
    return (*window[:heads], *memory, *window[heads:place], *found, *window[place:])


async def _await_in_task(work: Coroutine[Any, Any, None]) -> None:
    """Await work in a separate task: each piece of text then resumes only that task, not forty frames of ADK."""
    task = asyncio.create_task(work)
    try:
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
