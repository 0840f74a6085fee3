"""Measure the duration and tokens of each model call, for the usage of a session and for traces."""

import time
from collections.abc import Sequence
from typing import Any

from google.genai import types
from msgspec import Struct, field, structs

from lango.adk.model.responses import CountedUsage
from lango.events import Usage
from lango.providers.call_log import CallLog

SUMMARY = "compaction"
"""Stands for an agent in the model calls of ADK's compaction."""


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
        self.stop()
        if usage is not None:
            self.usage = usage_of_response(usage)

    def stop(self) -> None:
        """Record the duration up to now."""
        self.duration_s = time.monotonic() - self._started

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


def merge_model_calls(earlier: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the model calls of two runs of a turn; a call that the second run only replayed is listed once."""
    if not earlier:
        return list(rows)
    known = {row["step"] for row in earlier if row.get("step") and (row.get("seq") or row.get("inside"))}
    # a response that was not stored is lost, and its call is made again
    kept = [row if row.get("step") in known else row | {"failed": True} for row in earlier]
    return [*kept, *(row for row in rows if not (row.get("replayed") and row.get("step") in known))]
