"""Measure the duration and tokens of each model call, for `lango.runtime.session_usage`."""

import time
from typing import Any

from google.genai import types
from msgspec import Struct, field


def usage_counts(usage: types.GenerateContentResponseUsageMetadata) -> tuple[int, int, int]:
    """Return the input, output and cached tokens of a response; thoughts count as output."""
    output_tokens = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return usage.prompt_token_count or 0, output_tokens, usage.cached_content_token_count or 0


class ModelCallStats(Struct):
    """The duration and tokens of one model call."""

    model: str
    agent: str = ""
    started_at: float = field(default_factory=time.time)
    duration_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    _started: float = field(default_factory=time.monotonic)  # durations ignore changes of the clock

    def end(self, model: str | None, usage: types.GenerateContentResponseUsageMetadata | None) -> None:
        """Record the end of the call and its tokens. Called for each final response; the last one counts."""
        self.model = model or self.model
        self.stop()
        if usage is not None:
            self.input_tokens, self.output_tokens, self.cached_tokens = usage_counts(usage)

    def stop(self) -> None:
        """Record the duration up to now."""
        self.duration_s = time.monotonic() - self._started

    def to_row(self) -> dict[str, Any]:
        """Return the JSON object that the turn's row stores."""
        if self.duration_s is None:  # the call failed, or the turn was stopped
            self.stop()
        row: dict[str, Any] = {
            "model": self.model,
            "agent": self.agent,
            "started_at": round(self.started_at, 3),
            "duration_s": round(self.duration_s or 0.0, 4),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }
        return row | ({"cached_tokens": self.cached_tokens} if self.cached_tokens else {})
