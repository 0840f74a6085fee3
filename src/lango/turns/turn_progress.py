"""Track what a turn has said and used so far, and make its text events."""

from collections.abc import Callable, Mapping
from itertools import chain

from msgspec import Struct, field

from lango.events import TextDelta, ThoughtDelta
from lango.store.turns.approvals import ApprovalRequest

NextId = Callable[[], int]
AgentBranch = tuple[str, str]
"""An agent, and the branch it speaks in."""


class TurnProgress(Struct):
    """What a run has said so far."""

    next_id: NextId
    has_text_since_tool: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    tokens_by_model: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    finish_reason: str = ""
    awaits_approval: bool = False
    """A question for approval is open."""
    awaits_client: bool = False
    """A call waits for the client."""
    error: tuple[str, str] | None = None
    finished_texts: list[str] = field(default_factory=list[str])
    """The texts of all answers, whole, in the order of their ends."""
    streaming_texts: dict[AgentBranch, list[str]] = field(default_factory=dict[AgentBranch, list[str]])
    """What is being told piece by piece: the final event repeats it."""
    call_ids: set[str] = field(default_factory=set[str])
    """Ids of the calls that were made."""
    ended_by_tool: bool = False
    """A tool's own result is the end: nothing more is to be said."""
    invocation_ids: list[str] = field(default_factory=list[str])
    durations_s: dict[str, float] = field(default_factory=dict[str, float])
    """How long each call took, once it is over."""
    approval_requests: Mapping[str, ApprovalRequest] = field(default_factory=dict[str, ApprovalRequest])
    """The open approval requests, as the store has them, by the id of the call that each is about."""

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(chain(self.finished_texts, *self.streaming_texts.values()))

    def text_event(self, speaker: AgentBranch, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Make the event that tells a piece of text, and remember it: the final event says it once more."""
        texts = self.streaming_texts.setdefault(speaker, [])
        if thought:
            return ThoughtDelta(self.next_id(), text, speaker[0])
        texts.append(text)
        self.has_text_since_tool = self.has_text_since_tool or not text.isspace()
        self.error = None  # an earlier one was overcome
        return TextDelta(self.next_id(), text, speaker[0])
