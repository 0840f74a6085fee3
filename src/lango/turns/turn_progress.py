"""Track the text and tokens of a turn so far, and make its text events."""

from collections.abc import Callable, Mapping
from itertools import chain

from msgspec import Struct, field

from lango.events import TextDelta, ThoughtDelta
from lango.store.turns.approvals import ApprovalRequest

NextId = Callable[[], int]
AgentBranch = tuple[str, str]
"""An agent and the branch that it runs in."""


class TurnProgress(Struct, kw_only=True):
    """The text, tokens and state of a turn so far."""

    next_id: NextId
    has_text_since_tool: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    tokens_by_model: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    finish_reason: str = ""
    awaits_approval: bool = False
    """An approval request is open."""
    awaits_client: bool = False
    """A client call is open."""
    error: tuple[str, str] | None = None
    finished_texts: list[str] = field(default_factory=list[str])
    """The complete texts of the model responses, in the order in which they ended."""
    streaming_texts: dict[AgentBranch, list[str]] = field(default_factory=dict[AgentBranch, list[str]])
    """The pieces of the texts that are being streamed: the final ADK event repeats them."""
    call_ids: set[str] = field(default_factory=set[str])
    """Ids of the tool calls."""
    ended_by_tool: bool = False
    """A tool's result ended the turn: no answer follows."""
    invocation_ids: list[str] = field(default_factory=list[str])
    durations_s: dict[str, float] = field(default_factory=dict[str, float])
    """The duration of each finished call."""
    approval_requests: Mapping[str, ApprovalRequest] = field(default_factory=dict[str, ApprovalRequest])
    """The stored open approval requests, by the ids of their calls."""

    @property
    def text(self) -> str:
        """The text of the turn so far."""
        return "".join(chain(self.finished_texts, *self.streaming_texts.values()))

    def text_event(self, speaker: AgentBranch, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Make the event of a piece of text, and remember the piece: the final ADK event repeats it."""
        texts = self.streaming_texts.setdefault(speaker, [])
        if thought:
            return ThoughtDelta(self.next_id(), text, speaker[0])
        texts.append(text)
        self.has_text_since_tool = self.has_text_since_tool or not text.isspace()
        self.error = None  # text after an error: the agent has recovered
        return TextDelta(self.next_id(), text, speaker[0])
