"""Measure the duration and tokens of each model call, for the usage of a session and for traces."""

import time
from collections.abc import Sequence
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from msgspec import Struct, field, structs
from pydantic import Field

from lango.adk.turn.step import current_step
from lango.events import Usage
from lango.providers.call_log import CallLog, current_call_log

SUMMARY = "compaction"
"""Stands for an agent in the model calls of ADK's compaction."""
STOP_SEQUENCE = "lango_stop_sequence"
"""Where the metadata of a response has the stop sequence that ended it."""


class CountedUsage(types.GenerateContentResponseUsageMetadata):
    """Usage with what ADK's metadata has no field for; it is not stored with the event."""

    cache_write_tokens: int = Field(default=0, exclude=True)
    """How many of the input tokens were written to the provider's cache."""


def usage_of_response(counted: types.GenerateContentResponseUsageMetadata | None) -> Usage:
    """Return the tokens of a response; thoughts count as output, too."""
    if counted is None:
        return Usage()
    thoughts = counted.thoughts_token_count or 0
    return Usage(
        counted.prompt_token_count or 0,
        (counted.candidates_token_count or 0) + thoughts,
        counted.cached_content_token_count or 0,
        thought_tokens=thoughts,
        cache_write_tokens=counted.cache_write_tokens if isinstance(counted, CountedUsage) else 0,
    )


def stop_sequence_of(event: Event) -> str:
    """Return the stop sequence that ended a response; empty if none did, or its provider does not name it."""
    return str((event.custom_metadata or {}).get(STOP_SEQUENCE, ""))


class ModelCallStats(Struct):
    """The duration and tokens of one model call."""

    model: str
    agent: str = ""
    started_at: float = field(default_factory=time.time)
    duration_s: float | None = None
    usage: Usage = Usage()
    step: str = ""
    """The agent, its branch and the number of its model call, after the calls that it runs inside of."""
    branch: str = ""
    inside: str = ""
    """The tool call that it runs inside of: an agent that is called as a tool."""
    made: Sequence[str] = ()
    """The ids of the calls that it made inside a tool: their message is not stored."""
    seq: int | None = None
    """The message with its response, once that is stored."""
    replayed: bool = False
    """Answered from the record of an earlier run."""
    log: CallLog = field(default_factory=CallLog)
    _started: float = field(default_factory=time.monotonic)  # durations ignore changes of the clock

    def end(self, model: str | None, usage: types.GenerateContentResponseUsageMetadata | None) -> None:
        """Record the end of the call and its tokens. Called for each final response; the last one counts."""
        self.model = model or self.model
        self.duration_s = time.monotonic() - self._started
        if usage is not None:
            self.usage = usage_of_response(usage)

    def note_made(self, call_ids: Sequence[str]) -> None:
        """Note the calls that it made inside a tool."""
        self.made = call_ids

    def to_row(self, *, is_over: bool = True) -> dict[str, Any]:
        """Return the JSON object that the turn's row stores; with `is_over` false, of a call that may still run."""
        ended = self.duration_s is not None
        row: dict[str, Any] = {
            "model": self.model,
            "agent": self.agent,
            "started_at": round(self.started_at, 3),
            "duration_s": round(time.monotonic() - self._started if self.duration_s is None else self.duration_s, 4),
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
        }
        optional: dict[str, Any] = {
            "cached_tokens": self.usage.cached_tokens,
            "step": self.step,
            "branch": self.branch,
            "inside": self.inside,
            "made": list(self.made),
            "seq": self.seq,
            "replayed": self.replayed,
            "failed": is_over and not ended,  # or the turn was stopped
            "running": not is_over and not ended,
            "attempts": [structs.asdict(failure) for failure in self.log.failures],
        }
        return row | {name: value for name, value in optional.items() if value}


_Lane = tuple[str, str]
"""A branch, and an agent in it."""


class ModelCalls(Struct, eq=False):
    """The model calls of a run, in the order in which they started."""

    keeps_requests: bool = False
    """Whether the requests are kept for the trace."""
    calls: Sequence[ModelCallStats] = ()
    _newest: dict[tuple[str, ...], ModelCallStats] = field(default_factory=dict[tuple[str, ...], ModelCallStats])
    """The newest model call of each agent, by its session, branch and name."""
    _under_way: set[_Lane] = field(default_factory=set[_Lane])
    """The branches and agents of the turn's own session whose model is being called."""

    def begin(self, context: CallbackContext, model: str, step: str, *, nested: bool) -> ModelCallStats:
        """Note that a model call begins. Its provider notes the attempts that fail, and what it sends."""
        call = ModelCallStats(model, context.agent_name, step=step, branch=context.branch or "")
        if nested:
            call.inside = current_step().outer_call
        else:
            self._under_way.add((call.branch, call.agent))
        if self.keeps_requests:
            call.log = CallLog(exchanges=[])
        current_call_log.set(call.log)
        self.calls = (*self.calls, call)
        self._newest[_caller(context)] = call
        return call

    def end(self, context: CallbackContext, response: LlmResponse) -> ModelCallStats | None:
        """Note the end of a model call, and return it, or None if it was not made in this run."""
        if (call := self._newest.get(_caller(context))) is None:
            return None
        call.end(response.model_version, response.usage_metadata)
        if (exchange := call.log.open_exchange) is not None:  # of one of ADK's own models
            exchange.end()
            exchange.add_response(response.model_dump_json(exclude_none=True).encode())
        return call

    def add_replayed(self, response: LlmResponse, agent: str, branch: str, step: str) -> None:
        """Add a model call that the record of an earlier run answers."""
        call = ModelCallStats(response.model_version or "", agent, step=step, branch=branch, replayed=True)
        call.end(response.model_version, response.usage_metadata)
        self.calls = (*self.calls, call)

    def add_summary(self, model: str, event: Event) -> ModelCallStats:
        """Add the model call behind a summary of ADK's compaction, if the summary says what it used."""
        call = ModelCallStats(model, SUMMARY)
        call.end(event.model_version, event.usage_metadata)
        call.duration_s = 0.0  # not known: only its end is seen
        self.calls = (*self.calls, call)
        return call

    def is_awaited(self, event: Event) -> bool:
        """Whether an event comes from an agent whose model is being called."""
        return (event.branch or "", event.author) in self._under_way

    def take_response(self, event: Event, session_id: str, seq: int) -> bool:
        """Note that an event is stored as message `seq`; return whether it is the response to a model call."""
        if (event.content is None and not event.error_code) or not self.is_awaited(event):
            return False
        self._under_way.discard((event.branch or "", event.author))
        if (call := self._newest.get((session_id, event.branch or "", event.author))) is not None:
            call.seq = seq
        return True


def _caller(context: CallbackContext) -> tuple[str, ...]:
    return context.session.id, context.branch or "", context.agent_name


def merge_model_calls(earlier: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the model calls of two runs of a turn; a call that the second run only replayed is listed once."""
    if not earlier:
        return list(rows)
    known = {row["step"] for row in earlier if row.get("step") and (row.get("seq") or row.get("inside"))}
    # a response that was not stored is lost, and its call is made again
    kept = [row if row.get("step") in known else row | {"failed": True} for row in earlier]
    return [*kept, *(row for row in rows if not (row.get("replayed") and row.get("step") in known))]
