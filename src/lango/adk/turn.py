"""One run of ADK's Runner, told as Lango's events."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import chain

from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.telemetry import ContentCapturingMode, TelemetryConfig
from google.genai import types
from msgspec import Struct, field

from lango.adk.transfers import TRANSFER_TOOL
from lango.events import ApprovalNeeded, TextDelta, ThoughtDelta, ToolEnd, TurnError, TurnEvent
from lango.messages import ToolCall
from lango.store import SessionId
from lango.store.questions import Question
from lango.store.records import CONFIRMATION, as_datetime, asked_about
from lango.telemetry import is_on

_NO_LIMIT = 1_000_000
_TOOL_THREADS = 32
_ASKS_USER = "adk_request_"  # ADK's own questions to the user are calls, too

NextId = Callable[[], int]
Speaker = tuple[str, str]
"""An agent, and the branch it speaks in."""


class Told(Struct):
    """What a run has said so far."""

    next_id: NextId
    said_since_tool: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    tokens_by_model: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    finish_reason: str = ""
    waiting: bool = False
    """A question for approval is open."""
    client: bool = False
    """A call waits for the client."""
    error: tuple[str, str] | None = None
    answer: list[str] = field(default_factory=list[str])
    """The texts of all answers, whole, in the order of their ends."""
    streamed: dict[Speaker, list[str]] = field(default_factory=dict[Speaker, list[str]])
    """What is being told piece by piece: the final event repeats it."""
    asked: set[str] = field(default_factory=set[str])
    """Ids of the calls that were made."""
    ended_by_tool: bool = False
    """A tool's own result is the end: nothing more is to be said."""
    invocations: list[str] = field(default_factory=list[str])
    durations_s: dict[str, float] = field(default_factory=dict[str, float])
    """How long each call took, once it is over."""
    approval_requests: Mapping[str, Question] = field(default_factory=dict[str, Question])
    """The open approval requests, as the store has them, by the id of the call that each is about."""

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(chain(self.answer, *self.streamed.values()))

    def say(self, who: Speaker, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Make the event that tells a piece of text, and remember it: the final event says it once more."""
        said = self.streamed.setdefault(who, [])
        if thought:
            return ThoughtDelta(self.next_id(), text, who[0])
        said.append(text)
        self.said_since_tool = self.said_since_tool or not text.isspace()
        self.error = None  # an earlier one was overcome
        return TextDelta(self.next_id(), text, who[0])


async def run_adk(
    runner: Runner,
    name: SessionId,
    message: types.Content,
    invocation_id: str | None,
    told: Told,
    open_requests: Callable[[], Awaitable[Mapping[str, Question]]],
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
            "max_llm_calls": _NO_LIMIT,
            # somebody's own blocking function must not stop every other turn of this process
            "tool_thread_pool_config": {"max_workers": _TOOL_THREADS},
            # ADK puts what was said on its spans unless it is told not to
            "telemetry": _telemetry(capture_content, is_on()),
        }
    )
    run: AsyncGenerator[Event, None] = runner.run_async(
        user_id=name.user_id, session_id=name.id, invocation_id=invocation_id, new_message=message, run_config=config
    )
    async with aclosing(run) as events:
        async for event in events:
            if not event.partial and any(call.name == CONFIRMATION for call in event.get_function_calls()):
                told.approval_requests = await open_requests()
            for one in _tell(event, told):
                yield one


@functools.cache
def _telemetry(capture_content: bool, is_traced: bool) -> TelemetryConfig:
    mode = ContentCapturingMode.SPAN_ONLY if capture_content else ContentCapturingMode.NO_CONTENT
    # ADK copies every value of a request for its newer attributes, even where no span is recorded: 50 ms for 40,000
    return TelemetryConfig(capture_message_content=mode, genai_semconv_stability_opt_in=None if is_traced else "stable")


def _tell(event: Event, told: Told) -> Iterator[TurnEvent]:
    _count(event, told)
    if event.invocation_id and event.invocation_id not in told.invocations:
        told.invocations.append(event.invocation_id)
    yield from _tell_text(event, told)
    if event.partial:
        return
    if event.error_code:
        told.error = (str(event.error_code), event.error_message or "")
    for call in event.get_function_calls():
        yield from _tell_call(call, told)
    for result in event.get_function_responses():
        yield from _tell_result(event, result, told)


def _tell_text(event: Event, told: Told) -> Iterator[TurnEvent]:
    """Tell text from the pieces or from the final event, never from both."""
    if event.author == "user":
        return
    who = (event.author, event.branch or "")  # parallel agents speak at the same time
    streamed = who in told.streamed and not event.partial
    only_thoughts = streamed and not told.streamed[who]
    for part in (event.content and event.content.parts) or []:
        if part.text and (not streamed or (only_thoughts and not part.thought)):
            yield told.say(who, part.text, thought=bool(part.thought))
    if not event.partial:
        told.answer.append("".join(told.streamed.pop(who, [])))


def _tell_call(call: types.FunctionCall, told: Told) -> Iterator[TurnEvent]:
    """Note a call; its start is told by the plugin, when it starts."""
    id_, name = call.id or "", call.name or ""
    if name == CONFIRMATION:
        told.waiting = True
        # what a person is shown is the call as it is stored, which is what will run; not what this event says of it
        about = told.approval_requests.get(asked_about(ToolCall(id_, name, call.args)).get("id", ""))
        if about is not None:
            until = None if about.expires_at is None else as_datetime(about.expires_at)
            yield ApprovalNeeded(told.next_id(), about.call_id, about.name, about.arguments, until)
    elif name != TRANSFER_TOOL and not name.startswith(_ASKS_USER):
        told.asked.add(id_)


def _tell_result(event: Event, result: types.FunctionResponse, told: Told) -> Iterator[TurnEvent]:
    id_, name, response = result.id or "", result.name or "", result.response or {}
    if name == TRANSFER_TOOL or name.startswith(_ASKS_USER) or id_ in event.actions.requested_tool_confirmations:
        return
    ok = not response.get("error")
    told.said_since_tool = False
    told.ended_by_tool = ok and bool(event.actions.skip_summarization)
    yield ToolEnd(told.next_id(), id_, name, ok, response, told.durations_s.pop(id_, None))
    if not ok:
        yield TurnError(told.next_id(), "ToolFailed", str(response["error"]), fatal=False, call_id=id_)


def _count(event: Event, told: Told) -> None:
    if event.partial:
        return
    if event.finish_reason:
        told.finish_reason = str(event.finish_reason.value).lower()
    usage = event.usage_metadata
    if usage is None:
        return
    spent = (usage.prompt_token_count or 0, usage.candidates_token_count or 0)
    told.input_tokens += spent[0]
    told.output_tokens += spent[1] + (usage.thoughts_token_count or 0)
    told.cached_tokens += usage.cached_content_token_count or 0
    by_model = told.tokens_by_model.setdefault(event.model_version or "", [0, 0, 0])
    by_model[0] += spent[0]
    by_model[1] += spent[1] + (usage.thoughts_token_count or 0)
    by_model[2] += usage.cached_content_token_count or 0
