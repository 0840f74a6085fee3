"""Collect what a run of a turn puts out: text, tokens, model calls, its end; and emit it to the turn's readers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from msgspec import Struct, field

from lango.adk.events.events_to_rows import output_text
from lango.adk.turn.model_calls import ModelCalls, stop_sequence_of, usage_of_response
from lango.errors import AgentNotFound, LangoError
from lango.events import ToolEnd, ToolStart, TurnError, Usage
from lango.providers import protocol as providers
from lango.turns.turn_sink import TurnSink

TextSink = Callable[[providers.TextDelta | providers.ThoughtDelta], None]

_PROGRESS_INTERVAL_S = 1.0


class MissingAgent(Struct, frozen=True):
    """An agent that does not exist, and that a model wanted to transfer to."""

    name: str
    valid: Sequence[str]
    """The agents that it could have named."""

    @property
    def error(self) -> AgentNotFound:
        """The error of a turn that ends with it."""
        return AgentNotFound(f"there is no agent {self.name!r}; the agents are {', '.join(self.valid)}")


class Output(Struct, eq=False, kw_only=True):
    """The output of a run so far."""

    sink: TurnSink
    """Takes everything that readers see, in the order in which it happens."""
    model_calls: ModelCalls
    summary_model: str = ""
    """The model of ADK's compaction."""
    usage_by_model: Mapping[str, Usage] = {}
    """The tokens of the model calls so far; their cost is not known yet."""
    summaries: int = 0
    """How many summaries of earlier events were made."""
    invocation_ids: Sequence[str] = ()
    finish_reason: str = ""
    stop_sequence: str = ""
    value: Any = None
    """The final output of a workflow, or None."""
    error: tuple[str, str] | None = None
    """The code and message of an error that an agent reported, and that no text followed."""
    failure: LangoError | None = None
    """Why the turn fails, even if ADK or the user's code handles the exception."""
    missing_agent: MissingAgent | None = None
    corrected_transfer: AgentNotFound | None = None
    """The transfer to a missing agent that the model was asked to correct: the cause of a later failure."""
    has_text_since_tool: bool = False
    ended_by_tool: bool = False
    """A tool's result ended the turn: no answer follows."""
    _shown_calls: set[str] = field(default_factory=set[str])
    """The ids of the tool calls in the events so far."""
    _names: dict[str, str] = field(default_factory=dict[str, str])
    """The tools of the calls that started."""
    _durations_s: dict[str, float] = field(default_factory=dict[str, float])
    """The duration of each finished call whose end was not emitted yet."""
    _progress_at: dict[str, float] = field(default_factory=dict[str, float])
    _text_sinks: dict[int, TextSink] = field(default_factory=dict[int, TextSink])

    # -- text -----------------------------------------------------------------------------------------------------

    def emit_text(self, block: int, text: str, *, thought: bool = False) -> None:
        """Emit a piece of a block, and remember it: the final ADK event repeats it."""
        if not thought:
            self.has_text_since_tool = self.has_text_since_tool or not text.isspace()
            self.error = None  # text after an error: the agent has recovered
        self.sink.emit(self.sink.blocks.add(block, text, thought=thought))

    def emit_rest(self, event: Event) -> int | None:
        """Emit the text of a complete event that was not streamed; return its block, or None if it has no text.

        It is emitted before the event is stored, and not again after that: no text of another agent comes in between.
        Streamed text that a callback or a plugin changed in the complete event is withdrawn first.
        """
        blocks, author, branch, texts = self.sink.blocks, event.author, event.branch or "", texts_of(event)
        if not texts and (shown := output_text(event)):
            texts = [(shown, False)]
        if author == "user" or not (texts or event.get_function_calls() or has_code(event)):
            return None  # no response of a model
        text = "".join(text for text, thought in texts if not thought)
        block = blocks.find_streaming(author, branch, text)
        streamed = "" if block is None else blocks.text_of(block)
        if block is not None and streamed not in ("", text):
            self.sink.emit(blocks.withdraw(block))
            block = None
        if block is None:
            if not texts:
                return None
            block = blocks.begin(author, branch)
        elif streamed:
            texts = []
        else:
            texts = [(text, thought) for text, thought in texts if not thought]  # the thoughts were streamed
        for text, thought in texts:
            self.emit_text(block, text, thought=thought)
        return block

    def stream_directly(self, request: LlmRequest, agent: str, branch: str) -> None:
        """Emit the text of the response to a request without ADK; see `lango.adk.agents.tree`."""
        block: int | None = None

        def emit(delta: providers.TextDelta | providers.ThoughtDelta) -> None:
            nonlocal block
            if block is None:
                block = self.sink.blocks.begin(agent, branch)
            self.emit_text(block, delta.text, thought=isinstance(delta, providers.ThoughtDelta))

        self._text_sinks[id(request)] = emit

    def take_text_sink(self, request: LlmRequest) -> TextSink | None:
        """Return where the text of the response to a request goes, once, or None if it goes through ADK."""
        return self._text_sinks.pop(id(request), None)

    # -- tools ----------------------------------------------------------------------------------------------------

    def start_tool(self, call_id: str, name: str, arguments: Mapping[str, Any], agent: str) -> None:
        """Emit that a tool starts."""
        self._names[call_id] = name
        self.sink.emit(ToolStart(self.sink.next_id(), call_id, name, arguments, agent))

    def note_call(self, call_id: str) -> None:
        """Note that an event has a tool call."""
        self._shown_calls.add(call_id)

    def shows_call(self, call_id: str) -> bool:
        """Whether an event so far has a tool call."""
        return call_id in self._shown_calls

    def name_of_call(self, call_id: str) -> str:
        """Return the tool of a call that started; empty if none did."""
        return self._names.get(call_id, "")

    def note_duration(self, call_id: str, duration_s: float) -> None:
        """Note how long a call took, until its end is emitted."""
        self._durations_s[call_id] = duration_s

    def end_tool(self, call_id: str, name: str, result: dict[str, Any], *, ends_turn: bool) -> None:
        """Emit the result of a tool. The model answers next, unless the result ends the turn."""
        ok = not result.get("error")
        self.has_text_since_tool = False
        self.ended_by_tool = ok and ends_turn
        duration_s = self._durations_s.pop(call_id, None)
        self.sink.emit(ToolEnd(self.sink.next_id(), call_id, name, ok, result, duration_s))
        if not ok:
            failed = TurnError(self.sink.next_id(), "ToolFailed", str(result["error"]), fatal=False, call_id=call_id)
            self.sink.emit(failed)

    def may_report(self, call_id: str, *, is_last: bool) -> bool:
        """Whether the progress of a call may be emitted: at most once a second; the end always."""
        now = time.monotonic()
        if not is_last and now - self._progress_at.get(call_id, -_PROGRESS_INTERVAL_S) < _PROGRESS_INTERVAL_S:
            return False
        self._progress_at[call_id] = now
        return True

    # -- tokens and the end ---------------------------------------------------------------------------------------

    def add_usage(self, model: str, usage: Usage) -> None:
        """Count the tokens of a model call."""
        used = self.usage_by_model.get(model, Usage()) + usage
        self.usage_by_model = {**self.usage_by_model, model: used}

    def add_summary(self, event: Event) -> None:
        """Count a summary of ADK's compaction, which no callback sees: its tokens count."""
        call = self.model_calls.add_summary(self.summary_model, event)
        self.summaries += 1
        self.add_usage(call.model, call.usage)

    def note(self, event: Event) -> None:
        """Note the invocation and the tokens of an event of ADK, and why a response ended."""
        if event.invocation_id and event.invocation_id not in self.invocation_ids:
            self.invocation_ids = (*self.invocation_ids, event.invocation_id)
        if event.partial:
            return
        if event.finish_reason:
            self.finish_reason = str(event.finish_reason.value).lower()
            self.stop_sequence = stop_sequence_of(event)
        if event.usage_metadata is not None:
            self.add_usage(event.model_version or "", usage_of_response(event.usage_metadata))

    def note_value(self, value: Any) -> None:
        """Note the output of a workflow: the last one is final."""
        self.value = value

    def note_error(self, code: str, message: str) -> None:
        """Note an error that an agent reported: the turn fails with it unless text follows."""
        self.error = code, message

    def fail(self, failure: LangoError) -> None:
        """Let the turn fail."""
        self.failure = failure

    def note_missing_agent(self, name: str, valid: Sequence[str]) -> None:
        """Note a transfer to an agent that does not exist."""
        self.missing_agent = MissingAgent(name, valid)

    def note_correction(self, missing: MissingAgent) -> None:
        """Note that the model is asked to correct a transfer."""
        self.corrected_transfer = missing.error

    def take_missing_agent(self) -> MissingAgent | None:
        """Return the agent of a transfer that failed, once, or None if none failed."""
        missing, self.missing_agent = self.missing_agent, None
        return missing


def has_code(event: Event) -> bool:
    """Whether a response of a model has code that ADK runs; the text around it is not in the event."""
    return any(part.executable_code for part in (event.content and event.content.parts) or ())


def texts_of(event: Event) -> list[tuple[str, bool]]:
    """Return the texts of an event, each with whether it is a thought."""
    parts = (event.content and event.content.parts) or []
    return [(part.text, bool(part.thought)) for part in parts if part.text]
