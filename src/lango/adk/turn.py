"""One run of ADK's Runner, told as Lango's events."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.genai import types

from lango.adk.plugin import WAITING
from lango.adk.transfers import TRANSFER_TOOL
from lango.events import ApprovalNeeded, TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnError, TurnEvent

CONFIRMATION = "adk_request_confirmation"

_NO_LIMIT = 1_000_000

NextId = Callable[[], int]


@dataclass(slots=True)
class Told:
    """What a run has said so far."""

    next_id: NextId
    text: str = ""
    text_since_tool: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    tokens_by_model: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    finish_reason: str = ""
    waiting: bool = False
    error: tuple[str, str] | None = None
    streamed: bool = False
    """Text of the answer under way was told piece by piece: its final event repeats it."""
    asked: dict[str, types.FunctionCall] = field(default_factory=dict[str, types.FunctionCall])


async def run_adk(
    runner: Runner, user_id: str, session_id: str, message: types.Content, invocation_id: str | None, told: Told
) -> AsyncGenerator[TurnEvent, None]:
    """Run the agent on a message that is stored already, and tell what happens."""
    # the plugin counts calls of the model, and lets the last one wrap up: ADK's own limit is out of the way
    config = RunConfig.model_validate({"streaming_mode": "sse", "max_llm_calls": _NO_LIMIT})
    run: AsyncGenerator[Event, None] = runner.run_async(
        user_id=user_id, session_id=session_id, invocation_id=invocation_id, new_message=message, run_config=config
    )
    async with aclosing(run) as events:
        async for event in events:
            for one in _tell(event, told):
                yield one


def _tell(event: Event, told: Told) -> Iterator[TurnEvent]:
    _count(event, told)
    if event.error_code and not event.partial:
        told.error = (str(event.error_code), event.error_message or "")
    yield from _tell_text(event, told)
    if event.partial:
        return
    for call in event.get_function_calls():
        yield from _tell_call(event, call, told)
    for result in event.get_function_responses():
        yield from _tell_result(result, told)


def _tell_text(event: Event, told: Told) -> Iterator[TurnEvent]:
    """Tell text from the pieces or from the final event, never from both."""
    if event.author == "user":
        return
    parts = (event.content and event.content.parts) or []
    for part in parts:
        if not part.text or (told.streamed and not event.partial):
            continue
        if part.thought:
            yield ThoughtDelta(told.next_id(), part.text, event.author)
        else:
            told.text += part.text
            told.text_since_tool += part.text
            yield TextDelta(told.next_id(), part.text, event.author)
    told.streamed = bool(event.partial) and (told.streamed or any(part.text for part in parts))


def _tell_call(event: Event, call: types.FunctionCall, told: Told) -> Iterator[TurnEvent]:
    id_, name, arguments = call.id or "", call.name or "", call.args or {}
    if name == CONFIRMATION:
        told.waiting = True
        original: dict[str, Any] = arguments.get("originalFunctionCall") or {}
        yield ApprovalNeeded(
            told.next_id(), original.get("id", ""), original.get("name", ""), original.get("args") or {}
        )
        return
    told.asked[id_] = call
    if name != TRANSFER_TOOL:
        yield ToolStart(told.next_id(), id_, name, arguments, event.author)


def _tell_result(result: types.FunctionResponse, told: Told) -> Iterator[TurnEvent]:
    id_, name, response = result.id or "", result.name or "", result.response or {}
    if name in (TRANSFER_TOOL, CONFIRMATION) or response == {"status": WAITING}:
        return
    ok = "error" not in response
    told.text_since_tool = ""
    yield ToolEnd(told.next_id(), id_, name, ok, response)
    if not ok:
        yield TurnError(told.next_id(), "ToolFailed", str(response["error"]), fatal=False, call_id=id_)


def _count(event: Event, told: Told) -> None:
    usage = event.usage_metadata
    if event.partial or usage is None:
        return
    spent = (usage.prompt_token_count or 0, usage.candidates_token_count or 0)
    told.input_tokens += spent[0]
    told.output_tokens += spent[1] + (usage.thoughts_token_count or 0)
    told.cached_tokens += usage.cached_content_token_count or 0
    by_model = told.tokens_by_model.setdefault(event.model_version or "", [0, 0, 0])
    by_model[0] += spent[0]
    by_model[1] += spent[1] + (usage.thoughts_token_count or 0)
    by_model[2] += usage.cached_content_token_count or 0
    if event.finish_reason:
        told.finish_reason = str(event.finish_reason.value).lower()
