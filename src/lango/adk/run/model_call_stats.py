"""What each call of the model took: for the picture of a session."""

import time
from typing import Any

from google.genai import types
from msgspec import Struct, field


class ModelCallStats(Struct):
    """One call of the model, from the request to the end of its answer."""

    model: str
    agent: str = ""
    started_at: float = field(default_factory=time.time)
    duration_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    _started: float = field(default_factory=time.monotonic)  # a clock that is set meanwhile changes no duration

    def end(self, model: str | None, usage: types.GenerateContentResponseUsageMetadata | None) -> None:
        """Note that the answer is there, and what it took; of an answer in parts, the last counts."""
        self.model = model or self.model
        self.stop()
        if usage is not None:
            self.input_tokens = usage.prompt_token_count or 0
            self.output_tokens = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
            self.cached_tokens = usage.cached_content_token_count or 0

    def stop(self) -> None:
        """Note that nothing more comes."""
        self.duration_s = time.monotonic() - self._started

    def to_row(self) -> dict[str, Any]:
        """Return what the turn's row keeps of it."""
        if self.duration_s is None:  # it failed, or the turn was stopped
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
